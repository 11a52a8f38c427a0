"""Larger grids for a launch that leaves places for programs empty, doing the same work.

Whether launches of a kernel do the same work, or which of them does less, is told by what is
counted of each.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from occupancy_lab.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from occupancy_lab.record import Failed
    from occupancy_lab.work.counts import Amount, Counts, Footprint

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
    if own is None or record.counts is None or record.counts.unknowns:
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
        if type(value) is int and value > 1 and name not in record.tiles
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

    In a dimension of the grid, or in several, a whole number of the launch, or a product of two, is
    divided by the block, beside others perhaps: of (M / BLOCK_M) * (N / BLOCK_N) programs there are
    half as many with twice BLOCK_N.
    """
    plan = record.plan
    if plan is None or plan.grid is None or GRID in record.arguments:
        return
    several = [one for one in record.arguments.values() if type(one) is int]
    wholes = {*several, *map(math.prod, itertools.combinations(several, 2))}
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


def splits_of(record: Record) -> dict[str, int]:
    """Return the constexprs that say among how many programs a sum is split, by their names."""
    found = ((name, record.arguments[name]) for name in record.constexprs)
    return {
        name: one
        for name, one in found
        if "split" in name.lower() and name not in record.tiles and type(one) is int and one > 0
    }


def split_changes(record: Record) -> Iterator[dict[str, Any]]:
    """Return other splits of what programs add up: half as many parts, twice and four times.

    Each is over the grid that it has then, which is not known of a launch with sizes for a grid: a
    dimension is as many times larger. Whether it does the same work, `same_work` tells.
    """
    own, plan = record.prediction, record.plan
    if own is None or record.counts is None or record.matrix is not None:
        return
    if plan is None or plan.grid is None or GRID in record.arguments:
        return
    for name, split in splits_of(record).items():
        for other in (split // 2, split * 2, split * 4):
            if other == 0:
                continue
            yield {name: other}
            for place, size in enumerate(plan.grid):
                if size % split == 0:
                    sizes = (*plan.grid[:place], size // split * other, *plan.grid[place + 1 :])
                    yield {name: other, GRID: sizes}


SAMPLED = 0.02
"""How far amounts may be apart that were counted of some of the programs for all."""
MOST_MOVED = 1.25
"""The bytes that a larger grid may ask for over those of the launch: more is other work, or the
same read again and again."""


def same_work(record: Record, other: Record) -> bool:
    """Tell whether two launches read and write the same bytes of each tensor, as they count.

    As many, between the same two: more programs of a smaller block may go beyond a tensor's end.
    What one stores the other may add by atomic operations, which read it. And what they store of
    reductions and scans is of as many elements.
    """
    if record.counts is None or other.counts is None:
        return False
    if reduces_otherwise(record.counts, other.counts):
        return False
    tensors, most = _tensors(record.counts, other.counts), _sampled(record.counts, other.counts)
    added = {*added_tensors(record, other), *added_tensors(other, record)}
    return tensors is not None and all(
        (its.tensor in added or _alike(mine.read, its.read, most))
        and _alike(mine.written, its.written, most)
        and _in_one_place(mine, its, most)
        for mine, its in tensors
    )


def reduces_otherwise(one: Counts, other: Counts) -> bool:
    """Tell whether two launches may store sums, means or scans of other parts of their input.

    Of each group of 64 channels a mean is another one than of 16, and their bytes are the same.
    A longer tile alone says nothing: it may be masked, or make fewer passes of a loop that goes on
    adding. With other programs, or other passes of a loop that stores each, it is other parts.
    """
    if one.reduced_lengths == other.reduced_lengths:
        return False
    passes = [[loop.trips for loop in each.loops] for each in (one, other)]
    is_of_programs = bool(one.reduced) and one.programs != other.programs
    return is_of_programs or (one.stores_each_pass and passes[0] != passes[1])


def has_idle_programs(record: Record, other: Record) -> bool:
    """Tell whether some programs of *record* do nothing, as *other* does the same with fewer.

    Programs of the other one that go through a loop more often do the work of several.
    """
    one, two = record.counts, other.counts
    if one is None or two is None or one.programs <= two.programs:
        return False
    most = {loop.place: loop.most for loop in one.loops}
    return all(
        loop.most is not None and loop.most <= (most.get(loop.place) or 0) for loop in two.loops
    )


def _tensors(one: Counts, other: Counts) -> list[tuple[Footprint, Footprint]] | None:
    """Return what two launches touch of each tensor; None where these are not the same."""
    mine, its = ({each.tensor: each for each in counts.footprints} for counts in (one, other))
    return [(mine[name], its[name]) for name in its] if mine.keys() == its.keys() else None


def doing_less(runs: Sequence[Record | Failed]) -> dict[int, int]:
    """Return the places of *runs* that leave work undone, each with that of one that does it.

    Those read and write less of a tensor than the launch that moves most, of one kernel with the
    same arguments; nothing is told of others. What programs reduce to does not count, as it goes
    by their number.
    """
    if len({_asked(run) for run in runs}) > 1:
        return {}
    counts = {
        place: run.counts
        for place, run in enumerate(runs)
        if isinstance(run, Record) and run.counts is not None
    }
    moved = {place: found for place, one in counts.items() if (found := _unreduced_bytes(one))}
    if not moved:
        return {}
    most = max(moved, key=lambda place: sum(moved[place].values()))
    share = 1 - _sampled(*(counts[place] for place in moved))
    return {
        place: most
        for place, one in moved.items()
        if any(one.get(name, 0) < share * whole for name, whole in moved[most].items())
    }


def _asked(run: Record | Failed) -> str:
    """Return the kernel of a launch and its arguments, but for what it is compiled for."""
    passed = {name: run.arguments[name] for name in run.arguments if name not in run.constexprs}
    return repr((run.kernel, passed))


def whole_work(records: Sequence[Record]) -> list[Record]:
    """Return those of *records*, launches as `doing_less` takes them, that leave no work undone."""
    less = doing_less(records)
    return [record for place, record in enumerate(records) if place not in less]


def _unreduced_bytes(counts: Counts) -> dict[str, int]:
    """Return the bytes of each tensor that tell of undone work; empty where they are not known."""
    return {
        name: read + (0 if name in counts.reduced else written)
        for name, (read, written) in (moved_bytes(counts) or {}).items()
    }


def moved_bytes(counts: Counts) -> dict[str, tuple[int, int]] | None:
    """Return the distinct bytes read and written of each tensor; None where they are not known."""
    found = {}
    for one in counts.footprints:
        read, written = one.read.exact, one.written.exact
        if read is None or written is None or one.tensor is None:
            return None
        found[one.tensor] = (read, written)
    return found


def same_input(record: Record, other: Record) -> bool:
    """Tell whether a launch of more programs reads the same of each tensor and computes as much.

    It may write more of a tensor, as where each program writes its part of a sum. It has to of one
    to which a program stores what it makes of all that it reads: a mean of fewer rows is another.
    """
    one, two = record.counts, other.counts
    if one is None or two is None:
        return False
    tensors, most, grown = _tensors(one, two), _sampled(one, two), {*grown_tensors(record, other)}
    return (
        tensors is not None
        and all(
            _alike(mine.read, its.read, most)
            and _no_less(mine.written, its.written, most)
            and (its.tensor in grown or _in_one_place(mine, its, most))
            for mine, its in tensors
        )
        and {*one.reduced} <= grown
        and _no_less(one.flops, two.flops, most)
        and _no_more(one.read_bytes + one.written_bytes, two.read_bytes + two.written_bytes)
    )


def added_tensors(record: Record, other: Record) -> list[str]:
    """Return the tensors to which *other* adds by atomic operations, and *record* does not."""
    own, its = (
        dict.fromkeys(
            access.tensor
            for access in (() if one.counts is None else one.counts.accesses)
            if access.operation == "atomic" and access.tensor is not None
        )
        for one in (record, other)
    )
    return [name for name in its if name not in own]


def grown_tensors(record: Record, other: Record) -> list[str]:
    """Return the tensors of which *other* writes more than *record*."""
    if record.counts is None or other.counts is None:
        return []
    most = _sampled(record.counts, other.counts)
    return [
        its.tensor
        for mine, its in _tensors(record.counts, other.counts) or ()
        if its.tensor is not None and not _no_less(its.written, mine.written, most)
    ]


def _sampled(*counts: Counts) -> float:
    return SAMPLED if any(one.walked < one.programs for one in counts) else 0.0


def _alike(one: Amount, other: Amount, most: float) -> bool:
    if one.high is None or other.high is None:
        return False
    pairs = ((one.low, other.low), (one.high, other.high))
    return all(abs(a - b) <= most * max(a, b) for a, b in pairs)


def _in_one_place(one: Footprint, other: Footprint, most: float) -> bool:
    return most > 0 or None in {one.bounds, other.bounds} or one.bounds == other.bounds


def _no_less(one: Amount, other: Amount, most: float) -> bool:
    return other.low >= (1 - most) * one.low


def _no_more(one: Amount, other: Amount) -> bool:
    if one.high is None or other.high is None:
        return False
    return other.high <= MOST_MOVED * one.high
