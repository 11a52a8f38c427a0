"""What a launch asks of a GPU, in the mean of its programs, and how long a program alone takes.

That is as long as the replay of one of its warps, with the latency of memory that its share of
cache misses gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from occupancy_lab.throughput import l1_cache
from occupancy_lab.throughput.atomics import atomic_cycles
from occupancy_lab.throughput.counted_program import counted_program, working_programs
from occupancy_lab.work.counts import CACHED_CYCLES, IN_TURN, LATENCIES, NOTHING, SECTOR, total
from occupancy_lab.work.pipes import TENSOR, XU

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.values import Resources
    from occupancy_lab.work.counts import Amount, Counts, Executed, Program
    from occupancy_lab.work.memory import Memory

START_CYCLES, WARP_CYCLES = 105.0, 8.0
"""Of a program, before its first instruction and after its last, and for each of its warps: with
133 for all, softmaxes of 32 warps a row were 7 to 8% too short."""
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
WRITTEN_WEIGHT = 0.71
"""The time that device memory takes to write a byte, in times of what it takes to read one."""
LOCAL_WAITED, LOCAL_LATENCY = 0.55, 0.5
"""The part of the time in which local memory goes to the L2 cache and back, and to device memory,
that nothing else is done in; and the part of the latency of the L2 cache, or of device memory where
that has lost it, that a load waits for. Both, and the two of `rounds`, are by the 160 recorded
launches and the 405 softmaxes for tuning, on an H100 and an H200, that spill more than
LEAST_LOCAL_BYTES; the other 1883 softmaxes are met as well."""
LOCAL_TURNS = 0.5
"""How much of both waits is left where tensor cores and special functions take turns: with 1 the
attentions that spill are 8% too long by half, and 25% by nine in ten."""
SPECIAL_SHARE = 0.25
"""From which share of the tensor cores' time on special functions take turns with them."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a launch asks of a GPU, in the mean of its programs."""

    programs: int
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
    """What device memory gives, local memory included, as a share of what it loads otherwise."""
    again: bool
    """Whether it comes right after the same launch."""
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
    def waiting(self) -> float:
        """The share of device memory's time in which a program waits for what it reads."""
        few, many = self.program.transferred
        written = WRITTEN_WEIGHT * self.written_bytes
        reading = self.read_bytes / max(self.read_bytes + written, 1.0)
        return reading * min(max(few + (many - few) * self.missed, 0.0), 1.0)

    def alone(self, busy: float, missing: float) -> float:
        """Return the cycles that it takes with a multiprocessor to itself.

        The L2 cache or device memory is *busy* for so large a share of the time, and *missing* is
        the share of its local memory that the L1 cache does not hold.
        """
        waits = self.program.pipes.get(TENSOR) and any(self.program.transferred)
        loaded = 1.0 + (WAITING_LOADED if waits else LOADED) * busy
        cached = L2_CYCLES * loaded
        cached += (IDLE_L2_CYCLES - cached) * max(1.0 - self.missed / FEW_MISSED, 0.0)
        latency = cached + (MEMORY_CYCLES * loaded - cached) * self.missed
        first, middle, last = LATENCIES
        low, between, high = self.program.alone
        if latency < middle:
            found = low + (between - low) * (latency - first) / (middle - first)
        else:
            found = between + (high - between) * (latency - middle) / (last - middle)
        local = cached + (MEMORY_CYCLES * loaded - cached) * self.local_lost - CACHED_CYCLES
        local *= missing * self.program.local_waits * LOCAL_LATENCY * self.local_left
        lateness = math.sqrt(2.0 * math.log(max(self.together, 2)))
        waited = WAIT_CYCLES * lateness * self.program.waits
        return found + local + waited + START_CYCLES + WARP_CYCLES * self.resources.num_warps

    def missing(self, gpu: Gpu, at_once: int) -> float:
        """Return the share of its loads of local memory that the L1 cache lacks.

        It has *at_once* programs of the multiprocessor.
        """
        resources, architecture = self.resources, gpu.architecture
        threads = resources.num_warps * architecture.warp_size * at_once
        room = l1_cache.room(architecture, resources.shared, self.fit)
        return l1_cache.missing(self.program.local_reuse.loads, threads, room)


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
    program = followed_program(executed, gpu)
    is_followed = program is not None
    if program is None:
        program = counted_program(counts, resources, doing.num_stages, gpu)
    if program is None or memory is None or not fit or not counts.programs:
        return None
    program = l1_cache.behind_others(program, resources, counts.programs, fit, gpu)
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
    local = memory.local_read_bytes + WRITTEN_WEIGHT * memory.local_written_bytes
    wanted = taken(total(one.sectors for one in counts.accesses if one.reads)) * SECTOR
    cached = wanted * program.cached
    missed = min(read / max(wanted - cached, read, 1.0), 1.0)
    if not reads.is_exact:
        missed = max(missed, FEW_MISSED)  # nobody knows that so few are
    return Demand(
        programs=counts.programs if is_followed else working_programs(counts),
        fit=fit,
        program=program,
        resources=resources,
        read_bytes=read,
        written_bytes=written,
        l2_bytes=taken(through) - cached,
        missed=missed,
        again=memory.kept is not None,
        atomics=atomic_cycles(counts, executed),
        is_followed=is_followed,
        together=doing.together or 2,
        strides=_strides(counts),
        local_lost=memory.local_lost,
        local_share=local / max(read + WRITTEN_WEIGHT * written, local, 1.0),
    )


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
