"""A launch of any Triton kernel as plain values: its arguments, its options and its grid.

A call `kernel[grid](x, n, BLOCK_SIZE=1024, num_warps=8)` becomes a Launch, from which the compiler
gets stand-ins that it specializes like the tensors themselves. Nothing here needs a GPU, torch or
Triton.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from occupancy_lab.arguments import (
    ALIGNMENT,
    TRITON_DTYPES,
    Descriptor,
    Dtype,
    Plain,
    Pointer,
    plain,
    plain_number,
)
from occupancy_lab.errors import EmptyGridError, GridError, InputError, few_of, quoted, refuse
from occupancy_lab.options import OPTIONS
from occupancy_lab.tiles import tile_names
from occupancy_lab.values import INT32_MAX, INT64_MAX, Target, Work

MOST_DIMENSIONS = 3
"""Dimensions of a grid."""
GRID_LIMITS = (2**31 - 1, 65_535, 65_535)
"""The most programs in each dimension: CUDA C++ Programming Guide, table of technical
specifications. HIP's limits are as large or larger."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The arguments with which a kernel is launched, as plain values.

    `arguments` are positional; `keywords` has those passed by name: constexprs, further arguments
    and compiler options. A function or another object without a plain value stays as it is, and the
    launch can then only be compiled in this process.
    """

    arguments: tuple[Plain, ...]
    keywords: Mapping[str, Plain]
    grid: tuple[int, ...] | None = None
    """Programs in each dimension. None if they are not known, and if as many are launched as the
    GPU holds at once, at most one for each piece of `work`."""
    work: Work = field(default=Work(), kw_only=True)
    """The work of the launch, as far as it is known."""
    typical: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """The types of arguments without a value of their own, by name: any number of the type stands
    for them."""
    values: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict, kw_only=True, compare=False, repr=False
    )
    """The values of small integer tensors, by name, as far as they are known; for launches that
    differ in nothing else, those of the first."""
    warm: bool = field(default=False, kw_only=True)
    """Whether it comes right after the same launch, which left in the L2 cache what fits."""
    in_program: bool = field(default=False, kw_only=True)
    """Whether its time is for a launch within a program, as a profiler gives it: without the
    overhead that CUDA events around it see, and without its last writes, for which nothing
    waits."""

    chosen_by: str = field(default="", kw_only=True, compare=False, repr=False)
    """What chose its options besides the launch line: "tuned.json, at M 4096"; "" for nothing."""

    @property
    def num_programs(self) -> int | None:
        """Programs launched; None if the grid is not known."""
        return None if self.grid is None else math.prod(self.grid)

    def warm_up(self, function: Any, **options: Any) -> Any:
        """Return Triton's CompiledKernel for its active target, with *options*."""
        arguments = map(_stand_in, self.arguments)
        keywords = {name: _stand_in(value) for name, value in self.keywords.items()}
        return function.warmup(*arguments, grid=(1,), **keywords, **options)

    def bound(self, function: Any) -> dict[str, Any]:
        """Return the arguments by the names of *function*'s parameters, with defaults.

        Compiler options are left out. Raises InputError, naming the parameters, if an argument is
        missing or there are too many.
        """
        return bind(function, self.arguments, self.keywords)

    def options(self, function: Any) -> dict[str, Any]:
        """Return the compiler options among the keywords, also those that are constexprs too."""
        names = {parameter.name for parameter in function.params}
        both = {one.name for one in OPTIONS if one.also_constexpr}
        return {
            name: value
            for name, value in self.keywords.items()
            if name not in names or name in both
        }

    def specialization(self, function: Any, target: Target) -> list[str]:
        """Return what Triton specializes each argument on: equal lists compile to the same binary.

        A pointer counts by its dtype, by whether its address is a multiple of 16 and, on AMD, by
        whether 32-bit offsets reach all of it; an integer by its width, by being 1 and by being a
        multiple of 16; a constexpr by its value.
        """
        bound = self.bound(function)
        return [
            _parameter_class(parameter, bound[parameter.name], target)
            for parameter in function.params
        ]


