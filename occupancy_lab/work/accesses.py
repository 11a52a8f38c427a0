"""What an access touches in all programs and iterations: elements, sectors, lines, distinct bytes.

Programs and iterations are grouped by the tile of addresses that they touch, of which most kernels
have few. For sectors, only the offset of a tile's start within a cache line matters.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from occupancy_lab.work import tiles
from occupancy_lab.work.counts import LINE, NOTHING, SECTOR, Amount
from occupancy_lab.work.tiles import MOST_CELLS, Mask, Number, Tile, TooLargeError
from occupancy_lab.work.tilewise import classes, numbered, outer_of

ONCE = Amount(1, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """The programs and iterations that reach an operation."""

    where: tuple[Any, ...]
    """Boolean arrays over the outer axes: all of them are true for those that reach it."""
    sizes: tuple[int, ...]
    factor: Amount = ONCE
    """How often each of them reaches it, where that is not known."""
    loops: tuple[object, ...] = ()
    """Identifiers of the enclosing loops, outermost first."""

    def executions(self) -> Amount:
        """Return how often the operation is executed."""
        return scaled(self.factor, count(self.where, self.sizes))

    def together(self) -> Any:
        """Return `where` as one array over programs and iterations."""
        return outer_of(Mask(self.where))


def scaled(factor: Amount, number: int) -> Amount:
    """Return *number* times a factor that may be unknown; 0 where *number* is 0."""
    return factor * number if number else NOTHING


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Runs of contiguous bytes, sorted: from `starts` to `ends`, of the tile numbered in `rows`."""

    rows: Any
    starts: Any
    ends: Any

    def whole(self, unit: int) -> Runs:
        """Return the runs extended to whole units of *unit* bytes."""
        starts, ends = self.starts // unit * unit, -(-self.ends // unit) * unit
        apart = (starts[1:] > ends[:-1]) | (self.rows[1:] != self.rows[:-1])
        edge = np.ones(min(len(starts), 1), bool)
        first, last = np.concatenate([edge, apart]), np.concatenate([apart, edge])
        return Runs(self.rows[first], starts[first], ends[last])


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """The addresses of an access, as byte offsets in a tensor, with the mask."""

    tensor: str | None
    item_bytes: int
    reads: bool
    writes: bool
    offset: Number
    mask: Mask
    shape: tuple[int, ...]
    reach: Reach
    runs: dict[bytes, Runs] = field(default_factory=dict)
    """The runs of tiles that were computed, by the tiles' codes."""

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """The parts of the offset and then of the mask that depend on elements."""
        return (*self.offset.tiles, *self.mask.tiles)

    @property
    def coded(self) -> list[tuple[int, Any]]:
        """The places among `tiles`, and the indexes, of those that also depend on programs."""
        return [(n, one.index) for n, one in enumerate(self.tiles) if one.index is not None]


def components(arrays: Iterable[Any]) -> list[tuple[frozenset[int], list[int]]]:
    """Return groups of outer axes that no array connects, and the indices of the arrays on each."""
    found: list[tuple[frozenset[int], list[int]]] = []
    for place, array in enumerate(arrays):
        axes, places = tiles.axes_of(array), [place]
        apart = []
        for others, there in found:
            if others & axes:
                axes, places = axes | others, there + places
            else:
                apart.append((others, there))
        found = [*apart, (axes, places)]
    return found


