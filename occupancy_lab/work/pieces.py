"""Pieces: the contiguous bytes that programs touch at the same time, and what short ones cost.

Device memory of HBM delivers at least 64 bytes at a time, and takes as long for a short piece as
for a cache line. The launches that show this are in reports/data/pieces-h200.csv.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from occupancy_lab.work.counts import (
    GRANULE,
    LINE,
    NOTHING,
    SECTOR,
    Access,
    Amount,
    Footprint,
    Reuse,
)

HALVINGS = 30
"""Steps of the bisection that finds how long places stay in a cache."""
READ_PIECE, WRITTEN_PIECE = 106.0, 150.0
"""Device memory takes as long for a shorter piece as for one of this many bytes. On an H200, random
pieces of 32 and 64 bytes are read in the time of 109 and 114, and written in the time of 142 and
149; pieces of 256 bytes take 6% longer than if they are in order."""
REST_COST = READ_PIECE / SECTOR
"""The time to read a byte of the rest of a sector, relative to a byte of a long piece."""


ADJOINING = 0.93
"""The time to write parts of adjoining lines, relative to whole lines (76 launches on an H200)."""
ROOM = 1 / 8
"""The share of the L2 cache that may be cache lines with sectors written in part. Of 0.8 to 25 MB
of such lines, written in four ways, 6 MB stay so, and the rest of the others is read from device
memory; it is not for sectors that other stores complete soon (Nsight Compute, H200)."""


def read_cost(accesses: Iterable[Access]) -> float:
    """Return the time to read what *accesses* load, relative to as many bytes in long pieces."""
    each = [
        (one.sectors.most, max(READ_PIECE / max(one.piece_bytes, GRANULE), 1.0))
        for one in accesses
        if one.reads and one.piece_bytes
    ]
    return mean(each)


@dataclass(frozen=True, slots=True)
class Early:
    """What device memory reads and takes early of a tensor's stores to parts of cache lines."""

    filled: Amount = NOTHING
    """Bytes that device memory delivers: sectors that a store fills only in part, unless the launch
    reads them anyway or completes them soon. They are written before the launch ends."""
    slow: float = 0.0
    """Bytes in long pieces that device memory reads in the same time."""
    twice: int = 0
    """Bytes that are written back more than once."""
    resumed: float = 0.0
    """The bytes of cache lines that are written back and then stored to again."""
    stays: float = 0.0
    """How long lines at unknown addresses stay in the L2 cache, as in `turnover`."""


NOT_EARLY = Early()


def early(
    accesses: Sequence[Access],
    tensor: Footprint,
    flow: Early,
    room: float | None,
    lost: Callable[[Sequence[Reuse], float], float],
) -> Early:
    """Return what device memory reads and takes early of the stores *accesses* to a tensor.

    *flow* has what is known so far, *room* is that of lines with sectors written in part, and
    *lost* returns how many of the bytes that are touched again leave so much room in between. At
    known addresses lines are requested side by side where they adjoin, which takes half the time of
    a piece for each. At unknown ones other stores may complete a sector while it stays.
    """
    if tensor.read_whole.most:
        return flow
    known = [one for one in accesses if one.is_known]
    asked = sum(one.sectors.most * SECTOR for one in known)
    share = partial_bytes(asked, sum(one.bytes.most for one in known)) / max(asked, 1.0)
    left = partial_bytes(tensor.written_whole.low, tensor.written.low)
    late = 0.0 if room is None else min(lost(tensor.late, room), tensor.written_whole.low)
    filled = max(left * _moved(tensor.written_lines or 0, room), share * late)
    filled += share * flow.twice
    slow = filled * mean(
        [
            (one.sectors.most, max(READ_PIECE * (0.5 if one.adjoins else 1.0) / _request(one), 1.0))
            for one in known
        ]
    )
    unknown = sum(
        (1.0 - _covered(one, flow.stays))
        * partial_bytes(one.sectors.most * SECTOR, one.bytes.most)
        * _moved(one.lines.most * LINE, room)
        for one in accesses
        if not one.is_known
    )
    found = Amount(round(filled), round(filled + unknown))
    return replace(flow, filled=found, slow=slow + unknown * REST_COST)


