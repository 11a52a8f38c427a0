"""A kernel under study, with its Triton function and its launches; and where kernels are found."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import functools
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from occupancy_lab.arguments import Pointer as Pointer  # noqa: PLC0414 - kernel files import it from here
from occupancy_lab.arguments import Tensor, plain
from occupancy_lab.errors import InputError, few_of, quoted, refuse
from occupancy_lab.launch import Launch, launch_of
from occupancy_lab.values import INT64_MAX, Config, Problem, Traffic, Work

Relaunch = Callable[[Mapping[str, Any]], Launch]


class Grid(enum.Enum):
    """The ways in which a launch spreads a matrix over programs."""

    PERSISTENT = "persistent"
    """As many programs as fit the GPU at once, at most one per row; each strides over the rows."""
    ROWS = "rows"
    """One program per row, or per piece of work if the kernel has a `work`."""
    BLOCKS = "blocks"
    """One program per block of BLOCK_SIZE elements of the flattened matrix."""


@dataclass(frozen=True, slots=True)
class MemoryStep:
    """One operation's global memory traffic, in elements."""

    operation: str
    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that works on a matrix, as the lab needs it; a file has one as `KERNEL`.

    `function`, and `arguments` or `passed`, are required; docs/kernels.md explains the other
    fields. It is compiled with the configuration's num_warps and num_stages, with its own `options`
    and with OPTIONS: `run` launches with the same.
    """

    function: Any | None
    """The function made by `triton.jit`; None for a kernel that Triton does not compile."""
    arguments: Callable[[Problem], tuple[Any, ...]] = None  # type: ignore[assignment]
    """The launch's positional arguments for a problem: `tensor(...)` or Pointer, numbers, None. The
    default is what `passed` gives for dense matrices."""
    name: str = ""
    """The kernel's name in tables and files; the default is the function's name."""
    title: str = ""
    """A description in a few words; the default is the name."""
    grid: Grid = Grid.ROWS
    constexprs: Callable[[Problem, Config], Mapping[str, Any]] = None  # type: ignore[assignment]
    """The launch's keyword arguments: constexprs and compiler options. The default are those of
    BLOCK_SIZE, num_warps, num_stages and INT64_OFFSETS that are constexpr parameters of the
    function. It raises InputError for a configuration with which the kernel cannot be launched."""
    default_config: Callable[[Problem, int], Config] = None  # type: ignore[assignment]
    """The configuration for a GPU that gives a program so many bytes of shared memory. The default
    has the smallest block that holds a row, 4 warps, and 2 stages if the function has a parameter
    num_stages, else 1."""
    configs: Callable[[Problem], tuple[Config, ...]] | None = None
    """The configurations that `tune` and `occupancy_lab.softmax` try by default, besides the
    default one. The kernel then gives BLOCK_SIZE its meaning, and `constexprs` rejects invalid
    ones. None: BLOCK_SIZE is the default's, with every num_warps that compiles quickly."""
    memory_steps: Callable[[Problem], tuple[MemoryStep, ...]] | None = None
    """The passes over global memory, from which the needed bytes follow; without them nothing is
    compared with a plain copy."""
    run: Callable[..., Any] | None = None
    """Launches it on a torch tensor, with a configuration and the number of programs, and on
    further tensors if `operands` is more than 1; None: it cannot be measured."""
    passed: Callable[..., tuple[Any, ...]] | None = None
    """The launch's positional arguments for torch tensors, the output and those that `run` takes:
    these tensors in this order, then numbers. None: `occupancy_lab.softmax` cannot launch it."""
    rows_alike: bool = False
    """Whether `occupancy_lab.softmax` may launch it only on tensors that begin at a multiple of 16
    bytes and whose rows have equal distances modulo 16 bytes."""
    workspace: Callable[[Problem, Config], int] | None = None
    """The int32 elements of a further tensor that a launch needs. `passed` takes the tensor after
    the others. It is zero at first, and a launch leaves it as the next launch on the stream needs
    it."""
    work: Callable[[Problem, Config], int] | None = None
    """The pieces of work of a launch: the programs of a ROWS grid, or what the programs of a
    PERSISTENT grid take in turns; None: one per row."""
    together: Callable[[Problem, Config], int] | None = None
    """How many programs wait for each other, so that all of them must be resident at once; on a GPU
    that holds fewer, the launch does not fit."""
    passes: Callable[[Problem, Config], int] | None = None
    """How many blocks of BLOCK_SIZE a program goes through for a row, one in each pass of its loop;
    None: BLOCK_SIZE holds a whole row."""
    reference: Callable[..., Any] | None = None
    """Computes from the same tensors in float64 what `run` must return; None: no result is
    checked."""
    operands: int = 1
    compared_with: str | None = None
    """The kernel whose traffic an explanation compares with this one's."""
    alike: tuple[str, ...] = ()
    """The names of the kernels that do the same, from which the fastest is chosen."""
    by_rows: str | None = None
    """The kernel that does the same as a persistent one with one program per row."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further compiler options, num_ctas or waves_per_eu, as plain values."""
    stage_bytes: Callable[[Problem, Config], int] | None = None
    """The least shared memory that each stage after the first takes where Triton prefetches through
    it, as on NVIDIA from sm_80 on; None if not known."""

    def __post_init__(self) -> None:
        name = self.name or getattr(self.function, "__name__", "")
        usual = {
            "name": name,
            "title": self.title or name,
            "arguments": self._dense_arguments,
            "constexprs": self._usual_constexprs,
            "default_config": self._usual_config,
        }
        for field_name, value in usual.items():
            if not getattr(self, field_name):
                object.__setattr__(self, field_name, value)

    def run_on(self, *launched: Any) -> Any:
        """Return the result of `run` with these arguments; InputError if the kernel has none."""
        if self.run is None:
            refuse(
                f"{self.name} has no run, which launches it on a torch tensor; give its KERNEL one"
            )
        return self.run(*launched)

    def arguments_on(self, problem: Problem, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return the positional arguments for *tensors*, the output first, and a workspace.

        Raises InputError if the kernel has no `passed`.
        """
        if self.passed is None:
            refuse(f"{self.name} has no passed, which gives a launch's arguments for tensors")
        if self.workspace is None:
            return self.passed(*tensors)
        # Its size depends on the configuration, and does not change the compiled binary.
        elements = self.workspace(problem, self.default_config(problem, 0))
        return self.passed(*tensors, Tensor((elements,), "int32"))

    def _dense_arguments(self, problem: Problem) -> tuple[Any, ...]:
        matrix = Tensor((problem.rows, problem.cols), problem.dtype)
        return self.arguments_on(problem, (matrix,) * (1 + self.operands))

    def _usual_constexprs(self, problem: Problem, config: Config) -> dict[str, int]:
        known = {**config.settings, "INT64_OFFSETS": problem.needs_int64_offsets}
        constexprs = {one.name for one in getattr(self.function, "params", ()) if one.is_constexpr}
        return {name: value for name, value in known.items() if name in constexprs}

    def _usual_config(self, problem: Problem, _max_shared: int) -> Config:
        loops = "num_stages" in getattr(self.function, "arg_names", ())
        return Config(1 << (problem.cols - 1).bit_length(), USUAL_WARPS, 2 if loops else 1)

    def steps(self, problem: Problem) -> tuple[MemoryStep, ...]:
        """Return the kernel's memory_steps on *problem*; InputError if it has none."""
        if self.memory_steps is None:
            refuse(f"{self.name} has no memory_steps, which say what it reads and writes")
        return self.memory_steps(problem)

    def launch(self, problem: Problem, config: Config) -> Launch:
        """Return the launch on *problem* with *config*.

        num_warps and num_stages always reach the compiler, and so do the kernel's `options`;
        constexpr parameters with these names also get the values. Raises InputError for a number
        that does not fit 64 bits.
        """
        arguments = tuple(map(plain, self.arguments(problem)))
        for argument in arguments:
            if isinstance(argument, int) and not -INT64_MAX - 1 <= argument <= INT64_MAX:
                refuse(f"{self.name} is given a number of 2**63 or more, and Triton takes 64 bits")
        knobs = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        constexprs = self.constexprs(problem, config)
        return Launch(
            arguments,
            {**OPTIONS, **self.options, **knobs, **constexprs},
            self.launched_grid(problem, config),
            work=self.launched_work(problem, config),
        )

    def pieces(self, problem: Problem, config: Config) -> int:
        """Return a launch's pieces of work: the kernel's own, or blocks or rows of the matrix."""
        if self.work is not None:
            return self.work(problem, config)
        if self.grid is Grid.BLOCKS:
            return -(-problem.rows * problem.cols // config.block_size)
        return problem.rows

    def launched_grid(self, problem: Problem, config: Config) -> tuple[int, ...] | None:
        """Return the grid of a launch; None for a persistent kernel, which fills the GPU once."""
        return None if self.grid is Grid.PERSISTENT else (self.pieces(problem, config),)

    def launched_work(self, problem: Problem, config: Config) -> Work:
        """Return the work of a launch."""
        moved = self.traffic(problem)
        own = "piece" if self.work is not None else None
        return Work(
            read_bytes=None if moved is None else moved.read_bytes,
            written_bytes=None if moved is None else moved.written_bytes,
            pieces=self.pieces(problem, config),
            together=None if self.together is None else self.together(problem, config),
            piece=own or ("block" if self.grid is Grid.BLOCKS else "row"),
        )

    def traffic(self, problem: Problem) -> Traffic | None:
        """Return the bytes that a launch moves on *problem*, or None if the kernel does not say."""
        if self.memory_steps is None:
            return None
        steps = self.memory_steps(problem)
        return Traffic(
            sum(step.reads for step in steps) * problem.item_bytes,
            sum(step.writes for step in steps) * problem.item_bytes,
        )


USUAL_WARPS = 4
"""Triton's default num_warps."""
OPTIONS = {"enable_fp_fusion": True}
"""Compiler options that every compile and every launch passes. Triton 3.9 warns unless
`enable_fp_fusion` is given, and 3.10 will change its default, which would change registers; the
value is the default of 3.6 to 3.8."""

_COMPILED = (".cubin", ".hsaco", ".ttir", ".ttgir", ".llir", ".ptx", ".amdgcn", ".json")
"""Endings of the files in a Triton cache."""
USER_KERNEL = "occupancy_lab_user_kernel_"
"""The prefix of the names of modules that `load_file` makes from kernels' files."""


@functools.cache
def kernel_names() -> tuple[str, ...]:
    """Return the names of the kernels that come with the lab."""
    import occupancy_lab.kernels

    return tuple(
        sorted(module.name for module in pkgutil.iter_modules(occupancy_lab.kernels.__path__))
    )


def own_kernel(name: str) -> Kernel:
    """Return the lab's kernel *name* without importing a file; InputError if there is none."""
    if name not in kernel_names():
        refuse(f"there is no kernel {name!r} in the lab; there are {', '.join(kernel_names())}")
    return load_kernel(name)


def load_kernel(name: str) -> Kernel:
    """Return the kernel called *name*, or the `KERNEL` of the Python file at the path *name*.

    `file.py:this` returns the kernel `this` in the file's mapping `KERNELS`.

    Raises InputError if there is no such kernel or file, or if the file has no such object.
    """
    path = kernel_file(name)
    _, suffix, entry = name.partition(".py:")
    if name in kernel_names():
        module = import_module(f"occupancy_lab.kernels.{name}")
    elif path is not None:
        module = load_file(path)
    else:
        if name.endswith(_COMPILED) or (name and Path(name).is_dir()):
            refuse(f"{quoted(name)} is no file of Python; `scan` reads folders of compiled kernels")
        known = ", ".join(kernel_names())
        refuse(
            f"there is no kernel {quoted(name)}; give one of {known}, or the path of a Python file"
        )
    found = getattr(module, "KERNELS", {}).get(entry) if suffix else getattr(module, "KERNEL", None)
    if not isinstance(found, Kernel):
        missing = f"kernel {quoted(entry)} in KERNELS" if suffix else "KERNEL"
        functions = _triton_functions(module)
        what = (
            f"; give one of its functions of Triton as FILE.py:FUNCTION: {few_of(functions)}"
            if functions
            else ", an occupancy_lab.kernel.Kernel that says how it is launched"
        )
        refuse(f"{name} has no {missing}{what}")
    if not re.fullmatch(r"\w[\w .:-]*", str(found.name)):
        refuse(f"{name} calls its kernel {found.name!r}; a name has letters, digits, _, - and .")
    return found


def load_function(name: str) -> tuple[Any, str]:
    """Return the JITFunction that *name* means, or its wrapper, and its title.

    *name* is one of the lab's kernels, a file with a `KERNEL`, or `file.py:this`, where `this` is a
    kernel in the file's `KERNELS` or a Triton function that the file defines.

    Raises InputError if there is none, or if Triton does not compile it.
    """
    path, suffix, entry = name.partition(".py:")
    module = load_file(kernel_file(name)) if suffix else None
    if module is not None and entry not in getattr(module, "KERNELS", {}):
        found = getattr(module, entry, None)
        if not is_triton_function(found):
            there = few_of(_triton_functions(module))
            if callable(found):
                refuse(
                    f"{path}.py:{entry} is a Python function, which explain, tune and trace"
                    f" can run; here give a Triton function: it has {there}"
                )
            refuse(f"{path}.py has no Triton function {quoted(entry)}; it has {there}")
        return found, entry
    kernel = load_kernel(name)
    check_is_compiled(kernel)
    return kernel.function, kernel.name


def check_is_compiled(kernel: Kernel) -> None:
    """Raise InputError if *kernel* is made of torch operations."""
    if kernel.function is None:
        refuse(f"{kernel.name} is made of torch operations: Triton compiles nothing of it")


def _triton_functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if is_triton_function(value)]


TRITON_FUNCTIONS = ("Autotuner", "Heuristics", "InterpretedFunction", "JITFunction")
"""Triton's classes of functions that can be launched; libraries have subclasses of them."""


def triton_class(found: object) -> str | None:
    """Return the class of TRITON_FUNCTIONS to which *found* belongs, or None."""
    names = {one.__name__ for one in type(found).__mro__}
    return next((name for name in TRITON_FUNCTIONS if name in names), None)


def innermost(function: Any) -> Any:
    """Return the JITFunction that autotune and heuristics enclose in *function*, or itself."""
    while triton_class(function) in {"Autotuner", "Heuristics"}:
        function = function.fn
    return function


def autotuner_of(kernel: Any) -> Any | None:
    """Return the autotuner of *kernel*, which heuristics may enclose; None if it has none."""
    while triton_class(kernel) == "Heuristics":
        kernel = kernel.fn
    return kernel if triton_class(kernel) == "Autotuner" else None


def as_compared(kernel: Any) -> Any:
    """Return *kernel* as its author configured it: without `tuned` and without ranking.

    The package's own hooks drop and rank for this machine's GPU; an author's early_config_prune
    stays, because it says what is right.
    """
    kernel = getattr(kernel, "untuned", kernel)
    if triton_class(kernel) not in {"Autotuner", "Heuristics"}:
        return kernel
    copied = copy.copy(kernel)
    copied.fn = as_compared(kernel.fn)
    if triton_class(kernel) == "Autotuner":
        copied.perf_model = None
        if getattr(kernel.early_config_prune, "__module__", "").startswith(f"{__package__}."):
            copied.early_config_prune = None
    return copied


def without_autotuner(kernel: Any) -> Any:
    """Return *kernel* with only its heuristics, for launches whose configuration is given."""
    if triton_class(kernel) == "Autotuner":
        return without_autotuner(kernel.fn)
    if triton_class(kernel) != "Heuristics":
        return kernel
    copied = copy.copy(kernel)
    copied.fn = without_autotuner(kernel.fn)
    return copied


def is_triton_function(found: object) -> bool:
    """Return whether `@triton.jit`, or autotune or heuristics around it, made *found*."""
    return triton_class(found) is not None and hasattr(found, "fn")


def source_file(function: Any) -> str:
    """Return the path of the file that a JITFunction is in, as Triton's locations have it."""
    return str(function.fn.__code__.co_filename)


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the launches of a launch line: an autotuner tries several."""

    function: Any
    """The JITFunction."""
    launch: Launch
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """The values set by the autotuner's configuration, by name; empty without an autotuner."""
    relaunch: Relaunch | None = field(default=None, compare=False, repr=False)
    """Returns the launch with other keywords, with its grid and heuristics computed anew."""


def variants(
    kernel: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    grid: Any = None,
    tuned: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Variant]:
    """Return the launches of `kernel[grid](*arguments, **keywords)`.

    An autotuner gives one for each configuration that its `prune_configs_by` leaves, heuristics are
    evaluated, and both may enclose each other, as Triton runs them. *tuned* has the values set by
    an autotuner around *kernel*.

    Raises InputError if *kernel* is no function of Triton, or an argument is missing.
    """
    arguments, keywords, given = tuple(arguments), dict(keywords), dict(keywords)
    kind = triton_class(kernel)
    check_triton_function(kernel)

    def relaunch(changes: Mapping[str, Any]) -> Launch:
        (again,) = variants(kernel, *changed(kernel, arguments, given, changes), grid)
        return again.launch

    if kind == "Autotuner":
        for setting, chosen_by in _configurations(kernel, arguments, keywords, grid):
            found = keywords | setting, grid, {**tuned, **setting}
            for one in variants(kernel.fn, arguments, *found):
                launch = dataclasses.replace(one.launch, chosen_by=chosen_by)
                yield dataclasses.replace(one, launch=launch) if chosen_by else one
    elif kind == "Heuristics":
        named = {**dict(zip(kernel.arg_names, arguments, strict=False)), **keywords}
        for name, work_out in vars(kernel)["values"].items():
            named[name] = keywords[name] = work_out(named)
        several = triton_class(kernel.fn) == "Autotuner"
        for one in variants(kernel.fn, arguments, keywords, grid, tuned):
            yield one if several else dataclasses.replace(one, relaunch=relaunch)
    else:
        yield Variant(kernel, launch_of(kernel, arguments, keywords, grid), tuned, relaunch)


def changed(
    kernel: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], changes: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return *arguments* and *keywords* with *changes*, each passed in the same way as before."""
    names = kernel.arg_names[: len(arguments)]
    passed = zip(names, arguments, strict=False)
    others = {name: value for name, value in changes.items() if name not in names}
    return tuple(changes.get(name, value) for name, value in passed), {**keywords, **others}


def _configurations(
    tuner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], grid: Any
) -> Iterator[tuple[dict[str, Any], str]]:
    """Return the settings of each configuration of an autotuner, after calling its pre_hook.

    With each comes what chose it, besides the autotuner: the file of `tuned`, or "".
    """
    tuner.nargs = dict(zip(tuner.arg_names, arguments, strict=False))
    # Its `run` passes these on to prune_configs_by.
    launched = keywords if grid is None else {**keywords, "grid": grid, "warmup": False}
    try:
        configurations = tuner.prune_configs(launched) if len(tuner.configs) > 1 else tuner.configs
        for configuration in configurations:
            setting = configuration.all_kwargs()
            if twice := sorted(keywords.keys() & configuration.kwargs.keys()):
                refuse(f"{', '.join(twice)} is tuned, and given too; leave it to the autotuner")
            if configuration.pre_hook is not None:
                configuration.pre_hook({**tuner.nargs, **keywords, **setting})
            yield setting, getattr(configuration, "chosen_by", "")
    finally:
        tuner.nargs = None


def check_triton_function(found: object) -> None:
    """Raise InputError unless *found* is a function of Triton that Triton compiles."""
    if not is_triton_function(found):
        refuse(f"{quoted(getattr(found, '__name__', found))} is no function that triton.jit made")
    if not hasattr(innermost(found), "params"):
        refuse("TRITON_INTERPRET makes Triton interpret kernels; unset it to compile them")


def kernel_file(name: str) -> Path | None:
    """Return the file that `load_kernel` imports for *name*, or None if it imports none."""
    path, suffix, _ = name.partition(".py:")
    if name in kernel_names() or not (suffix or name.endswith(".py")):
        return None
    try:
        return Path(f"{path}.py" if suffix else name).resolve(strict=True)
    except (OSError, RuntimeError):  # no file, no working folder, a loop of links
        refuse(f"there is no file {path}.py" if suffix else f"there is no file {name}")


@cache
def load_file(path: Path) -> ModuleType:
    """Return the module of the file at *path*, printing to standard error; or InputError."""
    if not path.is_file():
        refuse(f"there is no file {path}")
    module_name = f"{USER_KERNEL}{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        refuse(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    from occupancy_lab.workers.child import Printed, captured

    printed, folder = Printed(), str(path.resolve().parent)
    sys.path.insert(0, folder)  # as if Python ran the file
    try:
        with captured() as printed:
            spec.loader.exec_module(module)
    except (Exception, SystemExit, GeneratorExit) as error:
        del sys.modules[module_name]
        msg = f"{path} cannot be imported: {type(error).__name__}: {error}".rstrip(": ")
        if "active driver" in msg:
            msg += f"; it asks for a GPU, which {path.name}:main stands in for, if main() launches"
        raise InputError(msg) from error
    finally:
        with contextlib.suppress(ValueError):  # the file removed it
            sys.path.remove(folder)
        if printed.text:
            print(printed.text, end="", file=sys.stderr)  # noqa: T201 - the file prints it
    return module


@functools.lru_cache(64)
def kept_workspace(device: Any, _stream: int, elements: int) -> Any:
    """Return int32 zeros on *device* that launches on one stream use one after the other."""
    import torch

    return torch.zeros(elements, dtype=torch.int32, device=device)


def workspace_of(device: Any, stream: int, elements: int) -> Any:
    """Return zeros that no other stream uses; those of a captured CUDA graph belong to the graph.

    A graph may be replayed on any stream, beside launches of the stream on which it was captured.
    """
    import torch

    capturing = torch.cuda.is_current_stream_capturing()
    return (kept_workspace.__wrapped__ if capturing else kept_workspace)(device, stream, elements)
