"""The distinct bytes that accesses touch, as sets of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work.accesses import (
    Cells,
    Touch,
    boxes,
    grouped,
    restricted,
    runs_of,
    tile_offsets,
)
from occupancy_lab.work.counts import Amount, Footprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST_RUNS = 2**22
SAMPLED = 8
"""Programs whose bytes are counted one by one, where there are more."""


@dataclass(frozen=True, slots=True, eq=False)
class Bytes:
    """A set of bytes as runs, sorted and apart from each other."""

    starts: Any
    ends: Any

    @property
    def size(self) -> int:
        """How many there are."""
        return int((self.ends - self.starts).sum())


NO_BYTES = Bytes(np.zeros(0, "int64"), np.zeros(0, "int64"))


class TooManyRunsError(Exception):
    """A set of bytes has more runs than there is time for."""


def merged(starts: Any, ends: Any) -> Bytes:
    """Return the union of runs."""
    if len(starts) > MOST_RUNS:
        raise TooManyRunsError
    if len(starts) < 2:  # noqa: PLR2004
        return Bytes(starts, ends)
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reached = np.maximum.accumulate(ends)
    breaks = np.flatnonzero(starts[1:] > reached[:-1])
    first, last = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(starts) - 1]])
    return Bytes(starts[first], reached[last])


def union(several: Iterable[Bytes]) -> Bytes:
    """Return the union of sets of bytes."""
    kept = [one for one in several if len(one.starts)]
    if len(kept) < 2:  # noqa: PLR2004
        return kept[0] if kept else NO_BYTES
    return merged(
        np.concatenate([one.starts for one in kept]), np.concatenate([one.ends for one in kept])
    )


def spread(one: Bytes, steps: Sequence[Any]) -> Bytes:
    """Return *one* moved by each sum of one step of each of *steps*, the shortest steps first."""
    for each in sorted(steps, key=_least_step):
        if len(each) == 1:
            one = Bytes(one.starts + each[0], one.ends + each[0])
            continue
        if len(one.starts) * len(each) > MOST_RUNS:
            raise TooManyRunsError
        one = merged(
            (each[:, None] + one.starts[None]).reshape(-1),
            (each[:, None] + one.ends[None]).reshape(-1),
        )
    return one


def _least_step(steps: Any) -> int:
    return int(np.diff(steps).min()) if len(steps) > 1 else 0


def touched(touch: Touch) -> Bytes:
    """Return the bytes that an access touches, as if what is unknown were 0."""
    groups = [by_codes(one) for one in grouped(touch, None)]
    found = []
    width = len(touch.offset.tiles) + len(touch.mask.tiles)
    kinds: list[tuple[Any, list[Any]]] = [(np.zeros(width, "int64"), [])]
    for group in groups:
        kinds = [(codes + other, [*steps, more]) for codes, steps in kinds for other, more in group]
        if len(kinds) > 2**16:
            raise TooManyRunsError
    if not kinds:
        return NO_BYTES
    rows = np.array([codes for codes, _ in kinds])
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    runs = runs_of(*tile_offsets(touch, distinct), touch.item_bytes)
    bounds = np.searchsorted(runs.rows, np.arange(len(distinct) + 1))
    for (_, steps), row in zip(kinds, place.ravel(), strict=True):
        part = slice(bounds[row], bounds[row + 1])
        found.append(spread(Bytes(runs.starts[part], runs.ends[part]), steps))
    return union(found)


def by_codes(cells: Cells) -> list[tuple[Any, Any]]:
    """Return the starts of each kind of tile, sorted."""
    if not len(cells.starts):
        return []
    keys, place = np.unique(cells.codes, axis=0, return_inverse=True)
    order = np.lexsort((cells.starts, place.ravel()))
    bounds = np.searchsorted(place.ravel()[order], np.arange(len(keys) + 1))
    starts = cells.starts[order]
    return [(key, np.unique(starts[bounds[one] : bounds[one + 1]])) for one, key in enumerate(keys)]


def is_certain(touch: Touch) -> bool:
    """Whether all that it touches is known."""
    known = not touch.offset.hidden and not touch.mask.hidden and touch.tensor is not None
    return known and touch.reach.factor == Amount.of(1)


def distinct(touches: Sequence[Touch], asked: Sequence[Amount], limit: int | None) -> Amount:
    """Return how many distinct bytes accesses of a tensor touch, of which *asked* bytes are active.

    *limit* is the size of the tensor, where it is known.
    """
    try:
        certain = union(touched(one) for one in touches if is_certain(one)).size
    except TooManyRunsError:
        certain = 0
        high: int | None = _sum(asked)
    else:
        others = [two for one, two in zip(touches, asked, strict=True) if not is_certain(one)]
        more = _sum(others)
        high = None if more is None else certain + more
    if high is not None and limit is not None:
        high = max(min(high, limit), certain)
    if high is None and limit is not None:
        high = max(limit, certain)
    return Amount(certain, high)


def _sum(amounts: Iterable[Amount]) -> int | None:
    highs = [one.high for one in amounts]
    return None if None in highs else sum(one or 0 for one in highs)


def footprints(
    touches: Sequence[Touch],
    asked: Sequence[Amount],
    grid: tuple[int, int, int],
    resident: int | None,
    sizes: Mapping[str, int],
) -> tuple[Footprint, ...]:
    """Return the footprint of each tensor that *touches* touch; *sizes* are bytes of tensors."""
    found = []
    for tensor in dict.fromkeys(one.tensor for one in touches):
        mine = [
            (one, bytes_)
            for one, bytes_ in zip(touches, asked, strict=True)
            if one.tensor == tensor
        ]
        limit = sizes.get(tensor or "")
        reads, writes = (
            distinct(
                [one for one, _ in mine if getattr(one, use)],
                [bytes_ for one, bytes_ in mine if getattr(one, use)],
                limit,
            )
            for use in ("reads", "writes")
        )
        known = all(is_certain(one) for one, _ in mine)
        at_once = None
        if resident is not None:
            at_once = _of_first([one for one, _ in mine], grid, resident) if known else None
            if at_once is None:
                at_once = Amount(0, _high(reads, writes))
        a_program = _mean([one for one, _ in mine], grid) if known else None
        found.append(Footprint(tensor, reads, writes, a_program, at_once))
    return tuple(found)


def _high(*several: Amount) -> int | None:
    return _sum(several)


def _of_first(touches: Sequence[Touch], grid: Sequence[int], first: int) -> Amount | None:
    try:
        return Amount.of(
            union(
                touched(restricted(one, box)) for box in boxes(grid, first) for one in touches
            ).size
        )
    except TooManyRunsError:
        return None


def _mean(touches: Sequence[Touch], grid: Sequence[int]) -> float | None:
    """Return the distinct bytes of a program, in the mean of all or of a sample."""
    width, height, depth = grid
    programs = width * height * depth
    chosen = range(programs)
    if programs > SAMPLED:
        step = 0.6180339887498949  # steps of the golden ratio are even, and favour no edge
        chosen = sorted({int(programs * ((one * step) % 1)) for one in range(SAMPLED)})  # type: ignore[assignment]
    sizes = []
    for number in chosen:
        x, y, z = number % width, number // width % height, number // (width * height)
        box = slice(x, x + 1), slice(y, y + 1), slice(z, z + 1)
        try:
            sizes.append(union(touched(restricted(one, box)) for one in touches).size)
        except TooManyRunsError:
            return None
    return sum(sizes) / len(sizes)