def _moved(lines: float, room: float | None) -> float:
    """Return the share of *lines* bytes of cache lines that do not fit *room*."""
    return 1.0 if room is None else max(1.0 - room / max(lines, 1.0), 0.0)


def _request(access: Access) -> float:
    """Return the mean bytes of the sectors that an access requests of a cache line."""
    return max(SECTOR * access.sectors.most / max(access.lines.most, 1.0), SECTOR)


def written_cost(accesses: Iterable[Access], tensor: Footprint, flow: Early = NOT_EARLY) -> float:
    """Return the time to write to *tensor*, relative to as many bytes in long pieces.

    The L2 cache merges what is known to be in one line before it writes the line, but for lines
    that are `resumed`. At unknown addresses it merges what comes while a line stays.
    """
    stored = max(tensor.written_whole.low + flow.twice, 1)
    lines = max((tensor.written_lines or 0) + flow.resumed, stored) / stored
    at_once = min(flow.filled.low / stored, 1.0)
    each = []
    for one in accesses:
        if not one.writes or not one.piece_bytes or not one.sectors.most:
            continue
        piece = one.piece_bytes
        if not one.is_known:
            piece = piece if piece > LINE else _request(one)
            cost = WRITTEN_PIECE / max(piece, _covered(one, flow.stays) * LINE)
        else:
            a_line = ADJOINING if one.adjoins else max(WRITTEN_PIECE / max(piece, LINE), 1.0)
            cost = a_line * lines
            cost += at_once * max(a_line * LINE / _request(one) - cost, 0.0)
        each.append((one.sectors.most, max(cost, 1.0)))
    return mean(each)


def mean(each: Sequence[tuple[float, float]]) -> float:
    """Return the mean of costs with weights; 1 where there are none."""
    whole = sum(weight for weight, _ in each)
    return sum(weight * cost for weight, cost in each) / whole if whole else 1.0


def fetched_bytes(accesses: Iterable[Access]) -> Amount:
    """Return the bytes of the whole granules that loads request, with no hits in any cache."""
    found = NOTHING
    for one in accesses:
        granules = one.lines * round(min(one.piece_bytes or 0, LINE))
        found += max(one.sectors * SECTOR, granules, key=lambda amount: amount.most)
    return found


def turnover(asked: float, size: float, others: float, room: float) -> float:
    """Return how long an unused place of a tensor stays in a cache of *room* bytes.

    It is the time in which a launch requests as many bytes of the tensor, at random places, as it
    has, *size*. In all it requests *asked* bytes of it, and *others* of other tensors. After x such
    times the cache holds size (1 - exp(-x)) + x size others / asked bytes, and a request misses
    with a probability of exp(-x) (Che et al. 2002, "Hierarchical Web caching systems").
    """
    stream, most = others / asked, asked / size

    def filled(x: float) -> float:
        return size * (1.0 - math.exp(-x) + x * stream)

    if filled(most) <= room:
        return most
    low, high = 0.0, most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if filled(middle) < room else (low, middle)
    return low


def partial_bytes(whole: float, asked: float) -> float:
    """Return the bytes of the sectors, or of other units, that are touched in part.

    *asked* bytes are requested, of *whole* bytes in whole units. Half of a unit at the end of a row
    is missing in the mean.
    """
    return max(min(whole, 2.0 * (whole - asked)), 0.0)


def _covered(access: Access, stays: float) -> float:
    """Return the share of a place that an access writes while the place stays in a cache."""
    return min(stays * access.bytes.most / max(access.sectors.most * SECTOR, 1.0), 1.0)
