"""The counts of a launch: loops, bytes requested and touched, FLOPs, by place in the source.

Every number is for the whole launch: all programs and all iterations. None means not known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

from occupancy_lab.assumed import trips_at

SECTOR = 32
"""Bytes of a sector, the smallest unit that an L2 cache moves (CUDA C++ Programming Guide)."""
LINE = 128
GRANULE = 64
"""The fewest bytes that device memory of an A100 or a later data center GPU delivers at a time: the
default granularity of fetches of the L2 cache (cudaLimitMaxL2FetchGranularity). Nsight Compute
confirms it on an H200, where loads of 4 bytes that are 128 bytes apart fetch 64 bytes each."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A count as a range from `low` to `high`; it is exact where the two are equal."""

    low: int
    high: int | None
    """None where no upper limit is known."""

    @classmethod
    def of(cls, number: int) -> Amount:
        """Return an exact count."""
        return cls(number, number)

    @property
    def is_exact(self) -> bool:
        """Whether the count is known exactly."""
        return self.low == self.high

    @property
    def exact(self) -> int | None:
        """The exact count; None where only a range is known."""
        return self.low if self.is_exact else None

    @property
    def most(self) -> float:
        """The upper limit, or the lower one where no upper limit is known."""
        return float(self.low if self.high is None else self.high)

    @property
    def middle(self) -> float:
        """The arithmetic mean of the limits, or the lower one where no upper limit is known."""
        return (self.low + self.most) / 2

    @property
    def typical(self) -> float:
        """The geometric mean of the limits, or the lower one where no upper limit is known."""
        return math.sqrt(self.low * self.most)

    def __add__(self, other: Amount) -> Amount:
        high = None if self.high is None or other.high is None else self.high + other.high
        return Amount(self.low + other.low, high)

    def __mul__(self, factor: int) -> Amount:
        return Amount(self.low * factor, None if self.high is None else self.high * factor)

    def holds(self, number: int) -> bool:
        """Tell whether *number* lies within the limits."""
        return self.low <= number and (self.high is None or number <= self.high)

    def at_most(self, limit: int | None) -> Amount:
        """Return the count with its upper limit reduced to *limit*, if there is one."""
        limits = [one for one in (self.high, limit) if one is not None]
        return Amount(self.low, max(min(limits), self.low) if limits else None)

    def at_least(self, limit: int) -> Amount:
        """Return the count with limits that are not below *limit*."""
        return Amount(max(self.low, limit), None if self.high is None else max(self.high, limit))

    def scaled(self, share: float | Fraction) -> Amount:
        """Return the count times *share*, with limits rounded to whole numbers."""
        high = None if self.high is None else round(self.high * share)
        return Amount(round(self.low * share), high)


NOTHING = Amount(0, 0)


def total(amounts: Iterable[Amount]) -> Amount:
    """Return the sum of *amounts*."""
    return weighted((one, 1) for one in amounts)


def weighted(amounts: Iterable[tuple[Amount, int]]) -> Amount:
    """Return the sum of amounts that each count a number of times."""
    low, high = 0, 0
    endless = False
    for one, times in amounts:
        low += one.low * times
        if one.high is None:
            endless = True
        else:
            high += one.high * times
    return Amount(low, None if endless else high)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a kernel's source, and the calls through which the kernel reaches it."""

    file: str
    line: int
    column: int = 0
    called_from: tuple[Place, ...] = ()
    """The calls of the helper functions that contain the line, innermost call first."""

    @property
    def outermost(self) -> Place:
        """The line in the kernel itself: the outermost call, or the place where there is none."""
        return self.called_from[-1] if self.called_from else self


SCATTERED = 2.0
"""How many times as many sectors as in order a store may touch to be called scattered."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one load, store or atomic operation of the source moves."""

    place: Place
    operation: str
    """load, store, atomic, or descriptor load, store, reduce, gather and scatter."""
    tensor: str | None
    """The kernel parameter that the addresses are based on; None where it is not known or where
    there are several."""
    item_bytes: int
    reads: bool
    writes: bool
    """An atomic operation both reads and writes."""
    executions: Amount
    elements: Amount
    """Elements, masked or not."""
    active: Amount
    """Elements whose mask is true."""
    sectors: Amount
    """The distinct sectors that an execution touches, summed over all executions."""
    lines: Amount
    """The distinct cache lines that an execution touches, summed over all executions."""
    unique_bytes: Amount
    """Distinct bytes that the operation touches in the whole launch."""
    is_known: bool = True
    """Whether the addresses are known."""
    piece_bytes: float | None = None
    """The mean bytes of the contiguous pieces that programs touch at the same time, in whole
    granules; None where it is not known."""
    adjoins: bool = False
    """Whether the cache lines that programs store to at the same time are mostly neighbours."""

    @property
    def bytes(self) -> Amount:
        """The requested bytes, which are those of the active elements."""
        return self.active * self.item_bytes

    @property
    def in_order(self) -> Access:
        """A store at unknown addresses if these are contiguous; any other access as it is."""
        sectors = self.bytes.scaled(1 / SECTOR)
        if self.is_known or self.reads or self.sectors.most < SCATTERED * max(sectors.most, 1):
            return self
        lines = self.bytes.scaled(1 / LINE)
        return replace(self, sectors=sectors, lines=lines, piece_bytes=2.0 * LINE)

    @property
    def occupied(self) -> float:
        """The bytes of cache lines that a byte of its sectors occupies in a cache of lines.

        More than 1 where the pieces that programs touch at the same time are parts of lines, and
        where an execution of a store is.
        """
        is_long = self.piece_bytes is None or self.piece_bytes >= LINE
        if is_long and self.reads:
            return 1.0
        return max(self.lines.most * LINE / max(self.sectors.most * SECTOR, 1.0), 1.0)


