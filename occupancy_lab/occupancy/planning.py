"""From an occupancy to a launch: how many programs, in how many rounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from occupancy_lab.values import LaunchPlan

if TYPE_CHECKING:
    from occupancy_lab.values import Work


def plan_launch(
    grid: tuple[int, ...] | None, work: Work, resident_programs: int | None
) -> LaunchPlan | None:
    """Return how a launch over *grid* is spread; None where how much there is to do is not known.

    Without a grid the launch is persistent: it fills the GPU once, at most one program for each
    piece of its work. *resident_programs* is what the whole GPU holds at once, as a Calculation has
    it: whole clusters where the kernel has several CTAs per program; None where it is not known. A
    grid with a 0 in it launches nothing. num_programs is 0 too where fewer programs are resident
    than wait for each other.
    """
    num_programs = None if grid is None else math.prod(grid)
    pieces = num_programs if work.pieces is None else work.pieces
    if pieces is None:
        return None
    if grid is None and resident_programs is not None:
        num_programs = min(pieces, resident_programs)
    if resident_programs is not None and (work.together or 0) > resident_programs:
        num_programs = 0
    return LaunchPlan(pieces, num_programs, resident_programs, grid)
