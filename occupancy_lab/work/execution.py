"""What the machine code of a launch executes, and what a program needs of its multiprocessor.

Numbers are as in `counts`: for the whole launch, unless they are those of a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from occupancy_lab.work.counts import NOTHING, Amount, Place, Unknown, total

TOO_LONG = "Following its warps takes too long."
"""Why what a launch executes is not known where its control flow has no end in sight."""


@dataclass(frozen=True, slots=True)
class ExecutedLine:
    """The instructions that a launch executes for one line of the source."""

    place: Place
    instructions: Amount
    """Instructions of warps."""
    kinds: Mapping[str, Amount]
    """The instructions by the kinds of `Executed.kinds`."""
    stall_cycles: Amount
    """Cycles from these instructions to the next ones as the compiler scheduled them, summed over
    all warps."""
    cycles: int = 0
    """About how many cycles warps spend at these instructions, including waits for results
    (`work.waits`); only meant for comparing lines. For a range the middle counts; in a loop without
    a known limit each warp counts 8 iterations."""
    local_bytes: Amount = NOTHING
    """Bytes of local memory that the threads move, for example for spills."""
    tensor_flops: Amount | None = NOTHING
    """Floating-point operations of the tensor cores; None where a product's shape is not known."""
    live: int = 0
    """The most live registers of a thread at any of these instructions."""


@dataclass(frozen=True, slots=True)
class ExecutedLoop:
    """How often a loop of the machine code runs."""

    place: Place
    """The line of the backward branch."""
    depth: int
    instructions: int
    """Instructions in the loop's body, including all its branches and inner loops."""
    kinds: Mapping[str, int]
    """The same by kind."""
    entered: Amount
    """How often warps enter the loop."""
    trips: Amount


LOADS = frozenset({"load", "copy"})
"""Operations of a `GlobalAccess` that the L1 cache can serve."""


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """What one instruction requests from global memory in a launch."""

    place: Place
    instruction: int
    """Its number in the kernel's code."""
    operation: str
    """load, store, atomic, or copy (from global to shared memory)."""
    tensor: str | None
    """The kernel parameter whose tensor is accessed; None where it is not known."""
    thread_bytes: int
    """Bytes that a thread requests."""
    executions: Amount
    """Executions by warps."""
    threads: Amount
    """Threads whose condition is true."""
    sectors: Amount
    """The distinct sectors of 32 bytes that a warp requests, summed over all executions."""
    lines: Amount
    """The distinct cache lines of 128 bytes that a warp requests, summed over all executions."""
    lookups: Amount
    """The lookups with which the L1 cache finds these lines, as in `asked.distinct`."""
    passes: Amount
    """The passes in which it moves what the threads request."""
    is_known: bool
    """Whether the addresses are known. Where they are not, all threads of a warp may request the
    same line or each another one. Where the addresses depend on values from memory that all threads
    of a warp share, only their alignment to sectors is unknown."""
    cached: float = 0.0
    """The share of the sectors that hit in the L1 cache."""
    merged: float = 0.0
    """The share of the sectors that the L1 cache requests, or stores, together with others."""
    partial: float = 0.0
    """The share of the sectors stored by requests, of a warp and a line, that fill some of their
    sectors only in part."""
    common: float = 0.0
    """The share of the remaining sectors that lie in a table which all programs request, as a whole
    or in parts."""
    turns: float = 0.0
    """`common` times the number of programs in which all of that table is requested once."""
    distinct: float = 0.0
    """The share of the sectors that the program requests for the first time."""
    shared: float = 0.0
    """The share of the sectors that other warps of the program have requested already."""
    places: Amount = NOTHING
    """The distinct addresses per warp of an atomic operation, summed over all executions; where
    they are not known, the number of threads."""
    adds_floats: bool = False
    asking: float = 1.0
    """The share of the executions in which any thread of the program requests something; 1 where
    this is not known."""


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """What one instruction requests from shared memory in a launch."""

    place: Place
    instruction: int
    operation: str
    """load, store, atomic, copy (from global memory), or product, which reads its operands."""
    thread_bytes: int
    """Bytes that a thread requests; for a product, the bytes that a warp reads per thread."""
    executions: Amount
    bytes: Amount
    """Bytes that the threads whose condition is true request."""
    wavefronts: Amount
    """Passes of 32 banks of 4 bytes, including those that bank conflicts add."""
    is_known: bool
    """Whether the addresses and the condition are known. Where they are not, all threads of a warp
    may access the same word, or each another word of the same bank."""
    written: Amount = NOTHING
    """Cycles in which a copy is written to shared memory: fewer than Nsight Compute's passes where
    it comes from many cache lines."""