def bind(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return *arguments* and *keywords* by the names of the parameters, as in Launch.bound."""
    parameters = function.signature.parameters
    if len(arguments) > len(parameters):
        refuse(
            f"{function.__name__} is given {len(arguments)} arguments and has {len(parameters)}"
            f" parameters: {few_of(list(parameters))}"
        )
    named = {name: value for name, value in keywords.items() if name in parameters}
    positional = dict(zip(parameters, arguments, strict=False))
    twice = [name for name in named if name in positional]
    if twice:
        refuse(
            f"{function.__name__} is given {few_of(twice)} by position and by name; give it once"
        )
    given = {**positional, **named}
    defaults = {
        name: plain(parameter.default)
        for name, parameter in parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    missing = [name for name in parameters if name not in given and name not in defaults]
    if missing:
        refuse(
            f"{function.__name__} is not given {few_of(missing)}; its parameters are"
            f" {', '.join(parameters)}"
        )
    return {name: given[name] if name in given else defaults[name] for name in parameters}


@dataclass(frozen=True, slots=True)
class BoundLaunch:
    """A launch with the properties of its kernel as plain values, which need no kernel."""

    kernel: str
    """The kernel's name."""
    launch: Launch
    arguments: Mapping[str, Plain]
    """The launch's arguments by the names of the kernel's parameters."""
    constexprs: tuple[str, ...]
    """The parameters that are constexpr."""
    options: Mapping[str, Plain]
    """Compiler options that the launch passes."""
    tiles: tuple[str, ...] = ()
    """The constexprs that set the size of a tile, as far as the source shows."""

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each tensor that the launch passes, by Triton's names."""
        return {
            name: TRITON_DTYPES[one.dtype]
            for name, one in self.arguments.items()
            if isinstance(one, Pointer)
        }

    @classmethod
    def of(cls, function: Any, launch: Launch, **others: Any) -> Self:
        """Return *launch* as *function* takes it; *others* are further fields of a subclass."""
        return cls(
            kernel=function.__name__,
            launch=launch,
            arguments=launch.bound(function),
            constexprs=tuple(one.name for one in function.params if one.is_constexpr),
            options=launch.options(function),
            tiles=(getattr(function, "tiles", None) or tuple(sorted(tile_names(function)))),
            **others,
        )


def constant_text(value: Any) -> str:
    """Return the value of a constexpr as text: equal texts compile to the same binary."""
    if hasattr(value, "cache_key"):
        return str(value.cache_key)
    if isinstance(value, tuple):
        return f"({', '.join(map(constant_text, value))})"
    return repr(value)


def _parameter_class(parameter: Any, value: Any, target: Target) -> str:
    """Return Triton's class of *value*, as in its `create_function_from_signature`."""
    if parameter.is_constexpr:
        return f"constexpr {constant_text(value)}"
    named = parameter.annotation_type
    if named and (named == "u1" or named[:2] in {"fp", "bf"}):
        return str(named)
    kind, traits = _specialized(value, target, aligns=not parameter.do_not_specialize_on_alignment)
    return f"{named or kind}{'' if parameter.do_not_specialize else traits}"


def _specialized(value: Any, target: Target, *, aligns: bool) -> tuple[str, str]:
    """Return Triton's type of an argument, and what it further specializes on."""
    if isinstance(value, Pointer):
        near = (
            " 32-bit range" if target.backend == "hip" and value.storage_bytes <= INT32_MAX else ""
        )
        traits = near if value.aligned or not aligns else f"{near} unaligned"
        return f"*{TRITON_DTYPES[value.dtype]}", traits
    if isinstance(value, Descriptor):
        return f"tensordesc {TRITON_DTYPES[value.base.dtype]} {value.block_shape}", ""
    if isinstance(value, bool | float):
        return "u1" if isinstance(value, bool) else "fp32", ""
    if isinstance(value, int):
        return _integer(value, aligns=aligns)
    if isinstance(value, tuple):
        items = [_specialized(item, target, aligns=aligns) for item in value]
        kinds = ", ".join(kind for kind, _ in items)
        return f"({kinds})", ",".join(traits for _, traits in items)
    return constant_text(value), ""


def _integer(number: int, *, aligns: bool) -> tuple[str, str]:
    width = "i32" if -INT32_MAX - 1 <= number <= INT32_MAX else "i64"
    if number > INT64_MAX:
        width = "u64"
    if number == 1:
        return width, " = 1"
    return width, " % 16 = 0" if aligns and number % ALIGNMENT == 0 else ""


class _StandIn:
    """Stands for a tensor in `warmup`, with its dtype, its alignment and its storage's size."""

    def __init__(self, pointer: Pointer) -> None:
        self.dtype = TRITON_DTYPES[pointer.dtype]
        self._pointer = pointer

    def data_ptr(self) -> int:
        """Return an address that is a multiple of 16 only if the tensor's is."""
        return 0 if self._pointer.aligned else 1

    def ptr_range(self) -> int:
        """Return the storage's bytes: above 2 GiB AMD's compiler uses other loads."""
        return self._pointer.storage_bytes


def _stand_in(value: Any) -> Any:
    if isinstance(value, Pointer):
        return _StandIn(value)
    if isinstance(value, Dtype):
        import triton.language as tl

        return tl.dtype(value.triton_name)
    if isinstance(value, Descriptor):
        return _stand_in_descriptor(value)
    if isinstance(value, tuple):
        items = [_stand_in(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _stand_in_descriptor(descriptor: Descriptor) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    # Its __init__ needs a torch dtype; its checks were made when the real descriptor was made.
    made: Any = object.__new__(TensorDescriptor)
    if descriptor.layout is not None:
        from triton.experimental.gluon.language import _layouts
        from triton.experimental.gluon.nvidia import hopper

        made = object.__new__(hopper.TensorDescriptor)
        made.layout = eval(descriptor.layout, vars(_layouts))  # noqa: S307 - made by repr
    made.base = _StandIn(descriptor.base)
    made.shape = list(descriptor.shape)
    made.strides = list(descriptor.strides)
    made.block_shape = list(descriptor.block_shape)
    made.padding = descriptor.padding
    made.round_f32_to_tf32 = descriptor.round_f32_to_tf32
    return made


def launch_of(
    function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], grid: Any = None
) -> Launch:
    """Return the launch `function[grid](*arguments, **keywords)` as plain values.

    *grid* is a tuple, a function of the arguments by name, or None if it is not known. Raises
    InputError if an argument is missing, or if the grid is invalid.
    """
    launch = Launch(
        tuple(map(plain, arguments)), {name: plain(value) for name, value in keywords.items()}
    )
    if grid is None:
        launch.bound(function)
        return launch
    if callable(grid):
        named = bind(function, arguments, keywords)
        try:
            grid = grid(named)
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - the refusal has it in other words
            refuse(f"the grid cannot be worked out: {type(error).__name__}: {error}")
    if isinstance(grid, tuple | list):
        grid = grid[:MOST_DIMENSIONS]  # Triton ignores further ones
    return Launch(launch.arguments, launch.keywords, checked_grid(grid))


def checked_grid(grid: Any) -> tuple[int, ...]:
    """Return *grid* as 1 to 3 integers; InputError if it is invalid, EmptyGridError for a 0."""
    sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(sizes) <= MOST_DIMENSIONS:
        refuse(f"a grid has 1 to {MOST_DIMENSIONS} dimensions, and this one has {len(sizes)}")
    numbers = []
    for place, size in enumerate(sizes):
        number = plain_number(size)
        if type(number) is not int or not 0 < number <= GRID_LIMITS[place]:
            msg = (
                f"dimension {place} of the grid is {quoted(size)}; give a whole number from 1 to"
                f" {GRID_LIMITS[place]}"
            )
            raise (EmptyGridError if type(number) is int and not number else GridError)(msg)
        numbers.append(number)
    return tuple(numbers)
