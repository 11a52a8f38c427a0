"""What a launch asks of a GPU, in the mean of its programs, and how long a program alone takes.

That is as long as the replay of one of its warps, with the latency of memory that its share of
cache misses gives.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.occupancy.calculator import ctas_per_sm
from occupancy_lab.throughput.counted_program import counted_program, working_programs
from occupancy_lab.work.counts import (
    CACHED_CYCLES,
    IN_TURN,
    LATENCIES,
    LINE,
    LOADS,
    NO_WAIT,
    NOTHING,
    SECTOR,
    total,
)
from occupancy_lab.work.memory import beyond
from occupancy_lab.work.pipes import TENSOR, XU

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.gpus import Architecture, Gpu
    from occupancy_lab.values import Resources
    from occupancy_lab.work.counts import Access, Amount, Counts, Executed, GlobalAccess, Program
    from occupancy_lab.work.memory import Memory

START_CYCLES, WARP_CYCLES = 105.0, 8.0
"""Of a program, before its first instruction and after its last, and for each of its warps: with
133 for all, softmaxes of 32 warps a row were 7 to 8% too short."""
CLUSTER_CYCLES = 800.0
"""The same, in addition, of each CTA of a cluster, as its CTAs begin and end together: the errors
of 51 launches of clusters on an H200 are then 4% in the median and 16% at the 90th percentile."""
WAIT_CYCLES = 1800.0
"""The standard deviation of when programs that wait for each other get there, the way through the
L2 cache included. The latest of n times that are normally distributed is
sqrt(2 ln n) late, the leading term of extreme value theory."""
L2_CYCLES, MEMORY_CYCLES = 487.0, 685.0
"""Until a load is there from the L2 cache and from device memory. The second is what `calibrate`
measures; with 286, which it measures of an idle L2 cache, launches are too short."""
LOADED, WAITING_LOADED = 1.0, 2.0
"""How much longer both take, as a share, where loads and stores keep one of the two busy all the
time: in proportion where it is less. The second is of programs with tensor cores that wait for
loads."""
IDLE_L2_CYCLES, FEW_MISSED = 300.0, 0.05
"""From the L2 cache where no load goes on to device memory, and the share that goes on from which
it takes L2_CYCLES: in between in proportion. Of launches right after the same one half are met
within 6.2 and 5.4% with it (H100, H200), and within 6.6 and 6.0% by what the one before left."""
WRITTEN_WEIGHT, TURNED = 0.93, 0.27
"""The time that device memory takes to write a byte, in times of what it takes to read one; and
what turning from the one to the other adds, in times of reading r w / (r + w) of r bytes that it
reads and w that it writes. `calibrate` measures 0.94 and 0.96 for the first, and 0.27 and 0.42
for the second (H100, H200); with these the recorded copies of both are met best."""
DIRTY, EVICTED = 0.3, 0.3
"""What of the L2 cache is written and not yet in device memory when a launch begins after it was
filled; and how much of that goes for each byte that the launch touches."""
LOCAL_WAITED, LOCAL_LATENCY = 0.6, 0.5
"""The part of the time in which local memory goes to the L2 cache and back, and to device memory,
that nothing else is done in; and the part of the latency of the L2 cache, or of device memory where
that has lost it, that a load waits for. Both, and the two of `rounds`, are by the 160 recorded
launches and the 405 softmaxes for tuning, on an H100 and an H200, that spill more than
LEAST_LOCAL_BYTES; the other 1883 softmaxes are met as well. The first was 0.55 as long as masked
loads were waited for, and is by these launches and 222 of all softmaxes that spill."""
LOCAL_TURNS = 0.5
"""How much of both waits is left where tensor cores and special functions take turns: with 1 the
attentions that spill are 8% too long in the median, and 25% at the 90th percentile."""
SPECIAL_SHARE = 0.25
"""From which share of the tensor cores' time on special functions take turns with them."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a launch asks of a GPU, in the mean of its programs."""

    programs: int
    """Programs launched, or the CTAs of those that are clusters; so in all that follows."""
    fit: int
    """Programs that fit a multiprocessor."""
    program: Program
    resources: Resources
    read_bytes: float
    written_bytes: float
    """Of device memory."""
    l2_bytes: float
    """What its programs ask the L2 cache for and write to it, local memory included."""
    missed: float
    """What device memory gives, local memory included, as a share of what it loads past the L1
    cache otherwise."""
    first: float
    """The same where bytes that several programs load at the same time count once: all of them wait
    as long as the first one does."""
    again: bool
    """Whether it comes right after the same launch."""
    stored_bytes: float = 0.0
    """What of `l2_bytes` they write, local memory and atomic operations apart."""
    evicted_bytes: float = 0.0
    """What device memory writes of earlier launches, whose lines make room in the L2 cache."""
    atomics: float = 0.0
    """Cycles in which the L2 cache does the atomic operations of all programs."""
    is_followed: bool = True
    """Whether the program is a replay of its binary."""
    together: int = 2
    """Programs that wait for each other, where some do."""
    strides: bool = False
    """Whether a program goes over several pieces of work, a fixed number of them apart."""
    local_lost: float = 0.0
    """As `Memory` has it."""
    local_share: float = 0.0
    """The share of device memory's time that it takes for local memory."""

    @property
    def takes_turns(self) -> bool:
        """Whether tensor cores and special functions take turns in a program, as in attention."""
        special, tensor = (self.program.pipes.get(pipe, 0.0) for pipe in (XU, TENSOR))
        return special > SPECIAL_SHARE * tensor > 0.0

    @property
    def local_left(self) -> float:
        """How much of the waits for local memory is left, in times of what most programs wait."""
        return LOCAL_TURNS if self.takes_turns else 1.0

    @property
    def moved(self) -> float:
        """What device memory reads in the time that it takes for all, bytes."""
        read, written = self.read_bytes, self.written_bytes + self.evicted_bytes
        turned = read * written / max(read + written, 1.0)
        return read + WRITTEN_WEIGHT * written + TURNED * turned

    @property
    def waiting(self) -> float:
        """The share of device memory's time in which a program waits for what it reads."""
        few, many = self.program.transferred
        reading = self.read_bytes / max(self.moved, 1.0)
        return reading * min(max(few + (many - few) * self.missed, 0.0), 1.0)

    def awaited(self, multiprocessors: int) -> float:
        """Return the share of its waits for loads in which a program waits for device memory.

        In the others it waits for the L2 cache. It is `first` where copies run ahead, as a pass
        waits until the last of them is there, and else in launches of one round, whose programs
        begin together. Of several rounds r it is that of the first one, and the programs of later
        ones do not begin together: what `first` adds to `missed` is divided by r squared, which
        meets recorded launches better than by r. It is `missed` right after the same launch, where
        programs take turns, and where the binary was not followed. With it half of the held-out
        products of matrices on an H100 and an H200 are met within 6.2 and 5.2%, and within 7.1 and
        5.6% without.
        """
        turns = self.takes_turns and self.programs > multiprocessors
        if self.again or turns or not self.is_followed:
            return self.missed
        rounds = 1.0
        if any(self.program.transferred):
            rounds = max(self.programs / (self.fit * multiprocessors), 1.0)
        return self.missed + (self.first - self.missed) / rounds**2

    def alone(self, busy: float, missing: float, awaited: float) -> float:
        """Return the cycles that it takes with a multiprocessor to itself.

        The L2 cache or device memory is *busy* for so large a share of the time, *missing* is the
        share of its local memory that the L1 cache does not hold, and *awaited* is what `awaited`
        returns.
        """
        waits = self.program.pipes.get(TENSOR) and any(self.program.transferred)
        loaded = 1.0 + (WAITING_LOADED if waits else LOADED) * busy
        cached = L2_CYCLES * loaded
        cached += (IDLE_L2_CYCLES - cached) * max(1.0 - self.missed / FEW_MISSED, 0.0)
        latency = cached + (MEMORY_CYCLES * loaded - cached) * awaited
        found = cycles_at(latency, self.program.alone)
        local = cached + (MEMORY_CYCLES * loaded - cached) * self.local_lost - CACHED_CYCLES
        local *= missing * self.program.local_waits * LOCAL_LATENCY * self.local_left
        lateness = math.sqrt(2.0 * math.log(max(self.together, 2)))
        waited = WAIT_CYCLES * lateness * self.program.waits
        started = START_CYCLES + WARP_CYCLES * self.resources.num_warps
        if self.resources.num_ctas > 1:
            started += CLUSTER_CYCLES
        return found + local + waited + started

    def missing(self, gpu: Gpu, at_once: int) -> float:
        """Return the share of its loads of local memory that the L1 cache lacks.

        It has *at_once* programs of the multiprocessor.
        """
        resources, architecture = self.resources, gpu.architecture
        threads = resources.num_warps * architecture.warp_size * at_once
        room = l1_room(architecture, resources.shared, self.fit)
        return l1_missing(self.program.local_reuse.loads, threads, room)


