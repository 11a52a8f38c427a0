"""Counts of a launch with too many programs, from a sample of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    Walker = Callable[[Sequence[Sequence[int]]], Counts]

SAMPLES = (1024, 256, 32, 8)
"""Programs that are walked; fewer are tried where their loops are long."""
DENSE = 0.98
"""The share of a tensor that a launch touches from which on its sectors and lines count as whole.
The programs of a sample lie apart, so that two that fill one sector are never both in it."""
GOLDEN = 0.6180339887498949
"""Golden-ratio steps are even at every length, and favour no edge of the grid."""


def sampled(walk: Walker, grid: tuple[int, int, int]) -> Counts | None:
    """Return the counts of a launch from a sample; None where even the smallest is too large.

    Counts are scaled in proportion. Distinct bytes lie between those of the sample and their scaled
    value; what fills a range without gaps fills its sectors and lines.
    """
    for programs in SAMPLES:
        try:
            return _scaled(walk(_chosen(grid, programs)))
        except TooLargeError:
            continue
    return None


def _chosen(grid: Sequence[int], programs: int) -> list[list[int]]:
    """Return indices along each axis of the grid, in all about *programs* combinations."""
    shares = [1.0, 1.0, 1.0]
    left = float(programs)
    for place, axis in enumerate(sorted(range(3), key=lambda one: grid[one])):
        shares[axis] = min(grid[axis], max(left ** (1 / (3 - place)), 1.0))
        left /= shares[axis]
    return [_even(size, int(share)) for size, share in zip(grid, shares, strict=True)]


def _even(size: int, count: int) -> list[int]:
    if count >= size:
        return list(range(size))
    return sorted({int(size * (place * GOLDEN % 1)) for place in range(count)})


@dataclass(frozen=True, slots=True)
class _Sample:
    """The counts of the programs of a sample, from which those of the launch follow."""

    counts: Counts
    ratio: Fraction
    """Programs of the launch for each of the sample."""

    def more(self, amount: Amount) -> Amount:
        """Return the amount of the launch, in proportion."""
        high = None if amount.high is None else round(amount.high * self.ratio)
        return Amount(round(amount.low * self.ratio), high)

    def scaled(self, one: Any, *names: str) -> Any:
        """Return *one* with the amounts *names* of the launch."""
        return replace(one, **{name: self.more(getattr(one, name)) for name in names})

    def wider(self, amount: Amount, *, once: bool, size: int | None = None) -> Amount:
        """Return the distinct bytes of the launch; *once* says that no byte is touched twice.

        They are at most the *size* of the tensor, in whole sectors.
        """
        if once:
            return self.more(amount)
        most = None if size is None else -(-size // SECTOR) * SECTOR
        return Amount(amount.low, self.more(amount).high).at_most(most)

    def accesses(self, tensor: Footprint, *, writes: bool) -> list[Access]:
        """Return the loads of a tensor, or the stores to it."""
        own = (one for one in self.counts.accesses if one.tensor == tensor.tensor)
        return [one for one in own if (one.writes if writes else one.reads)]

    def is_dense(self, tensor: Footprint, *, writes: bool) -> bool:
        """Tell whether the launch writes, or reads, each byte of a tensor once."""
        touched = tensor.written if writes else tensor.read
        if not tensor.size or not _once(touched, self.accesses(tensor, writes=writes)):
            return False
        return DENSE <= self.more(touched).low / tensor.size <= 1 / DENSE

    def access(self, one: Access, filled: Collection[str | None]) -> Access:
        """Return an access of the launch, which fills the tensors *filled* without gaps."""
        unique = self.wider(one.unique_bytes, once=_once(one.unique_bytes, [one]))
        amounts = ("executions", "elements", "active", "sectors", "lines")
        found: Access = replace(self.scaled(one, *amounts), unique_bytes=unique)
        is_short = one.bytes.most < 2 * LINE * one.executions.most
        if one.writes and one.tensor in filled and is_short:
            found = replace(found, piece_bytes=2.0 * LINE)
        return found

    def footprint(self, one: Footprint) -> Footprint:
        """Return the distinct bytes of a tensor in the launch."""
        read, read_whole, granules = self._half(one, one.read_granules, GRANULE, writes=False)
        written, written_whole, lines = self._half(one, one.written_lines, LINE, writes=True)
        return replace(
            one,
            read=read,
            read_whole=read_whole,
            read_granules=granules,
            written=written,
            written_whole=written_whole,
            written_lines=lines,
            again=() if _once(one.read, self.accesses(one, writes=False)) else None,
        )

    def _half(
        self, tensor: Footprint, units: int | None, unit: int, *, writes: bool
    ) -> tuple[Amount, Amount, int | None]:
        """Return the distinct bytes, and those of whole sectors and of whole *units*."""
        touched = tensor.written if writes else tensor.read
        whole = tensor.written_whole if writes else tensor.read_whole
        if self.is_dense(tensor, writes=writes):
            found = self.more(touched)
            return found, found, -(-found.low // unit) * unit
        once = _once(touched, self.accesses(tensor, writes=writes))
        distinct, sectors = (
            self.wider(one, once=once, size=tensor.size) for one in (touched, whole)
        )
        is_known = once and units is not None
        return distinct, sectors, round((units or 0) * self.ratio) if is_known else None


def _scaled(counts: Counts) -> Counts:
    sample = _Sample(counts, Fraction(counts.programs, counts.walked))
    filled = {one.tensor for one in counts.footprints if sample.is_dense(one, writes=True)}
    return replace(
        counts,
        accesses=tuple(sample.access(one, filled) for one in counts.accesses),
        footprints=tuple(map(sample.footprint, counts.footprints)),
        arithmetic=tuple(sample.scaled(one, "flops", "executions") for one in counts.arithmetic),
        loops=tuple(sample.scaled(one, "entered", "trips") for one in counts.loops),
        branches=tuple(sample.scaled(one, "reached", "taken") for one in counts.branches),
    )


def _once(touched: Amount, accesses: Iterable[Access]) -> bool:
    return touched.is_exact and touched == total(one.bytes for one in accesses)