def count(where: Sequence[Any], sizes: Sequence[int]) -> int:
    """Return the number of programs and iterations for which all of *where* are true."""
    number, left = 1, set(range(len(sizes)))
    for axes, places in components(where):
        arrays = [where[one] for one in places]
        tiles.fits(*arrays)
        number *= int(np.count_nonzero(functools.reduce(operator.and_, arrays)))
        left -= axes
    return number * math.prod(sizes[axis] for axis in left)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Groups of equal programs and iterations: the codes, the start and the size of each group."""

    codes: Any
    """A row for each group, with the class of each part of the tile."""
    starts: Any
    weights: Any


def grouped(touch: Touch, modulus: int | None) -> list[Cells]:
    """Return the groups of programs and iterations that touch anything, by independent axes.

    Each combination of one group per set of axes is a group of the launch. Starts are byte offsets,
    taken modulo *modulus*.
    """
    truths = [*touch.reach.where, *touch.mask.outer]
    starts = [one.array for one in touch.offset.outer]
    coded = touch.coded
    arrays = [*truths, *(one for _, one in coded), *starts]
    groups, left = [], set(range(len(touch.reach.sizes)))
    for axes, places in components(arrays):
        left -= axes
        tiles.fits(*(arrays[one] for one in places))
        shape = np.broadcast_shapes(*(arrays[one].shape for one in places))
        keep = np.ones(shape, bool)
        start = np.zeros((1,) * len(shape), "int64")
        mine: list[tuple[int, Any]] = []
        for one in places:
            if one < len(truths):
                keep = keep & arrays[one]
            elif one < len(truths) + len(coded):
                mine.append((coded[one - len(truths)][0], arrays[one]))
            else:
                start = start + arrays[one]
        if modulus:
            start = start % modulus
        groups.append(_kinds(keep, start, mine, len(touch.tiles)))
    repeats = math.prod(touch.reach.sizes[axis] for axis in left)
    if repeats > 1 or not groups:
        whole = np.zeros((1, len(touch.tiles)), "int64")
        groups.append(Cells(whole, np.zeros(1, "int64"), np.full(1, repeats, "int64")))
    return groups


def _kinds(keep: Any, start: Any, coded: Sequence[tuple[int, Any]], width: int) -> Cells:
    """Return the groups of the programs and iterations for which *keep* is true."""
    whole = keep.all()
    everything = [start, *(one for _, one in coded)]
    selected = [
        np.broadcast_to(one, keep.shape).reshape(-1)
        if whole
        else np.broadcast_to(one, keep.shape)[keep]
        for one in everything
    ]
    if not selected[0].size:
        return Cells(np.zeros((0, width), "int64"), np.zeros(0, "int64"), np.zeros(0, "int64"))
    if not coded:
        starts, weights = np.unique(selected[0], return_counts=True)
        return Cells(np.zeros((len(starts), width), "int64"), starts, weights)
    index, rows = classes(selected)
    weights = np.bincount(index) if index is not None else np.full(1, selected[0].size)
    codes = np.zeros((len(weights), width), "int64")
    for (place, _), row in zip(coded, rows[1:], strict=True):
        codes[:, place] = row[: len(weights)]
    return Cells(codes, np.asarray(rows[0][: len(weights)]), weights)


def combined(groups: Sequence[Cells], modulus: int | None) -> Cells:
    """Return the groups that combine one group of each of *groups*."""

    def pair(one: Cells, other: Cells) -> Cells:
        if len(one.weights) * len(other.weights) > MOST_CELLS:
            raise TooLargeError
        pairs = len(one.weights) * len(other.weights)
        codes = (one.codes[:, None] + other.codes[None]).reshape(pairs, one.codes.shape[1])
        starts = (one.starts[:, None] + other.starts[None]).reshape(-1)
        weights = (one.weights[:, None] * other.weights[None]).reshape(-1)
        if not modulus:
            return Cells(codes, starts, weights)
        starts = starts % modulus
        first, place = distinct_rows(np.column_stack([codes, starts]))
        summed = np.bincount(place, weights).astype("int64")
        return Cells(codes[first], starts[first], summed)

    return functools.reduce(pair, groups)


def distinct_rows(rows: Any) -> tuple[Any, Any]:
    """Return the first index of each distinct row of integers, and the number of each row's."""
    number = np.zeros(len(rows), "int64")
    for column in rows.T if len(rows) else ():
        low, high = int(column.min()), int(column.max())
        if low < high:
            number, _ = numbered(number * (high - low + 1) + (column - low))
    first = np.zeros(number.max(initial=-1) + 1, "int64")
    first[number[::-1]] = np.arange(len(rows))[::-1]
    return first, number


