"""Configurations for which the tutorial's num_programs is not what fits, and what that costs.

What it costs is a share of the time with as many programs as fit: predicted, and measured where
launches were made both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from occupancy_lab.explaining.formula import tutorial_sentences
from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.plotting.style import FAINT, MUTED, TUTORIAL, describe, styled
from occupancy_lab.reporting.launches import (
    config_words,
    known_summary,
    problem_words,
    row_record,
    share,
    summary_of,
)
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import NAME
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import cell, change, count, difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.reporting.launches import Summary
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.values import Config, Prediction, Problem


@dataclass(frozen=True, slots=True)
class Miscount:
    """One configuration for which the tutorial's formula gives another num_programs than fits."""

    kernel: str
    problem: Problem
    config: Config
    calculation: Calculation
    tutorial_programs: int
    programs: int
    tutorial_prediction: Prediction | None
    """What is predicted of a launch with the tutorial's number."""
    prediction: Prediction | None
    """What is predicted with as many programs as fit."""

    @classmethod
    def of(cls, row: Mapping[Any, Any], gpu: Gpu, **others: Any) -> Self:
        """Return what the row of a launch says, with the *others* of a subclass's fields."""
        record = row_record(row, gpu)
        return cls(
            kernel=str(row["kernel"]),
            problem=record.problem,
            config=record.config,
            calculation=record.calculation,
            tutorial_programs=int(row["tutorial_num_programs"]),
            programs=int(row["num_programs"]),
            tutorial_prediction=record.tutorial_prediction,
            prediction=record.prediction,
            **others,
        )

    @property
    def missing(self) -> str:
        """The terms that the tutorial's formula lacks for this kernel, joined by "and"."""
        return " and ".join(self.calculation.tutorial.missing_terms)

    @property
    def is_tutorials_own(self) -> bool:
        """Whether it is the configuration that the tutorial itself takes."""
        most = self.calculation.architecture.max_shared
        own = load_kernel(TUTORIAL_KERNEL).default_config(self.problem, most)
        return (self.kernel, self.config) == (TUTORIAL_KERNEL, own)

    @property
    def surplus(self) -> float:
        """Programs launched beyond those that fit, as a share of these."""
        return self.tutorial_programs / self.programs - 1.0

    @property
    def predicted_lost(self) -> float | None:
        """How much longer the tutorial's is predicted to take; None where nothing is predicted."""
        if self.tutorial_prediction is None or self.prediction is None:
            return None
        return self.tutorial_prediction.us / self.prediction.us - 1.0


AnyMiscount = TypeVar("AnyMiscount", bound=Miscount)


@dataclass(frozen=True, slots=True)
class Miscounts(Generic[AnyMiscount]):
    """All such configurations, the worst first."""

    launches: tuple[AnyMiscount, ...]
    right: int
    """Configurations for which the tutorial's formula gives the number that fits."""
    failing: int
    """Configurations for which it divides by zero."""

    @classmethod
    def of(cls, launches: Iterable[AnyMiscount], looping: pd.DataFrame) -> Self:
        """Return *launches* among *looping*, the rows of kernels whose programs are counted."""
        tutorial = looping["tutorial_num_programs"]
        right = int((tutorial == looping["num_programs"]).sum())
        return cls(tuple(launches), right, int(tutorial.isna().sum()))

    @property
    def too_many(self) -> int:
        """Those for which it launches more than fit."""
        return sum(launch.tutorial_programs > launch.programs for launch in self.launches)

    def by_term(self) -> dict[str, tuple[AnyMiscount, ...]]:
        """Return the configurations by what the formula misses, the commonest first."""
        found: dict[str, list[AnyMiscount]] = {}
        for launch in self.launches:
            found.setdefault(launch.missing, []).append(launch)
        ranked = sorted(found.items(), key=lambda item: -len(item[1]))
        return {term: tuple(launches) for term, launches in ranked}

    @property
    def predicted_lost(self) -> Summary | None:
        """How much longer the tutorial's are predicted to take; None where nothing is predicted."""
        return predicted_lost(self.launches)


def predicted_lost(launches: Iterable[Miscount]) -> Summary | None:
    """Return what is predicted to be lost over *launches*; None where nothing is predicted."""
    return known_summary(launch.predicted_lost for launch in launches)


def make_miscounts(source: Source) -> Miscounts[Miscount] | None:
    """Return the configurations of *source* whose num_programs the tutorial's formula miscounts.

    None where there are none. Those come first that are predicted to lose the most.
    """
    planned = source.planned
    looping = planned[[load_kernel(name).grid is Grid.PERSISTENT for name in planned["kernel"]]]
    tutorial = looping["tutorial_num_programs"]
    wrong = looping[tutorial.notna() & (tutorial != looping["num_programs"])]
    if wrong.empty:
        return None
    launches = [Miscount.of(row, source.gpu) for row in wrong.to_dict("records")]
    return Miscounts.of(sorted(launches, key=_worst_first), looping)


def _worst_first(launch: Miscount) -> tuple[bool, float, float]:
    lost = launch.predicted_lost
    return lost is None, -(lost or 0.0), -launch.surplus


