"""`dry_run`: an unchanged launch line, compiled for any GPU and explained instead of launched."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from occupancy_lab.asked import Asked
from occupancy_lab.compiled_records import check_trips
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.environment import find_environment
from occupancy_lab.compiling.held import held_on_cpu, with_values
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import OccupancyLabError, refuse
from occupancy_lab.explaining.explanation import Explanation, explain_asked
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import AskedGpus, chosen_gpus
from occupancy_lab.kernel import Variant, check_triton_function, innermost, load_function, variants
from occupancy_lab.launch import BoundLaunch, Launch
from occupancy_lab.measuring.process import DEFAULT_RUNS
from occupancy_lab.signature import LaunchLine, Words, read_assumed, read_launches
from occupancy_lab.values import Work


def asked_of(
    found: Sequence[Variant],
    gpus: Sequence[Gpu],
    name: str | None = None,
    *,
    warm: bool = False,
    in_program: bool = False,
) -> list[Asked]:
    """Return the launches *found* on each of *gpus*.

    *name* is what `load_function` finds the kernel by; *warm* and *in_program* are as in `Launch`.
    If *gpus* are of both vendors, an option that only one vendor's compiler has is passed to that
    compiler only.
    """
    return [
        Asked(
            variant.function,
            dataclasses.replace(_own_options(variant, gpu, gpus), warm=warm, in_program=in_program),
            gpu,
            name,
            relaunch=variant.relaunch,
            is_tuned=bool(variant.tuned),
        )
        for gpu, variant in itertools.product(gpus, found)
    ]


def _own_options(variant: Variant, gpu: Gpu, gpus: Sequence[Gpu]) -> Launch:
    own, launch = default_options(gpu.target), variant.launch
    others = {name for other in gpus for name in default_options(other.target)}
    foreign = (others - own.keys()) & launch.options(variant.function).keys()
    kept = {name: value for name, value in launch.keywords.items() if name not in foreign}
    return dataclasses.replace(launch, keywords=kept)


def stand_in(bound: BoundLaunch, launches: Any = None) -> Any:
    """Return an object with the name and the parameters of a kernel, as a JITFunction has them.

    *launches* are those of a script that the launches of this kernel may be changes of.
    """
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    arguments = bound.arguments
    usual = ("annotation_type", "do_not_specialize", "do_not_specialize_on_alignment")
    return SimpleNamespace(
        __name__=bound.kernel,
        tiles=bound.tiles,
        launches=launches,
        params=[
            SimpleNamespace(
                name=name, is_constexpr=name in bound.constexprs, **dict.fromkeys(usual)
            )
            for name in arguments
        ],
        signature=inspect.Signature(
            [inspect.Parameter(name, either, default=value) for name, value in arguments.items()]
        ),
    )


class DryKernel:
    """A kernel whose launches are explained instead of made: `dry_run(kernel)[grid](...)`."""

    def __init__(self, kernel: Any, gpu: Any = None, *, cache: bool = True) -> None:
        check_triton_function(kernel)
        self._kernel, _, self._gpus, self._compiler = opened(kernel, gpu, cache=cache)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InputError: a launch needs a grid."""
        refuse("give the grid before the arguments, as in dry_run(kernel)[grid](...)")

    def __getitem__(self, grid: Any) -> Callable[..., Explanation]:
        """Return a function that is called like `kernel[grid]` and returns an Explanation."""

        def launch(*arguments: Any, **keywords: Any) -> Explanation:
            made = variants(self._kernel, arguments, keywords, grid)
            found = with_values(made, arguments, keywords, held_on_cpu)
            return explain_asked(asked_of(found, self._gpus), self._compiler)

        return launch


