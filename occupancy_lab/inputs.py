"""Requests with their defaults filled in, and checked before any work is done."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import operator
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

from occupancy_lab.errors import LONGEST_QUOTE, DoesNotFitError, quoted, refuse
from occupancy_lab.gpus import Architecture, Gpu, PresentGpu, find_gpu, find_gpus, present_gpus
from occupancy_lab.kernel import (
    USER_KERNEL,
    Grid,
    Kernel,
    check_is_compiled,
    kernel_names,
    load_kernel,
)
from occupancy_lab.values import INT64_MAX, ITEM_BYTES, MAX_STAGES, Config, Problem

Integer: TypeAlias = SupportsIndex
"""An int, or an integer of numpy or torch."""
Integers: TypeAlias = SupportsIndex | str | Iterable[SupportsIndex]
"""One or several; a text has commas between them."""
AskedDtype: TypeAlias = Any
"""A name, "float16" or "torch.float16", or torch's dtype."""
AskedKernel: TypeAlias = str | os.PathLike[str] | Kernel
"""A name, the path of a Python file, or a Kernel."""
AskedGpus: TypeAlias = str | Gpu | PresentGpu | Iterable[str | Gpu | PresentGpu]
"""Names or Gpus, one or several; a text has commas between names."""

DEFAULT_ROWS = 4096
"""The number of rows in the tutorial's benchmark."""
TUTORIAL_KERNEL = "softmax"
"""The kernel whose default configuration is the tutorial's."""
DEFAULT_GPUS = "h100,mi300x"
"""One GPU of each vendor, if this machine has none."""
MAX_BLOCK_SIZE = 1_048_576
"""The most elements of a tensor in a Triton kernel: TRITON_MAX_TENSOR_NUMEL."""


