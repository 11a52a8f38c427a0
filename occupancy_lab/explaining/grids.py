"""Larger grids for a launch that leaves places for programs empty, doing the same work."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from occupancy_lab.asked import Asked
    from occupancy_lab.record import Record

GRID = "grid"
"""What the grid is called among the settings of a launch."""


def grid_changes(record: Record) -> Iterator[dict[str, Any]]:
    """Return larger grids that still run at once, twice, four times and as large as fits.

    Where a whole number is another one divided by the programs, as `rows_per_program` is `n_rows`
    over the grid, it is divided anew. Without such a number only a kernel that asks for the number
    of programs does less in each. Whether another launch does the same work, `same_input` tells.
    """
    plan, own = record.plan, record.prediction
    if record.matrix is not None or plan is None or plan.grid is None or GRID in record.arguments:
        return
    if own is None or own.low_us is None or record.counts is None or record.counts.unknowns:
        return
    programs, most = math.prod(plan.grid), plan.resident_programs or 0
    if not 0 < programs <= most // 2:
        return
    for times in dict.fromkeys((2, 4, most // programs)):
        if programs * times > most:
            continue
        for place, size in enumerate(plan.grid):
            if size == 1 and programs > 1:
                continue
            grid = (*plan.grid[:place], size * times, *plan.grid[place + 1 :])
            shares = _shares(record, size, size * times)
            yield from ({GRID: grid, **share} for share in shares or [{}])


def _shares(record: Record, programs: int, more: int) -> list[dict[str, int]]:
    """Return the numbers that are another one divided by *programs*, divided by *more* instead."""
    numbers = {
        name: value
        for name, value in record.arguments.items()
        if type(value) is int and name not in record.options and value > 1
    }
    found: dict[str, dict[str, int]] = {}
    for name, share in numbers.items():
        for other, whole in numbers.items():
            if other != name and whole > share == -(-whole // programs):
                found.setdefault(name, {name: -(-whole // more)})
    return [one for one in found.values() if 1 not in one.values()]


def regridded(asked: Asked, changes: Mapping[str, Any]) -> Asked | None:
    """Return *asked* over another grid, with other whole numbers; None where one is not passed."""
    numbers = {name: value for name, value in changes.items() if name != GRID}
    launch, names = asked.launch, [one.name for one in asked.function.params]
    given = names[: len(launch.arguments)]
    if not numbers.keys() <= {*given, *launch.keywords}:
        return None
    arguments = tuple(
        numbers.get(name, value) for name, value in zip(given, launch.arguments, strict=True)
    )
    keywords = {name: numbers.get(name, value) for name, value in launch.keywords.items()}
    other = dataclasses.replace(launch, arguments=arguments, keywords=keywords, grid=changes[GRID])
    return dataclasses.replace(asked, launch=other)
