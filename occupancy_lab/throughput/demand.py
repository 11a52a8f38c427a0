"""What a launch needs of a GPU, as the mean over its programs, and how long a program takes alone.

A program's time alone is that of the replay of one of its warps, at the memory latency that follows
from its share of cache misses.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from occupancy_lab.gpus import Gpu
from occupancy_lab.occupancy.calculator import ctas_per_sm
from occupancy_lab.throughput.atomics import FENCE_CYCLES, atomic_cycles, is_hot
from occupancy_lab.throughput.calibrations import l2_share
from occupancy_lab.throughput.counted_program import counted_program, working_programs
from occupancy_lab.throughput.l1_cache import behind_others, hits, l1_missing, l1_room
from occupancy_lab.values import Resources
from occupancy_lab.work.counts import GRANULE, IN_TURN, NOTHING, SECTOR, Amount, Counts, total
from occupancy_lab.work.execution import CACHED_CYCLES, LATENCIES, LOADS, Executed, Program
from occupancy_lab.work.memory import Memory
from occupancy_lab.work.pieces import partial_bytes
from occupancy_lab.work.pipes import TENSOR, XU

START_CYCLES, WARP_CYCLES = 105.0, 8.0
"""Cycles of a program before its first instruction and after its last one, and additional ones per
warp: with 133 for all, softmaxes of 32 warps per row were predicted 7 to 8% too short."""
CLUSTER_CYCLES = 800.0
"""Additional cycles per CTA of a cluster, whose CTAs begin and end together. With it the errors of
51 launches of clusters on an H200 are 4% in the median and 17% at the 90th percentile."""
WAIT_CYCLES = 1800.0
"""The standard deviation of when programs that wait for each other arrive, including the way
through the L2 cache. The latest of n normally distributed arrivals is sqrt(2 ln n) standard
deviations late, which is the leading term of extreme value theory."""
L2_CYCLES, MEMORY_CYCLES = 487.0, 685.0
"""Latencies of the L2 cache and of device memory. `calibrate` measures the second. For the first it
measures 286 with an idle L2 cache, with which predictions are too short."""
LOADED, WAITING_LOADED = 1.0, 2.0
"""The relative increase of both latencies where loads and stores keep the L2 cache or device memory
busy all the time; it is proportional where they are less busy. The second value is for programs
with tensor cores that wait for loads."""
IDLE_L2_CYCLES, FEW_MISSED = 300.0, 0.05
"""The latency of the L2 cache where no load misses in it, and the miss rate from which on it is
L2_CYCLES; it is interpolated in between. The median error of launches right after the same launch
is then 6.2% (H100) and 5.4% (H200), against 6.6% and 6.0% if it depended on what the launch before
left in the cache."""
WRITTEN_WEIGHT, TURNED = 0.93, 0.27
"""The time that device memory takes to write a byte, relative to reading one; and the cost of
turning between reads and writes, as the time to read r w / (r + w) bytes where r bytes are read and
w are written. `calibrate` measures 0.94 and 0.96 for the first, and 0.27 and 0.42 for the second
(H100, H200). These values fit the recorded copies of both GPUs best."""
PARTIAL_STORE = 0.3
"""How much longer the L2 cache takes for a sector that a store fills only in part, relative to a
whole one: 64 strided copies that stay in the cache were 16 to 23% too short without it (H200)."""
DIRTY, EVICTED = 0.3, 0.3
"""The share of the L2 cache that is dirty when a launch begins after the cache was filled, and how
much of it is written back for each byte that the launch touches."""
LOCAL_WAITED, LOCAL_LATENCY = 0.6, 0.5
"""The share of the time for moving local memory to and from the L2 cache and device memory that
does not overlap with anything else; and the share of the latency of the L2 cache, or of device
memory on a miss, that a load waits for. These, and the two constants in `rounds`, were fitted to
the 160 recorded launches and the 405 softmaxes for tuning, on an H100 and an H200, that spill more
than LEAST_LOCAL_BYTES; the errors of the other 1883 softmaxes are as small. The first was 0.55
while masked loads were waited for, and was fitted again to these launches and to 222 of all
softmaxes that spill."""
LOCAL_TURNS = 0.5
"""The share of both waits that remains where tensor cores and special functions take turns: with 1,
attentions that spill are predicted 8% too long in the median and 25% at the 90th percentile."""
WHOLE_GRANULES = 1.2
"""The bytes of the granules that a launch reads, relative to those of its sectors, up to which it
counts as reading whole granules."""
SLOWER = 0.75
"""The share of its architecture's rate of tensor cores below which a GPU has slower ones: a GeForce
has half, and others have 0.87 or more, at the clocks of their data sheets."""
SPECIAL_SHARE = 0.25
"""Special functions that take more than this share of the tensor cores' time take turns with them.
"""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a launch needs of a GPU, as the mean over its programs."""

    programs: int
    """Programs of the launch, or for clusters their CTAs; likewise in all other fields."""
    fit: int
    """Resident programs per multiprocessor."""
    program: Program
    resources: Resources
    read_bytes: float
    written_bytes: float
    """Bytes of device memory."""
    l2_bytes: float
    """Bytes that programs request from the L2 cache and write to it, including local memory."""
    missed: float
    """The bytes that device memory delivers, including local memory, relative to the other bytes
    loaded past the L1 cache."""
    first: float
    """The same where bytes that several programs load at the same time count once, since all of
    these programs wait as long as the first one."""
    memory: Memory
    """The bytes that the launch moves, by where they are served."""
    fetching: float = 1.0
    """The share of the loads of new data that wait for device memory; the others find that it has
    delivered their sector together with another one."""
    stored_bytes: float = 0.0
    """The part of `l2_bytes` that is written, without local memory and atomic operations; sectors
    that are written in part count more."""
    evicted_bytes: float = 0.0
    """Dirty lines of earlier launches that are written back to make room in the L2 cache."""
    atomics: float = 0.0
    """Cycles that the L2 cache takes for the atomic operations of all programs, and
    multiprocessors for the fences before these."""
    is_hot: bool = False
    """Whether loads wait for all of these operations."""
    is_followed: bool = True
    """Whether the program is a replay of its binary."""
    together: int = 2
    """Programs that wait for each other, if any do."""
    strides: bool = False
    """Whether a program goes over several pieces of work at a fixed stride."""
    local_share: float = 0.0
    """The share of device memory's time that is due to local memory."""

    @property
    def again(self) -> bool:
        """Whether the launch comes right after the same launch."""
        return self.memory.kept is not None

    @property
    def takes_turns(self) -> bool:
        """Whether a program's tensor cores and special functions take turns, as in attention."""
        special, tensor = (self.program.pipes.get(pipe, 0.0) for pipe in (XU, TENSOR))
        return special > SPECIAL_SHARE * tensor > 0.0

    @property
    def local_left(self) -> float:
        """The waits for local memory, relative to those of most programs."""
        return LOCAL_TURNS if self.takes_turns else 1.0

    @property
    def moved(self) -> float:
        """The bytes that device memory could read in its time for both reads and writes."""
        read = self.read_bytes * self.memory.read_cost
        return _turned(read, self.written_bytes * self.memory.written_cost + self.evicted_bytes)

    @property
    def passed(self) -> float:
        """The same where short pieces take no longer: what multiprocessors load and store."""
        return _turned(self.read_bytes, self.written_bytes + self.evicted_bytes)

    @property
    def reading(self) -> float:
        """The share of device memory's time that reads take."""
        return self.read_bytes * self.memory.read_cost / max(self.moved, 1.0)

    @property
    def exposed(self) -> float:
        """The share of the transfer time of its loads that a program waits for."""
        few, many = self.program.transferred
        return min(max(few + (many - few) * self.missed, 0.0), 1.0)

    def awaited(self, multiprocessors: int) -> float:
        """Return the share of its waits for loads in which a program waits for device memory.

        In the other waits it waits for the L2 cache, also where its sector came with another one
        (`fetching`). Otherwise the share is `first` where copies are
        prefetched, because a pass waits for the last of them. It is also `first` in launches of one
        round, whose programs begin together. With r rounds only the programs of the first round
        begin together; the excess of `first` over `missed` is then divided by r squared, which fits
        recorded launches better than r. The share is `missed` right after the same launch, where
        programs take turns, and where the binary was not followed. The median errors of held-out
        products of matrices are then 6.2% on an H100 and 5.2% on an H200, instead of 7.1% and 5.6%.
        """
        turns = self.takes_turns and self.programs > multiprocessors
        if self.again or turns or not self.is_followed:
            return self.missed
        rounds = 1.0
        if any(self.program.transferred):
            rounds = max(self.programs / (self.fit * multiprocessors), 1.0)
        return self.fetching * (self.missed + (self.first - self.missed) / rounds**2)

    def alone(self, busy: float, missing: float, awaited: float) -> float:
        """Return the cycles that a program takes alone on a multiprocessor.

        *busy* is the share of the time in which the L2 cache or device memory is busy, *missing*
        the L1 miss rate of local memory, and *awaited* the result of `awaited`.
        """
        waits = self.program.pipes.get(TENSOR) and any(self.program.transferred)
        loaded = 1.0 + (WAITING_LOADED if waits else LOADED) * busy
        cached = L2_CYCLES * loaded
        cached += (IDLE_L2_CYCLES - cached) * max(1.0 - self.missed / FEW_MISSED, 0.0)
        latency = cached + (MEMORY_CYCLES * loaded - cached) * awaited
        found = cycles_at(latency, self.program.alone)
        local = cached + (MEMORY_CYCLES * loaded - cached) * self.memory.local_lost - CACHED_CYCLES
        local *= missing * self.program.local_waits * LOCAL_LATENCY * self.local_left
        lateness = math.sqrt(2.0 * math.log(max(self.together, 2)))
        waited = WAIT_CYCLES * lateness * self.program.waits
        started = START_CYCLES + WARP_CYCLES * self.resources.num_warps
        if self.resources.num_ctas > 1:
            started += CLUSTER_CYCLES
        return found + local + waited + started

    def missing(self, gpu: Gpu, at_once: int) -> float:
        """Return the L1 miss rate of loads from local memory.

        *at_once* programs share the L1 cache.
        """
        resources, architecture = self.resources, gpu.architecture
        threads = resources.num_warps * architecture.warp_size * at_once
        room = l1_room(architecture, resources.shared, self.fit)
        return l1_missing(self.program.local_reuse.loads, threads, room)