@dataclass(frozen=True, slots=True)
class Reuse:
    """Bytes that a launch reads or writes again after it has touched other bytes."""

    distance: int
    """The reuse distance: the bytes of the cache lines that the launch touches in between."""
    bytes: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """The distinct bytes of one tensor that a launch touches."""

    tensor: str | None
    read: Amount
    written: Amount
    read_whole: Amount
    """Bytes of the whole sectors that contain the bytes read."""
    written_whole: Amount
    again: tuple[Reuse, ...] | None = None
    """Bytes read again so late that a cache may have lost them; None where this is not known."""
    rewritten: tuple[Reuse, ...] = ()
    """Bytes of sectors written again so late that a cache may have written them back."""
    resumed: tuple[Reuse, ...] = ()
    """The same of whole cache lines, where the launch only writes, whatever sectors of them."""
    late: tuple[Reuse, ...] = ()
    """`rewritten` by what the launch touches for the first time in between."""
    bounds: tuple[int, int] | None = None
    """The byte offsets in the tensor at which the first touched sector starts and the last one
    ends; None where they are not known."""
    size: int | None = None
    """The bytes of the tensor; None where they are not known."""
    read_granules: int | None = None
    """Bytes of the whole granules that contain the bytes read at known addresses; None where not
    known."""
    written_lines: int | None = None
    """Bytes of the whole cache lines that contain the bytes written at known addresses; None where
    not known."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The floating-point operations (FLOPs) of one operation of the source."""

    place: Place
    operation: str
    """dot, or Triton's name of the operation: addf, exp, reduce, scan ..."""
    dtype: str
    """Triton's name of the type: fp16, fp32. For a dot it is the type of the factors."""
    flops: Amount
    """One for each element; 2 m n k for a dot, n - 1 for a reduction of n elements."""
    executions: Amount
    shape: tuple[int, ...] = ()
    """m, n and k for a dot, otherwise the shape of the result."""


@dataclass(frozen=True, slots=True)
class Held:
    """What each element of a tensor is, as it follows from the assumed trips of a loop."""

    tensor: str
    number: int


@dataclass(frozen=True, slots=True)
class Loop:
    """How often a loop of the source runs."""

    place: Place
    depth: int
    """0 for an outermost loop."""
    entered: Amount
    """How often programs enter the loop."""
    trips: Amount
    """Iterations, summed over all programs."""
    least: int | None
    """The fewest iterations of any program each time that it enters the loop."""
    most: int | None
    """The most iterations of any program each time that it enters the loop."""
    step: int | None = None
    """The increment of the loop variable; None for a while loop."""
    allowed: Amount | None = None
    """The iterations that the source allows each time, where they depend on data; None where they
    are known."""
    bound: Held | None = None
    """The loaded number that gives the assumed trips; None where it is not a single one."""
    waits: bool = False
    """Whether programs only wait for others in it, which none is assumed to do."""

    @property
    def assumed(self) -> int | None:
        """The trips that are assumed each time; None where they are not."""
        return self.least if self.allowed is not None and self.least == self.most else None


@dataclass(frozen=True, slots=True)
class Branch:
    """How often an `if` of the source is taken."""

    place: Place
    reached: Amount
    taken: Amount


VALUES_OF = "values of "
"""The prefix of the name of an unknown value that is an element of a tensor."""
IN_TURN = "that programs get 0, 1, 2 and so on in turn"
"""The assumption about the result of an atomic addition to a counter."""
TRIPS_OF = "how often a loop runs"
"""The name of an unknown value that is the number of a loop's trips, at the loop's line."""
NO_WAIT = "that no program waits there"
"""The assumption about the condition of a loop in which programs wait for others."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not known before the launch, and what depends on it."""

    place: Place
    name: str
    """What the value is: "values of cu_seqlens", "the result of atomic_add", "inline assembly"."""
    steers: str
    """What depends on the value: address, mask, loop or branch."""
    assumed: str | None = None
    """The assumption about the value; None where counts are ranges instead."""

    @property
    def tensor(self) -> str | None:
        """The tensor that holds the value; None where none does or where it is not known."""
        found = self.name.removeprefix(VALUES_OF)
        return None if found == self.name else found