def cycles_at(latency: float, cycles: Sequence[float]) -> float:
    """Return the cycles that a program takes at a *latency* of memory, from those at LATENCIES.

    Between two of these, and beyond the first and the last, they grow evenly.
    """
    place = min(bisect(LATENCIES, latency, 1), len(LATENCIES) - 1)
    first, last = LATENCIES[place - 1 : place + 1]
    low, high = cycles[place - 1 : place + 1]
    return low + (high - low) * (latency - first) / (last - first)


@dataclass(frozen=True, slots=True)
class Doing:
    """What a launch does on a GPU, from which its time follows."""

    counts: Counts
    executed: Executed | None
    memory: Memory | None
    resources: Resources
    fit: int
    """Programs that fit a multiprocessor."""
    gpu: Gpu
    num_stages: int = 1
    together: int | None = None
    """Programs that wait for each other; where nobody says how many, they are two."""
    in_program: bool = False
    """As `Launch` has it: otherwise the time is that between two events of CUDA."""


def demand_of(doing: Doing) -> Demand | None:
    """Return what a launch asks of its GPU.

    Where its binary was not followed, its programs are those of `counted_program`. None where it is
    not known what it does or moves.
    """
    counts, executed, memory = doing.counts, doing.executed, doing.memory
    resources, fit, gpu = doing.resources, doing.fit, doing.gpu
    if resources.num_ctas > 1:
        fit = ctas_per_sm(fit, gpu)
    program = followed_program(executed, gpu)
    is_followed = program is not None
    if program is None:
        program = counted_program(counts, resources, doing.num_stages, gpu)
    if program is None or memory is None or not fit or not counts.programs:
        return None
    programs = counts.programs if is_followed else working_programs(counts)
    programs *= resources.num_ctas
    program = behind_others(program, resources, programs, fit, gpu)
    reads, writes, through = (memory.dram_read_bytes, memory.dram_written_bytes, memory.l2_bytes)
    if reads is None or writes is None or through is None:
        return None
    if None in {reads.high, writes.high, through.high}:
        return None
    is_indexed = _is_indexed(counts)

    def taken(amount: Amount) -> float:
        return amount.most if is_indexed else amount.typical

    if not resources.local_bytes:  # or its time without its spills is asked for
        program = replace(program, local_loaded=0.0, local_stored=0.0, local_waits=0.0)
    read, written = taken(reads), taken(writes)
    evicted, within = 0.0, memory.written_within_bytes
    if within is not None and memory.kept is None and not doing.in_program:
        dirty = min(DIRTY * (gpu.l2_bytes or 0), EVICTED * (read + written))
        evicted = max(dirty - max(written - taken(within), 0.0), 0.0)
    local = memory.local_read_bytes + WRITTEN_WEIGHT * memory.local_written_bytes
    wanted, stored = (
        taken(total(one.sectors for one in counts.accesses if one.reads == loads)) * SECTOR
        for loads in (True, False)
    )
    cached = wanted * program.cached
    missed = min(read / max(wanted - cached, read, 1.0), 1.0)
    if not reads.is_exact:
        missed = max(missed, FEW_MISSED)  # nobody knows that so few are
    return Demand(
        programs=programs,
        fit=fit,
        program=program,
        resources=resources,
        read_bytes=read,
        written_bytes=written,
        evicted_bytes=evicted,
        l2_bytes=taken(through) - cached,
        stored_bytes=stored,
        missed=missed,
        first=_first(counts, executed, read - memory.local_read_bytes, missed),
        again=memory.kept is not None,
        atomics=atomic_cycles(counts, executed),
        is_followed=is_followed,
        together=doing.together or 2,
        strides=_strides(counts),
        local_lost=memory.local_lost,
        local_share=local / max(read + WRITTEN_WEIGHT * written, local, 1.0),
    )