TITLE = "Where the tutorial's num_programs is wrong"
TOP = 8
"""Launches in the table of the worst."""
WAITING = (
    "Programs that do not fit wait until others have done all their rows, so the more rows a"
    " program does, the more they cost."
)


def count_sentence(counts: Miscounts[Any]) -> str:
    """Say how often the tutorial's formula is right, and how often it is wrong."""
    wrong = len(counts.launches)
    return (
        f"Of {counts.right + counts.failing + wrong} configurations of the persistent kernel, the"
        f" tutorial's formula gives the num_programs that fit for {counts.right}, divides by zero"
        f" for {counts.failing}, where `metadata.shared` is 0, as with 1 warp and 1 stage, and is"
        f" wrong for {wrong}: {counts.too_many} times it launches more than fit,"
        f" {wrong - counts.too_many} times fewer."
    )


def longer_words(take: str, lost: Summary) -> str:
    """Say how much longer launches with the formula's number *take*, "takes" or the like."""
    return (
        f"The formula's number {take} {share(lost.median)} longer at the median and"
        f" {share(lost.most)} at worst"
    )


def predicted_words(lost: Summary) -> str:
    """Say how much longer they are predicted to take."""
    return longer_words("is predicted to take", lost)


def lost_cell(lost: float | None) -> str:
    """Return what is predicted to be lost, "-" for None."""
    return "-" if lost is None else change(lost)


def reasons(counts: Miscounts[Any]) -> str:
    """Return a list: for each term, what the formula says of the worst launch that misses it."""
    return "\n".join(
        f"- *{term}*: {_reason(worst)}" for term, (worst, *_) in counts.by_term().items()
    )


def _reason(worst: Miscount) -> str:
    sentence = " ".join(tutorial_sentences(worst.calculation))
    return f"for {problem_words(worst.problem)}, {sentence[0].lower()}{sentence[1:]}"


def the_miscounts(counts: Miscounts[Miscount] | None, origin: Gpu | None) -> Chapter:
    """Say how often the tutorial's num_programs is wrong, and why.

    What it costs was measured on *origin*; None for nowhere.
    """
    if counts is None:
        words = "Left out: the tutorial's num_programs is right, or fails, for each configuration."
        return Chapter(TITLE, (words,))
    words = " ".join((count_sentence(counts), *_own_sentences(counts), *_cost(counts, origin)))
    return Chapter(
        TITLE, (words, _miscount_terms(counts), _worst_miscounts(counts), reasons(counts))
    )


def _cost(counts: Miscounts[Miscount], origin: Gpu | None) -> Iterator[str]:
    lost = counts.predicted_lost
    if lost is not None:
        yield f"{predicted_words(lost)}."
    yield WAITING
    if origin is not None:
        yield (
            f"What that costs was measured on {origin.title}: `occupancy-lab report --gpu"
            f" {origin.key}` says how much."
        )


def _own_sentences(counts: Miscounts[Miscount]) -> Iterator[str]:
    """Say for which shapes it is wrong of the configuration that the tutorial itself takes."""
    own = {one.problem: one for one in counts.launches if one.is_tutorials_own}
    if own:
        problem, worst = next(iter(own.items()))
        lost = worst.predicted_lost
        longer = f", and {share(lost)} more time is predicted" if lost and lost > 0 else ""
        yield (
            f"With the tutorial's own num_warps and num_stages it is wrong on"
            f" {count(len(own), 'shape')}, such as {problem_words(problem)}:"
            f" {worst.tutorial_programs} programs where {worst.programs} fit{longer}."
        )


def _miscount_terms(counts: Miscounts[Miscount]) -> Table:
    def row(term: str, launches: tuple[Miscount, ...]) -> tuple[str, ...]:
        surplus, lost = max(launch.surplus for launch in launches), predicted_lost(launches)
        shares = ("-", "-") if lost is None else (share(lost.median), share(lost.most))
        return term, str(len(launches)), change(surplus), *shares

    rows = tuple(row(term, launches) for term, launches in counts.by_term().items())
    lost = ("lost, median", "lost, worst")
    return Table(
        ("the formula misses", "configurations", "more by at most", *lost),
        rows,
        "Why, how many programs more than fit it launches, and the time predicted to be lost:",
    )


def _worst_miscounts(counts: Miscounts[Miscount]) -> Table:
    rows = tuple(
        (
            problem_words(launch.problem),
            config_words(launch.kernel, launch.config),
            str(launch.tutorial_programs),
            str(launch.programs),
            change(launch.surplus),
            lost_cell(launch.predicted_lost),
            launch.missing,
        )
        for launch in counts.launches[:TOP]
    )
    headers = ("", "configuration", "programs", "fit", "more by", "lost, predicted", "misses")
    return Table(headers, rows, f"The {len(rows)} that are predicted to lose the most:")


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
    lost, predicted = excesses.lost, excesses.predicted_lost
    beside = "" if predicted is None else f"; as predicted, {_median_and_most(predicted)}"
    picture = Picture(
        "excesses",
        f"Time lost over the rows per program, {lost.count} launches: {_median_and_most(lost)}"
        + beside,
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
