"""From an occupancy to a launch: how many programs, in how many rounds; and what they move."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from occupancy_lab.errors import refuse
from occupancy_lab.kernel import Grid
from occupancy_lab.values import LaunchPlan, Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from occupancy_lab.kernel import Kernel, MemoryStep
    from occupancy_lab.values import Config, Problem


def plan_launch(
    kernel: Kernel,
    problem: Problem,
    config: Config,
    programs_per_multiprocessor: int | None,
    multiprocessors: int | None,
) -> LaunchPlan:
    """Return the launch of *kernel*; a persistent kernel fills the GPU once, one piece per program.

    Parts that need an unknown number (None) of programs or multiprocessors are None. num_programs
    is 0 where fewer programs are resident than wait for each other.
    """
    resident = None
    if programs_per_multiprocessor is not None and multiprocessors is not None:
        resident = programs_per_multiprocessor * multiprocessors
    work = _work(kernel, problem, config)
    num_programs: int | None = work
    if kernel.grid is Grid.PERSISTENT:
        num_programs = None if resident is None else min(work, resident)
    if resident is not None and kernel.together and kernel.together(problem, config) > resident:
        num_programs = 0
    return LaunchPlan(work, num_programs, resident)


def _work(kernel: Kernel, problem: Problem, config: Config) -> int:
    if kernel.work is not None:
        return kernel.work(problem, config)
    if kernel.grid is Grid.BLOCKS:
        return -(-problem.rows * problem.cols // config.block_size)
    return problem.rows


MAX_DIMENSIONS = 3


def plan_grid(grid: Sequence[int], resident_programs: int | None) -> LaunchPlan:
    """Return the launch of any kernel over *grid*, in 1 to 3 dimensions, each program its own work.

    *resident_programs* is what the whole GPU holds at once, as a Calculation has it: whole clusters
    where the kernel has several CTAs per program; None where it is not known. A grid with a 0 in it
    launches nothing.

    Raises InputError for a grid that no launch takes.
    """
    sizes = tuple(grid)
    if not 1 <= len(sizes) <= MAX_DIMENSIONS or any(size < 0 for size in sizes):
        refuse(f"the grid is {sizes}; it has 1 to {MAX_DIMENSIONS} dimensions, each 0 or more")
    programs = math.prod(sizes)
    return LaunchPlan(programs, programs, resident_programs, sizes)


def kernel_traffic(kernel: Kernel, problem: Problem) -> Traffic | None:
    """Return the bytes that *kernel* moves on *problem*; None where it does not say."""
    return None if kernel.memory_steps is None else traffic(kernel.memory_steps(problem), problem)


def traffic(steps: Iterable[MemoryStep], problem: Problem) -> Traffic:
    """Return the bytes that *steps* move on *problem*."""
    reads = writes = 0
    for step in steps:
        reads += step.reads
        writes += step.writes
    return Traffic(reads * problem.item_bytes, writes * problem.item_bytes)