def option_name(name: str) -> str:
    """Return the command-line option for the argument *name*: "--constexpr"."""
    # The argument of a repeatable option is plural, the option singular.
    repeats = name in {"constexprs", "options"}
    return f"--{name.replace('_', '-').removesuffix('s' if repeats else '')}"


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least *number*, which is 1 or more."""
    return 1 << (number - 1).bit_length()


def check_problem(problem: Problem) -> None:
    """Raise InputError unless the matrix has rows and columns, and a dtype that the lab knows."""
    for name in ("rows", "cols"):
        number = getattr(problem, name)
        if number < 1:
            refuse(f"{name} is {number}; a matrix has at least 1")
    if problem.dtype not in ITEM_BYTES:
        refuse(f"dtype {quoted(problem.dtype)} is not known; give one of {', '.join(ITEM_BYTES)}")
    if problem.matrix_bytes > INT64_MAX:
        most = INT64_MAX // problem.item_bytes
        refuse(
            f"rows times cols is more than {most}, and Triton counts the bytes of a {problem.dtype}"
            " matrix in 64 bits; give fewer rows or cols"
        )


def check_num_warps(num_warps: int, architecture: Architecture) -> None:
    """Raise InputError unless a program of the architecture may have *num_warps* warps."""
    words = f"{architecture.warp_word}s of {architecture.warp_size} threads"
    if not _is_power_of_two(num_warps):
        refuse(f"num_warps is {num_warps}; Triton takes a power of two")
    if num_warps > architecture.max_warps_per_program:
        refuse(
            f"num_warps is {num_warps}; a program on {architecture.target_name} has at most"
            f" {architecture.max_warps_per_program} {words}"
        )


def check_config(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu) -> None:
    """Raise InputError unless *kernel* can be launched with *config* on *problem*.

    A kernel that chooses its own blocks rejects invalid ones in its `constexprs`.
    """
    check_num_warps(config.num_warps, gpu.architecture)
    if config.num_stages < 1:
        refuse(f"num_stages is {config.num_stages}; a loop has at least 1 stage")
    if config.num_stages > MAX_STAGES:
        refuse(
            f"num_stages is {config.num_stages}; at most {MAX_STAGES} stages are compiled, more"
            " than any GPU needs to keep its memory busy"
        )
    _check_block_size(kernel, problem, config.block_size)
    if kernel.configs is not None:
        kernel.constexprs(problem, config)


def _check_block_size(kernel: Kernel, problem: Problem, block_size: int) -> None:
    own = kernel.configs is not None
    in_blocks = own or kernel.grid is Grid.BLOCKS or kernel.passes is not None
    needed = 1 if in_blocks else next_power_of_two(problem.cols)
    if needed > MAX_BLOCK_SIZE:
        refuse(
            f"a row of {problem.cols} cols takes a BLOCK_SIZE of {needed}; Triton holds at most"
            f" {MAX_BLOCK_SIZE} elements in a program"
        )
    if own and block_size < 1:
        refuse(f"BLOCK_SIZE is {block_size}; give 1 or more")
    if not own and not _is_power_of_two(block_size):
        at_least = min(max(needed, next_power_of_two(max(block_size, 1))), MAX_BLOCK_SIZE)
        refuse(f"BLOCK_SIZE is {block_size}; tl.arange takes a power of two, such as {at_least}")
    if block_size < needed:
        refuse(
            f"BLOCK_SIZE is {block_size}, below {problem.cols} cols: a program holds a whole row;"
            f" use {needed}"
        )
    if block_size > MAX_BLOCK_SIZE:
        refuse(
            f"BLOCK_SIZE is {block_size}; Triton holds at most {MAX_BLOCK_SIZE} elements in a"
            " program"
        )


def check_stages(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu) -> None:
    """Raise DoesNotFitError, before a compile, if the stages alone take too much shared memory.

    A configuration that passes may still not fit; `check_fits` decides after compiling.
    """
    if kernel.stage_bytes is None or not gpu.target.copies_ahead:
        return
    available = gpu.architecture.max_shared
    buffer = kernel.stage_bytes(problem, config)
    needed = (config.num_stages - 1) * buffer
    if needed > available:
        msg = (
            f"{gpu.title} gives a program at most {available} B of shared memory, and num_stages"
            f" {config.num_stages} takes {needed} B or more; num_stages {1 + available // buffer}"
            f" is the most that can fit, at {buffer} B a stage after the first"
        )
        raise DoesNotFitError(msg, needed=needed, available=available)


def check_launch(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu) -> None:
    """Raise what `check_config` and `check_stages` raise, before a compile."""
    check_config(kernel, problem, config, gpu)
    check_stages(kernel, problem, config, gpu)


def whole_number(name: str, asked: Any) -> int:
    """Return *asked*, the argument *name*, as an int; InputError for a bool, float or text."""
    if "bool" not in str(getattr(asked, "dtype", type(asked).__name__)):
        with contextlib.suppress(TypeError):
            return operator.index(asked)
    return refuse(f"{name} is {_shown(asked)}; give a whole number")


def whole_numbers(name: str, asked: Integers) -> tuple[int, ...]:
    """Return each integer of *asked*: one, several, or a text with commas; or InputError."""
    if isinstance(asked, str):
        try:
            return tuple(int(part) for part in asked.split(",") if asked)
        except ValueError:
            refuse(f"{name} is {quoted(asked)}; give whole numbers with commas between them")
    try:
        numbers = tuple(asked)  # type: ignore[arg-type] # a number is none, as this finds out
    except TypeError:
        numbers = (asked,)  # type: ignore[assignment]
    return tuple(whole_number(name, one) for one in numbers)


def chosen_knobs(**asked: Integer | None) -> dict[str, int | None]:
    """Return each knob as an int, or None if the kernel chooses."""
    return {
        name: None if number is None else whole_number(name, number)
        for name, number in asked.items()
    }


def combined_knobs(**asked: Integers | None) -> list[dict[str, int | None]]:
    """Return each combination of the knobs' values, with None for those that the kernel chooses."""
    values = (
        (None,) if numbers is None else several(whole_numbers(name, numbers))
        for name, numbers in asked.items()
    )
    return [dict(zip(asked, one, strict=True)) for one in itertools.product(*values)]


