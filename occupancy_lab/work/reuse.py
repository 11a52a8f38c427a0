"""Reuse distances: how much a launch touches until it reads the same bytes again.

The distinct bytes between two accesses to a byte decide whether a cache still holds it (Mattson et
al. 1970, "Evaluation techniques for storage hierarchies"). A launch is divided into steps: programs
start in order, as many at once as the GPU holds, and go through their accesses and loops in
parallel. Bytes that a step touches twice are assumed to hit in any cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occupancy_lab.work.accesses import Touch, restricted, tile_runs
from occupancy_lab.work.counts import SECTOR, Reuse
from occupancy_lab.work.tiles import GRID_AXES
from occupancy_lab.work.tilewise import classes, numbered

MOST_STEPS, MOST_CELLS = 256, 2**18
"""The most steps of a launch, and the most programs times iterations of an access to consider. With
an eighth of the latter, random rows of a table looked as if none was read again."""
LEAST_DISTANCE = 2**19
"""Shorter distances hit in any cache behind the L1 cache."""
SPREAD = 0.15
"""How far programs drift apart that would be at the same place in lockstep, as a share of a wave.
Those of later waves start one by one. From Nsight Compute's counts for two products of matrices on
an H100."""
READS, WRITES = 1, 2
BINS = 8
"""Bins of the histogram of reuse distances per doubling."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When an access happens in its program, from 0 at its start to 1 at its end."""

    begin: float
    turns: tuple[float, ...]
    """The delay per iteration of each enclosing loop, outermost first."""