def _first(counts: Counts, executed: Executed | None, read: float, missed: float) -> float:
    """Return `Demand.first` where device memory gives *read* bytes; *missed* where nobody knows.

    What a program loads again itself it does not load at the same time: beyond *missed* it is no
    more than the share of its loads that are new to it. Copies count as new.
    """
    loaded = 0.0
    for one in counts.footprints:
        if one.again is None:
            return missed
        loaded += one.read_whole.typical + sum(again.bytes for again in one.again)
    asked = new = 0.0
    for access in () if executed is None else executed.accesses:
        if access.operation in LOADS:
            once = access.sectors.middle * (1.0 - access.shared)
            asked += once * (1.0 - access.cached)
            is_load = access.operation == "load"
            new += access.sectors.middle * access.distinct if is_load else once
    share = new / asked if asked else 1.0
    return max(min(read / max(loaded, 1.0), share, 1.0), missed)


def followed_program(executed: Executed | None, gpu: Gpu) -> Program | None:
    """Return what a program asks for by a replay of its binary; None where that is not known."""
    if executed is None or executed.program is None or executed.instructions.high is None:
        return None
    uses = executed.kinds.get("tensor_instructions", NOTHING) != NOTHING
    return None if uses and gpu.architecture.tensor_multiply_adds is None else executed.program


