"""Counts of a launch with too many programs, from a sample of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from occupancy_lab.work.counts import SECTOR, Access, Amount, Counts, Footprint, total
from occupancy_lab.work.tiles import TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Walker = Callable[[Sequence[Sequence[int]]], Counts]

SAMPLES = (1024, 256, 32, 8)
"""Programs that are walked; fewer are tried where their loops are long."""
GOLDEN = 0.6180339887498949
"""Golden-ratio steps are even at every length, and favour no edge of the grid."""


def sampled(walk: Walker, grid: tuple[int, int, int]) -> Counts | None:
    """Return the counts of a launch from a sample; None where even the smallest is too large.

    Counts are scaled in proportion. Distinct bytes lie between those of the sample and their scaled
    value.
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


def _scaled(counts: Counts) -> Counts:
    ratio = Fraction(counts.programs, counts.walked)

    def more(amount: Amount) -> Amount:
        high = None if amount.high is None else round(amount.high * ratio)
        return Amount(round(amount.low * ratio), high)

    def wider(amount: Amount, *, once: bool, size: int | None = None) -> Amount:
        """Return the distinct bytes of the launch; *once* says that no byte is touched twice.

        They are at most the *size* of the tensor, in whole sectors.
        """
        if once:
            return more(amount)
        most = None if size is None else -(-size // SECTOR) * SECTOR
        return Amount(amount.low, more(amount).high).at_most(most)

    def scaled(one: Any, *names: str) -> Any:
        return replace(one, **{name: more(getattr(one, name)) for name in names})

    def access(one: Access) -> Access:
        unique = wider(one.unique_bytes, once=_once(one.unique_bytes, [one]))
        amounts = ("executions", "elements", "active", "sectors", "lines")
        found: Access = replace(scaled(one, *amounts), unique_bytes=unique)
        return found

    def footprint(one: Footprint) -> Footprint:
        mine = [access for access in counts.accesses if access.tensor == one.tensor]
        reads = _once(one.read, [access for access in mine if access.reads])
        writes = _once(one.written, [access for access in mine if access.writes])
        return replace(
            one,
            read=wider(one.read, once=reads, size=one.size),
            written=wider(one.written, once=writes, size=one.size),
            read_whole=wider(one.read_whole, once=reads, size=one.size),
            written_whole=wider(one.written_whole, once=writes, size=one.size),
            again=() if reads else None,
        )

    return replace(
        counts,
        accesses=tuple(map(access, counts.accesses)),
        footprints=tuple(map(footprint, counts.footprints)),
        arithmetic=tuple(scaled(one, "flops", "executions") for one in counts.arithmetic),
        loops=tuple(scaled(one, "entered", "trips") for one in counts.loops),
        branches=tuple(scaled(one, "reached", "taken") for one in counts.branches),
    )


def _once(touched: Amount, accesses: Iterable[Access]) -> bool:
    return touched.is_exact and touched == total(one.bytes for one in accesses)
