"""What a launch does, counted: loops, bytes asked for and touched, FLOPs, by place in the source.

Every number is of the whole launch: all programs and all iterations. None is not known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping  # noqa: TC003 - `from_line` reads the fields' types
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

SECTOR = 32
"""Bytes of a sector, the least that an L2 cache moves (CUDA C++ Programming Guide)."""
LINE = 128
"""Bytes of a cache line."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A count: exact where both limits are equal, else between them."""

    low: int
    high: int | None
    """None where no upper limit is known."""

    @classmethod
    def of(cls, number: int) -> Amount:
        """Return a count that is known exactly."""
        return cls(number, number)

    @property
    def is_exact(self) -> bool:
        """Whether it is one number."""
        return self.low == self.high

    @property
    def exact(self) -> int | None:
        """The number; None where it is not known exactly."""
        return self.low if self.is_exact else None

    @property
    def most(self) -> float:
        """The upper limit, where there is none the lower one."""
        return float(self.low if self.high is None else self.high)

    @property
    def middle(self) -> float:
        """The middle of the range; where there is no upper limit the lower one."""
        return (self.low + self.most) / 2

    @property
    def typical(self) -> float:
        """What is as many times the lower limit as the upper one is it; else the lower limit."""
        return math.sqrt(self.low * self.most)

    def __add__(self, other: Amount) -> Amount:
        """Return the sum of both."""
        high = None if self.high is None or other.high is None else self.high + other.high
        return Amount(self.low + other.low, high)

    def __mul__(self, factor: int) -> Amount:
        """Return *factor* times the count."""
        return Amount(self.low * factor, None if self.high is None else self.high * factor)

    def scaled(self, share: float) -> Amount:
        """Return *share* of the count, or as many times it, as the nearest whole numbers."""
        high = None if self.high is None else round(self.high * share)
        return Amount(round(self.low * share), high)


NOTHING = Amount(0, 0)


def total(amounts: Iterable[Amount]) -> Amount:
    """Return the sum of *amounts*."""
    some = [*amounts]
    highs = [one.high for one in some if one.high is not None]
    return Amount(sum(one.low for one in some), sum(highs) if len(highs) == len(some) else None)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a kernel's source, and the calls of helpers through which it is reached."""

    file: str
    line: int
    column: int = 0
    called_from: tuple[Place, ...] = ()
    """Where the helper that has the line is called, innermost call first."""

    @property
    def outermost(self) -> Place:
        """The line of the kernel itself: that of the outermost call, or its own."""
        return self.called_from[-1] if self.called_from else self


@dataclass(frozen=True, slots=True)
class Access:
    """What one load, store or atomic operation of the source moves."""

    place: Place
    operation: str
    """load, store, atomic, or descriptor load, store, reduce, gather and scatter."""
    tensor: str | None
    """The parameter that its addresses start from; None where it is not known or several do."""
    item_bytes: int
    reads: bool
    writes: bool
    """An atomic operation does both."""
    executions: Amount
    """How often programs execute it."""
    elements: Amount
    """Elements, masked or not."""
    active: Amount
    """Elements whose mask is true."""
    sectors: Amount
    """Sectors that each execution touches, each counted once in an execution."""
    lines: Amount
    """Cache lines, likewise."""
    unique_bytes: Amount
    """Distinct bytes that the launch touches by it."""

    @property
    def bytes(self) -> Amount:
        """Bytes asked for: those of the active elements."""
        return self.active * self.item_bytes


@dataclass(frozen=True, slots=True)
class Reuse:
    """Bytes that a launch reads again after it has touched others."""

    distance: int
    """Distinct bytes that it touches in between, of all tensors."""
    bytes: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """The distinct bytes of one tensor that a launch touches."""

    tensor: str | None
    read: Amount
    written: Amount
    read_whole: Amount
    """Bytes of the sectors in which lies what is read."""
    written_whole: Amount
    again: tuple[Reuse, ...] | None = None
    """What is read again so late that a cache may have lost it; None where that is not known."""
    bounds: tuple[int, int] | None = None
    """Where the first sector touched starts and the last one ends, in bytes of the tensor; None
    where that is not known."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The floating-point operations of one operation of the source."""

    place: Place
    operation: str
    """dot, or Triton's name of it: addf, exp, reduce, scan ..."""
    dtype: str
    """As Triton's language names it: fp16, fp32; of a dot that of what is multiplied."""
    flops: Amount
    """One of each element; 2 m n k of a dot, n - 1 of a reduction of n elements."""
    executions: Amount
    shape: tuple[int, ...] = ()
    """m, n and k of a dot, else the shape of the result."""


