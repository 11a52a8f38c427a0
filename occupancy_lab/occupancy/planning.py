"""From an occupancy to a launch: how many programs, in how many rounds; and what they move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.kernel import Grid
from occupancy_lab.values import LaunchPlan, Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from occupancy_lab.kernel import Kernel, MemoryStep
    from occupancy_lab.values import Config, Problem


def plan_launch(
    kernel: Kernel,
    problem: Problem,
    config: Config,
    programs_per_multiprocessor: int | None,
    multiprocessors: int | None,
) -> LaunchPlan:
    """Return the launch of *kernel*; a persistent one fills the GPU once, at most a program a row.

    Parts that need an unknown number (None) of programs or multiprocessors are None.
    """
    resident = None
    if programs_per_multiprocessor is not None and multiprocessors is not None:
        resident = programs_per_multiprocessor * multiprocessors
    work = problem.rows
    if kernel.grid is Grid.BLOCKS:
        work = -(-problem.rows * problem.cols // config.block_size)
    num_programs: int | None = work
    if kernel.grid is Grid.PERSISTENT:
        num_programs = None if resident is None else min(work, resident)
    return LaunchPlan(work, num_programs, resident)


def traffic(steps: Iterable[MemoryStep], problem: Problem) -> Traffic:
    """Return the bytes that *steps* move on *problem*."""
    reads = writes = 0
    for step in steps:
        reads += step.reads
        writes += step.writes
    return Traffic(reads * problem.item_bytes, writes * problem.item_bytes)