def _turned(read: float, written: float) -> float:
    """Return the bytes that device memory could read in its time for *read* and *written* bytes."""
    turned = read * written / max(read + written, 1.0)
    return read + WRITTEN_WEIGHT * written + TURNED * turned


def cycles_at(latency: float, cycles: Sequence[float]) -> float:
    """Return the cycles of a program at a *latency* of memory, from its *cycles* at LATENCIES.

    They are interpolated linearly, and extrapolated beyond the first and the last latency.
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
    gpu: Gpu
    num_stages: int = 1
    together: int | None = None
    """Programs that wait for each other; two where the number is not known."""
    in_program: bool = False
    """As in `Launch`; where it is false, the time is that between two CUDA events."""


def demand_of(doing: Doing) -> Demand | None:
    """Return what a launch needs of its GPU.

    Where its binary was not followed, its programs are those of `counted_program`. None where it is
    not known what it does or moves.
    """
    counts, executed, memory = doing.counts, doing.executed, doing.memory
    resources, gpu = doing.resources, doing.gpu
    fit = _fit(doing.fit, resources, gpu)
    program = followed_program(executed, gpu)
    is_followed = program is not None
    if program is None:
        program = counted_program(counts, resources, doing.num_stages, gpu)
    if program is None or memory is None or not fit or not counts.programs:
        return None
    reads, writes, through = (memory.dram_read_bytes, memory.dram_written_bytes, memory.l2_bytes)
    if reads is None or writes is None or through is None:
        return None
    if None in {reads.high, writes.high, through.high}:
        return None
    programs = counts.programs if is_followed else working_programs(counts)
    programs *= resources.num_ctas
    program = behind_others(program, resources, programs, fit, gpu)
    is_indexed = counts.is_indexed
    program = _with_unknown_lines(program, counts, programs) if is_indexed else program
    program = _on_slower_cores(program, counts, gpu) if is_followed else program
    if not resources.local_bytes:  # also where its time without spills is wanted
        program = replace(program, local_loaded=0.0, local_stored=0.0, local_waits=0.0)

    def taken(amount: Amount) -> float:
        if is_indexed:
            return amount.most
        return amount.middle if counts.is_masked else amount.typical

    read, written = taken(reads), taken(writes)
    within = memory.written_within_bytes
    is_cold = within is not None and memory.kept is None and not doing.in_program
    dirty = min(DIRTY * (gpu.l2_bytes or 0), EVICTED * (read + written)) if is_cold else 0.0
    local = memory.local_read_bytes + WRITTEN_WEIGHT * memory.local_written_bytes
    loaded = total(one.sectors for one in counts.accesses if one.reads)
    wanted = taken(loaded) * SECTOR
    stored = _stored(counts, executed if is_followed else None, taken)
    cached = wanted * hits(loaded, executed, program)
    missed = min(read / max(wanted - cached, read, 1.0), 1.0)
    if not reads.is_exact:
        missed = max(missed, FEW_MISSED)  # a lower miss rate is not certain
    return Demand(
        programs=programs,
        fit=fit,
        program=program,
        resources=resources,
        read_bytes=read,
        written_bytes=written,
        evicted_bytes=max(dirty - max(written - taken(within or writes), 0.0), 0.0),
        l2_bytes=taken(through),
        stored_bytes=stored,
        missed=missed,
        first=_first(counts, executed, read - memory.local_read_bytes, missed),
        fetching=_fetching(counts, executed, resources.num_warps),
        memory=memory,
        atomics=atomic_cycles(counts, executed, l2_share(gpu))
        + FENCE_CYCLES * program.fences * programs / (gpu.multiprocessors or 1),
        is_hot=is_hot(counts),
        is_followed=is_followed,
        together=doing.together or 2,
        strides=_strides(counts),
        local_share=local / max(read + WRITTEN_WEIGHT * written, local, 1.0),
    )


def _stored(counts: Counts, executed: Executed | None, taken: Callable[[Amount], float]) -> float:
    """Return `Demand.stored_bytes`: by the binary, or by the source for what the binary hides.

    Where the binary does not show the addresses, it is the greater of both, by the fewest sectors
    of the binary.
    """
    by_source: dict[str | None, float] = defaultdict(float)
    for one in counts.accesses:
        if not one.reads:
            whole = taken(one.sectors) * SECTOR
            in_part = partial_bytes(whole, taken(one.bytes))
            by_source[one.tensor] += whole + PARTIAL_STORE * in_part
    by_binary: dict[str | None, float] = defaultdict(float)
    hidden = set[str | None]()
    for access in () if executed is None else executed.accesses:
        if access.operation == "store":
            sectors = access.sectors.middle if access.is_known else float(access.sectors.low)
            sectors *= 1.0 - access.merged
            by_binary[access.tensor] += sectors * SECTOR * (1.0 + PARTIAL_STORE * access.partial)
            if not access.is_known:
                hidden.add(access.tensor)
    if None in hidden or None in by_binary:
        return max(sum(by_source.values()), sum(by_binary.values()))
    return sum(
        max(size, by_binary.get(tensor, 0.0))
        if tensor in hidden or tensor not in by_binary
        else by_binary[tensor]
        for tensor, size in by_source.items()
    )


def _first(counts: Counts, executed: Executed | None, read: float, missed: float) -> float:
    """Return `Demand.first` where device memory delivers *read* bytes; *missed* if unknown.

    A program does not load its own data again at the same time. Therefore it is at most the share
    of the program's loads that are new to it, unless *missed* is more. Copies count as new.
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


