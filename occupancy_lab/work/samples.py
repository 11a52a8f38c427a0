"""Counts of a launch of too many programs, from some of them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from occupancy_lab.work.counts import Amount, Counts, Footprint
from occupancy_lab.work.tiles import TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Walker = Callable[[Sequence[Sequence[int]]], Counts]

SAMPLES = (4096, 512, 64, 8)
"""Programs that are walked, the fewer the longer their loops are."""
GOLDEN = 0.6180339887498949
"""Steps of the golden ratio are even at every length, and favour no edge of the grid."""


def sampled(walk: Walker, grid: tuple[int, int, int], resident: int | None) -> Counts | None:
    """Return the counts of a launch from those of some programs; None where these are too large.

    Counts are in proportion. What all programs touch lies between what the sample touches and as
    much more as there are more programs; of programs that run at once, the first are walked.
    """
    for programs in SAMPLES:
        try:
            counts = walk(_chosen(grid, programs))
            first = walk(_first(grid, min(resident or programs, programs)))
        except TooLargeError:
            continue
        return _scaled(counts, first, resident)
    return None


def _chosen(grid: Sequence[int], programs: int) -> list[list[int]]:
    """Return places along each axis of the grid, so many that they are about *programs*."""
    shares = [1.0, 1.0, 1.0]
    left = float(programs)
    for place, axis in enumerate(sorted(range(3), key=lambda one: grid[one])):
        shares[axis] = min(grid[axis], max(left ** (1 / (3 - place)), 1.0))
        left /= shares[axis]
    return [_even(size, int(share)) for size, share in zip(grid, shares, strict=True)]


def _even(size: int, count: int) -> list[int]:
    if count >= size:
        return list(range(size))
    return sorted({int(size * (place * GOLDEN % 1)) for place in range(count)})


def _first(grid: Sequence[int], programs: int) -> list[range]:
    """Return the first programs of the grid in launch order, whole rows where there are more."""
    width, height, layers = grid
    rows = max(programs // width, 1)
    return [
        range(min(width, programs)),
        range(min(rows, height)),
        range(min(max(rows // height, 1), layers)),
    ]


def _scaled(counts: Counts, first: Counts, resident: int | None) -> Counts:
    ratio = Fraction(counts.programs, counts.walked)

    def more(amount: Amount) -> Amount:
        high = None if amount.high is None else round(amount.high * ratio)
        return Amount(round(amount.low * ratio), high)

    def wider(amount: Amount, asked: Amount) -> Amount:
        """Return how many distinct bytes the launch touches, where a sample touches *amount*."""
        if amount == asked and amount.is_exact:  # nothing is touched twice
            return more(amount)
        high = None if amount.high is None else round(amount.high * ratio)
        return Amount(amount.low, high)

    accesses = tuple(
        replace(
            one,
            executions=more(one.executions),
            elements=more(one.elements),
            active=more(one.active),
            sectors=more(one.sectors),
            lines=more(one.lines),
            unique_bytes=wider(one.unique_bytes, one.bytes),
        )
        for one in counts.accesses
    )
    return replace(
        counts,
        accesses=accesses,
        footprints=tuple(
            _footprint(one, counts, first, resident, wider) for one in counts.footprints
        ),
        arithmetic=tuple(
            replace(one, flops=more(one.flops), executions=more(one.executions))
            for one in counts.arithmetic
        ),
        loops=tuple(
            replace(one, entered=more(one.entered), trips=more(one.trips)) for one in counts.loops
        ),
        branches=tuple(
            replace(one, reached=more(one.reached), taken=more(one.taken))
            for one in counts.branches
        ),
    )


def _footprint(
    one: Footprint,
    counts: Counts,
    first: Counts,
    resident: int | None,
    wider: Callable[[Amount, Amount], Amount],
) -> Footprint:
    asked = [access for access in counts.accesses if access.tensor == one.tensor]
    reads = [access.bytes for access in asked if access.reads]
    writes = [access.bytes for access in asked if access.writes]
    there = next((each for each in first.footprints if each.tensor == one.tensor), one)
    at_once = None
    if resident is not None and there.resident is not None:
        least = math.ceil(resident / first.walked)
        high = there.resident.high
        at_once = Amount(there.resident.low, None if high is None else high * max(least, 1))
    return replace(
        one,
        read=wider(one.read, sum(reads, Amount(0, 0))),
        written=wider(one.written, sum(writes, Amount(0, 0))),
        resident=at_once,
    )
