"""The distinct bytes that accesses touch, as sets of runs."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from occupancy_lab.work import accesses, reuse
from occupancy_lab.work.accesses import Cells, Runs, Touch
from occupancy_lab.work.counts import GRANULE, LINE, SECTOR, Access, Amount, Footprint
from occupancy_lab.work.tiles import GRID_AXES, MOST_CELLS, TooLargeError

MOST_RUNS, MOST_MERGED, MOST_KINDS = 2**20, 2**21, 2**14
"""The most runs of an access, runs that are merged at a time, and kinds of tiles; beyond these an
access is too scattered to be counted."""
FEW_RUNS, RUNS_A_KIND = 2**14, 2**11
"""Runs that can be merged at once in the time that one kind of tile takes, for all kinds and for
each."""
QUICK_RUNS, FEW_KINDS = 2**17, 2**6
"""With more runs than this, of fewer kinds, regular repetition is tried first."""
WHOLE_LINES = 1.25
"""Stores that touch more than this many times the bytes of their sectors in lines fill their lines
only in part."""
SMALL_SHARE = 1 / 256
"""A tensor that is no larger than this share of what a launch touches is assumed to stay cached."""


TOGETHER = 4
"""Consecutive programs, or iterations of a loop, whose pieces device memory finds together. Where
the rest of a line is requested eight programs later, it is fetched alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Bytes:
    """A set of bytes as sorted, disjoint runs."""

    starts: Any
    ends: Any
    steps: tuple[Any, ...] = ()
    """The runs are repeated at each sum of one step from each of these arrays, without overlaps;
    this is used for sets with too many runs to list."""

    @property
    def size(self) -> int:
        """The number of bytes in the set."""
        return int((self.ends - self.starts).sum()) * math.prod(map(len, self.steps))

    @property
    def bounds(self) -> tuple[int, int]:
        """Where the first run starts and the last one ends."""
        first, last = (sum(int(each[place]) for each in self.steps) for place in (0, -1))
        return int(self.starts[0]) + first, int(self.ends[-1]) + last

    def whole(self, unit: int) -> Bytes:
        """Return the set extended to whole units of *unit* bytes.

        Raises TooManyRunsError where steps are no multiples of *unit*.
        """
        if any((each % unit).any() for each in self.steps):
            raise TooManyRunsError
        if not ((self.starts | self.ends) % unit).any():
            return self
        found = merged(self.starts // unit * unit, -(-self.ends // unit) * unit)
        return repeated(found, self.steps)


class TooManyRunsError(Exception):
    """A set of bytes has too many runs."""


def repeated(one: Bytes, steps: Sequence[Any]) -> Bytes:
    """Return *one* repeated at each sum of one step from each of *steps*, shortest steps first.

    Raises TooManyRunsError where repetitions may overlap.
    """
    if not len(one.starts):
        return one
    extent = int(one.ends[-1] - one.starts[0])
    for each in steps:
        if len(each) > 1 and _least_step(each) < extent:
            raise TooManyRunsError
        extent += int(each[-1] - each[0])
    return Bytes(one.starts, one.ends, (*steps,))


def merged(starts: Any, ends: Any) -> Bytes:
    """Return the union of runs."""
    if len(starts) < 2:  # noqa: PLR2004
        return Bytes(starts, ends)
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reached = ends if (ends[1:] >= ends[:-1]).all() else np.maximum.accumulate(ends)
    breaks = np.flatnonzero(starts[1:] > reached[:-1])
    first, last = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(starts) - 1]])
    return Bytes(starts[first], reached[last])


def union(several: Iterable[Bytes]) -> tuple[Bytes, ...]:
    """Return the union of sets of bytes as a sequence of disjoint sets.

    Raises TooManyRunsError where sets with different steps may overlap and have too many runs.
    """
    alike: dict[tuple[bytes, ...], list[Bytes]] = defaultdict(list)
    for one in several:
        if len(one.starts):
            alike[tuple(each.tobytes() for each in one.steps)].append(one)
    found = [_together(one) for one in alike.values()]
    found.sort(key=lambda one: one.bounds)
    if all(one.bounds[1] <= other.bounds[0] for one, other in itertools.pairwise(found)):
        return tuple(found)
    if sum(len(one.starts) * math.prod(map(len, one.steps)) for one in found) > MOST_RUNS:
        raise TooManyRunsError
    return (_together([spread(Bytes(one.starts, one.ends), one.steps) for one in found]),)


