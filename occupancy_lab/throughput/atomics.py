"""How long atomic operations and locks serialize a launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from occupancy_lab.work.counts import LINE, NO_WAIT, SECTOR, Access, Counts, Footprint
from occupancy_lab.work.execution import Executed, GlobalAccess

ATOMIC_CYCLES, REQUEST_CYCLES = 3.48, 2.05
"""Cycles between two atomic operations of the whole GPU on one address: of the threads of a warp,
as `calibrate` measures, and between requests of a single thread, from the sums that are added to
one float in reports/data/atomics-h200.csv. The L2 cache adds integers as fast as it takes requests.
"""
ATOMIC_SECTOR_CYCLES, ATOMIC_THREAD_CYCLES, FLOAT_CYCLES = 1.48, 0.36, 0.11
"""Cycles of a slice of the L2 cache: for each sector of a warp, times the threads that share an
address; and at unknown addresses at least for each thread, and for each thread with floats, as
`calibrate` measures it (atomic_adds)."""
ALONE = 0.5
"""The same for the lines of a single slice whose threads all have addresses of their own, relative
to those of several slices, which programs go through in step. From launches on an H200 that add
rows of 128 numbers to one row (reports/data/rows-h200.csv)."""
WIDE_BYTES = 16
"""An atomic operation of this many bytes per thread is a request of its own. Narrower ones of a
thread are in a row of this many bytes, so that each requests the same sectors again."""
ATOMIC_SLICES, SLICE_BYTES = 63.0, 512
"""How many of an H100's slices work at once where addresses are spread over all of them, and the
bytes that lie in one slice; with few such pieces some share a slice. From the relaxed additions in
reports/data/atomics-h200.csv, as an H200 has a fifth more slices; the first value above is from
atomics-h100.csv, and the second is from 45 launches on an H200 that add rows of integers."""
FENCE_CYCLES = 36.0
"""Cycles of a multiprocessor for each fence of a warp, which precedes each addition unless that is
relaxed. The additions in reports/data/atomics-h200.csv and rows-h200.csv take 29 to 57 cycles per
fence longer than relaxed ones where they do not wait for the same slices."""
LOCK_CYCLES, LOCK_BYTES = 3450.0, 43.0
"""Cycles from one holder of a lock to the next, without the bytes that a holder moves, and the
bytes that it moves per cycle. From six launches on an H100 and an H200 of the norms whose gradients
Triton's tutorial adds under a lock, with 12 to 128 programs per lock."""


def atomic_cycles(counts: Counts, executed: Executed | None, share: float) -> float:
    """Return the cycles for which atomic operations or locks serialize a launch.

    *share* is a multiprocessor's share of the L2 cache, relative to that of an H100.
    """
    waited = {one.place for one in counts.unknowns if one.assumed == NO_WAIT}
    locks = [place for place, one in enumerate(counts.accesses) if one.place in waited]
    held = max((_lock_cycles(counts.accesses[place:]) for place in locks), default=0.0)
    return max(_l2_cycles(counts, executed, ATOMIC_SLICES * share), held)


def is_hot(counts: Counts) -> bool:
    """Whether all atomic operations go to one slice of the L2 cache, behind which loads wait.

    All programs load some of their data through that slice. Sums of 1024 numbers that are added to
    1 to 16 addresses then take as long as the loads and the additions take in turn (H200,
    reports/data/atomics-h200.csv).
    """
    added = {one.tensor for one in counts.accesses if one.reads and one.writes}
    sizes = [one.written_whole.most for one in counts.footprints if one.tensor in added]
    return bool(sizes) and len(sizes) == len(added) and max(sizes) <= SLICE_BYTES