def dry_run(kernel: Any, gpu: Any = None, *, cache: bool = True) -> DryKernel:
    """Return a stand-in for *kernel* whose launch line is compiled and explained, not launched.

    `dry_run(kernel, gpu="h100,mi300x")[grid](x, y, n, BLOCK_SIZE=1024, num_warps=8)` needs no GPU.

    Args:
        kernel: A function of Triton, with or without autotune and heuristics.
        gpu: GPUs or targets, as `explain` takes them.
        cache: Whether to use the store of compiled resources.

    Raises:
        InputError: *kernel* is not a function of Triton, or a GPU is not known.
    """
    return DryKernel(kernel, gpu, cache=cache)


def explain_launch(  # noqa: PLR0913 - one argument per option of the command line
    kernel: Any,
    *,
    signature: str | None = None,
    constexprs: Words = (),
    num_warps: Any = None,
    num_stages: Any = None,
    options: Words = (),
    grid: Any = None,
    bytes_read: Any = None,
    bytes_written: Any = None,
    assume: Words = (),
    warm: bool = False,
    measure: bool = False,
    gpu: AskedGpus | None = None,
    triton: str | None = None,
    cache: bool = True,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    retry_failed: bool = False,
    progress: Callable[[str], None] = lambda _sentence: None,
    all_may_fail: bool = False,
) -> Explanation:
    """Compile and explain launches of *kernel* that are described in words.

    Args:
        kernel: A function of Triton, or "file.py:function"; importing the file runs its code.
        signature: The arguments by name, "X=*fp16, N=2048, stride=i32:16", or by position.
        constexprs: "BLOCK_SIZE=1024", several in a list, or a mapping of names to values. A list of
            values, or values with commas, makes one launch each, as for the next two. A constexpr
            that an autotuner sets chooses among the autotuner's configurations.
        num_warps: Warps per program; None takes Triton's default, as for the next two.
        num_stages: Stages of pipelined loops.
        options: Further compiler options: "maxnreg=128".
        grid: Programs in each dimension: (32, 32), "32x32" or "cdiv(N, BLOCK_SIZE)".
        bytes_read: Bytes that a launch has to read: a number, or an expression of its arguments.
        bytes_written: Bytes that a launch has to write.
        assume: Values that are not known before the launch: "cu_seqlens=1024" for every element of
            a tensor, or for an argument without a value; "offsets=64*i" for the element of a
            tensor at each index i; "trips@12=37" for the trips of the loop at line 12.
        warm: Whether to predict the time right after the same launch, with the L2 cache holding
            what that launch left there; by default the cache is empty.
        measure: Whether to also launch the kernel, with made-up tensors, and time it on the first
            GPU of this machine, which must be among *gpu*, as well as the best change found.
        gpu: GPUs or targets, as `explain` takes them.
        triton: Another Triton to compile with, as `explain` takes it.
        cache: Whether to use the store of compiled resources.
        compile_timeout: Seconds that a compile, or the import of a kernel's file, may take.
        retry_failed: Whether to retry what the store has as a failed compile.
        progress: Called with a description before each slow step, and with "" after it.
        all_may_fail: Whether to return an Explanation even if all launches fail, instead of
            raising the error of the first.

    Raises:
        InputError: something is missing or wrong; the message names it and what would be accepted.
        CompileError: Triton cannot compile the kernel, or not within *compile_timeout*.
        DoesNotFitError: no GPU fits one program of the kernel.
    """
    how = {"triton": triton, "timeout": compile_timeout, "retry_failed": retry_failed}
    kernel, name, gpus, compiler = opened(kernel, gpu, cache=cache, progress=progress, **how)
    here = None
    if measure:
        from occupancy_lab.explaining.measured import checked_gpu

        other_triton = not compiler.environment.is_running
        here = checked_gpu(gpus, name, warm=warm, other_triton=other_triton)
    described: dict[str, Any] = {
        "signature": signature,
        "constexprs": constexprs,
        "num_warps": num_warps,
        "num_stages": num_stages,
        "options": options,
        "grid": grid,
        "bytes_read": bytes_read,
        "bytes_written": bytes_written,
    }
    variants = variants_of(kernel, read_launches(kernel, **described))
    asked = asked_of(variants, gpus, name, warm=warm)
    if name is not None:
        typed = {**described, "assume": assume}
        asked = [dataclasses.replace(one, typed=typed) for one in asked]
    assumed = read_assumed(assume, innermost(kernel).arg_names)
    found = explain_asked(asked, compiler, assumed, all_may_fail=all_may_fail)
    check_trips(assumed, found.runs)
    if here is not None:
        from occupancy_lab.explaining.measured import measured

        progress(f"timing {name} on the GPU ...")
        (found,) = measured([found], str(name), here)
        progress("")
    return found