def moments(touches: Sequence[Touch], weights: Sequence[float], level: int = 0) -> list[Moment]:
    """Return when each of *touches*, in source order, happens.

    Loops and other accesses follow each other, and take time in proportion to their bytes,
    *weights*. Stores that follow each other happen at the same time.
    """
    found: list[Moment] = []
    whole, begin = sum(weights) or 1.0, 0.0

    def item(place: int) -> object:
        loops = touches[place].reach.loops
        if len(loops) > level:
            return loops[level]
        return place if touches[place].reads else "stores"

    for _, group in itertools.groupby(range(len(touches)), item):
        some = list(group)
        first = touches[some[0]].reach
        share = sum(weights[one] for one in some) / whole
        if len(first.loops) > level:
            turn = share / max(first.sizes[GRID_AXES + level], 1)
            inside = moments([touches[x] for x in some], [weights[x] for x in some], level + 1)
            found += [
                Moment(begin + turn * x.begin, (turn, *(turn * y for y in x.turns))) for x in inside
            ]
        else:
            found += [Moment(begin + share / 2, ()) for _ in some]
        begin += share
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of bytes that an access touches, and the step in which it touches each."""

    starts: Any
    kinds: Any
    """The index in `shapes` of each block."""
    steps: Any
    shapes: tuple[tuple[bytes, float], ...]
    """For each kind, what distinguishes blocks with the same start, and the bytes that a block
    stands for."""
    reads: bool
    writes: bool
    occupied: float = 1.0
    """The bytes of cache lines that a byte of them occupies."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the programs of a launch follow each other."""

    grid: tuple[int, int, int]
    resident: int

    @property
    def looked_at(self) -> tuple[int, int, int]:
        """The size of the part of the grid that is considered: its first programs."""
        width, height, depth = self.grid
        rows = min(max(MOST_CELLS // width, 1), height)
        return (
            min(width, MOST_CELLS),
            rows,
            min(max(MOST_CELLS // (width * rows), 1), depth) if rows == height else 1,
        )

    @property
    def share(self) -> float:
        """The share of programs that is considered."""
        return math.prod(self.looked_at) / math.prod(self.grid)

    @property
    def waves(self) -> int:
        """The number of waves of programs."""
        return -(-math.prod(self.looked_at) // self.resident)

    @property
    def steps_a_wave(self) -> int:
        """Steps of each wave of programs."""
        return max(MOST_STEPS // self.waves, 1)

    @property
    def steps(self) -> int:
        """The number of steps that are considered."""
        return min(self.waves * self.steps_a_wave, MOST_STEPS)

    def steps_of(self, times: Any) -> Any:
        """Return the step for each of *times*, which are in waves."""
        found = (times * (self.steps / self.waves)).astype("int64")
        return np.minimum(found, self.steps - 1)


def blocks_of(
    touch: Touch, moment: Moment, schedule: Schedule, occupied: float = 1.0, unit: int = SECTOR
) -> Blocks:
    """Return the blocks, in whole units of *unit* bytes, that a fully known access touches.

    A byte of them occupies *occupied* bytes of cache lines.
    """
    in_part = touch.writes and (occupied > 1.0 or unit > SECTOR)
    strides = _strides(touch.reach.sizes, math.prod(schedule.looked_at))
    loops = (slice(None, None, one) for one in strides)
    whole = restricted(touch, (*map(slice, schedule.looked_at), *loops))
    sizes = whole.reach.sizes
    times = _times(sizes, strides, moment, schedule)
    keep = np.ones((1,) * len(sizes), bool)
    for one in (*whole.reach.where, *whole.mask.outer):
        keep = keep & one
    kinds, codes = _kinds(whole)
    first, shapes = _shapes(whole, codes, unit, by_start=in_part)
    starts = first[kinds]
    for part in whole.offset.outer:
        starts = starts + part.array
    starts = starts // unit * unit
    shape = np.broadcast_shapes(starts.shape, keep.shape, times.shape)
    chosen = ... if keep.all() else np.broadcast_to(keep, shape)
    starts, kinds, times = (
        np.broadcast_to(one, shape)[chosen].reshape(-1) for one in (starts, kinds, times)
    )
    ratio = math.prod(touch.reach.sizes[GRID_AXES:]) / max(math.prod(sizes[GRID_AXES:]), 1)
    scaled = tuple((name, size * ratio) for name, size in shapes)
    steps = schedule.steps_of(times)
    return Blocks(starts, kinds, steps, scaled, touch.reads, touch.writes, occupied)


def _times(sizes: Sequence[int], strides: Sequence[int], moment: Moment, schedule: Schedule) -> Any:
    """Return when each program and iteration reaches an access, in waves."""

    def along(axis: int) -> Any:
        return np.arange(sizes[axis]).reshape(
            [-1 if one == axis else 1 for one in range(len(sizes))]
        )

    width, height, *_ = sizes
    number = along(0) + width * (along(1) + height * along(2))
    found: Any = number // schedule.resident + moment.begin
    for place, turn in enumerate(moment.turns):
        found = found + along(GRID_AXES + place) * (turn * strides[place])
    return found


def _kinds(touch: Touch) -> tuple[Any, Any]:
    """Return the kind of tile of each program and iteration, and the codes of each kind."""
    coded = touch.coded
    index, rows = classes([one for _, one in coded]) if coded else (None, [])
    codes = np.zeros((len(rows[0]) if rows else 1, len(touch.tiles)), "int64")
    for (place, _), row in zip(coded, rows, strict=True):
        codes[:, place] = row
    return np.zeros((1,) * len(touch.reach.sizes), "int64") if index is None else index, codes


def _strides(sizes: Sequence[int], programs: int) -> list[int]:
    """Return the stride at which each loop's iterations are considered; inner loops are first."""
    strides = [1] * (len(sizes) - GRID_AXES)
    cells = programs * math.prod(sizes[GRID_AXES:])
    for place in reversed(range(len(strides))):
        size = sizes[GRID_AXES + place]
        strides[place] = max(min(size, -(-cells // MOST_CELLS)), 1)
        cells = cells // size * -(-size // strides[place]) if size else 0
    return strides


def _shapes(
    touch: Touch, codes: Any, unit: int, *, by_start: bool
) -> tuple[Any, list[tuple[bytes, int]]]:
    """Return the first unit of the tile of each code, and the rest of its shape with its size.

    Where tiles are known *by_start*, the first unit stands for the others.
    """
    runs = tile_runs(touch, codes).whole(unit)
    bounds = np.searchsorted(runs.rows, np.arange(len(codes) + 1))
    firsts, shapes = np.zeros(len(codes), "int64"), []
    for row, (start, end) in enumerate(itertools.pairwise(bounds)):
        begins, ends = runs.starts[start:end], runs.ends[start:end]
        if len(begins):
            firsts[row] = begins[0]
        name = (begins - firsts[row]).tobytes() + (ends - firsts[row]).tobytes()
        shapes.append((b"" if by_start else name, int((ends - begins).sum())))
    return firsts, shapes


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The bytes that each step touches, by the step that touched them last.

    Rows are the earlier steps, after a first row for bytes that were not touched before; columns
    are the steps.
    """

    touched: Any
    """The bytes of the cache lines that they occupy."""
    again: Any
    """The bytes that are read, and that an earlier step has touched."""
    rewritten: Any
    """The bytes that are written, and that an earlier step has written."""


def steps_of(several: Sequence[Blocks], distinct: int, schedule: Schedule) -> Steps:
    """Return what accesses to a tensor touch in each step; it has *distinct* bytes in all."""
    steps = schedule.steps
    several = [one for one in several if len(one.starts)]
    if not several:
        nothing = np.zeros((steps + 1, steps))
        return Steps(nothing, nothing, nothing)
    names: dict[bytes, tuple[int, float, float]] = {}
    kinds = []
    for one in several:
        known = [names.setdefault(x, (len(names), size, one.occupied)) for x, size in one.shapes]
        kinds.append(np.array([number for number, _, _ in known])[one.kinds])
    _, sizes, spreads = (np.array(each) for each in zip(*names.values(), strict=True))
    start = np.concatenate([one.starts for one in several])
    start -= start.min()
    if int(start.max() + 1) * len(sizes) * steps * 4 > np.iinfo("int64").max:
        start, _ = numbered(start)
    block = start * len(sizes) + np.concatenate(kinds)
    how = np.concatenate(
        [np.full(len(one.starts), READS * one.reads + WRITES * one.writes) for one in several]
    )
    key = (block * steps + np.concatenate([one.steps for one in several])) * 4 + how
    key.sort()
    begins = np.flatnonzero(np.concatenate([[True], key[1:] >> 2 != key[:-1] >> 2]))
    how = np.bitwise_or.reduceat(key & (READS | WRITES), begins)
    reads, writes = how & READS > 0, how & WRITES > 0
    block, step = np.divmod(key[begins] >> 2, steps)
    is_first = np.concatenate([[True], block[1:] != block[:-1]])
    written: Any = np.cumsum(writes) - writes
    is_written = written > np.maximum.accumulate(np.where(is_first, written, 0))
    weights = sizes[block % len(sizes)]
    whole = weights[is_first].sum()
    if schedule.share == 1 and whole > distinct:
        weights = weights * (distinct / whole)  # some blocks overlap
    before = np.zeros(len(step), "int64")
    before[1:] = np.where(is_first[1:], 0, step[:-1] + 1)
    size, shape = (steps + 1) * steps, (steps + 1, steps)
    cells = before * steps + step
    in_lines = weights * spreads[block % len(sizes)]
    touched = np.bincount(cells, in_lines, size).reshape(shape)
    again, rewritten = (
        np.bincount(cells, np.where(chosen & (before > 0), weights, 0), size).reshape(shape)
        for chosen in (reads, writes & is_written)
    )
    return Steps(touched, again, rewritten)


def distances(touched: Any, schedule: Schedule) -> Any:
    """Return the distinct bytes between an access and the next one, by the steps of both.

    *touched* is the sum over all tensors. Half of what the two steps themselves touch lies in
    between, and with several waves also SPREAD of a wave.
    """
    steps, before = schedule.steps, np.arange(schedule.steps)
    sums = np.zeros((steps + 1, steps + 1))  # summed over earlier steps, by last-touching step
    np.cumsum(touched, axis=0, out=sums[:, 1:])
    np.cumsum(sums, axis=1, out=sums)
    each = touched.sum(0)
    found = sums[1:, :-1] - sums[1 + before, 1 + before][:, None] + (each[:, None] + each[None]) / 2
    if schedule.waves > 1:
        begins = before[:: schedule.steps_a_wave]
        ends = np.minimum(begins + schedule.steps_a_wave, steps)
        found += SPREAD * (sums[begins, ends] - sums[begins, begins]).mean()
    return found


def first_touched(touched: Any) -> Any:
    """Return the bytes that are touched for the first time between two accesses, as `distances`."""
    new = touched[0]
    before = np.cumsum(new) - new / 2
    return before[None] - before[:, None]


def reuses(again: Any, between: Any, share: float) -> tuple[Reuse, ...]:
    """Return the bytes touched *again*, by distance, where a cache may have evicted them."""
    chosen = (again[1:] > 0) & (between >= LEAST_DISTANCE)
    moved, apart = again[1:][chosen], between[chosen]
    bins = np.floor(np.log2(apart) * BINS).astype("int64") if len(apart) else apart.astype("int64")
    found = []
    for one in np.unique(bins):
        here = bins == one
        number = moved[here].sum()
        mean = (apart[here] * moved[here]).sum() / number
        found.append(Reuse(round(mean), round(number / share)))
    return tuple(found)
