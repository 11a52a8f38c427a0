"""Larger grids for a launch that leaves places for programs empty, doing the same work."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from occupancy_lab.record import Record

BLOCK = re.compile(r"BLOCK|TILE", re.IGNORECASE)
"""The constexprs that are named as those are that say what a program works on at a time."""
GRID = "grid"
"""What the grid is called among the settings of a launch."""


def grid_changes(record: Record) -> Iterator[dict[str, Any]]:
    """Return larger grids that still run at once, twice, four times and as large as fits.

    Where a whole number is another one divided by the programs, as `rows_per_program` is `n_rows`
    over the grid, it is divided anew, and the grid has no program more than that needs. Without
    such a number only a kernel that asks for the number of programs does less in each. Whether
    another launch does the same work, `same_input` tells.
    """
    plan, own = record.plan, record.prediction
    if record.matrix is not None or plan is None or plan.grid is None or GRID in record.arguments:
        return
    if own is None or own.low_us is None or record.counts is None or record.counts.unknowns:
        return
    programs, most = math.prod(plan.grid), plan.resident_programs or 0
    if not 0 < programs <= most // 2:
        return
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for times in dict.fromkeys((2, 4, most // programs)):
        if programs * times > most:
            continue
        for place, size in enumerate(plan.grid):
            if size == 1 and programs > 1:
                continue
            for needed, share in _shares(record, size, size * times) or [(size * times, {})]:
                grid = (*plan.grid[:place], needed, *plan.grid[place + 1 :])
                found.setdefault((grid, *share.items()), {GRID: grid, **share})
    yield from found.values()


def _shares(record: Record, programs: int, more: int) -> list[tuple[int, dict[str, int]]]:
    """Return the numbers that are another one divided by *programs*, divided by *more* instead.

    Each is with the programs that it takes to do all of the other one.
    """
    numbers = {
        name: value
        for name, value in record.arguments.items()
        if type(value) is int and value > 1 and not BLOCK.search(name)
    }
    found: dict[str, tuple[int, int]] = {}
    for name, share in numbers.items():
        for other, whole in numbers.items():
            if other != name and whole > share == -(-whole // programs):
                less = -(-whole // more)
                found.setdefault(name, (-(-whole // less), less))
    return [(needed, {name: less}) for name, (needed, less) in found.items() if less > 1]


def grids_of_blocks(record: Record, changes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return *changes* of a block, with the grids that may cover as much with it.

    In a dimension of the grid, or in several, a whole number of the launch is divided by the block,
    beside others perhaps: of (M / BLOCK_M) * (N / BLOCK_N) programs there are half as many with
    twice BLOCK_N.
    """
    plan = record.plan
    if plan is None or plan.grid is None or GRID in record.arguments:
        return
    wholes = {one for one in record.arguments.values() if type(one) is int}
    found: set[tuple[int, ...]] = set()
    for name, block in changes.items():
        before = record.arguments.get(name)
        if type(before) is int:
            pairs = {(-(-whole // before), -(-whole // block)) for whole in wholes}
            each = (
                {size, *(size // old * new for old, new in pairs if old > 1 and size % old == 0)}
                for size in plan.grid
            )
            found |= {*itertools.product(*each)}
    yield from ({**changes, GRID: grid} for grid in sorted(found - {plan.grid}))
