"""Launches that read what the launch before them wrote: what one kernel for both would not move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.text.document import literal
from occupancy_lab.text.words import byte_words, duration, listed, microseconds
from occupancy_lab.tracing.traced import Handover

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from occupancy_lab.tracing.traced import GridLaunches, TracedKernel

    Side = tuple[TracedKernel, GridLaunches]

MOST_SHOWN = 3
"""Pairs of kernels that are told."""
WORTH_FUSING = 0.01
"""The share of the time of all kernels that fusing must save to be told."""


def handover(writer: Side, reader: Side, tensors: Iterable[tuple[str, str]]) -> Handover | None:
    """Return what the launches of *writer* hand over to those of *reader*, each over a grid.

    *tensors* are what lies in the same memory, as the one and the other call it. None where nothing
    of it is written by the one and read by the other, and where that is not known.
    """
    (first, before), (second, after) = writer, reader
    calculation = second.calculation
    bandwidth = None if calculation is None else calculation.gpu.bandwidth_gbs
    if before.work is None or after.work is None or bandwidth is None:
        return None
    written = {one.tensor: one.written.low for one in before.work.counts.footprints}
    read = {one.tensor: one.read.low for one in after.work.counts.footprints}
    common = {
        (mine, its): min(written.get(mine, 0), read.get(its, 0)) for mine, its in sorted(tensors)
    }
    moved = 2 * sum(common.values())
    if not moved:
        return None
    return Handover(
        first.kernel,
        second.kernel,
        tuple(pair for pair, each in common.items() if each),
        min(before.launches, after.launches),
        moved,
        moved / bandwidth / 1e3,
    )


def each_handover(
    pairs: Iterable[tuple[Side, Side, Iterable[tuple[str, str]]]],
) -> tuple[Handover, ...]:
    """Return what `handover` gives for *pairs*, each once, that with most time first."""
    found = {one for pair in pairs if (one := handover(*pair)) is not None}
    return tuple(sorted(found, key=lambda one: (-one.total_us, one.writer, one.reader)))


def fusing_sentences(found: Sequence[Handover], total_us: float) -> Iterator[str]:
    """Say which neighbours one kernel could be, and what that saves of *total_us*."""
    worth = [one for one in found if one.total_us >= WORTH_FUSING * total_us]
    for one in worth[:MOST_SHOWN]:
        written, read = ([*map(literal, names)] for names in zip(*one.tensors, strict=True))
        renamed = f" as {listed(written)}" if written != read else ""
        yield (
            f"{literal(one.reader)} reads {listed(read)}, which {literal(one.writer)} has written"
            f" right before{renamed}: one kernel for both moves {byte_words(one.moved_bytes)} less,"
            f" up to {microseconds(one.us)} at the data sheet's rate and {duration(one.total_us)}"
            " in all, if nothing else reads that."
        )
