"""Chooses the kernel and configuration that an operator launches, by prediction.

Nothing is launched to find out. The candidates' compiled results and counts are in the store, so a
machine compiles and counts them once. What a process needs repeatedly is kept in memory.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

import torch

from occupancy_lab.arguments import ALIGNMENT, Tensor
from occupancy_lab.asked import Asked
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling import kernel_launch, store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import InputError, OccupancyLabError, refuse
from occupancy_lab.gpus import Gpu, present_gpus
from occupancy_lab.inputs import NamedKernel, check_config
from occupancy_lab.kernel import Kernel, innermost, load_kernel
from occupancy_lab.launch import GRID_LIMITS
from occupancy_lab.measuring.verify import MAX_ELEMENTS_PER_THREAD
from occupancy_lab.occupancy.calculator import plan_launch
from occupancy_lab.record import Failed, Record, matrix_of
from occupancy_lab.sweeping.grid import grid_tasks
from occupancy_lab.values import INT32_MAX, Config, LaunchPlan, Problem, Target

MOST_PLANS, MOST_CANDIDATES = 4096, 256
"""How many launches of whole shapes, and sets of candidates, are kept in memory."""

_choosing = threading.RLock()


@dataclass(frozen=True, slots=True)
class Rows:
    """A matrix whose rows are *stride* elements apart; *aligned* if the first is at 16 B.

    The elements of a row are contiguous.
    """

    stride: int
    aligned: bool = True

    def stand_in(self, problem: Problem) -> Tensor:
        """Return a tensor without memory that has this layout."""
        sizes, strides = (problem.rows, problem.cols), (self.stride, 1)
        return Tensor(sizes, problem.dtype, strides=strides, aligned=self.aligned)


def as_laid_out(kernel: Kernel, matrices: Sequence[Rows], *, wide: bool) -> Kernel:
    """Return *kernel* as it is launched on *matrices*, the output first.

    *wide* says whether the offset of an element needs 64 bits.
    """

    def arguments(problem: Problem) -> tuple[Any, ...]:
        return kernel.arguments_on(problem, [one.stand_in(problem) for one in matrices])

    def constexprs(problem: Problem, config: Config) -> dict[str, Any]:
        found = dict(kernel.constexprs(problem, config))
        return found | {"INT64_OFFSETS": wide} if "INT64_OFFSETS" in found else found

    return dataclasses.replace(kernel, arguments=arguments, constexprs=constexprs)


def takes(kernel: Kernel, problem: Problem, matrices: Sequence[Rows]) -> bool:
    """Return whether *kernel* can be launched on matrices with these layouts."""
    phases = {one.stride * problem.item_bytes % ALIGNMENT for one in matrices}
    return not kernel.rows_alike or (len(phases) == 1 and all(one.aligned for one in matrices))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration that fits the GPU."""

    kernel: Kernel
    config: Config
    resident_programs: int | None
    """Programs that the whole GPU holds at once; None if its size is not known."""

    def plan(self, problem: Problem, gpu: Gpu) -> LaunchPlan | None:
        """Return the plan of a launch on *problem*, or None if it cannot be launched."""
        try:
            check_config(self.kernel, problem, self.config, gpu)
        except InputError:
            return None
        grid = self.kernel.launched_grid(problem, self.config)
        work = self.kernel.launched_work(problem, self.config)
        plan = plan_launch(grid, work, self.resident_programs)
        launched = plan is not None and 0 < (plan.num_programs or 0) <= GRID_LIMITS[0]
        return plan if launched else None


@dataclass(frozen=True, slots=True)
class Choice:
    """The launch that was chosen for a problem."""

    kernel: Kernel
    problem: Problem
    config: Config
    plan: LaunchPlan
    target: Target
    """The target for which it is compiled."""

    @property
    def num_programs(self) -> int:
        """Programs launched."""
        return self.plan.num_programs or 0


def choose(kernels: Sequence[str], problem: Problem, matrices: Sequence[Rows], gpu: Gpu) -> Choice:
    """Return the launch of *kernels* that is predicted to be fastest on *gpu*.

    *matrices* are the output and the inputs. The time is that of a typical number of rows, which
    represents those between two powers of two. What is not in the store is compiled and counted in
    other processes; for another number of rows this is rarely needed.

    Raises InputError if nothing can be predicted or compiled.
    """
    wide = problem.rows * max(problem.cols, *(one.stride for one in matrices)) > INT32_MAX
    typical = dataclasses.replace(problem, rows=_typical_rows(problem.rows))
    for one in _candidates(tuple(kernels), typical, tuple(matrices), gpu, wide=wide):
        if (plan := one.plan(problem, gpu)) is not None:
            return Choice(one.kernel, problem, one.config, plan, gpu.target)
    msg = f"nothing can be predicted for {gpu.title}, so that no kernel can be chosen on it"
    raise InputError(msg)


def _typical_rows(rows: int) -> int:
    """Return the number that represents those between two powers of two and compiles like *rows*.

    Triton compiles 1, multiples of 16 and all other numbers differently.
    """
    power = 1 << (rows.bit_length() - 1)
    return power if rows == 1 or rows % ALIGNMENT == 0 else power + 1


