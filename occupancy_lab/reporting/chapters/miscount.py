"""Configurations for which the tutorial's num_programs is not what fits, and what that costs.

The cost is relative to the time with as many programs as fit: measured if launches were made both
ways, else predicted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter

from occupancy_lab.explaining.limits import term_reasons
from occupancy_lab.gpus import Gpu
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.plotting.style import MUTED, TUTORIAL, describe, head, lined, styled
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import (
    MEASURED,
    NAME,
    Name,
    Source,
    Summary,
    TimeWords,
    config_words,
    known_summary,
    row_name,
    row_record,
    tutorial_name,
)
from occupancy_lab.sweeping.recorded import row_problem
from occupancy_lab.text.document import Bullets, Table
from occupancy_lab.text.words import count, formatted
from occupancy_lab.values import Problem

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Miscount:
    """One configuration for which the tutorial's formula gives the wrong num_programs."""

    problem: Problem
    name: Name
    missing: tuple[str, ...]
    """The terms that the tutorial's formula misses for it."""
    tutorial_programs: int
    programs: int
    lost: float | None
    """How much longer the tutorial's number takes, relative to what fits; None if not known."""
    predicted_lost: float | None
    """The predicted value of `lost`."""


@dataclass(frozen=True, slots=True)
class Miscounts:
    """All such configurations, the worst first."""

    gpu: Gpu
    times: TimeWords
    """The words for the times behind `lost`."""
    launches: tuple[Miscount, ...]
    right: int
    """Configurations for which the tutorial's formula gives the number that fits."""
    failing: int
    """Configurations for which it divides by zero."""

    @property
    def lost(self) -> Summary | None:
        """The distribution of `lost` over all launches; None if none is known."""
        return known_summary(launch.lost for launch in self.launches)

    def by_terms(self) -> dict[tuple[str, ...], list[Miscount]]:
        """Return the configurations by the terms that the formula misses, the most common first."""
        found: dict[tuple[str, ...], list[Miscount]] = {}
        for launch in self.launches:
            found.setdefault(launch.missing, []).append(launch)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def make_miscounts(source: Source) -> Miscounts | None:
    """Return the configurations of *source* whose num_programs the tutorial's formula miscounts.

    Of measured rows only those that were launched both ways count. None if there are none.
    """
    grids = {name: load_kernel(name).grid for name in source.planned["kernel"].unique()}
    looping = source.planned[source.planned["kernel"].map(grids) == Grid.PERSISTENT]
    tutorial = looping["tutorial_num_programs"]
    wrong = looping[tutorial.notna() & (tutorial != looping["num_programs"])]
    if not source.is_predicted:
        wrong = _launched_both_ways(source)
        looping = looping[looping["kernel"].isin(set(wrong["kernel"]))]
    if wrong.empty:
        return None
    launches = [_miscount(row, source) for row in wrong.to_dict("records")]
    launches.sort(key=lambda one: (one.lost is None, -(one.lost or 0.0)))
    tutorial = looping["tutorial_num_programs"]
    right = int((tutorial == looping["num_programs"]).sum())
    return Miscounts(source.gpu, source.times, tuple(launches), right, int(tutorial.isna().sum()))


def _launched_both_ways(source: Source) -> pd.DataFrame:
    """Return the launches with the formula's num_programs; `us_planned` is the time that fits."""
    measured = source.measured
    tutorial = measured[
        (measured["launched"] == measured["tutorial_num_programs"])
        & (measured["launched"] != measured["num_programs"])
    ]
    if "predicted_us" not in tutorial:
        tutorial = tutorial.assign(predicted_us=None)
    predicted = source.predictions["predicted_us"]
    planned = source.planned[[*NAME, "us"]].assign(predicted_us=predicted)
    return tutorial.merge(planned, on=NAME, suffixes=("", "_planned"))


def _miscount(row: Mapping[Any, Any], source: Source) -> Miscount:
    record = row_record(row, source.gpu)
    names = ("predicted_us", "predicted_us_planned")
    if source.is_predicted:
        names = ("tutorial_us", "us")
    tutorial, fit = (math.nan if row[name] is None else float(row[name]) for name in names)
    predicted_lost = None if math.isnan(tutorial / fit) else tutorial / fit - 1.0
    measured = None if source.is_predicted else float(row["us"]) / float(row["us_planned"]) - 1.0
    return Miscount(
        problem=row_problem(row),
        name=row_name(row),
        missing=record.calculation.tutorial.missing_terms,
        tutorial_programs=int(row["tutorial_num_programs"]),
        programs=int(row["num_programs"]),
        lost=predicted_lost if source.is_predicted else measured,
        predicted_lost=predicted_lost,
    )


