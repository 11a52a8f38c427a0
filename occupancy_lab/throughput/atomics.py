"""How long the L2 cache takes for the atomic operations of a launch."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from occupancy_lab.work.counts import LINE, NO_WAIT, SECTOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.work.counts import Access, Counts, Executed, GlobalAccess

ATOMIC_CYCLES = 3.48
"""Between two atomic operations of the whole GPU on one address, as `calibrate` measures it."""
ATOMIC_SECTOR_CYCLES, ATOMIC_THREAD_CYCLES, FLOAT_CYCLES = 1.48, 0.73, 0.11
"""Of a slice of the L2 cache: for each sector of a warp, times the threads that share an address,
and at the least for each thread, of floats as `calibrate` measures it (atomic_adds)."""
ATOMIC_SLICES, SLICE_BYTES = 42.0, 512
"""How many slices work at once where addresses are in all of them, and the bytes that lie in one:
of a few such pieces some share a slice. These, and the first two, by the launches of `add_each` in
reports/data/atomics-h100.csv."""
LOCK_CYCLES, LOCK_BYTES = 3450.0, 43.0
"""From one program that has a lock to the next, besides what it moves meanwhile, and the bytes of
that in a cycle: of the norms whose gradients Triton's tutorial adds under a lock, six launches of
12 to 128 programs a lock on an H100 and an H200."""


def atomic_cycles(counts: Counts, executed: Executed | None) -> float:
    """Return the cycles in which a launch's atomic operations, or its locks, are one after another.

    Programs that wait for one lock have it one after the other.
    """
    waited = {one.place for one in counts.unknowns if one.assumed == NO_WAIT}
    locks = [place for place, one in enumerate(counts.accesses) if one.place in waited]
    held = max((_lock_cycles(counts.accesses[place:]) for place in locks), default=0.0)
    return max(_l2_cycles(counts, executed), held)


def _lock_cycles(accesses: Sequence[Access]) -> float:
    """Return the cycles in which programs have a lock, one after the other.

    The first of *accesses* takes it; what is between that and its last atomic operation is done
    under it.
    """
    lock, *others = accesses
    ends = [place for place, one in enumerate(others) if one.tensor == lock.tensor]
    programs, places = lock.executions.typical, lock.unique_bytes.most / lock.item_bytes
    moved = sum(one.bytes.typical for one in others[: max(ends, default=0)])
    each = LOCK_CYCLES + moved / max(programs, 1.0) / LOCK_BYTES
    return programs / max(places, 1.0) * each if lock.writes else 0.0


def _l2_cycles(counts: Counts, executed: Executed | None) -> float:
    """Return the cycles in which the L2 cache does the atomic operations of a launch.

    Those on one address come one after the other, and so do those in one slice; which these are the
    binary says. Where it does not, they are those of the source on one address. Addresses that are
    not known are taken to differ.
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
    slices, largest = 0.0, max(touched, key=touched.__getitem__)
    for one in found:
        tensor = one.tensor if one.tensor in touched else largest
        slices += _slice_cycles(one, tensors[tensor].written_whole.most / SECTOR)
        again[tensor] += one.threads.typical * one.thread_bytes
    return max(slices, ATOMIC_CYCLES * max(again[one] / touched[one] for one in again))


def _slice_cycles(one: GlobalAccess, sectors: float) -> float:
    """Return the cycles in which the slices of the L2 cache do an atomic operation of a launch.

    It is on so many *sectors* in all.
    """
    threads, places, asked = (x.typical for x in (one.threads, one.places, one.sectors))
    pieces = max(sectors * one.lines.typical / max(asked, 1.0) * LINE / SLICE_BYTES, 1.0)
    least = FLOAT_CYCLES if one.adds_floats else ATOMIC_THREAD_CYCLES
    each = max(ATOMIC_SECTOR_CYCLES * asked / places, least)
    return threads * each * (1.0 / pieces + 1.0 / ATOMIC_SLICES)