def _lock_cycles(accesses: Sequence[Access]) -> float:
    """Return the cycles in which programs hold a lock, one after the other.

    The first of *accesses* takes the lock. The accesses from there to the last atomic operation on
    it are made while it is held.
    """
    lock, *others = accesses
    ends = [place for place, one in enumerate(others) if one.tensor == lock.tensor]
    programs, places = lock.executions.typical, lock.unique_bytes.most / lock.item_bytes
    moved = sum(one.bytes.typical for one in others[: max(ends, default=0)])
    each = LOCK_CYCLES + moved / max(programs, 1.0) / LOCK_BYTES
    return programs / max(places, 1.0) * each if lock.writes else 0.0


def _l2_cycles(counts: Counts, executed: Executed | None, slices: float) -> float:
    """Return the cycles that the L2 cache takes for the atomic operations of a launch.

    So many *slices* of the cache work at once where addresses are spread over all of them.

    Operations on one address are serialized, and so are those in one slice, which only the binary
    gives. Without it, the operations of the source on one address count. Unknown addresses are
    assumed to differ.
    """
    tensors = {one.tensor: one for one in counts.footprints}
    touched: dict[str | None, float] = defaultdict(float)
    again: dict[str | None, float] = defaultdict(float)
    for access in counts.accesses:
        if access.reads and access.writes:
            unique = access.unique_bytes.most
            touched[access.tensor] = max(touched[access.tensor], unique, 1.0)
            again[access.tensor] += access.bytes.low
    found = [] if executed is None else [one for one in executed.accesses if one.places.typical]
    if not touched or not found:
        return ATOMIC_CYCLES * max((again[one] / size for one, size in touched.items()), default=0)
    again.clear()
    taken, largest = 0.0, max(touched, key=touched.__getitem__)
    most = _indexed_sectors(counts, found)
    for one in found:
        tensor = one.tensor if one.tensor in touched else largest
        taken += _slice_cycles(one, tensors[tensor], most, slices)
        if one.adds_floats:
            shared = one.threads.typical > one.sectors.typical
            cycles = ATOMIC_CYCLES if shared else REQUEST_CYCLES
            again[tensor] += cycles * one.threads.typical * one.thread_bytes
    return max([taken, *(cycles / touched[one] for one, cycles in again.items())])


def _indexed_sectors(counts: Counts, found: Iterable[GlobalAccess]) -> float | None:
    """Return the sectors of atomic operations in the source, relative to the most in the binary.

    The source knows which elements are in one row, whose index they share. None for launches whose
    addresses do not depend on an unknown index.
    """
    if not counts.is_indexed:
        return None
    asked = sum(one.sectors.most for one in counts.accesses if one.reads and one.writes)
    return min(asked / max(sum(one.sectors.most for one in found), 1.0), 1.0)


def _slice_cycles(
    one: GlobalAccess, tensor: Footprint, share: float | None, slices: float
) -> float:
    """Return the cycles that *slices* of the L2 cache take for one atomic operation of a launch.

    *share* is the result of `_indexed_sectors`; unknown addresses are then at random places of the
    *tensor*.
    """
    sectors = tensor.written_whole.most / SECTOR
    threads, places, asked = (x.typical for x in (one.threads, one.places, one.sectors))
    pieces = sectors * one.lines.typical / max(asked, 1.0) * LINE / SLICE_BYTES
    if tensor.bounds is not None:
        first, end = tensor.bounds
        pieces = min(pieces, (end - first) / SLICE_BYTES)
    if share is not None and not one.is_known:
        times, again = max(one.executions.typical, 1.0), WIDE_BYTES / one.thread_bytes
        draws = one.sectors.most / times * (min(share * again, 1.0) if again > 1.0 else 1.0)
        asked = times * sectors * (1.0 - (1.0 - 1.0 / max(sectors, 1.0)) ** draws)
        pieces = sectors * SECTOR / SLICE_BYTES
    each = ATOMIC_SECTOR_CYCLES * asked / places
    if not one.is_known:
        each = max(each, FLOAT_CYCLES if one.adds_floats else ATOMIC_THREAD_CYCLES)
    elif pieces <= 1.0 and threads <= places and tensor.written_whole.most > LINE:
        each *= ALONE
    return threads * each * (1.0 / max(pieces, 1.0) + 1.0 / slices)
