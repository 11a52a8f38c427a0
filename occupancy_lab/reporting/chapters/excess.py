"""Launches with the tutorial's num_programs where that is not what fits, and what that costs.

What it costs is a share of the time with as many programs as fit, measured and predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from occupancy_lab.plotting.style import FAINT, MUTED, TUTORIAL, describe, styled
from occupancy_lab.reporting.chapters.miscount import (
    TITLE,
    TOP,
    WAITING,
    Miscount,
    Miscounts,
    count_sentence,
    longer_words,
    lost_cell,
    predicted_lost,
    predicted_words,
    reasons,
)
from occupancy_lab.reporting.launches import (
    config_words,
    known_summary,
    problem_words,
    share,
    summary_of,
)
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import NAME
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import cell, change, difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    from occupancy_lab.reporting.launches import Summary
    from occupancy_lab.reporting.source import Source


@dataclass(frozen=True, slots=True)
class Excess(Miscount):
    """One of them, launched with the tutorial's num_programs and with what fits."""

    tutorial_us: float
    us: float

    @property
    def lost(self) -> float:
        """How much longer the tutorial's takes, as a share of what fits."""
        return self.tutorial_us / self.us - 1.0

    @property
    def off(self) -> float | None:
        """How far the predicted time with the tutorial's number is off, as a share of its own."""
        predicted = self.tutorial_prediction
        return None if predicted is None else abs(difference(predicted.us, self.tutorial_us))

    @property
    def rows_per_program(self) -> float:
        """Rows per program where as many are launched as fit."""
        return self.problem.rows / self.programs


@dataclass(frozen=True, slots=True)
class Excesses(Miscounts[Excess]):
    """All that were launched both ways, those that lose the most first."""

    @property
    def lost(self) -> Summary:
        """How much longer the tutorial's take, over all of them."""
        return summary_of(launch.lost for launch in self.launches)

    @property
    def off(self) -> Summary | None:
        """How far the predicted times with the tutorial's number are off; None for none."""
        return known_summary(launch.off for launch in self.launches)


def make_excesses(source: Source) -> Excesses | None:
    """Return the launches of *source* that differ in num_programs alone; None where there are none.

    Only launches count whose number of programs the kernel leaves open.
    """
    measured, planned = source.measured, source.planned
    tutorial = measured[
        (measured["launched"] == measured["tutorial_num_programs"])
        & (measured["launched"] != measured["num_programs"])
    ]
    pairs = tutorial.merge(planned[[*NAME, "us"]], on=NAME, suffixes=("", "_planned"))
    if pairs.empty:
        return None
    launches = [
        Excess.of(row, source.gpu, tutorial_us=float(row["us"]), us=float(row["us_planned"]))
        for row in pairs.to_dict("records")
    ]
    looping = planned[planned["kernel"].isin(set(pairs["kernel"]))]
    return Excesses.of(sorted(launches, key=lambda launch: -launch.lost), looping)


def the_excesses(excesses: Excesses | None) -> Chapter:
    """Say how often the tutorial's num_programs is wrong, why, and what that costs."""
    if excesses is None:
        words = "Left out: nothing was launched with the tutorial's num_programs where it is wrong."
        return Chapter(TITLE, (words,))
    lost = excesses.lost
    picture = Picture(
        "excesses",
        f"Time lost over the rows per program, {lost.count} launches: {_median_and_most(lost)}"
        + _beside(excesses.predicted_lost),
        partial(draw_excesses, excesses),
    )
    return Chapter(
        TITLE,
        (
            " ".join(_excess_sentences(excesses)),
            picture,
            _excess_terms(excesses),
            *_worst_excesses(excesses),
        ),
    )


def _median_and_most(lost: Summary) -> str:
    return f"{share(lost.median)} at the median, {share(lost.most)} at most"


def _beside(lost: Summary | None) -> str:
    return "" if lost is None else f"; as predicted, {_median_and_most(lost)}"


def _excess_sentences(excesses: Excesses) -> Iterator[str]:
    lost = excesses.lost
    slower = sum(launch.lost > 0 for launch in excesses.launches)
    yield count_sentence(excesses)
    yield (
        f"Each of those was launched both ways. {longer_words('takes', lost)}; it is slower for"
        f" {slower} of them."
    )
    predicted, off = excesses.predicted_lost, excesses.off
    if predicted is not None and off is not None:
        yield (
            f"{predicted_words(predicted)}, and its predicted time is off by {share(off.median)} at"
            f" the median and by less than {share(off.p90)} for nine launches in ten."
        )
    if excesses.too_many:
        yield WAITING


def _excess_terms(excesses: Excesses) -> Table:
    def row(term: str, launches: tuple[Excess, ...]) -> tuple[str, ...]:
        lost = summary_of(launch.lost for launch in launches)
        forecast = predicted_lost(launches)
        predicted = "-" if forecast is None else share(forecast.median)
        return term, str(lost.count), share(lost.median), predicted, share(lost.most)

    rows = tuple(row(term, launches) for term, launches in excesses.by_term().items())
    headers = ("the formula misses", "launches", "median", "median, predicted", "worst")
    return Table(headers, rows, "The time lost:")


def _worst_excesses(excesses: Excesses) -> Iterator[Table | str]:
    times = ("us", "us, as fit", "lost", "lost, predicted")
    headers = ("", "configuration", "programs", "fit", *times, "misses")
    rows = tuple(
        (
            problem_words(launch.problem),
            config_words(launch.kernel, launch.config),
            str(launch.tutorial_programs),
            str(launch.programs),
            cell(launch.tutorial_us),
            cell(launch.us),
            change(launch.lost),
            lost_cell(launch.predicted_lost),
            launch.missing,
        )
        for launch in excesses.launches[:TOP]
    )
    yield Table(headers, rows, f"The {len(rows)} that lose the most:")
    yield reasons(excesses)


PANEL, HEIGHT = 5.2, 3.8
"""Inches."""
DOT: Mapping[str, Any] = {"color": TUTORIAL, "markersize": 4, "markeredgewidth": 0, "alpha": 0.5}


def draw_excesses(excesses: Excesses) -> Figure:
    """Return a figure of the time lost by each launch, over the rows per program.

    A second panel has what is predicted to be lost over that, where anything is.
    """
    launches = excesses.launches
    measured = [(launch.rows_per_program, launch.lost) for launch in launches]
    predicted = [
        (launch.lost, launch.predicted_lost)
        for launch in launches
        if launch.predicted_lost is not None
    ]
    panels = 2 if predicted else 1
    with styled():
        figure = Figure(figsize=(PANEL * max(panels, 1.4), HEIGHT), layout="constrained")
        axes, *beside = figure.subplots(1, panels, squeeze=False)[0]
        _draw(axes, measured, "time lost, measured")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rows, _: f"{rows:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("rows per program, with as many programs as fit")
        for other in beside:
            _draw(other, predicted, "time lost, predicted")
            other.axline((0, 0), slope=1, color=MUTED, linewidth=0.8)
            other.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            other.set_xlabel("time lost, measured")
        title = "Time lost with the tutorial's num_programs where that is wrong"
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=11)
    describe(figure, f"{title}, {len(launches)} launches")
    return figure


def _draw(axes: Axes, points: Sequence[tuple[float, float]], label: str) -> None:
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.plot(*zip(*points, strict=True), "o", **DOT)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel(label)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