TITLE = "Where the tutorial's num_programs is wrong"


def the_miscounts(counts: Miscounts | None) -> Chapter:
    """Return the chapter on how often the tutorial's num_programs is wrong, why, and the cost."""
    if counts is None:
        words = "Left out: no launch is known for which the tutorial's num_programs is wrong."
        return Chapter(TITLE, (words,))
    lost = counts.lost
    pictures = []
    if lost is not None:
        words = (
            f"Time lost over the rows per program, {counts.times.word}, {lost.count} launches:"
            f" {lost.median:.1%} at the median, {lost.most:.1%} at most"
        )
        pictures.append(Picture("excesses", words, partial(draw_miscounts, counts)))
    terms = dict.fromkeys(term for terms in counts.by_terms() for term in terms)
    mp = counts.gpu.architecture
    reasons = Bullets(tuple(f"*{term}*: {term_reasons([term], mp)}." for term in terms))
    return Chapter(TITLE, (" ".join(_sentences(counts)), *pictures, _table(counts), reasons))


def _sentences(counts: Miscounts) -> Iterator[str]:
    wrong = len(counts.launches)
    too_many = sum(one.tutorial_programs > one.programs for one in counts.launches)
    yield (
        f"Of {counts.right + counts.failing + wrong} configurations of the persistent kernel, the"
        f" tutorial's formula gives the num_programs that fit for {counts.right}, divides by zero"
        f" for {counts.failing}, where `metadata.shared` is 0, as with 1 warp and 1 stage, and is"
        f" wrong for {wrong}: {too_many} times it launches more than fit, {wrong - too_many} times"
        " fewer."
    )
    own = [one for one in counts.launches if one.name == tutorial_name(one.problem, counts.gpu)]
    if own:
        shapes = count(len({one.problem for one in own}), "shape")
        yield (
            "With the tutorial's own num_warps and num_stages it is wrong on"
            f" {shapes}, such as {own[0].problem.words}:"
            f" {own[0].tutorial_programs} programs where {own[0].programs} fit."
        )
    if counts.lost is not None:
        take = "takes" if counts.times is MEASURED else "is predicted to take"
        yield (
            f"The formula's number {take} {counts.lost.median:.1%} longer at the median and"
            f" {counts.lost.most:.1%} at worst: programs that do not fit wait until others have"
            " finished all their rows, so they cost more the more rows each program does."
        )
    predicted = known_summary(one.predicted_lost for one in counts.launches)
    if predicted is not None and counts.times is MEASURED:
        yield f"The predicted values are {predicted.median:.1%} and {predicted.most:.1%}."


def _table(counts: Miscounts) -> Table:
    """Return the launches by the terms that the formula misses, with the worst one of each."""

    def row(terms: tuple[str, ...], launches: Sequence[Miscount]) -> tuple[str, ...]:
        worst, lost = launches[0], known_summary(one.lost for one in launches)
        return (
            " and ".join(terms),
            str(len(launches)),
            "-" if lost is None else f"{lost.median:.1%}",
            formatted(worst.lost, ".1%"),
            f"{worst.problem.words}, {config_words(*worst.name)}",
            f"{worst.tutorial_programs} for {worst.programs}",
        )

    headers = ("the formula misses", "launches", "median", "worst", "at", "programs")
    rows = tuple(row(terms, launches) for terms, launches in counts.by_terms().items())
    return Table(headers, rows, f"The time lost, {counts.times.word}:")


WIDTH, HEIGHT = 7.2, 3.8
"""Inches."""
DOT: Mapping[str, Any] = {"color": TUTORIAL, "markersize": 4, "markeredgewidth": 0, "alpha": 0.5}


def draw_miscounts(counts: Miscounts) -> Figure:
    """Return a figure of the time lost by each launch, over the rows per program."""
    known = [one for one in counts.launches if one.lost is not None]
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color=MUTED, linewidth=0.8)
        rows = [one.problem.rows / one.programs for one in known]
        axes.plot(rows, [one.lost or 0.0 for one in known], "o", **DOT)
        axes.set_ylabel(f"time lost, {counts.times.word}")
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        lined(axes)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("rows per program, with as many programs as fit")
        title = "Time lost with the tutorial's num_programs where that is wrong"
        head(figure, title)
    describe(figure, f"{title}, {len(known)} launches")
    return figure
