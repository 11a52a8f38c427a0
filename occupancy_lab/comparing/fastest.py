"""Which of the launches that are compared is the fastest, by how much, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.grids import whole_work
from occupancy_lab.explaining.neighbours import have_times
from occupancy_lab.explaining.tried import why_faster
from occupancy_lab.text.words import change, listed, microseconds, prediction_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.comparing.entries import Entry


LEAST = 2
"""Launches of which one is the fastest."""


def fastest_sentences(entries: Sequence[Entry]) -> Iterator[str]:
    """Say which of *entries* is the fastest, on each GPU where one has several.

    Nothing is said where they do different work, or no predicted times set them apart.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.record.gpu.key, []).append(entry)
    alone = all(len(group) == 1 for group in groups.values())
    for group in [list(entries)] if alone else groups.values():
        if sentence := _fastest(group, len(entries)):
            yield sentence


def _fastest(entries: Sequence[Entry], number: int) -> str:
    """Return the sentence on *entries*, of *number* that are compared; "" where there is none."""
    records = [entry.record for entry in entries]
    of_one_gpu = len({record.gpu.key for record in records}) == 1
    if of_one_gpu and not have_times(records):
        return ""
    if len({(entry.record.traffic, entry.names["matrix"]) for entry in entries}) > 1:
        return ""
    whole = whole_work(records) if of_one_gpu else records
    timed = [
        (entry, entry.record.prediction)
        for entry in entries
        if entry.record in whole and entry.record.prediction is not None
    ]
    if len(timed) < LEAST:
        return ""
    (first, own), *others = sorted(timed, key=lambda pair: pair[1].us)
    slower = [
        pair
        for pair in others
        if pair[1].us / own.us - 1 >= max(own.noticeable, pair[1].noticeable)
    ]
    close = [pair for pair in others if pair not in slower]
    near = ", ".join(f"**{entry.name}** ({microseconds(one.us)})" for entry, one in close)
    near += " is alike" if len(close) == 1 else " are alike"
    if slower:
        following, other = slower[0]
        return (
            f"**{first.name}** is predicted to be the fastest: {prediction_words(own)} against"
            f" {microseconds(other.us)} of **{following.name}** ({change(own.us / other.us - 1)})"
            f"{why_faster(other, own)}{f'; {near}' if close else ''}."
        )
    if len({prediction_words(one) for _, one in timed}) == 1:
        names = listed([f"**{entry.name}**" for entry, _ in timed])
        who = "All" if len(timed) == number else names
        return f"{who} are predicted to take {prediction_words(own)}."
    return (
        f"**{first.name}** is predicted to take {prediction_words(own)}, and {near}: no"
        " prediction tells which is the fastest."
    )