DISTANCES = 16
"""The number of quantiles that stand for a distribution of reuse distances."""


@dataclass(frozen=True, slots=True)
class LocalReuse:
    """Bytes that a thread touches between two accesses to the same place of local memory.

    Each distribution is given by DISTANCES quantiles, in ascending order (`program.local_reuse`).
    """

    loads: tuple[float, ...] = ()
    """The distances from the previous access to a load, counting local memory and loads from global
    memory, which are what the L1 cache keeps."""
    fetched: tuple[float, ...] = ()
    """The same for the L2 cache, which also keeps what is stored to global memory. Narrow stores
    count as loads here, because the rest of their words is fetched."""
    stored: tuple[float, ...] = ()
    """The longest distance between accesses from a store to the next store to the same place."""
    narrow: float = 0.0
    """The share of stores that write fewer than 4 bytes per thread."""

    @classmethod
    def uniform(cls, frame: int) -> LocalReuse:
        """Return the reuse where only the bytes of a thread's *frame* are known.

        The distances of loads are spread evenly up to the frame's size, and those of stores equal
        it.
        """
        loads = tuple(frame * (one + 0.5) / DISTANCES for one in range(DISTANCES))
        return cls(loads, loads, (float(frame),) * DISTANCES)


@dataclass(frozen=True, slots=True)
class Common:
    """How a program changes where tables that all programs load, as a norm's weights, hit in L1."""

    alone: tuple[float, ...]
    """This and the next two fields replace those of `Program`."""
    cached: float
    loaded_lines: float
    distinct_bytes: float
    """Bytes that programs load until one of them loads the same part of a table again."""
    turns: float = 1.0
    """The number of programs in which all of a table is loaded once."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a program of a launch needs of its multiprocessor, as the mean over all programs."""

    pipes: Mapping[str, float]
    """Cycles of a multiprocessor for which the program keeps each pipe busy, as `work.pipes` names
    them."""
    alone: tuple[float, ...]
    """Cycles that the program takes alone on a multiprocessor, at each of the memory LATENCIES."""
    rounds: float | None
    """How long the busiest slot of a multiprocessor works, in units of a mean program's time; None
    where all programs do the same, or where it is not known how many run at once."""
    code_cycles: float
    """Cycles that the program waits for its code where no cache of the multiprocessor holds it."""
    refetch_cycles: float = field(default=0.0, kw_only=True)
    """The part of `alone` that is spent on waiting for code that the instruction caches evicted."""
    memory_code_cycles: float = field(default=0.0, kw_only=True)
    """Additional cycles that the program waits where the L2 cache misses that code too."""
    port_cycles: float = field(default=0.0, kw_only=True)
    """Cycles for which its fetches of evicted code keep the multiprocessor's instruction cache
    busy."""
    local_loaded: float = field(default=0.0, kw_only=True)
    """Bytes that its warps load from local memory."""
    local_stored: float = field(default=0.0, kw_only=True)
    local_reuse: LocalReuse = field(default_factory=LocalReuse, kw_only=True)
    local_waits: float = 0.0
    """By how many cycles the program slows down per cycle of latency of local memory."""
    cached: float = 0.0
    """The L1 hit rate of the sectors that it loads, where a sector counts once for all warps."""
    transferred: tuple[float, ...] = (0.0, 0.0)
    """The share of the transfer time of its loads, at TRANSFERS cycles for 128 bytes, that the
    program waits for; the rest overlaps with other instructions."""
    loaded_lines: float = 0.0
    """Lines of 128 bytes that the loads and copies of its warps request from the L2 cache because
    they miss in the L1 cache, each counted once per instruction. Where addresses are not known, the
    fewest possible lines count."""
    stored_lines: float = 0.0
    """The same for stores and atomic operations."""
    waits: float = 0.0
    """How often the program waits for other programs."""
    fences: float = 0.0
    """How often its warps wait until the whole GPU sees what they have stored."""
    common: Common | None = None
    """None where there are no such tables, or where the programs empty the L1 cache."""
    phases: float = 0.0
    """How often the program loads, then passes a barrier, and only then stores; 0 where it stores
    most without a barrier behind the loads, or loads most more often. Stores by TMA do not count.
    """

    @property
    def has_local(self) -> bool:
        """Whether the program usually moves anything to or from local memory."""
        return bool(self.local_loaded or self.local_stored)

    def with_common(self, asked: float, waited: float) -> Program:
        """Return the program where a share of the tables that all programs load hits in L1.

        *asked* is the share of the requests that hit, and *waited* the share of the waits that are
        saved.
        """
        common = self.common
        if common is None:
            return self
        alone = zip(self.alone, common.alone, strict=True)
        return replace(
            self,
            alone=tuple(one + (other - one) * waited for one, other in alone),
            cached=self.cached + (common.cached - self.cached) * asked,
            loaded_lines=self.loaded_lines + (common.loaded_lines - self.loaded_lines) * asked,
        )


