"""Loads at unknown places: what the source says of them, where the binary hides their addresses.

All threads share the address of a scalar. A warp cannot request more of a small table, such as the
levels of a quantization, than there is of it, and a program finds in the L1 cache what it has
loaded before. Threads are assumed to request places of a table at random.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from occupancy_lab.work.counts import LINE, LOADS, SECTOR, Amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from occupancy_lab.work.counts import Counts, GlobalAccess, Place

SMALL_BYTES = 16 * 1024
"""The size of a small table; the least L1 cache that Triton leaves on an H100 is 28 KiB."""
BANKS, WORD = 32, 4


@dataclass(frozen=True, slots=True)
class Gather:
    """What a line of the source reads at unknown places."""

    tensor: str | None
    """None where there are several."""
    size: int | None
    """The bytes of the tensor if it is small; None if it is not."""
    is_scalar: bool
    """Whether the line reads one number for the whole program."""


def gathers_of(counts: Counts) -> dict[Place, Gather]:
    """Return what the source reads at unknown places, from small tables or as scalars."""
    small = {one.tensor: one.size for one in counts.footprints if (one.size or 0) <= SMALL_BYTES}
    found: dict[Place, Gather] = {}
    for one in counts.accesses:
        if one.is_known or one.writes:
            continue
        gather = Gather(one.tensor, small.get(one.tensor), one.elements == one.executions)
        if found.setdefault(one.place, gather) != gather:
            found[one.place] = Gather(None, None, is_scalar=False)
    return {place: one for place, one in found.items() if one.size or one.is_scalar}


def gathered(
    accesses: Iterable[GlobalAccess], gathers: Mapping[Place, Gather], programs: int
) -> list[GlobalAccess]:
    """Return the accesses of *programs* programs, with what is known of loads by *gathers*."""
    found: list[tuple[GlobalAccess, Gather | None]] = []
    requests = defaultdict[str | None, float](float)
    for access in accesses:
        gather = gathers.get(access.place)
        is_unknown = not access.is_known and access.operation in LOADS and access.executions.most
        if gather is None or not is_unknown:
            found.append((access, None))
            continue
        limited = _at_most(access, gather)
        found.append((limited, gather if gather.size else None))
        requests[gather.tensor] += limited.sectors.middle / programs
    return [
        access if gather is None else _in_cache(access, gather, requests[gather.tensor])
        for access, gather in found
    ]


def _at_most(access: GlobalAccess, gather: Gather) -> GlobalAccess:
    """Return an access that requests no more than a scalar, or than the whole table."""
    times = access.executions.most
    threads = 1.0 if gather.is_scalar else access.threads.most / times
    sectors, lines, passes = (
        threads if gather.size is None else -(-gather.size // unit)
        for unit in (SECTOR, LINE, BANKS * WORD)
    )
    fewer = met(lines, threads) * times / max(access.lines.most, 1.0)

    def at_most(amount: Amount, most: float) -> Amount:
        return amount.at_most(max(round(most), amount.low))

    return replace(
        access,
        sectors=at_most(access.sectors, times * met(sectors, threads)),
        lines=at_most(access.lines, times * met(lines, threads)),
        lookups=at_most(access.lookups, max(fewer * access.lookups.most, times)),
        passes=at_most(access.passes, times * passes),
    )


def _in_cache(access: GlobalAccess, gather: Gather, requests: float) -> GlobalAccess:
    """Return an access to a table of which a program *requests* sectors so often in all."""
    sectors = -(-(gather.size or 0) // SECTOR)
    new = met(sectors, max(requests, 1.0)) / max(requests, 1.0)
    turns = new * sectors / max(requests, 1.0)
    return replace(access, cached=1.0 - new, common=new, turns=turns, distinct=new)


def met(places: float, requests: float) -> float:
    """Return how many of *places* so many *requests* at random meet."""
    return places * (1.0 - (1.0 - 1.0 / places) ** requests) if places > 1 else min(requests, 1.0)