MOST_ELEMENTS = 4 * MOST_CELLS
"""The most elements of tiles that are listed at once."""


def tile_offsets(touch: Touch, codes: Any) -> Any:
    """Return the byte offsets, from the start, of the elements of the tile of each code."""
    if len(codes) * math.prod(touch.shape) > MOST_ELEMENTS:
        raise TooLargeError
    offsets = np.full((len(codes), *touch.shape), touch.offset.const, "int64")
    for place, one in enumerate(touch.offset.tiles):
        offsets += one.rows(codes[:, place])
    return offsets.reshape(len(codes), -1)


def tile_mask(touch: Touch, codes: Any) -> Any:
    """Return the mask of the tile of each code; None where nothing is masked."""
    if not touch.mask.tiles:
        return None
    active = np.ones((len(codes), *touch.shape), bool)
    for place, one in enumerate(touch.mask.tiles, len(touch.offset.tiles)):
        active &= one.rows(codes[:, place])
    return active.reshape(len(codes), -1)


def sides_of(touch: Touch, codes: Any) -> list[tuple[Touch, Any]]:
    """Return a tile as the sum of tiles along different dimensions, with the codes of each."""
    parts, offsets = touch.tiles, len(touch.offset.tiles)
    sides = []
    for dims, places in components(one.table[0] for one in parts):
        shape = tuple(size if dim in dims else 1 for dim, size in enumerate(touch.shape))
        own = sorted(places)
        offset = Number(tiles=tuple(parts[x] for x in own if x < offsets), shape=shape)
        mask = Mask(tiles=tuple(parts[x] for x in own if x >= offsets), shape=shape)
        side = replace(touch, offset=offset, mask=mask, shape=shape, runs={})
        sides.append((side, codes[:, own]))
    return sides


def active_elements(touch: Touch, codes: Any) -> Any:
    """Return the number of active elements of the tile of each code."""
    number, left = np.ones(len(codes), "int64"), math.prod(touch.shape)
    for side, own in sides_of(touch, codes):
        mask, size = tile_mask(side, own), math.prod(side.shape)
        number *= size if mask is None else mask.sum(1)
        left //= size
    return number * left


def tile_runs(touch: Touch, codes: Any) -> Runs:
    """Return the runs of bytes of the tile of each code."""
    key = codes.tobytes()
    if key not in touch.runs:
        if len(codes) * math.prod(touch.shape) > MOST_ELEMENTS:
            touch.runs[key] = _runs_by_sides(touch, codes)
        else:
            offsets, active = tile_offsets(touch, codes), tile_mask(touch, codes)
            touch.runs[key] = runs_of(offsets, active, touch.item_bytes)
    return touch.runs[key]


def _runs_by_sides(touch: Touch, codes: Any) -> Runs:
    """Return `tile_runs` without listing all elements: the runs along one side of the tile, moved.

    The shortest side comes first, along which elements are contiguous.
    """
    sides = [(tile_offsets(*one), tile_mask(*one)) for one in sides_of(touch, codes)]
    if not sides:  # all elements of a tile are the same one
        sides = [(np.zeros((len(codes), 1), "int64"), None)]
    (offsets, active), *others = sorted(sides, key=lambda side: int(np.ptp(side[0])))
    found = runs_of(offsets + touch.offset.const, active, touch.item_bytes)
    for offsets, active in others:
        found = _moved(found, offsets, active)
    return found


