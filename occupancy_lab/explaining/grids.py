"""Larger grids for a launch that does not fill the GPU, and whether two launches do the same work.

Two launches do the same work if the counts of their memory accesses say so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from occupancy_lab.record import Failed, Record
from occupancy_lab.work.counts import Amount, Counts, Footprint

GRID = "grid"
"""The name of the grid among the settings of a launch."""


def grid_changes(record: Record) -> Iterator[dict[str, Any]]:
    """Return larger grids that still run at once: twice, four times, and as large as fits.

    If one integer argument is another one divided by the number of programs, as `rows_per_program`
    is `n_rows` over the grid, it is divided by the new number, and the grid gets only as many
    programs as that needs. Without such an argument, only a kernel that reads its number of
    programs does less per program. `same_input` tells whether the launch still does the same work.
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
    """Return new values for integer arguments that are another one divided by *programs*.

    The new value divides by *more* instead. With it comes the number of programs that it takes to
    cover the other argument.
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
    """Return *changes* of a block, each time with a grid that may cover the same range with it.

    One or several dimensions of the grid may be an integer argument, or a product of two, divided
    by the block, possibly times other factors: a grid of (M / BLOCK_M) * (N / BLOCK_N) programs has
    half as many with twice the BLOCK_N.
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
    """Return the constexprs that split a sum among programs, recognized by their names."""
    found = ((name, record.arguments[name]) for name in record.constexprs)
    return {
        name: one
        for name, one in found
        if "split" in name.lower() and name not in record.tiles and type(one) is int and one > 0
    }


def split_changes(record: Record) -> Iterator[dict[str, Any]]:
    """Return other splits of a sum among programs: half, twice and four times as many parts.

    For a launch whose grid is plain numbers it is not known how the split enters the grid, so each
    dimension that may contain it is scaled in turn. `same_work` tells which does the same work.
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
"""The relative error allowed for amounts that were extrapolated from some of the programs."""
MOST_MOVED = 1.25
"""How many times the launch's bytes a larger grid may move; more is other work, or rereading."""


def same_work(record: Record, other: Record) -> bool:
    """Tell whether two launches read and write the same bytes of each tensor, by their counts.

    The number of bytes and the bounds must agree: more programs of a smaller block may go past the
    end of a tensor. One launch may store what the other adds with atomic operations, which also
    read. Stored reductions, scans and products must be over equally many elements, and the layout
    of the data must be the same.
    """
    one, two = record.counts, other.counts
    if one is None or two is None or one.divisors != two.divisors:
        return False
    if reduces_otherwise(one, two) or _reduces_more_at_once(one, two):
        return False
    tensors, most = _tensors(one, two), _sampled(one, two)
    added = {*added_tensors(record, other), *added_tensors(other, record)}
    return tensors is not None and all(
        (its.tensor in added or _equal(mine.read, its.read, most))
        and _equal(mine.written, its.written, most)
        and _same_bounds(mine, its, most)
        for mine, its in tensors
    )


def reduces_otherwise(one: Counts, other: Counts) -> bool:
    """Tell whether two launches may store sums, means or scans of different parts of their input.

    The mean of a group of 64 channels differs from that of a group of 16, although the bytes are
    the same. A longer tile alone proves nothing: it may be masked, or a loop that accumulates may
    make fewer passes. The parts differ if the number of programs differs as well, or the number of
    passes of a loop that stores in each pass. They also differ if the results that are stored cover
    all that is read in only one of the two launches: with half the block, programs that had no work
    may quantize what others did before. `multiplies_otherwise` is about products.
    """
    if multiplies_otherwise(one, other):
        return True
    if one.reduced_lengths == other.reduced_lengths:
        return False
    passes = [[loop.trips for loop in each.loops] for each in (one, other)]
    is_of_programs = bool(one.reduced) and one.programs != other.programs
    if is_of_programs or (one.stores_each_pass and passes[0] != passes[1]):
        return True
    return _covers_all(one) != _covers_all(other)


def _reduces_more_at_once(one: Counts, other: Counts) -> bool:
    """Tell whether *other* stores results of longer tiles, each of which is all that one covers.

    Either the rest of the longer tile is masked, which brings nothing, or the result is another:
    the counts are the same for a row in a tile of twice its length and for half as many scales.
    """
    is_whole = bool(one.reduced) and not one.loops and _covers_all(one)
    return is_whole and max(other.reduced_lengths) > max(one.reduced_lengths)


def _covers_all(counts: Counts) -> bool:
    """Tell whether each stored result of a launch may combine its share of all that is read.

    A tile of the longest reduction has to hold the share. Loops may combine any number of tiles.
    """
    if counts.loops or not counts.reduced:
        return True
    moved: dict[tuple[str | None, bool], float] = {}
    for one in counts.accesses:
        key = one.tensor, one.writes
        moved[key] = moved.get(key, 0.0) + one.active.typical
    results = min((moved.get((name, True), 0.0) for name in counts.reduced), default=0.0)
    most = max((number for (_, writes), number in moved.items() if not writes), default=0.0)
    return most <= results * max(counts.reduced_lengths, default=1)