def explain_and_time(
    kernel: Any, *, most: int | None = None, runs: int = DEFAULT_RUNS, **asked: Any
) -> Explanation:
    """Explain launches as `explain_launch` does, and time those on the first GPU of this machine.

    Of several launches the *most* fastest by prediction are timed, or all, *runs* times each, with
    made-up tensors.

    Raises InputError, besides what `explain_launch` raises, if they cannot be timed.
    """
    from occupancy_lab.explaining.measured import checked_gpu, fastest_measured

    name = kernel if isinstance(kernel, str) else None
    gpus = [gpu for gpu, _ in chosen_gpus(asked.get("gpu"))]
    other_triton = not find_environment(asked.get("triton")).is_running
    here = checked_gpu(gpus, name, warm=asked.get("warm", False), other_triton=other_triton)
    found = explain_launch(kernel, **asked)
    return fastest_measured(found, str(name), here, most=most, runs=runs)


def opened(
    kernel: Any, gpu: AskedGpus | None, *, cache: bool, **how: Any
) -> tuple[Any, str | None, list[Gpu], Compiler]:
    """Return the function of Triton that *kernel* is or names, its name or None, GPUs, a Compiler.

    The GPUs are those that *gpu* names; *how* has further arguments of the Compiler.

    Raises InputError if a GPU is not known, the kernel's file cannot be imported, or another Triton
    is asked for a kernel that has no file.
    """
    gpus = chosen_gpus(gpu)
    here = {found.target for found, present in gpus if present}
    compiler = Compiler(store_directory() if cache else None, here=here, **how)
    name = None
    if isinstance(kernel, str):
        with contextlib.closing(compiler):
            compiler.check_file(kernel)
        kernel, name = load_function(kernel)[0], kernel
    elif not compiler.environment.is_running:
        refuse("another Triton runs in a process of its own, which finds a kernel by its file only")
    return kernel, name, [found for found, _ in gpus], compiler


def _of_line(kernel: Any, line: LaunchLine) -> Iterator[Variant]:
    try:
        found = list(variants(kernel, line.arguments, line.keywords, line.grid))
    except KeyError:
        # prune_configs_by may expect arguments by name; a description does not say which are.
        names = innermost(kernel).arg_names
        named = {**dict(zip(names, line.arguments, strict=False)), **line.keywords}
        found = list(variants(kernel, (), named, line.grid))
    for variant in line.choose(found):
        launch = dataclasses.replace(
            variant.launch,
            work=Work(line.read_bytes, line.written_bytes),
            typical=line.typical,
        )
        yield dataclasses.replace(variant, launch=launch)


def variants_of(kernel: Any, lines: Sequence[LaunchLine]) -> list[Variant]:
    """Return the launches of *lines*; raise InputError if the user's own code for them fails."""
    try:
        return [variant for line in lines for variant in _of_line(kernel, line)]
    except OccupancyLabError:
        raise
    except Exception as error:  # noqa: BLE001 - reported as an InputError
        # Heuristics, prune_configs_by and hooks are the user's own code.
        name = getattr(innermost(kernel), "__name__", "the kernel")
        refuse(f"what sets the constexprs of {name} fails: {type(error).__name__}: {error}")