def _together(several: Sequence[Bytes]) -> Bytes:
    """Return the union of sets with equal steps."""
    first = several[0]
    if len(several) == 1:
        return first
    starts = np.concatenate([one.starts for one in several])
    ends = np.concatenate([one.ends for one in several])
    return repeated(merged(starts, ends), first.steps)


def size_of(several: Iterable[Bytes]) -> int:
    """Return the number of bytes in disjoint sets."""
    return sum(one.size for one in several)


def spread(one: Bytes, steps: Sequence[Any]) -> Bytes:
    """Return the union of *one* moved by each sum of one step from each of *steps*."""
    for each in sorted(steps, key=_least_step):
        if len(one.starts) * len(each) > MOST_MERGED:
            raise TooManyRunsError
        sizes, moved, ends = one.ends - one.starts, Bytes(each, each), one.ends
        if (sizes == sizes[:1]).all() and len(sizes):  # each run is extended in the same way
            moved, ends = merged(each, each + sizes[0]), one.starts
        one = merged(
            (moved.starts[:, None] + one.starts[None]).reshape(-1),
            (moved.ends[:, None] + ends[None]).reshape(-1),
        )
    return one


def least_runs(one: Bytes, steps: Sequence[Any]) -> int:
    """Return a lower limit of the runs that `spread` makes."""
    found = len(one.starts)
    extent = int(one.ends[-1] - one.starts[0]) if found else 0
    for each in sorted(steps, key=_least_step):
        if found < 2 or _least_step(each) <= extent:  # noqa: PLR2004 - what touches is merged
            break
        found *= len(each)
        extent += int(each[-1] - each[0])
    return found


def _least_step(steps: Any) -> int:
    return int((steps[1:] - steps[:-1]).min()) if len(steps) > 1 else 0


def _far_spread(one: Bytes, steps: Sequence[Any]) -> Bytes:
    """Return `spread` without listing the repetitions at the longest steps."""
    left = sorted(steps, key=_least_step)
    while left and len(one.starts) * len(left[0]) <= FEW_RUNS:
        one = spread(one, [left.pop(0)])
    return repeated(one, left)


def touched(touch: Touch, groups: Sequence[Cells], unit: int = 1) -> tuple[Bytes, ...]:
    """Return the bytes that an access touches, in whole units of *unit* bytes.

    *groups* are those of `grouped`, without a modulus. Unknown parts are taken as 0.

    Raises:
        TooManyRunsError: they are too scattered.
    """
    if not all(len(one.starts) for one in groups):
        return ()
    if math.prod(len(one.starts) for one in groups) <= MOST_CELLS:
        found = _one_by_one(touch, groups, unit)
        if found is not None:
            return (found,)
    kinds: list[tuple[Any, int, list[Any]]] = [(0, 0, [])]
    for cells in groups:
        group = [
            (codes, shift, steps)
            for codes, starts in by_codes(cells)
            for shift, steps in by_rest(starts, unit)
        ]
        kinds = [
            (codes + other, before + shift, [*steps, *more])
            for codes, before, steps in kinds
            for other, shift, more in group
        ]
        if len(kinds) > MOST_KINDS:
            raise TooManyRunsError
    rows = np.array([codes for codes, _, _ in kinds])
    first, place = accesses.distinct_rows(rows)
    runs = accesses.tile_runs(touch, rows[first])
    bounds = np.searchsorted(runs.rows, np.arange(len(first) + 1))
    several, number = [], 0
    for (_, shift, steps), row in zip(kinds, place, strict=True):
        part = slice(bounds[row], bounds[row + 1])
        one = Bytes(runs.starts[part] + shift, runs.ends[part] + shift).whole(unit)
        several.append((one, steps))
        number += least_runs(one, steps)
        if number > MOST_RUNS and len(kinds) > FEW_KINDS:
            raise TooManyRunsError
    if number > QUICK_RUNS and len(several) <= FEW_KINDS:
        with contextlib.suppress(TooManyRunsError):
            return union([_far_spread(*one) for one in several])
    if number > MOST_RUNS:
        raise TooManyRunsError
    return union([spread(*one) for one in several])


