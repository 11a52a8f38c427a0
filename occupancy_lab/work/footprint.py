"""The distinct bytes that accesses touch, as sets of runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work.accesses import (
    Cells,
    Touch,
    boxes,
    counted_values,
    distinct_rows,
    grouped,
    restricted,
    runs_of,
    tile_offsets,
)
from occupancy_lab.work.counts import Amount, Footprint
from occupancy_lab.work.tiles import classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST_RUNS = 2**22
MOST_KINDS, SAMPLED = 64, 16
"""Kinds of programs whose bytes are counted one by one, and programs where there are more."""


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
    first, place = distinct_rows(rows)
    runs = runs_of(*tile_offsets(touch, rows[first]), touch.item_bytes)
    bounds = np.searchsorted(runs.rows, np.arange(len(first) + 1))
    for (_, steps), row in zip(kinds, place, strict=True):
        part = slice(bounds[row], bounds[row + 1])
        found.append(spread(Bytes(runs.starts[part], runs.ends[part]), steps))
    return union(found)


def by_codes(cells: Cells) -> list[tuple[Any, Any]]:
    """Return the starts of each kind of tile, sorted."""
    if not len(cells.starts):
        return []
    if not cells.codes.any():
        return [(cells.codes[0], counted_values(cells.starts)[0])]
    first, place = distinct_rows(cells.codes)
    return [
        (cells.codes[one], counted_values(cells.starts[place == number])[0])
        for number, one in enumerate(first)
    ]


def is_certain(touch: Touch) -> bool:
    """Whether all that it touches is known."""
    known = not touch.offset.hidden and not touch.mask.hidden and touch.tensor is not None
    return known and touch.reach.factor == Amount.of(1)


def touched_bytes(touch: Touch) -> Bytes | None:
    """Return the bytes that an access is known to touch; None where they are too scattered."""
    if not is_certain(touch):
        return NO_BYTES
    try:
        return touched(touch)
    except TooManyRunsError:
        return None


def distinct(several: Sequence[tuple[Touch, Amount, Bytes | None]], limit: int | None) -> Amount:
    """Return how many distinct bytes accesses of a tensor touch.

    Each comes with the bytes that it asks for and those that it is known to touch. *limit* is the
    size of the tensor, where it is known.
    """
    certain = union(known for _, _, known in several if known is not None).size
    more = [asked.high for touch, asked, known in several if known is None or not is_certain(touch)]
    high = None if None in more else certain + sum(one or 0 for one in more)
    if more and limit is not None:
        high = max(limit if high is None else min(high, limit), certain)
    return Amount(certain, high)


def footprints(
    several: Sequence[tuple[Touch, Amount, Bytes | None]],
    grid: tuple[int, int, int],
    resident: int | None,
    sizes: Mapping[str, int],
) -> tuple[Footprint, ...]:
    """Return the footprint of each tensor, of accesses as `distinct` takes them.

    *sizes* are bytes of tensors, and *resident* programs run at once.
    """
    found = []
    for tensor in dict.fromkeys(one.tensor for one, _, _ in several):
        mine = [one for one in several if one[0].tensor == tensor]
        limit = sizes.get(tensor or "")
        read = distinct([one for one in mine if one[0].reads], limit)
        written = distinct([one for one in mine if one[0].writes], limit)
        whole = distinct(mine, limit)
        at_once = None if resident is None else Amount(0, whole.high)
        a_program = None
        if all(is_certain(touch) and known is not None for touch, _, known in mine):
            touches = [touch for touch, _, _ in mine]
            a_program = mean(touches, grid)
            if resident is not None:
                at_once = whole
                if resident < math.prod(grid):
                    at_once = Amount.of(_of(touches, boxes(grid, resident)))
        found.append(Footprint(tensor, read, written, a_program, at_once))
    return tuple(found)


def _of(touches: Sequence[Touch], parts: Iterable[tuple[slice, ...]]) -> int:
    """Return the distinct bytes of the programs in boxes of the grid."""
    return union(touched(restricted(one, box)) for box in parts for one in touches).size


def mean(touches: Sequence[Touch], grid: Sequence[int]) -> float:
    """Return the distinct bytes of a program, in the mean of all or, of many kinds, of a sample."""
    width, height, _ = grid
    programs = math.prod(grid)
    index = kinds(touches)
    if index is None:
        chosen, weights = np.zeros(1, "int64"), np.ones(1, "int64")
    else:
        index = np.broadcast_to(index, grid).transpose(2, 1, 0).reshape(-1)
        _, chosen, weights = np.unique(index, return_index=True, return_counts=True)
        if len(chosen) > MOST_KINDS:
            steps = np.arange(SAMPLED) * 0.6180339887498949 % 1  # even, and favours no edge
            chosen, weights = (programs * steps).astype("int64"), np.ones(SAMPLED, "int64")
    sizes = []
    for number in chosen.tolist():
        x, y, z = number % width, number // width % height, number // (width * height)
        box = slice(x, x + 1), slice(y, y + 1), slice(z, z + 1)
        sizes.append(_of(touches, [box]))
    return float(np.average(sizes, weights=weights))


def kinds(touches: Sequence[Touch]) -> Any:
    """Return a number for each program, the same for those that touch the same but for its place.

    None where all do.
    """
    found: list[Any] = []
    base = None
    for touch in touches:
        start: Any = np.zeros((1, 1, 1), "int64")
        for one in touch.offset.outer:
            own, rest = _of_program(one.array)
            start = start + own
            found.append(rest)
        indexes = [one.index for one in touch.offset.tiles] + [one[0] for one in touch.mask.tiles]
        for array in (*touch.reach.where, *touch.mask.outer, *indexes):
            if array is not None:
                found += _of_program(array)
        if base is not None:
            found.append(start - base)
        base = start if base is None else base
    index, _ = classes([one for one in found if one.size > 1] or [np.zeros((1, 1, 1), "int64")])
    return index


def _of_program(array: Any) -> tuple[Any, Any]:
    """Return what *array* is in each program's first iteration, and a number for the others."""
    grid = array.shape[:3]
    flat = array.reshape(*grid, -1).astype("int64")
    own = flat[..., 0]
    if flat.shape[-1] == 1 or math.prod(grid) == 1:
        return own, np.zeros((1, 1, 1), "int64")
    weights = np.random.default_rng(0).integers(1 << 62, size=flat.shape[-1])
    return own, (flat - own[..., None]) @ weights
