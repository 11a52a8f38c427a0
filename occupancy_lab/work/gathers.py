"""Loads at unknown places: what the source says of them, where the binary hides their addresses.

All threads share the address of a scalar. A warp cannot request more of a small table, such as the
levels of a quantization, than there is of it, and a program finds in the L1 cache what it has
loaded before. Threads are assumed to request places of a table at random.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from occupancy_lab.work.banks import PASS
from occupancy_lab.work.counts import LINE, SECTOR, Counts, Place
from occupancy_lab.work.execution import LOADS, GlobalAccess

SMALL_BYTES = 16 * 1024
"""The size of a small table; the least L1 cache that Triton leaves on an H100 is 28 KiB."""


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
    accesses: Sequence[GlobalAccess], gathers: Mapping[Place, Gather], programs: int
) -> tuple[GlobalAccess, ...]:
    """Return the accesses of *programs* programs, with what is known of loads by *gathers*."""
    of = {
        one.instruction: gathers[one.place]
        for one in accesses
        if one.place in gathers and not one.is_known
        if one.operation in LOADS and one.executions.most
    }
    limited = [
        _at_most(one, of[one.instruction]) if one.instruction in of else one for one in accesses
    ]
    requests = defaultdict[str | None, float](float)
    for one in limited:
        if gather := of.get(one.instruction):
            requests[gather.tensor] += one.sectors.middle / programs
    return tuple(
        _in_cache(one, gather.size, requests[gather.tensor])
        if (gather := of.get(one.instruction)) and gather.size
        else one
        for one in limited
    )


def _at_most(access: GlobalAccess, gather: Gather) -> GlobalAccess:
    """Return an access that requests no more than a scalar, or than the whole table."""
    times = access.executions.most
    threads = 1.0 if gather.is_scalar else access.threads.most / times
    sectors, lines, passes = (
        threads if gather.size is None else -(-gather.size // unit) for unit in (SECTOR, LINE, PASS)
    )
    fewer = met(lines, threads) * times / max(access.lines.most, 1.0)
    return replace(
        access,
        sectors=access.sectors.at_most(round(times * met(sectors, threads))),
        lines=access.lines.at_most(round(times * met(lines, threads))),
        lookups=access.lookups.at_most(round(max(fewer * access.lookups.most, times))),
        passes=access.passes.at_most(round(times * passes)),
    )


def _in_cache(access: GlobalAccess, size: int, requests: float) -> GlobalAccess:
    """Return an access to a table of *size* bytes that a program *requests* so often in all."""
    sectors, requests = -(-size // SECTOR), max(requests, 1.0)
    new = met(sectors, requests) / requests
    turns = new * sectors / requests
    return replace(access, cached=1.0 - new, common=new, turns=turns, distinct=new)


def met(places: float, requests: float) -> float:
    """Return how many of *places* so many *requests* at random meet."""
    return places * (1.0 - (1.0 - 1.0 / places) ** requests) if places > 1 else min(requests, 1.0)