TRANSFERS = (2.0, 8.0)
"""Cycles for 128 bytes in `Program.transferred`: those of a multiprocessor's port to the L2 cache,
and those of its share of device memory on an H100 on which all multiprocessors load."""
CACHED_CYCLES = 40.0
"""The latency of an L1 hit, which local memory has in `Program.alone`."""
LATENCIES = (300.0, 600.0, 1000.0, 1500.0, 2100.0)
"""The memory latencies of `Program.alone` in cycles, from an idle L2 cache to busy device memory.
The last two tell loops that prefetch two iterations ahead from those that prefetch three: in 30
tunings of flash-linear-attention on an H200 the first choice is then 0.4% slower than the best
configuration, instead of 3%."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What the machine code of a launch executes; every number is for the whole launch."""

    programs: int
    followed: int
    """Programs whose path was followed; where these are fewer than all, counts are scaled up."""
    instructions: Amount
    """Instructions of warps, including those whose condition is false."""
    kinds: Mapping[str, Amount]
    """The same by the counters of Resources, and bulk_copies."""
    lines: tuple[ExecutedLine, ...]
    """Lines of the source, sorted by instructions in descending order."""
    loops: tuple[ExecutedLoop, ...]
    accesses: tuple[GlobalAccess, ...]
    shared: tuple[SharedAccess, ...] = ()
    program: Program | None = None
    """What a program needs of its multiprocessor; None where it is not known."""
    unknowns: tuple[Unknown, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as nested plain values."""
        return asdict(self)

    @property
    def fullest(self) -> ExecutedLine | None:
        """The line with the most live registers, or the slowest of several such lines.

        None where no line is known.
        """
        found = max(self.lines, key=lambda one: (one.live, one.cycles), default=None)
        return None if found is None or not found.live or not found.place.file else found

    @property
    def load_sectors(self) -> Amount:
        """Sectors that loads and copies to shared memory request.

        This is Nsight Compute's l1tex__t_sectors_pipe_lsu_mem_global_op_ld.
        """
        return self._sectors("load", "copy")

    @property
    def store_sectors(self) -> Amount:
        """Sectors that stores, but not atomic operations, request: Nsight Compute's _op_st."""
        return self._sectors("store")

    @property
    def shared_bytes(self) -> Amount:
        """Bytes that threads read from shared memory and write to it."""
        return total(one.bytes for one in self.shared)

    def _sectors(self, *operations: str) -> Amount:
        return total(one.sectors for one in self.accesses if one.operation in operations)