def _fetching(counts: Counts, executed: Executed | None, num_warps: int) -> float:
    """Return `Demand.fetching` of programs of *num_warps* warps.

    Device memory delivers granules of two sectors, even where an instruction loads only one. If the
    launch reads whole granules, every other such load finds its sector in the L2 cache. Recurrences
    that load a sector per iteration were predicted 24% too long without this, and 10% with it.
    """
    whole = {
        one.tensor
        for one in counts.footprints
        if one.read_granules is not None
        and one.read_granules <= WHOLE_GRANULES * one.read_whole.typical
    }
    waits = fetches = 0.0
    for access in () if executed is None else executed.accesses:
        if access.operation in LOADS and access.executions.middle:
            times = access.executions.middle * (1.0 - access.cached)
            waits += times
            if access.is_known and access.tensor in whole:
                at_once = access.sectors.middle * (1.0 - access.shared) * num_warps
                at_once /= access.executions.middle
                times *= min(max(at_once, 1.0) * SECTOR / GRANULE, 1.0)
            fetches += times
    return fetches / waits if waits else 1.0


def followed_program(executed: Executed | None, gpu: Gpu) -> Program | None:
    """Return what a program needs according to a replay of its binary; None where not known."""
    if executed is None or executed.program is None or executed.instructions.high is None:
        return None
    uses = executed.kinds.get("tensor_instructions", NOTHING) != NOTHING
    return None if uses and gpu.architecture.tensor_multiply_adds is None else executed.program