def _shown(asked: Any) -> str:
    """Return *asked* for an error: a text in quotes, long other values by their type."""
    if isinstance(asked, str):
        return quoted(asked)
    text = repr(asked)
    return text if len(text) <= LONGEST_QUOTE else f"a {type(asked).__name__}"


def _dtype_name(asked: AskedDtype) -> str:
    kind = type(asked)
    if (kind.__module__, kind.__name__) == ("torch", "dtype"):
        asked = str(asked)
    if not isinstance(asked, str):
        refuse(f"dtype is {_shown(asked)}; give one of {', '.join(ITEM_BYTES)}, or torch's dtype")
    return asked.strip().removeprefix("torch.")


def chosen_problem(rows: Integer, cols: Integer, dtype: AskedDtype) -> Problem:
    """Return the requested problem; InputError unless `check_problem` accepts it."""
    problem = Problem(whole_number("rows", rows), whole_number("cols", cols), _dtype_name(dtype))
    check_problem(problem)
    return problem


def chosen_problems(rows: Integers, cols: Integers, dtype: Any) -> tuple[Problem, ...]:
    """Return the problems of all dtypes, rows and columns, as `chosen_problem` does."""
    asked = itertools.product(
        several(dtype), whole_numbers("rows", rows), whole_numbers("cols", cols)
    )
    return tuple(chosen_problem(one_rows, one_cols, one) for one, one_rows, one_cols in asked)


def several(asked: Any) -> tuple[Any, ...]:
    """Return each item once: of a text with commas, of an iterable, or itself alone."""
    if isinstance(asked, str):
        asked = (part.strip() for part in asked.split(","))
    return tuple(dict.fromkeys(asked)) if isinstance(asked, Iterable) else (asked,)


class NamedKernel(NamedTuple):
    """A kernel, and its name for other processes."""

    name: str | None
    """The kernel's name for `load_kernel`; None for an object that only this process has."""
    kernel: Kernel

    def check_name(self, purpose: str) -> None:
        """Raise InputError if another process, which *purpose* needs, cannot find the kernel."""
        if self.name is None:
            refuse(
                f"{purpose} runs in a process of its own, which finds a kernel by its name or its"
                f" file, and {self.kernel.name} is only an object here; give the path of a Python"
                " file that holds it as KERNEL"
            )


def check_elsewhere(kernel: NamedKernel, *, other_triton: bool, measure: bool = False) -> None:
    """Raise InputError if other processes cannot do the requested work with *kernel*."""
    if measure:
        check_measured_triton(other_triton=other_triton)
    if other_triton:
        kernel.check_name("another Triton")
    if measure:
        check_measurable(kernel)


def check_measured_triton(*, other_triton: bool) -> None:
    """Raise InputError if what is to be measured is compiled by another Triton."""
    if other_triton:
        refuse("--measure launches what the Triton here compiles, and --triton names another one")


def check_measurable(kernel: NamedKernel) -> None:
    """Raise InputError if no other process can launch *kernel*."""
    if kernel.kernel.run is None:
        refuse(
            f"{kernel.kernel.name} cannot be measured: its KERNEL has no run, which would launch it"
            " on a torch tensor"
        )
    kernel.check_name("a measurement")


def chosen_kernel(
    asked: AskedKernel, check_file: Callable[[str], None] = lambda _name: None
) -> NamedKernel:
    """Return the kernel that *asked* is, names, or finds at a path.

    *check_file* is called with a name or path before the file is imported.

    Raises InputError if there is no kernel, or if Triton does not compile it.
    """
    found = found_kernel(asked, check_file)
    check_is_compiled(found.kernel)
    return found


