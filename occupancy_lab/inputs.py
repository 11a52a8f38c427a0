"""What was asked for: filled up with what is usual, and checked before any work is done."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from occupancy_lab.errors import DoesNotFitError, InputError, quoted
from occupancy_lab.gpus import find_gpu, find_gpus, present_gpus
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.values import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from occupancy_lab.gpus import Architecture, Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.values import Config, Problem, Resources

DEFAULT_ROWS = 4096
"""The rows of the tutorial's benchmark."""
TUTORIAL_KERNEL = "softmax"
"""The kernel whose default configuration is the tutorial's."""
DEFAULT_GPUS = "h100,mi300x"
"""One of each vendor, where no GPU is at hand."""
MAX_BLOCK_SIZE = 1_048_576
"""The most elements of one tensor in a Triton kernel: TRITON_MAX_TENSOR_NUMEL."""
MAX_STAGES = 64
"""The most stages of a loop. Triton writes each out before the loop, so that the time of a compile
grows with their square; what is in flight in 64 covers the latency of any GPU's memory."""
MAX_MATRIX_BYTES = 2**63 - 1
FIRST_CAPABILITY_THAT_COPIES_AHEAD = 80


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least *number*, which is 1 or more."""
    return 1 << (number - 1).bit_length()


def check_problem(problem: Problem) -> None:
    """Raise InputError unless the matrix has rows and columns, of a dtype the lab knows."""
    for name in ("rows", "cols"):
        number = getattr(problem, name)
        if number < 1:
            msg = f"{name} is {number}; a matrix has at least 1"
            raise InputError(msg)
    if problem.dtype not in ITEM_BYTES:
        msg = f"dtype {quoted(problem.dtype)} is not known; give one of {', '.join(ITEM_BYTES)}"
        raise InputError(msg)
    if problem.matrix_bytes > MAX_MATRIX_BYTES:
        most = MAX_MATRIX_BYTES // problem.item_bytes
        msg = (
            f"rows times cols is more than {most}, and Triton counts the bytes of a {problem.dtype}"
            " matrix in 64 bits; give fewer rows or cols"
        )
        raise InputError(msg)


def check_num_warps(num_warps: int, architecture: Architecture) -> None:
    """Raise InputError unless a program of the architecture may have *num_warps* warps."""
    words = f"{architecture.warp_word}s of {architecture.warp_size} threads"
    if not _is_power_of_two(num_warps):
        msg = f"num_warps is {num_warps}; Triton takes a power of two"
        raise InputError(msg)
    if num_warps > architecture.max_warps_per_program:
        msg = (
            f"num_warps is {num_warps}; a program on {architecture.target_name} has at most"
            f" {architecture.max_warps_per_program} {words}"
        )
        raise InputError(msg)


def check_config(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu) -> None:
    """Raise InputError unless *kernel* can be launched so on *problem*."""
    check_num_warps(config.num_warps, gpu.architecture)
    if config.num_stages < 1:
        msg = f"num_stages is {config.num_stages}; a loop has at least 1 stage"
        raise InputError(msg)
    if config.num_stages > MAX_STAGES:
        msg = (
            f"num_stages is {config.num_stages}; at most {MAX_STAGES} stages are compiled, more"
            " than any GPU needs to keep its memory busy"
        )
        raise InputError(msg)
    block_size = config.block_size
    needed = 1 if kernel.grid is Grid.BLOCKS else next_power_of_two(problem.cols)
    if needed > MAX_BLOCK_SIZE:
        msg = (
            f"a row of {problem.cols} cols takes a BLOCK_SIZE of {needed}; Triton holds at most"
            f" {MAX_BLOCK_SIZE} elements in a program"
        )
        raise InputError(msg)
    if not _is_power_of_two(block_size):
        at_least = min(max(needed, next_power_of_two(max(block_size, 1))), MAX_BLOCK_SIZE)
        msg = f"BLOCK_SIZE is {block_size}; tl.arange takes a power of two, such as {at_least}"
        raise InputError(msg)
    if block_size < needed:
        msg = (
            f"BLOCK_SIZE is {block_size}, below {problem.cols} cols: a program holds a whole row;"
            f" use {needed}"
        )
        raise InputError(msg)
    if block_size > MAX_BLOCK_SIZE:
        msg = (
            f"BLOCK_SIZE is {block_size}; Triton holds at most {MAX_BLOCK_SIZE} elements in a"
            " program"
        )
        raise InputError(msg)


def check_stages(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu) -> None:
    """Raise DoesNotFitError, before a compile, where the stages alone take too much shared memory.

    A configuration that passes may still not fit; `check_fits` knows once it is compiled.
    """
    copies = gpu.target.backend == "cuda" and (
        int(gpu.target.arch) >= FIRST_CAPABILITY_THAT_COPIES_AHEAD
    )
    if kernel.stage_bytes is None or not copies:
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


def check_fits(calculation: Calculation, num_stages: int = 1) -> None:
    """Raise DoesNotFitError, saying what would fit, where a GPU holds not one program."""
    resources, occupancy = calculation.resources, calculation.occupancy
    if occupancy.programs_per_multiprocessor > 0:
        return
    title, architecture = calculation.title, calculation.architecture
    if "shared" in occupancy.limiters:
        needed = resources.shared + resources.static_shared
        msg = (
            f"{title} gives a program at most {architecture.max_shared} B of shared memory, and"
            f" this one needs {needed} B; {_what_would_fit(resources, architecture, num_stages)}"
        )
        raise DoesNotFitError(msg, needed=needed, available=architecture.max_shared)
    if "registers" in occupancy.limiters:
        steps = {step.resource: step.most_for_one_more for step in calculation.next_steps}
        available = steps["registers"] or 0
        warps = f"{resources.num_warps} {architecture.warp_word}s"
        msg = (
            f"{title} cannot hold one program of {warps} with {resources.n_regs} registers a"
            f" thread; with {warps} a thread may have {available}"
        )
        raise DoesNotFitError(msg, needed=resources.n_regs, available=available)
    msg = f"{title} holds not one program of this kernel, for want of {occupancy.limiters[0]}"
    raise DoesNotFitError(msg, needed=1, available=0)


def _what_would_fit(resources: Resources, architecture: Architecture, num_stages: int) -> str:
    pipeline = resources.pipeline_shared or 0
    if num_stages > 1 and pipeline:
        buffer = pipeline // (num_stages - 1)
        spare = architecture.max_shared - (resources.shared + resources.static_shared - pipeline)
        if spare >= 0:
            fits = 1 + spare // buffer
            return f"num_stages {fits} would fit, at {buffer} B a stage after the first"
    return f"{architecture.max_shared} B would fit"


def chosen_kernel(name: str) -> Kernel:
    """Return the kernel called *name*; InputError where there is none or Triton compiles none."""
    kernel = load_kernel(name)
    if kernel.function is None:
        msg = f"{kernel.name} is made of torch operations: Triton compiles nothing of it"
        raise InputError(msg)
    return kernel


def chosen_config(
    kernel: Kernel, problem: Problem, gpu: Gpu, chosen: Mapping[str, int | None]
) -> Config:
    """Return what was *chosen* of a configuration; the kernel's own choice of what is None."""
    default = kernel.default_config(problem, gpu.architecture.max_shared)
    given = {name: value for name, value in chosen.items() if value is not None}
    return dataclasses.replace(default, **given)


def chosen_gpus(names: str | Iterable[str] | None) -> tuple[tuple[Gpu, bool], ...]:
    """Return the GPUs of a list, or of a text with commas, each with whether it is here.

    `explain` says what None is.
    """
    if names is not None and not isinstance(names, str):
        names = ",".join(names)
    here = present_gpus()
    if names is None and here:
        return ((here[0].gpu, True),)
    targets_here = {present.gpu.target for present in here[:1]}
    asked = find_gpus(DEFAULT_GPUS if names is None else names)
    return tuple((gpu, gpu.target in targets_here) for gpu in asked)


def gpu_measured(key: str, devices: Collection[str]) -> Gpu:
    """Return the GPU of rows that name it by *key* and were measured on *devices*.

    One that the table of devices lacks, whose size only its driver knows, is found where it is at
    hand under the drivers' name for it.

    Raises InputError where nothing has this key.
    """
    found = find_gpu(key)
    if found.multiprocessors is not None:
        return found
    here = (one.gpu for one in present_gpus() if one.gpu.key == key and {one.name} == set(devices))
    return next(here, found)
