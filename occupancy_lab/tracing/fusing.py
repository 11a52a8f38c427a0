"""Launches that read what the launch before them wrote, and what one fused kernel would save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from occupancy_lab.compiling.notes import Feed, Use
from occupancy_lab.prediction import BESIDE_UNITS, part_words
from occupancy_lab.text.document import literal
from occupancy_lab.text.words import byte_words, duration, listed, microseconds
from occupancy_lab.tracing.traced import GridLaunches, Handover, TracedKernel
from occupancy_lab.work.counts import Footprint

Side = tuple[TracedKernel, GridLaunches]

MOST_SHOWN = 3
"""Pairs of kernels that a page shows."""
WORTH_FUSING = 0.01
"""The share of all kernels' time that fusing must save to be shown."""


def noted_feeds(firsts: Sequence[Mapping[str, Any]]) -> Iterator[Feed]:
    """Return the launches of *firsts* that share memory with the launch right before them.

    *firsts* are a process's notes of its first launch of each kernel over each grid, in order. A
    Feed has their indices.
    """
    places = {(one["kernel"], *one["grid"]): place for place, one in enumerate(firsts)}
    having: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for place, one in enumerate(firsts):
        for mine, number in one["memory"].items():
            having[number].append((place, mine))
    for place, one in enumerate(firsts):
        kernel, grid = one.get("after") or (-1, ())
        writer = places.get((kernel, *grid))
        if writer is None:
            continue
        found = sorted(
            (*use, its)
            for its, number in firsts[writer]["memory"].items()
            for use in having[number]
            if use[0] >= place
        )
        tensors = tuple((its, mine) for use, mine, its in found if use == place)
        handed = {its for its, _ in tensors}
        uses = (Use(use, its, mine) for use, mine, its in found if use > place and its in handed)
        if tensors:
            yield Feed(writer, place, tensors, tuple(uses))


def handover(feed: Feed, sides: Sequence[Side]) -> Handover | None:
    """Return what a launch hands over to the next one, and what fusing them would save.

    *sides* are the launches by index.

    Return None if the next launch reads nothing that the first one wrote, if that is not known, and
    if fusing saves nothing.
    """
    (first, before), (second, after) = sides[feed.before], sides[feed.after]
    calculation = second.calculation
    bandwidth = None if calculation is None else calculation.gpu.bandwidth_gbs
    if bandwidth is None:
        return None
    written = {one.tensor: one.written.low for one in _footprints(before)}
    read = {one.tensor: one.read.low for one in _footprints(after)}
    common = {
        (mine, its): min(written.get(mine, 0), read.get(its, 0))
        for mine, its in sorted(feed.tensors)
    }
    others = {
        mine: [*_later_readers(feed, sides, mine)] for (mine, _), each in common.items() if each
    }
    writing = sum(each for (mine, _), each in common.items() if each and not others[mine])
    reading = sum(common.values())
    bound = _other_bound(after)
    counted = writing if bound else writing + reading
    if not counted:
        return None
    times = [us for one in (before, after) if (us := _time(one)) is not None]
    return Handover(
        first.kernel,
        second.kernel,
        tuple(pair for pair, each in common.items() if each),
        min(before.launches, after.launches),
        writing + reading,
        min([counted / bandwidth / 1e3, *times]),
        bound,
        tuple(dict.fromkeys(name for names in others.values() for name in names)),
    )


def _footprints(grid: GridLaunches) -> tuple[Footprint, ...]:
    counts = None if grid.record is None else grid.record.counts
    return () if counts is None else counts.footprints


def _later_readers(feed: Feed, sides: Sequence[Side], tensor: str) -> Iterator[str]:
    for use in feed.uses:
        if use.of != tensor:
            continue
        kernel, grid = sides[use.launch]
        same = (one for one in _footprints(grid) if one.tensor == use.name)
        amounts = next(((one.read, one.written) for one in same), None)
        if amounts is None or amounts[0].high != 0:
            yield kernel.kernel
        elif amounts[1].low:
            return


def _other_bound(grid: GridLaunches) -> str:
    """Return the unit that bounds a launch while it reads, or "" if memory may bound it."""
    found = None if grid.record is None else grid.record.prediction
    if found is None or found.bound in {"bandwidth", *BESIDE_UNITS}:
        return ""
    return found.bound


def _time(grid: GridLaunches) -> float | None:
    """Return the measured time of a launch, or else the predicted one."""
    found = None if grid.record is None else grid.record.prediction
    return found.us if grid.us is None and found is not None else grid.us


def each_handover(noted: Iterable[tuple[Iterable[Feed], Sequence[Side]]]) -> tuple[Handover, ...]:
    """Return the handovers of all processes' feeds, those with most time first."""
    given = (handover(feed, sides) for feeds, sides in noted for feed in feeds)
    found = {one for one in given if one is not None}
    return tuple(sorted(found, key=lambda one: (-one.total_us, one.writer, one.reader)))


def fusing_sentences(found: Sequence[Handover], total_us: float) -> Iterator[str]:
    """Say which launches could be fused, and what that saves of *total_us*."""
    worth = [one for one in found if one.total_us >= WORTH_FUSING * total_us]
    for one in worth[:MOST_SHOWN]:
        written, read = ([*map(literal, names)] for names in zip(*one.tensors, strict=True))
        renamed = f" as {listed(written)}" if written != read else ""
        reader, meanwhile = literal(one.reader), ""
        if one.bound:
            unit = part_words(one.bound)
            meanwhile = f", for writing alone, as {reader} is bound by {unit} and reads meanwhile"
        yield (
            f"{reader} reads {listed(read)}, which {literal(one.writer)} has written"
            f" right before{renamed}: one kernel for both moves {byte_words(one.moved_bytes)} less,"
            f" which saves up to {microseconds(one.us)}, {duration(one.total_us)} in all"
            f"{meanwhile}{_unless(one)}."
        )
    if worth:
        yield (
            "What fusing saves counts all bytes that are written. The time of a launch leaves out"
            " those that the L2 cache still has at its end and writes during the next ones."
        )


def _unless(one: Handover) -> str:
    if not one.others:
        return ", if nothing else reads that"
    again = {one.reader, one.writer}
    words = [f"another launch of {literal(name)}" for name in one.others if name in again]
    words += [literal(name) for name in one.others if name not in again]
    return f"; the part that {listed(words)} also reads is still written"