def found_kernel(asked: AskedKernel, check_file: Callable[[str], None]) -> NamedKernel:
    """Return the kernel as `chosen_kernel` does, even if Triton does not compile it."""
    if isinstance(asked, Kernel):
        return NamedKernel(_name_of(asked), asked)
    path = os.fspath(asked) if isinstance(asked, str | os.PathLike) else None
    if isinstance(path, str):
        check_file(path)
        return NamedKernel(path, load_kernel(path))
    # A JITFunction is refused too, because it does not say how it is launched.
    return refuse(
        f"kernel is {_shown(asked)}; give the name of a kernel, the path of a Python file with a"
        " KERNEL, or a Kernel"
    )


def chosen_kernels(
    asked: AskedKernel | Iterable[AskedKernel],
    check_file: Callable[[str], None] = lambda _name: None,
) -> tuple[NamedKernel, ...]:
    """Return each kernel of a list, or of a text with commas, once, as `chosen_kernel` does."""
    found = tuple(dict.fromkeys(chosen_kernel(one, check_file) for one in several(asked)))
    names = [name or kernel.name for name, kernel in found]
    for name in names:
        if names.count(name) > 1:
            refuse(f"two kernels are both called {name}; give each Kernel a name of its own")
    return found


def _name_of(kernel: Kernel) -> str | None:
    """Return the name by which `load_kernel` finds *kernel*, if it came from there."""
    if kernel.name in kernel_names() and load_kernel(kernel.name) is kernel:
        return kernel.name
    for module in [module for name, module in sys.modules.items() if name.startswith(USER_KERNEL)]:
        if getattr(module, "KERNEL", None) is kernel:
            return module.__file__
        for name, one in getattr(module, "KERNELS", {}).items():
            if one is kernel:
                return f"{module.__file__}:{name}"
    return None


def chosen_config(
    kernel: Kernel, problem: Problem, gpu: Gpu, chosen: Mapping[str, int | None]
) -> Config:
    """Return the *chosen* configuration, with the kernel's own choices for None."""
    default = kernel.default_config(problem, gpu.architecture.max_shared)
    given = {name: value for name, value in chosen.items() if value is not None}
    return dataclasses.replace(default, **given)


def asked_gpus(asked: AskedGpus) -> tuple[Gpu, ...]:
    """Return each GPU of *asked* once; InputError for unknown names, none, or two with one key."""
    found: dict[str, Gpu] = {}
    several = (asked,) if isinstance(asked, str) or not isinstance(asked, Iterable) else asked
    for one in several:
        named = one.gpu if isinstance(one, PresentGpu) else one
        if not isinstance(named, str | Gpu):
            refuse(f"gpu is {_shown(named)}; give a name, such as h100, or a Gpu")
        for gpu in find_gpus(named) if isinstance(named, str) else (named,):
            if found.setdefault(gpu.key, gpu) != gpu:
                refuse(f"two GPUs that differ are both called {gpu.key}; give each its own key")
    if not found:
        refuse("gpu names none; give one or more, such as h100,mi300x")
    return tuple(found.values())


def chosen_gpus(asked: AskedGpus | None) -> tuple[tuple[Gpu, bool], ...]:
    """Return the GPUs asked for, each with whether it is here; `explain` defines the default."""
    here = present_gpus()
    if asked is None and here:
        return ((here[0].gpu, True),)
    targets_here = {present.gpu.target for present in here[:1]}
    found = asked_gpus(DEFAULT_GPUS if asked is None else asked)
    return tuple((gpu, gpu.target in targets_here) for gpu in found)


def gpu_measured(key: str, devices: Collection[str]) -> Gpu:
    """Return the GPU of rows with this *key* that were measured on *devices*.

    A GPU that the table of devices lacks, so that only its driver knows its size, is found if this
    machine has it under the driver's name.

    Raises InputError if nothing has this key.
    """
    found = find_gpu(key)
    if found.multiprocessors is not None:
        return found
    here = (one.gpu for one in present_gpus() if one.gpu.key == key and {one.name} == set(devices))
    return next(here, found)