@dataclass(frozen=True, slots=True)
class Loop:
    """How often a loop of the source runs."""

    place: Place
    depth: int
    """0 of a loop that is in no other."""
    entered: Amount
    """How often programs come to it."""
    trips: Amount
    """Iterations, of all programs together."""
    least: int | None
    """Iterations of the program that has fewest of them, each time that it comes to the loop."""
    most: int | None
    step: int | None = None
    """By how much its variable grows; None for a while loop."""


@dataclass(frozen=True, slots=True)
class Branch:
    """How often an `if` of the source is taken."""

    place: Place
    reached: Amount
    taken: Amount


VALUES_OF = "values of "
"""How the name of an unknown begins that is in a tensor."""


IN_TURN = "that programs get 0, 1, 2 and so on in turn"
"""What is assumed of the result of an addition to a counter."""
NO_WAIT = "that no program waits there"
"""What is assumed of the condition of a loop in which programs wait for others."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that no launch line tells, and what depends on it."""

    place: Place
    name: str
    """What it is: "values of cu_seqlens", "the result of atomic_add", "inline assembly"."""
    steers: str
    """address, mask, loop or branch."""
    assumed: str | None = None
    """What was assumed of it; None where limits were taken."""

    @property
    def tensor(self) -> str | None:
        """The tensor in which it is; None of what is in none, or in nobody knows which."""
        found = self.name.removeprefix(VALUES_OF)
        return None if found == self.name else found


