"""The occupancy of every configuration in a picture, and what it does not say."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.plotting import draw_heatmap
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.words import config_words, problem_words
from occupancy_lab.text.words import count, microseconds, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.reporting.occupancies import Occupancies
    from occupancy_lab.reporting.variants import Variant

TITLE = "The occupancy grid"


def the_occupancies(grid: Occupancies | None) -> Chapter:
    """Show the occupancies with their limiters, and set them beside the times."""
    if grid is None:
        words = "Left out: no problem was measured with the tutorial's configuration and 1 stage."
        return Chapter(TITLE, (words,))
    lowest = min(grid.variants, key=lambda one: one.held.occupancy)
    picture = Picture(
        "occupancies",
        f"Occupancy over num_warps and num_stages, each with its limiters: from"
        f" {percent(lowest.held.occupancy)} ({config_words(lowest.kernel, lowest.config)}) to"
        f" {percent(grid.highest)}",
        partial(draw_heatmap, grid.table),
    )
    return Chapter(TITLE, (" ".join(_sentences(grid)), picture))


def _sentences(grid: Occupancies) -> Iterator[str]:
    full, less = grid.of(full=True), grid.of(full=False)
    yield (
        f"Of {count(len(grid.variants), 'configuration')} of {grid.variants[0].kernel} on"
        f" {problem_words(grid.problem)}, {len(full)} have the highest occupancy,"
        f" {percent(grid.highest)}, and {grid.times.take} {_times(full)}."
    )
    if not less:
        return
    yield f"The other {len(less)} {grid.times.take} {_times(less)}."
    if max(one.us for one in full) > min(one.us for one in less):
        yield "So occupancy alone does not say which is the fastest."


def _times(variants: Sequence[Variant]) -> str:
    times = [one.us for one in variants]
    least, most = microseconds(min(times)), microseconds(max(times))
    return least if least == most else f"{least} to {most}"
