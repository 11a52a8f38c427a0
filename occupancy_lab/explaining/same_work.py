"""Whether two launches of a kernel do the same work, by what is counted of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from occupancy_lab.record import Record
    from occupancy_lab.work.counts import Amount, Counts, Footprint

SAMPLED = 0.02
"""How far amounts may be apart that were counted of some of the programs for all."""
MOST_MOVED = 1.25
"""The bytes that a larger grid may ask for over those of the launch: more is other work, or the
same read again and again."""


def same_work(record: Record, other: Record) -> bool:
    """Tell whether two launches read and write the same bytes of each tensor, as they count.

    As many, between the same two: more programs of a smaller block may go beyond a tensor's end.
    """
    one, two = record.counts, other.counts
    if one is None or two is None:
        return False
    mine, its = ({each.tensor: each for each in found.footprints} for found in (one, two))
    most = _sampled(one, two)
    return mine.keys() == its.keys() and all(
        _alike(mine[name].read, its[name].read, most)
        and _alike(mine[name].written, its[name].written, most)
        and _in_one_place(mine[name], its[name], most)
        for name in mine
    )


def same_input(record: Record, other: Record) -> bool:
    """Tell whether a launch of more programs reads the same of each tensor and computes as much.

    It may write more of a tensor, as where each program writes its part of a sum. It has to of one
    to which a program stores what it makes of all that it reads: a mean of fewer rows is another.
    """
    one, two = record.counts, other.counts
    if one is None or two is None:
        return False
    most = _sampled(one, two)
    mine, its = ({each.tensor: each for each in found.footprints} for found in (one, two))
    if mine.keys() != its.keys():
        return False
    grown = {*grown_tensors(record, other)}
    return (
        all(_alike(mine[name].read, its[name].read, most) for name in mine)
        and all(_no_less(mine[name].written, its[name].written, most) for name in mine)
        and all(_in_one_place(mine[name], its[name], most) for name in mine.keys() - grown)
        and {*one.reduced} <= grown
        and _no_less(one.flops, two.flops, most)
        and _no_more(one.read_bytes + one.written_bytes, two.read_bytes + two.written_bytes)
    )


def grown_tensors(record: Record, other: Record) -> list[str]:
    """Return the tensors of which *other* writes more than *record*."""
    if record.counts is None or other.counts is None:
        return []
    most = _sampled(record.counts, other.counts)
    written = {one.tensor: one.written for one in record.counts.footprints}
    return [
        one.tensor
        for one in other.counts.footprints
        if one.tensor is not None and not _no_less(one.written, written[one.tensor], most)
    ]


def _sampled(*counts: Counts) -> float:
    return SAMPLED if any(one.walked < one.programs for one in counts) else 0.0


def _alike(one: Amount, other: Amount, most: float) -> bool:
    if one.high is None or other.high is None:
        return False
    pairs = ((one.low, other.low), (one.high, other.high))
    return all(abs(a - b) <= most * max(a, b) for a, b in pairs)


def _in_one_place(one: Footprint, other: Footprint, most: float) -> bool:
    return most > 0 or None in {one.bounds, other.bounds} or one.bounds == other.bounds


def _no_less(one: Amount, other: Amount, most: float) -> bool:
    return other.low >= (1 - most) * one.low


def _no_more(one: Amount, other: Amount) -> bool:
    if one.high is None or other.high is None:
        return False
    return other.high <= MOST_MOVED * one.high
