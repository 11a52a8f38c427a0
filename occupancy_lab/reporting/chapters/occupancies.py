"""The occupancy of every configuration of the tutorial's kernel on one problem."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.occupancy import occupancy
from occupancy_lab.plotting import draw_heatmap
from occupancy_lab.reporting.launches import config_words, problem_words, rows_of, variants_of
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.text.words import count, microseconds, percent
from occupancy_lab.throughput.predict import row_resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.reporting.launches import Variant
    from occupancy_lab.reporting.source import Source, TimeWords
    from occupancy_lab.values import Problem


@dataclass(frozen=True, slots=True)
class Occupancies:
    """The grid of one problem: what has a time, and the rows that a heat map takes."""

    problem: Problem
    times: TimeWords
    """What the times of the variants are."""
    variants: tuple[Variant, ...]
    table: pd.DataFrame = field(compare=False, repr=False)
    """One row a configuration, those that failed too, with `limiter`."""

    def of(self, *, full: bool) -> tuple[Variant, ...]:
        """Return the configurations with the highest occupancy there is, or those with less."""
        return tuple(
            one for one in self.variants if (one.occupancy.occupancy == self.highest) == full
        )

    @property
    def highest(self) -> float:
        """The highest occupancy there is."""
        return max(variant.occupancy.occupancy for variant in self.variants)


def make_occupancies(source: Source, problem: Problem) -> Occupancies:
    """Return the grid of *problem*, of which something must have a time."""
    import pandas as pd

    table = source.table[source.table["kernel"] == TUTORIAL_KERNEL]
    launched = table["launched"].isna() | (table["launched"] == table["num_programs"])
    table = rows_of(table[launched], problem).reset_index(drop=True)
    limiters = [_limiter(row, source.gpu) for row in table.to_dict("records")]
    variants = variants_of(source, problem)
    return Occupancies(
        problem,
        source.times,
        tuple(variant for variant in variants if variant.kernel == TUTORIAL_KERNEL),
        table.assign(limiter=pd.Series(limiters, dtype=object)),
    )


def _limiter(row: Mapping[Any, Any], gpu: Gpu) -> str | None:
    """Return the limiters of a row as a sweep has them, None where it has no occupancy."""
    if row["status"] != "ok":
        return None
    return "+".join(occupancy(row_resources(row), gpu.architecture).limiters)


TITLE = "The occupancy grid"


def the_occupancies(grid: Occupancies | None) -> Chapter:
    """Show the occupancies with their limiters, and set them beside the times."""
    if grid is None:
        words = "Left out: no problem was measured with the tutorial's configuration and 1 stage."
        return Chapter(TITLE, (words,))
    lowest = min(grid.variants, key=lambda one: one.occupancy.occupancy)
    picture = Picture(
        "occupancies",
        f"Occupancy over num_warps and num_stages, each with its limiters: from"
        f" {percent(lowest.occupancy.occupancy)} ({config_words(lowest.kernel, lowest.config)}) to"
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