@dataclass(frozen=True, slots=True)
class Counts:
    """What a launch does, according to its kernel's source."""

    programs: int
    walked: int
    """Programs that were walked; where these are fewer than all, their counts are scaled up."""
    accesses: tuple[Access, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    arithmetic: tuple[Arithmetic, ...] = ()
    loops: tuple[Loop, ...] = ()
    branches: tuple[Branch, ...] = ()
    unknowns: tuple[Unknown, ...] = ()
    not_counted: Mapping[str, int] = field(default_factory=dict)
    """Operations that cannot be counted, with the number of each."""
    reduced: tuple[str, ...] = ()
    """Tensors to which a program stores a result of all the data that it goes through, such as a
    mean: with less data per program the results differ."""
    reduced_lengths: tuple[int, ...] = ()
    """The number of elements of a tile that each reduction and scan combines."""
    stores_each_pass: bool = False
    """Whether a loop stores the result of a reduction or a scan in the iteration that makes it."""
    divisors: tuple[int, ...] = ()
    """The constants by which values from memory are divided, which belong to the data's layout."""

    @property
    def held(self) -> dict[str, tuple[int, ...]]:
        """The number in each tensor that is only read where it gives the trips of a loop."""
        reads = Counter(one.tensor for one in self.accesses if one.reads)
        bounds = [one.bound for one in self.loops if one.bound is not None]
        return {one.tensor: (one.number,) for one in bounds if reads[one.tensor] == 1}

    @property
    def in_order(self) -> Counts | None:
        """The counts if stores at unknown addresses are contiguous; None if they are the same."""
        accesses = tuple(one.in_order for one in self.accesses)
        return None if accesses == self.accesses else replace(self, accesses=accesses)

    @property
    def is_indexed(self) -> bool:
        """Whether the only unknown values are indices into tensors, from other tensors.

        These are assumed to differ, like the rows of an embedding that are looked up: with repeated
        rows, launches were predicted up to a third too short. Where the tensor itself is not known,
        as in a grouped product, programs are assumed to share what they read.
        """
        unknowns = self.unknowns
        return bool(unknowns) and all(one.steers == "address" and one.tensor for one in unknowns)

    @property
    def is_masked(self) -> bool:
        """Whether the only unknown values are conditions of accesses and branches.

        The mean of all and nothing is then predicted. With `Amount.typical`, which is nothing where
        nothing is the least, three launches were predicted 24 to 39% too short, and with the mean
        14 to 34%.
        """
        steers = {one.steers for one in self.unknowns}
        return bool(steers) and steers <= {"mask", "branch"}

    @property
    def steered(self) -> list[tuple[Place, Amount]]:
        """The loops whose trips depend on data and are not assumed, with what the source allows."""
        loops = (one for one in self.loops if one.assumed is None)
        return [(one.place, one.allowed) for one in loops if one.allowed is not None]

    @property
    def limits(self) -> list[dict[str, int]]:
        """The fewest and the most trips of the loops whose trips depend on data, as assumptions.

        Empty where there are no such loops, or where the source allows any number for one of them.
        """
        least: dict[str, int] = {}
        most: dict[str, int] = {}
        for place, allowed in self.steered:
            name = trips_at(place.line)
            if allowed.high is None:
                return []
            least[name] = min(allowed.low, least.get(name, allowed.low))
            most[name] = max(allowed.high, most.get(name, 0))
        return [least, most] if most else []

    @property
    def read_bytes(self) -> Amount:
        """Bytes that loads and atomic operations request."""
        return total(one.bytes for one in self.accesses if one.reads)

    @property
    def written_bytes(self) -> Amount:
        """Bytes that stores and atomic operations request."""
        return total(one.bytes for one in self.accesses if one.writes)

    @property
    def load_sectors(self) -> Amount:
        """Sectors of 32 bytes that loads request."""
        return total(one.sectors for one in self.accesses if one.reads and not one.writes)

    @property
    def store_sectors(self) -> Amount:
        """Sectors of 32 bytes that stores write."""
        return total(one.sectors for one in self.accesses if one.writes and not one.reads)

    @property
    def unique_read_bytes(self) -> Amount:
        """Distinct bytes read: the least that device memory has to deliver."""
        return total(one.read for one in self.footprints)

    @property
    def flops(self) -> Amount:
        """Floating-point operations, including those of dots."""
        return total(one.flops for one in self.arithmetic)

    @property
    def dot_flops(self) -> Mapping[str, Amount]:
        """Floating-point operations of dots, by the dtype of the factors."""
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