def multiplies_otherwise(one: Counts, other: Counts) -> bool:
    """Tell whether a product of matrices sums over another number of elements in a program.

    The sum is over the k of one product if that stays the same, as in an attention whose blocks of
    keys change. Otherwise it is over all products that a program makes, up to a masked block, as in
    a loop over K with another BLOCK_K.
    """
    both = [
        {dot.place: dot for dot in each.arithmetic if dot.operation == "dot" and dot.shape}
        for each in (one, other)
    ]
    for place in both[0].keys() & both[1].keys():
        mine, its = (each[place] for each in both)
        widths = mine.shape[-1], its.shape[-1]
        often = [
            dot.executions.typical / max(each.programs, 1)
            for dot, each in ((mine, one), (its, other))
        ]
        apart = abs(widths[0] * often[0] - widths[1] * often[1])
        if widths[0] != widths[1] and (often[0] == often[1] or apart > max(widths)):
            return True
    return False


def has_idle_programs(record: Record, other: Record) -> bool:
    """Tell whether some programs of *record* do nothing, because *other* manages with fewer.

    That does not hold if *other*'s programs loop more often, so that each does the work of several.
    """
    one, two = record.counts, other.counts
    if one is None or two is None or one.programs <= two.programs:
        return False
    most = {loop.place: loop.most for loop in one.loops}
    return all(
        loop.most is not None and loop.most <= (most.get(loop.place) or 0) for loop in two.loops
    )


def _tensors(one: Counts, other: Counts) -> list[tuple[Footprint, Footprint]] | None:
    """Return pairs of two launches' footprints by tensor; None if the tensors differ."""
    mine, its = ({each.tensor: each for each in counts.footprints} for counts in (one, other))
    return [(mine[name], its[name]) for name in its] if mine.keys() == its.keys() else None


def doing_less(runs: Sequence[Record | Failed]) -> dict[int, int]:
    """Return the indices of *runs* that leave work undone, and of the run that does all of it.

    A run leaves work undone if it reads or writes less of a tensor than the run that moves most.
    Only runs of one kernel with the same arguments are compared. Bytes that reductions store do
    not count, because they depend on the number of programs.
    """
    if len({_kernel_and_arguments(run) for run in runs}) > 1:
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


def _kernel_and_arguments(run: Record | Failed) -> str:
    """Return a text that is equal for launches of the same kernel with the same arguments.

    Constexprs are not part of it.
    """
    passed = {name: run.arguments[name] for name in run.arguments if name not in run.constexprs}
    return repr((run.kernel, passed))


def whole_work(records: Sequence[Record]) -> list[Record]:
    """Return the *records* that do the whole work, as `doing_less` tells."""
    less = doing_less(records)
    return [record for place, record in enumerate(records) if place not in less]


def _unreduced_bytes(counts: Counts) -> dict[str, int]:
    """Return the bytes moved of each tensor, without stored reductions; empty if not known."""
    return {
        name: read + (0 if name in counts.reduced else written)
        for name, (read, written) in (moved_bytes(counts) or {}).items()
    }


def moved_bytes(counts: Counts) -> dict[str, tuple[int, int]] | None:
    """Return the distinct bytes read and written of each tensor; None if not known."""
    found = {}
    for one in counts.footprints:
        read, written = one.read.exact, one.written.exact
        if read is None or written is None or one.tensor is None:
            return None
        found[one.tensor] = (read, written)
    return found


def same_input(record: Record, other: Record) -> bool:
    """Tell whether a launch with more programs reads the same of each tensor and computes as much.

    It may write more of a tensor, if each program writes its part of a sum. It must write more of
    a tensor that stores reductions: a mean of fewer rows is another mean.
    """
    one, two = record.counts, other.counts
    if one is None or two is None:
        return False
    tensors, most, grown = _tensors(one, two), _sampled(one, two), {*grown_tensors(record, other)}
    return (
        tensors is not None
        and all(
            _equal(mine.read, its.read, most)
            and _no_less(mine.written, its.written, most)
            and (its.tensor in grown or _same_bounds(mine, its, most))
            for mine, its in tensors
        )
        and {*one.reduced} <= grown
        and _no_less(one.flops, two.flops, most)
        and _no_more(one.read_bytes + one.written_bytes, two.read_bytes + two.written_bytes)
    )


def added_tensors(record: Record, other: Record) -> list[str]:
    """Return the tensors to which *other* adds atomically and *record* does not."""
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
    """Return the tensors to which *other* writes more than *record*."""
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


def _equal(one: Amount, other: Amount, most: float) -> bool:
    if one.high is None or other.high is None:
        return False
    pairs = ((one.low, other.low), (one.high, other.high))
    return all(abs(a - b) <= most * max(a, b) for a, b in pairs)


def _same_bounds(one: Footprint, other: Footprint, most: float) -> bool:
    return most > 0 or None in {one.bounds, other.bounds} or one.bounds == other.bounds


def _no_less(one: Amount, other: Amount, most: float) -> bool:
    return other.low >= (1 - most) * one.low


def _no_more(one: Amount, other: Amount) -> bool:
    if one.high is None or other.high is None:
        return False
    return other.high <= MOST_MOVED * one.high
