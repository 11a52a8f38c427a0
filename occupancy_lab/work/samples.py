"""Counts of a launch with too many programs, from a sample of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from occupancy_lab.work.counts import (
    GRANULE,
    LINE,
    SECTOR,
    Access,
    Amount,
    Counts,
    Footprint,
    total,
)
from occupancy_lab.work.tiles import TooLargeError

Walker = Callable[[Sequence[Sequence[int]]], Counts]
Outliner = Callable[[Sequence[Sequence[int]]], tuple[Counts, Counts] | None]

SAMPLES = (1024, 256, 64, 32, 16, 8)
"""Programs that are walked; fewer are tried where their loops are long."""
DENSE, OVERLAP = 0.98, 1.1
"""The share of a tensor that a launch touches from which on its sectors and lines count as whole,
as the programs of a sample lie apart, so that two that fill one sector are never both in it; and
the most that programs may touch, in proportion, of a tensor that is touched whole: neighbours touch
some of the same, and a sample has too few of the programs at the edge."""
GOLDEN = 0.6180339887498949
"""Golden-ratio steps are even at every length, and favour no edge of the grid."""
LEAST_NEIGHBOURS = 8
ROUNDING = 1e-9
"""What the root of a whole number may lack."""


def sampled(
    walk: Walker, grid: tuple[int, int, int], outline: Outliner = lambda _: None
) -> Counts | None:
    """Return the counts of a launch from a sample; None where even the smallest is too large.

    Counts are scaled in proportion to programs or, where programs differ, to the executions and
    elements of each access, which *outline* counts for all programs and for those of the sample.
    Distinct bytes lie between those of the sample and their scaled value; what fills a range
    without gaps fills its sectors and lines.
    """
    for programs in SAMPLES:
        chosen = _chosen(grid, programs)
        try:
            counts = walk(chosen)
        except TooLargeError:
            continue
        if _differ(counts) and (outlines := outline(chosen)) is not None:
            return _outlined(counts, *outlines)
        sample = _Sample(counts)
        if not all(map(sample.is_settled, counts.footprints)):
            sample = replace(sample, neighbours=_neighbours(walk, grid, counts))
        return _scaled(sample)
    return None


def _chosen(grid: Sequence[int], programs: int) -> list[list[int]]:
    """Return indices along each axis of the grid, in all about *programs* combinations."""
    shares = [1, 1, 1]
    left = float(programs)
    for place, axis in enumerate(sorted(range(3), key=lambda one: grid[one])):
        shares[axis] = min(grid[axis], max(int(left ** (1 / (3 - place)) + ROUNDING), 1))
        left /= shares[axis]
    return [_even(size, share) for size, share in zip(grid, shares, strict=True)]


def _even(size: int, count: int) -> list[int]:
    if count >= size:
        return list(range(size))
    return sorted({int(size * (place * GOLDEN % 1)) for place in range(count)})


def _neighbours(walk: Walker, grid: Sequence[int], sample: Counts) -> tuple[Counts, ...]:
    """Return the counts of neighbouring programs, as many as can be walked, and of half of them."""
    for programs in (sample.walked, sample.walked // 4, sample.walked // 16):
        if programs < LEAST_NEIGHBOURS:
            break
        try:
            return tuple(walk(_beside(grid, one)) for one in (programs, programs // 2))
        except TooLargeError:
            continue
    return ()


def _beside(grid: Sequence[int], programs: int) -> list[range]:
    """Return programs in the middle of the grid that start one after the other, as a box."""
    box = []
    for size in grid:
        count = max(min(size, programs), 1)
        first = (size - count) // 2
        box.append(range(first, first + count))
        programs //= count
    return box


def _differ(counts: Counts) -> bool:
    """Tell whether some programs are known to do more than others."""
    return any(one.least != one.most for one in counts.loops) or any(
        one.taken not in {one.reached, Amount(0, one.taken.high)} for one in counts.branches
    )


@dataclass(frozen=True, slots=True)
class _Sample:
    """The counts of the programs of a sample, from which those of the launch follow."""

    counts: Counts
    often: Mapping[Any, tuple[Fraction, Fraction]] = field(default_factory=dict)
    """Executions and active elements of accesses in the launch for each in the sample, where
    programs differ."""
    neighbours: tuple[Counts, ...] = ()
    """The counts of neighbouring programs, and of half of them."""

    @property
    def ratio(self) -> Fraction:
        """Programs of the launch for each of the sample."""
        return _ratio(self.counts)

    def ratio_of(self, accesses: Sequence[Access]) -> Fraction:
        """Return the elements that accesses touch in the launch for each in the sample."""
        ratios = [self.often.get(_key(one), (self.ratio, self.ratio))[1] for one in accesses]
        each = [round(one.active.middle) for one in accesses]
        if len({*ratios}) < 2 or not sum(each):  # noqa: PLR2004 - they differ
            return ratios[0] if ratios else self.ratio
        return sum(map(Fraction.__mul__, ratios, map(Fraction, each)), Fraction()) / sum(each)

    def is_once(self, tensor: Footprint, *, writes: bool) -> bool:
        """Tell whether programs touch each byte of a tensor once."""
        return all(
            _once(_touched(own, writes=writes), _accesses(counts, own, writes=writes))
            for counts in (self.counts, *self.neighbours)
            for own in counts.footprints
            if own.tensor == tensor.tensor
        )

    def share(self, tensor: Footprint, *, writes: bool) -> float:
        """Return the distinct bytes, in proportion, as a share of the tensor; 0 if not known."""
        touched = _touched(tensor, writes=writes)
        if not tensor.size or not touched.is_exact:
            return 0.0
        ratio = self.ratio_of(_accesses(self.counts, tensor, writes=writes))
        return float(ratio * touched.low / tensor.size)

    def is_settled(self, tensor: Footprint) -> bool:
        """Tell whether the sample alone shows what the launch touches of a tensor."""
        return all(
            not touched.high
            or not touched.is_exact
            or (tensor.size is not None and touched.low >= DENSE * tensor.size)
            or self.is_dense(tensor, writes=writes)
            for writes in (False, True)
            for touched in (_touched(tensor, writes=writes),)
        )

    def is_dense(self, tensor: Footprint, *, writes: bool) -> bool:
        """Tell whether the launch writes, or reads, each byte of a tensor.

        It does so once, or only neighbours touch the same bytes: then those that each further one
        adds make up the tensor, as those of programs that lie apart do.
        """
        share = self.share(tensor, writes=writes)
        if share and self.is_once(tensor, writes=writes):
            return DENSE <= share <= OVERLAP
        added = self._added(tensor, writes=writes)
        return share >= DENSE and abs(added / (tensor.size or 1) - 1) < OVERLAP - 1

    def _added(self, tensor: Footprint, *, writes: bool) -> float:
        """Return the distinct bytes that neighbours add, in proportion to all programs."""
        beside = [
            (counts.walked, _touched(one, writes=writes).low)
            for counts in self.neighbours
            for one in counts.footprints
            if one.tensor == tensor.tensor and _touched(one, writes=writes).is_exact
        ]
        if len(beside) < 2:  # noqa: PLR2004 - all neighbours, and half of them
            return 0.0
        (many, more), (few, fewer) = beside
        return self.counts.programs * (more - fewer) / (many - few)

    def distinct(self, tensor: Footprint, name: str, *, writes: bool) -> Amount:
        """Return the distinct bytes *name* of a tensor, which are at most its size."""
        most = None if tensor.size is None else -(-tensor.size // SECTOR) * SECTOR
        own: Amount = getattr(tensor, name)
        scaled = own.scaled(self.ratio_of(_accesses(self.counts, tensor, writes=writes)))
        if self.is_once(tensor, writes=writes) and (most is None or scaled.low <= most):
            return scaled
        found = Amount(own.low, scaled.high)
        for counts in self.neighbours:
            for one in counts.footprints:
                near: Amount = getattr(one, name)
                if one.tensor == tensor.tensor and near.is_exact:
                    low = max(found.low, near.low)
                    found = Amount(low, found.high).at_most(near.scaled(_ratio(counts)).high)
        return found.at_most(most)

    def access(self, one: Access, filled: Collection[str | None], size: int | None) -> Access:
        """Return an access of the launch, which fills the tensors *filled* without gaps."""
        ratio = self.ratio_of([one])
        executed, _ = self.often.get(_key(one), (self.ratio, ratio))
        found: Access = _more(one, executed, "executions", "elements")
        found = _more(found, ratio, "active", "sectors", "lines")
        unique = one.unique_bytes.scaled(ratio)
        if not _once(one.unique_bytes, [one]) or (size is not None and unique.low > size):
            unique = Amount(one.unique_bytes.low, unique.high).at_most(size)
        found = replace(found, unique_bytes=unique)
        is_short = one.bytes.most < 2 * LINE * one.executions.most
        if one.writes and one.tensor in filled and is_short:
            found = replace(found, piece_bytes=2.0 * LINE)
        return found

    def footprint(self, one: Footprint) -> Footprint:
        """Return the distinct bytes of a tensor in the launch."""
        read, read_whole, granules = self._half(one, one.read_granules, GRANULE, writes=False)
        written, written_whole, lines = self._half(one, one.written_lines, LINE, writes=True)
        is_read_once = any(test(one, writes=False) for test in (self.is_once, self.is_dense))
        return replace(
            one,
            read=read,
            read_whole=read_whole,
            read_granules=granules,
            written=written,
            written_whole=written_whole,
            written_lines=lines,
            again=() if is_read_once else None,
        )

    def _half(
        self, tensor: Footprint, units: int | None, unit: int, *, writes: bool
    ) -> tuple[Amount, Amount, int | None]:
        """Return the distinct bytes, and those of whole sectors and of whole *units*."""
        ratio = self.ratio_of(_accesses(self.counts, tensor, writes=writes))
        if self.is_dense(tensor, writes=writes):
            touched = _touched(tensor, writes=writes).scaled(ratio).low
            found = Amount.of(min(touched, tensor.size or touched))
            return found, found, -(-found.low // unit) * unit
        names = ("written", "written_whole") if writes else ("read", "read_whole")
        distinct, sectors = (self.distinct(tensor, one, writes=writes) for one in names)
        is_known = units is not None and distinct.is_exact and self.is_once(tensor, writes=writes)
        return distinct, sectors, round((units or 0) * ratio) if is_known else None


def _scaled(sample: _Sample) -> Counts:
    """Return the counts of the launch."""
    counts, ratio = sample.counts, sample.ratio
    filled = {one.tensor for one in counts.footprints if sample.is_dense(one, writes=True)}
    sizes = {one.tensor: one.size for one in counts.footprints}
    return replace(
        counts,
        accesses=tuple(
            sample.access(one, filled, sizes.get(one.tensor)) for one in counts.accesses
        ),
        footprints=tuple(map(sample.footprint, counts.footprints)),
        arithmetic=tuple(_more(one, ratio, "flops", "executions") for one in counts.arithmetic),
        loops=tuple(_more(one, ratio, "entered", "trips") for one in counts.loops),
        branches=tuple(_more(one, ratio, "reached", "taken") for one in counts.branches),
    )


def _outlined(counts: Counts, whole: Counts, sample: Counts) -> Counts:
    """Return the counts of a launch, whose executions, and those of its sample, are given."""
    theirs, own = _sums(whole), _sums(sample)
    often = {
        key: (Fraction(theirs[key][0], executions), Fraction(theirs[key][1], active))
        for key, (executions, active) in own.items()
        if executions and active
    }
    names = ("arithmetic", "loops", "branches")
    exact: dict[str, Any] = {name: getattr(whole, name) for name in names}
    return replace(_scaled(_Sample(counts, often)), **exact)


def _sums(counts: Counts) -> dict[Any, tuple[int, int]]:
    """Return how often accesses are executed, and their active elements."""
    found: dict[Any, tuple[int, int]] = {}
    for one in counts.accesses:
        executions, active = found.get(_key(one), (0, 0))
        more = one.executions.high or 0, one.active.high or 0
        found[_key(one)] = (executions + more[0], active + more[1])
    return found


def _key(one: Access) -> Any:
    return one.place, one.operation


def _ratio(counts: Counts) -> Fraction:
    return Fraction(counts.programs, counts.walked)


def _more(one: Any, ratio: Fraction, *names: str) -> Any:
    """Return *one* with its amounts *names* in proportion."""
    return replace(one, **{name: getattr(one, name).scaled(ratio) for name in names})


def _touched(tensor: Footprint, *, writes: bool) -> Amount:
    return tensor.written if writes else tensor.read


def _accesses(counts: Counts, tensor: Footprint, *, writes: bool) -> list[Access]:
    own = (one for one in counts.accesses if one.tensor == tensor.tensor)
    return [one for one in own if (one.writes if writes else one.reads)]


def _once(touched: Amount, accesses: Sequence[Access]) -> bool:
    return touched.is_exact and touched == total(one.bytes for one in accesses)