def _strides(counts: Counts) -> bool:
    """Tell whether programs go over their work in a loop, and do not take it in turn."""
    in_turn = any(one.assumed == IN_TURN for one in counts.unknowns)
    return not in_turn and any(one.trips.typical > one.entered.typical for one in counts.loops)


def _is_indexed(counts: Counts) -> bool:
    """Tell whether all that is not known are places in tensors, by numbers in other tensors.

    Those are taken to differ, as rows of an embedding do: with fewer of them its launches were
    predicted up to a third too short. Where it is not known which tensor is meant, as in a grouped
    product, programs share what they read.
    """
    unknowns = counts.unknowns
    return bool(unknowns) and all(one.steers == "address" and one.tensor for one in unknowns)


SHARED_KIB = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
"""What of the cache the driver makes shared memory, up to what an architecture has of it: the
smallest that the programs need (CUDA C++ Programming Guide, compute capabilities, "Shared Memory").
"""
MOST_SHARED = 48 * 1024
"""Bytes of shared memory of a program beyond which Triton asks for as much of the cache as can be
(cuFuncSetCacheConfig in its driver): then an H100 has 28 KiB left, as Nsight Compute says too."""
KEPT, LOST = 0.5, 1.5
"""How many times what there is room for lies between two touches of a place that is still there,
and from where on it is lost; in between in proportion. With it the share that 35 launches on an
H200 lack is met within 0.05 in the mean, and within 0.14 in nine of ten (Nsight Compute)."""


def l1_room(architecture: Architecture, shared: int, programs: int) -> int:
    """Return the bytes left for data beside so many *programs* of *shared* bytes each.

    0 where the cache is not known.
    """
    whole = architecture.l1_bytes or 0
    if not isinstance(architecture, CudaArchitecture):
        return whole
    most = architecture.shared_per_multiprocessor
    taken = (shared + architecture.reserved_shared) * programs
    steps = (one * 1024 for one in SHARED_KIB if taken <= one * 1024 < most)
    return whole - (most if shared > MOST_SHARED else next(steps, most))


def l1_missing(distances: Sequence[float], threads: int, size: int) -> float:
    """Return the share of loads that a cache of *size* bytes lacks.

    *distances* are theirs, bytes of each of *threads*.
    """
    if not distances:
        return 0.0
    shares = (one * threads / max(size, 1) / KEPT for one in distances)
    return sum(beyond(one, LOST / KEPT) for one in shares) / len(distances)


def behind_others(
    program: Program, resources: Resources, programs: int, fit: int, gpu: Gpu
) -> Program:
    """Return what a program asks for in the mean, as others left in the cache what all load.

    Of a launch of so many *programs* the first on each multiprocessor brings it there; the others
    of the *fit* that begin with it wait for it as well, and later ones find it.
    """
    common, size = program.common, gpu.multiprocessors or programs
    if common is None:
        return program
    left = l1_room(gpu.architecture, resources.shared, fit)
    kept = 1.0 - l1_missing((common.distinct_bytes,), 1, left)
    there, ahead = (max(1.0 - first / programs, 0.0) for first in (size, fit * size))
    return program.with_common(kept * there, kept * ahead)


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