@lru_cache(MOST_CANDIDATES)
def _candidates(
    kernels: Sequence[str], problem: Problem, matrices: Sequence[Rows], gpu: Gpu, *, wide: bool
) -> tuple[Candidate, ...]:
    """Return the configurations of *kernels* that fit, ordered by predicted time.

    These are those that `tune` tries, without those that compile slowly or have no time.
    """
    laid_out = [
        NamedKernel(name, as_laid_out(load_kernel(name), matrices, wide=wide))
        for name in kernels
        if takes(load_kernel(name), problem, matrices)
    ]
    tasks = [task for task in grid_tasks(laid_out, problem, gpu) if _compiles_soon(task)]
    compiler = Compiler(store_directory())
    runs = with_counts(compile_runs(tasks, compiler), tasks, compiler)
    records = [run for run in runs if isinstance(run, Record)]
    if not records:
        reasons = [run.failure.reason for run in runs if isinstance(run, Failed)]
        why = reasons[0] if reasons else "no kernel takes rows with these strides and addresses"
        refuse(f"nothing can be launched on {problem.cols} {problem.dtype} columns: {why}")
    timed = [(run.prediction.us, run) for run in records if run.prediction is not None]
    return tuple(
        Candidate(matrix_of(run).kernel, run.config, run.calculation.resident_programs)
        for _, run in sorted(timed, key=itemgetter(0))
    )


def _compiles_soon(task: Asked) -> bool:
    config = matrix_of(task).config
    if matrix_of(task).kernel.configs is not None:
        return True
    threads = config.num_warps * task.gpu.architecture.warp_size
    return config.block_size <= MAX_ELEMENTS_PER_THREAD * threads


@cache
def _gpu(device: int) -> Gpu:
    """Return the GPU that torch calls cuda:*device*; InputError if nothing is known of it."""
    vendor = "AMD" if torch.version.hip else "NVIDIA"
    vendors = (one for one in present_gpus() if one.gpu.vendor == vendor)
    found = next((one.gpu for one in vendors if one.index == device), None)
    if found is None:
        name = torch.cuda.get_device_name(device)
        refuse(f"nothing is known of {name}, so no kernel can be chosen on it; use torch.softmax")
    return found


@dataclass(frozen=True, slots=True)
class Launcher:
    """A kernel that is loaded on a GPU, ready for launches on matrices of one shape."""

    launch: Callable[..., None]
    """Takes the stream and the addresses of the output, the inputs and the workspace."""
    workspace: int
    """int32 elements of the workspace; 0 without one."""


@lru_cache(MOST_PLANS)
def launcher(
    kernels: tuple[str, ...], device: int, problem: Problem, matrices: tuple[Rows, ...]
) -> Launcher:
    """Return the best of *kernels* on *matrices*, the output first, loaded on cuda:*device*.

    Raises InputError if nothing is known of the GPU, and while a CUDA graph is captured.
    """
    if torch.cuda.is_current_stream_capturing():
        refuse(
            f"{problem.words} is new to this process, and no kernel can be loaded while a CUDA"
            " graph is captured; call it once on such a tensor before the capture"
        )
    with _choosing:
        choice = choose(kernels, problem, matrices, _gpu(device))
        with torch.cuda.device(device):
            return load(choice)


def load(choice: Choice) -> Launcher:
    """Return *choice* compiled by Triton for the current GPU and loaded on it."""
    kernel, problem = choice.kernel, choice.problem
    function = innermost(kernel.function)
    launch = kernel_launch(kernel, problem, choice.config, choice.target)
    compiled = launch.warm_up(function)
    if compiled is None:
        refuse("a jit_cache_hook of the script keeps Triton from compiling", OccupancyLabError)
    bound = launch.bound(function)
    values = tuple(bound[parameter.name] for parameter in function.params)
    tensors, elements = 1 + kernel.operands, 0
    if kernel.workspace is not None:
        tensors, elements = tensors + 1, max(kernel.workspace(problem, choice.config), 1)
    return Launcher(_direct(compiled, choice.num_programs, values[tensors:]), elements)


def _direct(compiled: Any, num_programs: int, rest: tuple[Any, ...]) -> Callable[..., None]:
    """Return a function that launches *compiled* as Triton's `run` does once it has found it.

    Triton's own takes ten times as long to find out what is known here.
    """
    from triton import knobs

    _ = compiled.run  # Triton loads a kernel when its run is read
    runtime, function, packed = knobs.runtime, compiled.function, compiled.packed_metadata

    def launch(stream: int, *pointers: int) -> None:
        enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
        if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
            told = compiled.launch_metadata((num_programs,), stream, *pointers, *rest)
            hooks = (told, enter, leave)
        else:
            hooks = (None, None, None)
        # Read each time, because `trace` replaces it by its own launcher.
        run = compiled.run
        run(num_programs, 1, 1, stream, function, packed, *hooks, *pointers, *rest)

    return launch
