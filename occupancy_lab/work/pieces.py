"""Pieces: the contiguous bytes that programs touch at the same time, and what short ones cost.

Device memory of HBM delivers at least 64 bytes at a time, and takes as long for a short piece as
for a cache line. The launches that show this are in reports/data/pieces-h200.csv.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from occupancy_lab.work.counts import GRANULE, LINE, NOTHING, SECTOR, Access, Amount, Footprint

HALVINGS = 30
"""Steps of the bisection that finds how long places stay in a cache."""
READ_PIECE, WRITTEN_PIECE = 106.0, 150.0
"""Device memory takes as long for a shorter piece as for one of this many bytes. On an H200, random
pieces of 32 and 64 bytes are read in the time of 109 and 114, and written in the time of 142 and
149; pieces of 256 bytes take 6% longer than if they are in order."""
REST_COST = READ_PIECE / SECTOR
"""The time to read a byte of the rest of a sector, relative to a byte of a long piece."""


def read_cost(accesses: Iterable[Access]) -> float:
    """Return the time to read what *accesses* load, relative to as many bytes in long pieces."""
    each = [
        (one.sectors.most, max(READ_PIECE / max(one.piece_bytes, GRANULE), 1.0))
        for one in accesses
        if one.reads and one.piece_bytes
    ]
    return mean(each)


def written_cost(
    accesses: Iterable[Access], tensor: Footprint, stays: float = 0.0, twice: int = 0
) -> float:
    """Return the time to write to *tensor*, relative to as many bytes in long pieces.

    The L2 cache merges what is known to be in one line before it writes the line, but for what is
    written *twice*. At unknown addresses it merges what comes while a line *stays*, as in
    `turnover`.
    """
    unmerged = early(tensor, twice) / max(tensor.written_whole.low + twice, 1)
    whole, lines = tensor.written_whole.low, tensor.written_lines or 0
    in_part = _partial_lines(tensor)
    each = []
    for one in accesses:
        if not one.writes or not one.piece_bytes or not one.sectors.most:
            continue
        piece = one.piece_bytes
        if piece <= LINE:
            piece = one.sectors.most * SECTOR / max(one.lines.most, 1.0)
        if not one.is_known:
            cost = WRITTEN_PIECE / max(piece, _covered(one, stays) * LINE)
        else:
            cost = max(WRITTEN_PIECE / max(one.piece_bytes, LINE), 1.0)
            if lines and whole:
                cost = ((lines - in_part) * cost + in_part * WRITTEN_PIECE / LINE) / whole
            cost += unmerged * (max(WRITTEN_PIECE / piece, 1.0) - cost)
        each.append((one.sectors.most, max(cost, 1.0)))
    return mean(each)


def _partial_lines(tensor: Footprint) -> float:
    """Return the bytes of the cache lines that are only written in part, at known addresses."""
    return partial_bytes(tensor.written_lines or 0, tensor.written_whole.low)


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


def completed(
    accesses: Iterable[Access], tensor: Footprint, stays: float = 0.0
) -> tuple[Amount, float]:
    """Return the bytes of sectors that are written in part, and the bytes read in the same time.

    Device memory delivers the rest of such a sector, unless the launch reads it anyway. At known
    addresses, which are in order, the rest is read in half the time of a piece. At unknown ones
    other stores may complete it while it *stays* in the L2 cache, as in `turnover`.
    """
    if tensor.read_whole.most:
        return NOTHING, 0.0
    known = partial_bytes(tensor.written_whole.low, tensor.written.low)
    slow = max(known, min(_partial_lines(tensor) / LINE, known / SECTOR) * READ_PIECE / 2)
    unknown = sum(
        (1.0 - _covered(one, stays)) * partial_bytes(one.sectors.most * SECTOR, one.bytes.most)
        for one in accesses
        if not one.is_known
    )
    return Amount(round(known), round(known + unknown)), slow + unknown * REST_COST


def torn_bytes(accesses: Sequence[Access], tensor: Footprint, twice: int) -> int:
    """Return the bytes of sectors that are written back before other stores complete them.

    *twice* are the bytes written back more than once. Device memory delivers the rest of each.
    """
    asked = sum(one.sectors.most * SECTOR for one in accesses)
    in_part = partial_bytes(asked, sum(one.bytes.most for one in accesses)) / max(asked, 1.0)
    return 0 if tensor.read_whole.most else round(in_part * early(tensor, twice))


def early(tensor: Footprint, twice: int) -> int:
    """Return the bytes that a cache writes back before a later store to the same sectors.

    *twice* are the bytes written back more than once.
    """
    return twice + min(twice, tensor.written_whole.low)


def partial_bytes(whole: float, asked: float) -> float:
    """Return the bytes of the sectors, or of other units, that are touched in part.

    *asked* bytes are requested, of *whole* bytes in whole units. Half of a unit at the end of a row
    is missing in the mean.
    """
    return max(min(whole, 2.0 * (whole - asked)), 0.0)


def _covered(access: Access, stays: float) -> float:
    """Return the share of a place that an access writes while the place stays in a cache."""
    return min(stays * access.bytes.most / max(access.sectors.most * SECTOR, 1.0), 1.0)