def _one_by_one(touch: Touch, groups: Sequence[Cells], unit: int) -> Bytes | None:
    """Return `touched` by listing each program and iteration; None where that takes longer."""
    tiles = accesses.combined([_first_of_codes(one) for one in groups], None).codes
    tiles = tiles[accesses.distinct_rows(tiles)[0]]
    runs = accesses.tile_runs(touch, tiles)
    each, number = len(runs.rows) / len(tiles), math.prod(len(one.starts) for one in groups)
    are_many = each * number > max(FEW_RUNS, RUNS_A_KIND * len(tiles))
    if are_many and unit == 1:
        return None
    cells = accesses.combined(groups, None)
    starts, (_, place) = cells.starts, accesses.distinct_rows(cells.codes)
    if are_many:
        rests = starts % unit
        kinds, places = accesses.distinct_rows(np.column_stack([place, rests]))
        if each * len(kinds) > MOST_MERGED:
            return None
        index, rows = accesses.runs_at(runs, np.arange(len(kinds)), place[kinds])
        shift = rests[kinds][rows]
        runs = Runs(rows, runs.starts[index] + shift, runs.ends[index] + shift).whole(unit)
        place, starts = places, starts - rests
        if np.bincount(runs.rows, minlength=len(kinds))[place].sum() > FEW_RUNS:
            return None
    index, shift = accesses.runs_at(runs, starts, place)
    begins, ends = runs.starts[index] + shift, runs.ends[index] + shift
    return merged(begins // unit * unit, -(-ends // unit) * unit)


def _first_of_codes(cells: Cells) -> Cells:
    first, _ = accesses.distinct_rows(cells.codes)
    return Cells(cells.codes[first], cells.starts[first], cells.weights[first])


def by_rest(starts: Any, unit: int) -> list[tuple[int, list[Any]]]:
    """Return the sorted *starts* split into remainders modulo *unit* and multiples of it."""
    if len(starts) == 1:
        return [(int(starts[0]), [])]
    if unit == 1:
        return [(0, [starts])]
    rests = starts % unit
    return [(int(rest), [starts[rests == rest] - rest]) for rest in np.unique(rests)]


def by_codes(cells: Cells) -> list[tuple[Any, Any]]:
    """Return the sorted starts of each kind of tile."""
    if not len(cells.starts):
        return []
    if not cells.codes.any():
        return [(cells.codes[0], np.unique(cells.starts))]
    first, place = accesses.distinct_rows(cells.codes)
    order = np.argsort(place, kind="stable")
    parts = np.split(cells.starts[order], np.searchsorted(place[order], np.arange(1, len(first))))
    return [
        (
            cells.codes[one],
            part if (part[1:] > part[:-1]).all() else np.unique(part),
        )
        for one, part in zip(first, parts, strict=True)
    ]


def is_certain(touch: Touch) -> bool:
    """Return whether everything that an access touches is known."""
    known = not touch.offset.hidden and not touch.mask.hidden and touch.tensor is not None
    return known and touch.reach.factor == Amount.of(1)


@dataclass(frozen=True, slots=True, eq=False)
class Accessed:
    """What an access requests, and what it is known to touch; None where that is too scattered."""

    touch: Touch
    asked: Amount
    bytes: tuple[Bytes, ...] | None
    sectors: tuple[Bytes, ...] | None
    """The same in whole sectors."""

    @property
    def is_whole(self) -> bool:
        """Whether it is known to touch only whole sectors."""
        return is_certain(self.touch) and self.bytes is not None and self.bytes == self.sectors

    @property
    def least(self) -> int:
        """A lower limit of the bytes that it touches: one element in each sector."""
        sectors = size_of(self.sectors or ()) // SECTOR
        return sectors * self.touch.item_bytes

    def most(self, unit: int) -> int | None:
        """Return an upper limit of the bytes that it touches, in whole units."""
        if self.asked.high is None:
            return None
        found = self.asked.high * max(unit // self.touch.item_bytes, 1)
        known = is_certain(self.touch)
        return min(found, size_of(self.sectors)) if known and self.sectors else found


def accessed(touch: Touch, asked: Amount) -> Accessed:
    """Return what is known of an access that requests *asked* bytes."""
    if not is_certain(touch):
        return Accessed(touch, asked, (), ())
    groups = accesses.grouped(touch, None)
    found = sectors = None
    with contextlib.suppress(TooManyRunsError):
        found = touched(touch, groups)
        sectors = union(one.whole(SECTOR) for one in found)
    if sectors is None:
        with contextlib.suppress(TooManyRunsError):
            sectors = touched(touch, groups, SECTOR)
    return Accessed(touch, asked, found, sectors)


def distinct(several: Sequence[Accessed], limit: int | None, unit: int = 1) -> Amount:
    """Return the distinct bytes that accesses to a tensor touch, or those of whole sectors.

    *unit* is 1 or the size of a sector; *limit* is the size of the tensor, where it is known.
    """
    sets = [one.bytes if unit == 1 else one.sectors for one in several]
    known = [one for each in sets for one in each or ()]
    try:
        certain = Amount.of(size_of(union(known)))
    except TooManyRunsError:
        certain = Amount(max(one.size for one in known), size_of(known))
    unsure = [
        one
        for one, each in zip(several, sets, strict=True)
        if each is None or not is_certain(one.touch)
    ]
    low = max([certain.low, *(one.least for one in unsure)])
    mosts = [one.most(unit) for one in unsure]
    high = None if None in mosts else (certain.high or 0) + sum(one or 0 for one in mosts)
    found = Amount(low, high)
    if unsure and limit is not None:
        return found.at_most(-(-limit // unit) * unit)
    return found


def pieces(touches: Sequence[Touch]) -> list[tuple[float | None, bool]]:
    """Return the mean bytes of the pieces that each access touches at a time, in whole granules.

    The second result is that of `Access.adjoins`.
    Pieces of TOGETHER programs and iterations are merged, or of as many as write two cache lines,
    which the L2 cache merges; so are those of loads, or of stores, that one program makes of the
    same tensor in the same loop. Where addresses are not known, the pieces are those of one
    program, whose unknown parts are assumed to lie apart. None where those in the middle of the
    grid touch nothing, or too much to be listed.
    """
    found: list[tuple[float | None, bool]] = [(None, False)] * len(touches)
    groups: dict[Any, dict[int, Bytes]] = {}
    for place, touch in enumerate(touches):
        reach = touch.reach
        key = (touch.tensor, touch.reads, touch.writes, reach.loops, reach.sizes)
        try:
            runs = _granules(touch)
        except TooLargeError:
            continue
        if len(runs.starts):
            groups.setdefault(place if touch.offset.hidden else key, {})[place] = runs
    for group in groups.values():
        whole = _together([*group.values()])
        sizes = whole.ends - whole.starts
        for place, runs in group.items():
            own = np.unique(np.searchsorted(whole.starts, runs.starts, "right") - 1)
            found[place] = float(sizes[own].mean()), _adjoins(touches[place])
    return found


def _adjoins(touch: Touch) -> bool:
    """Return `Access.adjoins`, by one iteration of each loop."""
    if not touch.writes:
        return False
    lines = _granules(touch, iterations=1).whole(LINE)
    return int((lines.ends - lines.starts).sum()) > 2 * LINE * len(lines.starts)


def _granules(touch: Touch, iterations: int = TOGETHER) -> Bytes:
    """Return the granules that an access touches in a few programs in the middle of the grid."""
    is_known = not touch.offset.hidden
    number = TOGETHER if is_known else 1
    programs = number
    if is_known and touch.writes:
        programs = max(number, 2 * LINE // (math.prod(touch.shape) * touch.item_bytes))
    box = _middle(touch.reach.sizes, programs, min(number, iterations))
    some = accesses.restricted(touch, box)
    cells = accesses.combined(accesses.grouped(some, None), None)
    if not len(cells.weights):
        return Bytes(cells.weights, cells.weights)
    first, place = accesses.distinct_rows(cells.codes)
    codes = cells.codes[first]
    runs = (accesses.tile_runs if is_known else accesses.runs_far_apart)(some, codes)
    index, shift = accesses.runs_at(runs, cells.starts, place)
    starts, ends = runs.starts[index] + shift, runs.ends[index] + shift
    return merged(starts // GRANULE * GRANULE, -(-ends // GRANULE) * GRANULE)


def _middle(sizes: Sequence[int], programs: int, iterations: int) -> tuple[slice, ...]:
    """Return *programs* in the middle of the grid, and their first *iterations*, as a box."""
    longest = next((axis for axis in range(GRID_AXES) if sizes[axis] > 1), 0)
    box = []
    for axis, size in enumerate(sizes):
        width = iterations if axis >= GRID_AXES else programs if axis == longest else 1
        first = 0 if axis >= GRID_AXES else max((size - width) // 2, 0)
        box.append(slice(first, min(first + width, size)))
    return tuple(box)


def footprints(
    several: Sequence[Accessed],
    grid: tuple[int, int, int],
    resident: int | None,
    sizes: Mapping[str, int],
    counted: Sequence[Access],
) -> tuple[Footprint, ...]:
    """Return the footprint of each tensor.

    *sizes* has the bytes of tensors, and *resident* programs run at once. *counted* are the
    counts of the same accesses as *several*.
    """
    found, wholes = [], {}
    for tensor in dict.fromkeys(one.touch.tensor for one in several):
        mine = [one for one in several if one.touch.tensor == tensor]
        limit = sizes.get(tensor or "")
        reads, writes = ([x for x in mine if x.touch.reads], [x for x in mine if x.touch.writes])
        each = distinct(reads, limit), distinct(writes, limit)
        read, written = each
        if not all(one.is_whole for one in mine):
            read, written = distinct(reads, limit, SECTOR), distinct(writes, limit, SECTOR)
        found.append(
            Footprint(
                tensor,
                *each,
                read,
                written,
                bounds=_bounds(mine),
                size=limit,
                read_granules=_whole(reads, GRANULE),
                written_lines=_whole(writes, LINE),
            )
        )
        both = reads and writes
        whole = distinct(mine, limit, SECTOR) if both else read if reads else written
        if whole.is_exact:
            wholes[tensor] = whole.low
    if resident is None:
        return tuple(found)
    schedule = reuse.Schedule(grid, max(resident, 1))
    again = _touched_again(several, wholes, schedule, counted)
    return tuple(replace(one, **again.get(one.tensor, {})) for one in found)


def _whole(several: Sequence[Accessed], unit: int) -> int | None:
    """Return the bytes of whole units of *unit* bytes that accesses are known to touch."""
    known = (one.sectors for one in several if is_certain(one.touch))
    with contextlib.suppress(TooManyRunsError):
        return size_of(union(run.whole(unit) for each in known if each for run in each))
    return None


def _bounds(several: Sequence[Accessed]) -> tuple[int, int] | None:
    """Return where the first touched sector begins and the last one ends."""
    sets = [one.sectors for one in several if one.sectors is not None and is_certain(one.touch)]
    if not all(sets) or len(sets) < len(several):
        return None
    bounds = [one.bounds for each in sets for one in each]
    return min(first for first, _ in bounds), max(last for _, last in bounds)


def _touched_again(
    several: Sequence[Accessed],
    wholes: Mapping[str | None, int],
    schedule: reuse.Schedule,
    counted: Sequence[Access],
) -> dict[str | None, dict[str, Any]]:
    """Return what is read and written again of each tensor whose distinct bytes *wholes* has.

    The results are the fields of a Footprint.
    """
    asked: Counter[str | None] = Counter()
    read: set[str | None] = set()
    in_part: set[str | None] = set()
    for one, access in zip(several, counted, strict=True):
        asked[one.touch.tensor] += access.sectors.low * SECTOR
        if one.touch.reads:
            read.add(one.touch.tensor)
        elif access.lines.low * LINE > access.sectors.low * SECTOR * WHOLE_LINES:
            in_part.add(one.touch.tensor)
    whole = sum(wholes.values())
    large = [one for one, size in wholes.items() if size > SMALL_SHARE * whole]
    often = [one for one in large if asked[one] > wholes[one]]
    by_lines = [one for one in large if one in in_part - read]
    found: dict[str | None, dict[str, Any]] = {one: {"again": ()} for one in wholes}
    if not (often or by_lines) or whole < reuse.LEAST_DISTANCE:
        return found
    when = reuse.moments([one.touch for one in several], [one.asked.low for one in several])
    blocks: dict[str | None, list[reuse.Blocks]] = {one: [] for one in wholes}
    lines: dict[str | None, list[reuse.Blocks]] = {one: [] for one in by_lines}
    for one, moment, access in zip(several, when, counted, strict=True):
        if (tensor := one.touch.tensor) not in blocks or not is_certain(one.touch):
            continue
        blocks[tensor].append(reuse.blocks_of(one.touch, moment, schedule, access.occupied))
        if tensor in lines:
            lines[tensor].append(reuse.blocks_of(one.touch, moment, schedule, unit=LINE))
    steps = {name: reuse.steps_of(blocks[name], size, schedule) for name, size in wholes.items()}
    touched = sum(one.touched for one in steps.values())
    between, fresh = reuse.distances(touched, schedule), reuse.first_touched(touched)
    for name in {*often, *by_lines}:
        size = sum(LINE * access.lines.low for access in counted if access.tensor == name)
        resumed = reuse.steps_of(lines.get(name, []), size, schedule).rewritten
        own = steps[name]
        found[name] = {
            "again": reuse.reuses(own.again, between, schedule.share),
            "rewritten": reuse.reuses(own.rewritten, between, schedule.share),
            "resumed": reuse.reuses(resumed, between, schedule.share),
            "late": reuse.reuses(own.rewritten, fresh, schedule.share),
        }
    return found