def _moved(runs: Runs, offsets: Any, active: Any) -> Runs:
    """Return the union of *runs* moved by each of the active *offsets* of their tile."""
    if len(runs.rows) * offsets.shape[1] > MOST_ELEMENTS:
        raise TooLargeError
    by = offsets[runs.rows]
    there = np.ones(by.shape, bool) if active is None else active[runs.rows]
    rows, starts, ends = (
        np.broadcast_to(array, by.shape)[there]
        for array in (runs.rows[:, None], runs.starts[:, None] + by, runs.ends[:, None] + by)
    )
    order = np.lexsort((starts, rows))
    rows, starts, ends = rows[order], starts[order], ends[order]
    span = int(ends.max(initial=0)) - int(starts.min(initial=0)) + 1
    if span * len(offsets) > MASKED:
        raise TooLargeError
    reached = np.maximum.accumulate(ends + rows * span) - rows * span
    apart = (starts[1:] > reached[:-1]) | (rows[1:] != rows[:-1])
    first = np.flatnonzero(np.concatenate([np.ones(min(len(rows), 1), bool), apart]))
    last = np.append(first[1:] - 1, len(rows) - 1)[: len(first)]
    return Runs(rows[first], starts[first], reached[last])


AT_ONCE = 2**16
"""Runs that are processed together: with 2**17, which exceed the caches, each takes three times as
long."""
MASKED = np.iinfo("int64").max
"""The offset of masked elements, which sorts them behind all others."""