def _strides(counts: Counts) -> bool:
    """Tell whether programs go over their work in a loop without taking it from a counter."""
    in_turn = any(one.assumed == IN_TURN for one in counts.unknowns)
    return not in_turn and any(one.trips.typical > one.entered.typical for one in counts.loops)


def _with_unknown_lines(program: Program, counts: Counts, programs: int) -> Program:
    """Return a program's needs where accesses at unknown addresses request the most lines."""
    loaded, stored = (
        sum(
            one.lines.most - one.lines.low
            for one in counts.accesses
            if one.writes == writes and not one.is_known
        )
        for writes in (False, True)
    )
    return replace(
        program,
        loaded_lines=program.loaded_lines + loaded / programs,
        stored_lines=program.stored_lines + stored / programs,
    )


def _on_slower_cores(program: Program, counts: Counts, gpu: Gpu) -> Program:
    """Return a program's needs where tensor cores are slower than others of the architecture.

    A GeForce has half the rate for products that are added up in FP32, which its data sheet says;
    products of integers have the full rate.
    """
    architecture = gpu.architecture
    each = architecture.warpgroup_multiply_adds or architecture.tensor_multiply_adds
    own = gpu.tensor_fp16_tflops
    if own is None or not each or {*counts.dot_flops} <= {"i8", "int8"}:
        return program
    whole = 2e-6 * each * (gpu.multiprocessors or 1) * (gpu.boost_mhz or 1)
    if own > SLOWER * whole or TENSOR not in program.pipes:
        return program
    cycles = program.pipes[TENSOR] * whole / own
    return replace(program, pipes={**program.pipes, TENSOR: cycles})


def l1_hits(
    counts: Counts, executed: Executed | None, resources: Resources, fit: int, gpu: Gpu
) -> float:
    """Return the share of the sectors in the *counts* of loads which hit in the L1 cache.

    0 where the binary was not followed.
    """
    program = followed_program(executed, gpu)
    if program is None or not fit:
        return 0.0
    programs = counts.programs * resources.num_ctas
    program = behind_others(program, resources, programs, _fit(fit, resources, gpu), gpu)
    loaded = total(one.sectors for one in counts.accesses if one.reads)
    return hits(loaded, executed, program)


def _fit(fit: int, resources: Resources, gpu: Gpu) -> int:
    """Return how many programs fit a multiprocessor, or for clusters how many of their CTAs."""
    return fit if resources.num_ctas == 1 else ctas_per_sm(fit, gpu)