@dataclass(frozen=True, slots=True)
class Counts:
    """What a launch does."""

    programs: int
    """Programs of its grid."""
    walked: int
    """Programs that were walked: fewer stand for all in proportion."""
    accesses: tuple[Access, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    arithmetic: tuple[Arithmetic, ...] = ()
    loops: tuple[Loop, ...] = ()
    branches: tuple[Branch, ...] = ()
    unknowns: tuple[Unknown, ...] = ()
    not_counted: Mapping[str, int] = field(default_factory=dict)
    """Operations that nobody knows how to count, with how many of each there are."""
    reduced: tuple[str, ...] = ()
    """Tensors to which a program stores what it makes of all that it goes through, such as a mean:
    programs that go through less store other results."""
    reduced_lengths: tuple[int, ...] = ()
    """Over how many elements of a tile each reduction and scan goes."""
    stores_each_pass: bool = False
    """Whether a loop stores what it makes of a reduction or a scan of the same pass."""

    @property
    def read_bytes(self) -> Amount:
        """Bytes that loads and atomic operations ask for."""
        return total(one.bytes for one in self.accesses if one.reads)

    @property
    def written_bytes(self) -> Amount:
        """Bytes that stores and atomic operations ask for."""
        return total(one.bytes for one in self.accesses if one.writes)

    @property
    def load_sectors(self) -> Amount:
        """Sectors of 32 bytes that loads ask for."""
        return total(one.sectors for one in self.accesses if one.reads and not one.writes)

    @property
    def store_sectors(self) -> Amount:
        """Sectors of 32 bytes that stores write."""
        return total(one.sectors for one in self.accesses if one.writes and not one.reads)

    @property
    def unique_read_bytes(self) -> Amount:
        """Distinct bytes read: what device memory has to give at the least."""
        return total(one.read for one in self.footprints)

    @property
    def flops(self) -> Amount:
        """Floating-point operations, those of dots among them."""
        return total(one.flops for one in self.arithmetic)

    @property
    def dot_flops(self) -> Mapping[str, Amount]:
        """Floating-point operations of dots, by the dtype of what is multiplied."""
        return self._by_dtype(dots=True)

    @property
    def other_flops(self) -> Mapping[str, Amount]:
        """Floating-point operations of everything but dots, by dtype."""
        return self._by_dtype(dots=False)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as nested plain values."""
        return asdict(self)

    def _by_dtype(self, *, dots: bool) -> Mapping[str, Amount]:
        chosen = [one for one in self.arithmetic if (one.operation == "dot") == dots]
        dtypes = Counter(one.dtype for one in chosen)
        return {dtype: total(one.flops for one in chosen if one.dtype == dtype) for dtype in dtypes}


@dataclass(frozen=True, slots=True)
class ExecutedLine:
    """What a launch executes of one line of the source."""

    place: Place
    instructions: Amount
    """Of warps."""
    kinds: Mapping[str, Amount]
    """Those of them that `Executed.kinds` names, by kind."""
    stall_cycles: Amount
    """Cycles of all warps from these instructions to their next ones, as the compiler scheduled."""
    cycles: int = 0
    """About how many cycles warps stand at them, those until results are there included
    (`work.waits`): to set lines against each other. A range counts with its middle, a loop whose
    trips have no limit as if each warp made 8."""
    local_bytes: Amount = NOTHING
    """Bytes of local memory that their threads move, as by spills."""
    tensor_flops: Amount | None = NOTHING
    """Floating-point operations of the tensor cores; None where a product's shape is not known."""
    live: int = 0
    """Registers of a thread that hold a value still needed, at most, at these instructions."""


@dataclass(frozen=True, slots=True)
class ExecutedLoop:
    """How often a loop of the machine code runs."""

    place: Place
    """The line of the jump back."""
    depth: int
    """0 of a loop that is in no other."""
    instructions: int
    """In one pass, those of inner loops and of all branches among them."""
    kinds: Mapping[str, int]
    """The same by kind."""
    entered: Amount
    """How often a warp comes to it."""
    trips: Amount
    """Passes, of all warps together."""


LOADS = frozenset({"load", "copy"})
"""Operations of a `GlobalAccess` that the L1 cache can serve."""


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """What one instruction asks of global memory in a launch."""

    place: Place
    instruction: int
    """Its number in the kernel's code."""
    operation: str
    """load, store, atomic, or copy (from global to shared memory)."""
    tensor: str | None
    """The parameter in whose tensor its addresses lie; None where it is not known."""
    thread_bytes: int
    """Bytes that a thread asks for."""
    executions: Amount
    """Warps that execute it."""
    threads: Amount
    """Threads whose condition is true."""
    sectors: Amount
    """Sectors of 32 bytes that warps ask for, each once an execution."""
    lines: Amount
    """Cache lines of 128 bytes, likewise."""
    passes: Amount
    """In which the L1 cache serves them, as `asked.distinct` has them."""
    is_known: bool
    """Whether its addresses are: else all threads of a warp may ask for the same, or each for other
    lines. Where they hang on numbers of memory that all threads of a warp share, it is known but
    for how they lie in sectors."""
    cached: float = 0.0
    """The share of its sectors that the L1 cache has."""
    merged: float = 0.0
    """The share of its sectors that the L1 cache asks for, or stores, with those of others."""
    common: float = 0.0
    """The share of its sectors, besides, that all programs ask for."""
    distinct: float = 0.0
    """The share of its sectors that its program asks for the first time."""
    shared: float = 0.0
    """The share of its sectors that other warps of the program have asked for already."""
    places: Amount = NOTHING
    """Of an atomic operation the addresses, each counted once a warp; as many as threads where they
    are not known."""
    adds_floats: bool = False
    """Whether it is an atomic operation on floats."""
    asking: float = 1.0
    """The share of its executions in which a thread of the program asks for anything; 1 where that
    is not known."""


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """What one instruction asks of shared memory in a launch."""

    place: Place
    instruction: int
    """Its number in the kernel's code."""
    operation: str
    """load, store, atomic, copy (from global memory), or product, of which it is an operand."""
    thread_bytes: int
    """Bytes that a thread asks for; of a product those that a warp reads, by its threads."""
    executions: Amount
    """Warps that execute it."""
    bytes: Amount
    """Bytes that the threads whose condition is true ask for."""
    wavefronts: Amount
    """Passes of 32 banks of 4 bytes: as many more as threads want other words of the same bank."""
    is_known: bool
    """Whether its addresses and its condition are: else all threads of a warp may want the same, or
    each another word of the same bank."""
    written: Amount = NOTHING
    """Cycles in which a copy is written to shared memory: fewer than Nsight Compute's passes where
    it comes from many cache lines."""


DISTANCES = 16
"""How many distances stand for all, from the shortest to the longest, each for as many accesses."""


@dataclass(frozen=True, slots=True)
class LocalReuse:
    """What a thread touches between two touches of a place of local memory, bytes.

    DISTANCES numbers each, from the nearest to the farthest (`work.local_reuse`).
    """

    loads: tuple[float, ...] = ()
    """From the touch before to a load, of local memory and of what is loaded from global memory:
    what the L1 cache keeps."""
    fetched: tuple[float, ...] = ()
    """The same with what is stored to global memory, as the L2 cache keeps it; narrow stores too,
    as the rest of their words is fetched."""
    stored: tuple[float, ...] = ()
    """From a store to the next one of the same place, the farthest of the touches between."""
    narrow: float = 0.0
    """The share of what is stored by fewer than 4 bytes a thread."""

    @classmethod
    def uniform(cls, frame: int) -> LocalReuse:
        """Return it where nothing is known but the bytes of a thread's *frame*.

        The distances of loads are taken to be anything up to that, and those of stores all of it.
        """
        loads = tuple(frame * (one + 0.5) / DISTANCES for one in range(DISTANCES))
        return cls(loads, loads, (float(frame),) * DISTANCES)


@dataclass(frozen=True, slots=True)
class Common:
    """What changes of a program where the L1 cache has what all load, as the weights of a norm."""

    alone: tuple[float, ...]
    """This and the next two are as `Program` has them."""
    cached: float
    loaded_lines: float
    distinct_bytes: float
    """What the program loads, each byte once."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a program of a launch asks of its multiprocessor, in the mean of all programs."""

    pipes: Mapping[str, float]
    """Cycles of a multiprocessor for which the program keeps each pipe busy, as `work.pipes` names
    them."""
    alone: tuple[float, ...]
    """Cycles that it takes with a multiprocessor to itself, where memory takes LATENCIES cycles."""
    rounds: float | None
    """How many programs the busiest place for one does after the other, in times of a mean one;
    None where all do the same, or it is not known how many run at once."""
    code_cycles: float
    """For which it waits until its code is there, where no cache of the multiprocessor has it."""
    refetch_cycles: float = field(default=0.0, kw_only=True)
    """How many of `alone` it waits for code that the instruction caches have lost."""
    memory_code_cycles: float = field(default=0.0, kw_only=True)
    """How many longer it waits where the L2 cache does not have that code either."""
    local_loaded: float = field(default=0.0, kw_only=True)
    """Bytes that its warps load from local memory."""
    local_stored: float = field(default=0.0, kw_only=True)
    local_reuse: LocalReuse = field(default_factory=LocalReuse, kw_only=True)
    local_waits: float = 0.0
    """How many cycles longer it takes for each that a load from local memory takes longer."""
    cached: float = 0.0
    """The share of the sectors that it loads, each once for all warps, which the L1 cache has."""
    transferred: tuple[float, ...] = (0.0, 0.0)
    """The share of the time for its loads to come, 128 bytes in TRANSFERS cycles, for which it
    waits: the rest passes while it computes."""
    loaded_lines: float = 0.0
    """Lines of 128 bytes that its warps ask the L2 cache for, each once an instruction: those of
    what is loaded or copied that the L1 cache does not have. Of addresses that are not known they
    are the fewest that there can be."""
    stored_lines: float = 0.0
    """The same of what is stored, and of atomic operations."""
    waits: float = 0.0
    """How often it waits for other programs."""
    common: Common | None = None
    """None where all programs load no same bytes, or what they do empties the L1 cache."""

    @property
    def has_local(self) -> bool:
        """Whether it moves anything to or from local memory as a rule."""
        return bool(self.local_loaded or self.local_stored)

    def with_common(self, asked: float, waited: float) -> Program:
        """Return it where the L1 cache has a share of what all programs load.

        *asked* is the share of what is asked for, and *waited* that of what is waited for.
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
"""Cycles for 128 bytes in `Program.transferred`: what a multiprocessor's port to the L2 cache and
its part of device memory take, of an H100 all of whose multiprocessors load."""
CACHED_CYCLES = 40.0
"""Until what the L1 cache has is there, as local memory is in `Program.alone`."""
LATENCIES = (300.0, 600.0, 1000.0, 1500.0, 2100.0)
"""Cycles that memory takes in `Program.alone`, from an idle L2 cache to a busy device memory. With
the last two, loops whose copies run two passes ahead are told from those with three: of 30 tunes
of flash-linear-attention on an H200 the first choice loses 0.4% in place of 3%."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What the machine code of a launch executes; every number is of the whole launch."""

    programs: int
    followed: int
    """Programs whose way was followed: fewer stand for all in proportion."""
    instructions: Amount
    """Instructions of warps, those whose condition is false among them."""
    kinds: Mapping[str, Amount]
    """The same by the counters of Resources, and bulk_copies."""
    lines: tuple[ExecutedLine, ...]
    """Lines of the source, those with most instructions first."""
    loops: tuple[ExecutedLoop, ...]
    accesses: tuple[GlobalAccess, ...]
    shared: tuple[SharedAccess, ...] = ()
    program: Program | None = None
    """What a program asks of its multiprocessor; None where that is not known."""
    unknowns: tuple[Unknown, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as nested plain values."""
        return asdict(self)

    @property
    def fullest(self) -> ExecutedLine | None:
        """The line at which most registers are live, of several the one that takes longest.

        None where that is not known.
        """
        found = max(self.lines, key=lambda one: (one.live, one.cycles), default=None)
        return None if found is None or not found.live or not found.place.file else found

    @property
    def load_sectors(self) -> Amount:
        """Sectors that loads and copies to shared memory ask for.

        As Nsight Compute's l1tex__t_sectors_pipe_lsu_mem_global_op_ld.
        """
        return self._sectors("load", "copy")

    @property
    def store_sectors(self) -> Amount:
        """Sectors that stores ask for, atomic operations not among them: likewise, _op_st."""
        return self._sectors("store")

    @property
    def shared_bytes(self) -> Amount:
        """Bytes that threads read from shared memory and write to it."""
        return total(one.bytes for one in self.shared)

    def _sectors(self, *operations: str) -> Amount:
        return total(one.sectors for one in self.accesses if one.operation in operations)