def runs_of(offsets: Any, active: Any, item: int) -> Runs:
    """Return the runs of bytes that each row of *offsets* touches."""
    if (offsets[:, 1:] < offsets[:, :-1]).any():
        if active is not None:
            offsets = np.where(active, offsets, MASKED)
        offsets = np.sort(offsets, axis=1, kind="stable")
        active = None if active is None else offsets < MASKED
    width, flat = offsets.shape[1], offsets.reshape(-1)
    if active is None:
        rows = None
        apart = flat[1:] > flat[:-1] + item
        apart[width - 1 :: width] = True
    else:
        there = np.flatnonzero(active)
        flat, rows = flat[there], there // width
        apart = (flat[1:] > flat[:-1] + item) | (rows[1:] != rows[:-1])
    breaks = np.flatnonzero(apart)
    first = np.concatenate([[0], breaks + 1]) if len(flat) else breaks
    last = np.concatenate([breaks, [len(flat) - 1]]) if len(flat) else breaks
    return Runs(first // width if rows is None else rows[first], flat[first], flat[last] + item)


def pieces(runs: Runs, starts: Any, rows: Any, size: int) -> Any:
    """Return how many units of *size* bytes row `rows[i]` of *runs* touches at `starts[i]`.

    *size* is a power of 2.
    """
    first, place = distinct_rows(np.column_stack([starts % size, rows]))
    before, behind = _of_rows(runs, rows[first])
    parts = np.array_split(first, int((behind - before).sum()) // AT_ONCE + 1)
    return np.concatenate([_pieces(runs, starts[one], rows[one], size) for one in parts])[place]


def _pieces(runs: Runs, starts: Any, rows: Any, size: int) -> Any:
    bits = size.bit_length() - 1
    before, behind = _of_rows(runs, rows)
    ends = np.cumsum(behind - before)
    begins = ends - (behind - before)
    index, shift = runs_at(runs, starts, rows)
    first, last = (runs.starts[index] + shift) >> bits, (runs.ends[index] + shift - 1) >> bits
    again = first[1:] <= last[:-1]
    again[begins[(begins > 0) & (begins < len(index))] - 1] = False
    number = last - first + 1
    number[1:] -= again
    sums = np.concatenate([[0], np.cumsum(number)])
    return sums[ends] - sums[begins]


def runs_at(runs: Runs, starts: Any, rows: Any) -> tuple[Any, Any]:
    """Return the indices of all runs of each of *rows* in turn, and the start for each run."""
    before, behind = _of_rows(runs, rows)
    counts = behind - before
    ends = np.cumsum(counts)
    index = np.arange(counts.sum()) + np.repeat(before - ends + counts, counts)
    return index, np.repeat(starts, counts)


def _of_rows(runs: Runs, rows: Any) -> tuple[Any, Any]:
    """Return the index of the first run of each of *rows*, and that after its last run."""
    bounds = np.searchsorted(runs.rows, np.arange(rows.max(initial=0) + 2))
    return bounds[rows], bounds[rows + 1]


def measure(touch: Touch) -> tuple[Amount, Amount, Amount]:
    """Return the active elements, the sectors and the lines of an access in the whole launch."""
    cells = combined(grouped(touch, LINE), LINE)
    if not len(cells.weights):
        return NOTHING, NOTHING, NOTHING
    first, place = distinct_rows(cells.codes)
    codes = cells.codes[first]
    low = high = _counted_pieces(touch, cells, place, tile_runs(touch, codes), min)
    if touch.offset.hidden:
        high = _counted_pieces(touch, cells, place, runs_far_apart(touch, codes), max)
    factor = _factor(touch)
    sectors, lines = (
        Amount(factor.low * small, None if factor.high is None else factor.high * large)
        for small, large in zip(low, high, strict=True)
    )
    return factor * _elements(touch, cells, codes, place), sectors, lines


def active_of(touch: Touch) -> Amount:
    """Return the active elements of an access in the whole launch."""
    cells = combined(grouped(touch, LINE), LINE)
    if not len(cells.weights):
        return NOTHING
    first, place = distinct_rows(cells.codes)
    return _factor(touch) * _elements(touch, cells, cells.codes[first], place)


def _elements(touch: Touch, cells: Cells, codes: Any, place: Any) -> int:
    return int((active_elements(touch, codes)[place] * cells.weights).sum())


def _factor(touch: Touch) -> Amount:
    """Return how often elements that may be active are so."""
    factor = touch.reach.factor
    return Amount(0, factor.high) if touch.mask.hidden else factor


def _counted_pieces(
    touch: Touch, cells: Cells, place: Any, runs: Runs, choose: Callable[..., Any]
) -> tuple[int, int]:
    """Return the sectors and the lines, each with *choose* over all values of unknown parts."""
    step = math.gcd(LINE, *(one.scale for one in touch.offset.hidden))
    better = np.maximum if choose is max else np.minimum
    found = []
    for size in (SECTOR, LINE):
        shifts = np.arange(0, size, step)
        starts = (cells.starts + shifts[:, None]).reshape(-1)
        each = pieces(runs, starts, np.tile(place, len(shifts)), size).reshape(len(shifts), -1)
        found.append(int((better.reduce(each) * cells.weights).sum()))
    return found[0], found[1]


def runs_far_apart(touch: Touch, codes: Any) -> Runs:
    """Return `tile_runs` where elements with different unknown parts are far apart."""
    offsets = tile_offsets(touch, codes)
    dims = sorted(frozenset[int]().union(*(one.dims for one in touch.offset.hidden)))
    span = int(offsets.max(initial=0)) - int(offsets.min(initial=0)) + LINE
    span = -(-span // LINE) * LINE
    number = np.zeros((1,) * len(touch.shape), "int64")
    for dim in dims:
        size = touch.shape[dim]
        index = np.arange(size).reshape(*(size if d == dim else 1 for d in range(len(touch.shape))))
        number = number * size + index
    apart = np.broadcast_to(number, touch.shape).reshape(1, -1) * span
    return runs_of(offsets + apart, tile_mask(touch, codes), touch.item_bytes)


def restricted(touch: Touch, box: tuple[slice, ...]) -> Touch:
    """Return what the programs and iterations in a box of the outer axes touch."""

    def cut(array: Any) -> Any:
        sizes = array.shape[: len(box)]
        parts = (part if size > 1 else slice(None) for part, size in zip(box, sizes, strict=True))
        return array[tuple(parts)]

    sizes = tuple(
        len(range(*part.indices(size))) for part, size in zip(box, touch.reach.sizes, strict=False)
    )
    reach = replace(
        touch.reach,
        where=tuple(map(cut, touch.reach.where)),
        sizes=(*sizes, *touch.reach.sizes[len(sizes) :]),
    )
    offset, mask = tiles.with_outer(touch.offset, cut), tiles.with_outer(touch.mask, cut)
    return replace(touch, offset=offset, mask=mask, reach=reach)
