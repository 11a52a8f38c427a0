"""The tutorial's benchmark: the predicted best configuration over the columns, and its speed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from occupancy_lab.files import plain_rows
from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.plotting.style import (
    EXACT,
    INK,
    MUTED,
    Placer,
    describe,
    even_ticks,
    head,
    lined,
    outline,
    styled,
)
from occupancy_lab.plotting.style import TUTORIAL as TUTORIAL_COLOUR
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import (
    ALL,
    COPY,
    NAIVE,
    NAME,
    USE,
    Name,
    Source,
    Summary,
    config_words,
    gbs_of,
    launches_of,
    row_name,
    rows_of,
    span_words,
    summary_of,
    tutorial_name,
)
from occupancy_lab.sweeping.recorded import OTHER_SOFTMAXES, row_problem
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count, listed, microseconds
from occupancy_lab.values import Problem

if TYPE_CHECKING:
    import pandas as pd

Point = tuple[float, float]
Span = tuple["Width", ...]
"""Neighbouring widths with the same chosen configuration."""

CHOSEN, FASTEST, TUTORIAL = "chosen", "fastest", "tutorial"
"""The names of compared times, besides the names of providers."""
RIVALS: Mapping[str, str] = {
    TUTORIAL: "the tutorial's launch",
    **OTHER_SOFTMAXES,
    NAIVE: "five operations of torch",
    COPY: "a plain copy of the matrix",
}
"""The times that the chosen configuration is compared with, and their words."""


@dataclass(frozen=True, slots=True)
class Width:
    """The measured, or else predicted, times for one number of columns."""

    problem: Problem
    configurations: int
    """The number of configurations of all kernels that have a time."""
    chosen: Name
    """The configuration with the shortest predicted time."""
    fastest: Name
    """The configuration with the shortest time."""
    us: Mapping[str, float]
    """The known times of CHOSEN, FASTEST, TUTORIAL and the providers."""

    @property
    def cols(self) -> int:
        """The number of columns."""
        return self.problem.cols

    def longer(self, name: str, than: str) -> float:
        """Return how much longer *name* takes than *than*, relative to the latter."""
        return self.us[name] / self.us[than] - 1.0


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Widths in ascending order, all with the same rows and dtype."""

    is_predicted: bool
    widths: tuple[Width, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names that have a time at any width, in a fixed order with providers last."""
        found = {name for width in self.widths for name in width.us}
        return tuple(name for name in (CHOSEN, FASTEST, *RIVALS) if name in found)

    def longer(self, name: str, than: str) -> Summary:
        """Return over all widths how much longer *name* takes than *than*."""
        return summary_of(width.longer(name, than) for width in self.widths if name in width.us)

    def rivals(self) -> dict[str, Summary]:
        """Return the known times of the others as multiples of the chosen one's."""
        shares = {
            name: [width.us[name] / width.us[CHOSEN] for width in self.widths if name in width.us]
            for name in RIVALS
        }
        return {name: summary_of(found) for name, found in shares.items() if found}

    @property
    def spans(self) -> tuple[Span, ...]:
        """The widths, grouped by neighbours with the same choice."""

        def choice(width: Width) -> tuple[Any, ...]:
            kernel, config = width.chosen
            return kernel, config.num_warps, config.num_stages

        return tuple(tuple(widths) for _, widths in itertools.groupby(self.widths, choice))


def make_benchmark(source: Source) -> Benchmark | None:
    """Return the benchmark of the rows and dtype with the most widths; None for fewer than two."""
    rows = source.predictions_for(USE).to_dict("records")
    problems = dict.fromkeys(row_problem(row) for row in rows)
    shapes = Counter((problem.rows, problem.dtype) for problem in problems)
    shape, number = max(shapes.items(), key=lambda item: item[1], default=(None, 0))
    if number <= 1:
        return None
    of_shape = sorted(
        (one for one in problems if (one.rows, one.dtype) == shape), key=lambda one: one.cols
    )
    first = of_shape[0]
    times = {} if source.is_predicted else _times(source, first)
    widths = (_width(source, problem, times.get(problem.cols, {})) for problem in of_shape)
    return Benchmark(source.is_predicted, tuple(widths))


def _width(source: Source, problem: Problem, others: Mapping[str, float]) -> Width:
    table = rows_of(source.predictions, problem)[[*NAME, "predicted_us", "us"]]
    rows = plain_rows(table)
    chosen = min(rows, key=lambda row: float(row["predicted_us"]))
    fastest = min(rows, key=lambda row: float(row["us"]))
    us = {CHOSEN: float(chosen["us"])}
    if source.is_predicted:
        own = launches_of(source, problem).get(tutorial_name(problem, source.gpu), {})
        if own.get("tutorial_us") is not None:
            us[TUTORIAL] = own["tutorial_us"]
    else:
        us |= {FASTEST: float(fastest["us"]), **others}
    return Width(problem, len(rows), row_name(chosen), row_name(fastest), us)


def _times(source: Source, first: Problem) -> dict[int, dict[str, float]]:
    """Return by columns the measured times of the tutorial's launch and of the providers.

    The matrices have the rows and dtype of *first*.
    """
    found: dict[int, dict[str, float]] = {}
    for table in (_tutorial_launches(source).assign(provider=TUTORIAL), source.providers):
        if table.empty:
            continue
        same = table[(table["rows"] == first.rows) & (table["dtype"] == first.dtype)]
        for row in same.to_dict("records"):
            found.setdefault(int(row["cols"]), {})[str(row["provider"])] = float(row["us"])
    return found


def _tutorial_launches(source: Source) -> pd.DataFrame:
    table = source.measured
    table = table[
        (table["kernel"] == TUTORIAL_KERNEL)
        & (table["launched"] == table["tutorial_num_programs"])
        & table["use"].isin((USE, ALL))
    ]
    rows = table.to_dict("records")
    return table.loc[[row_name(row) == tutorial_name(row_problem(row), source.gpu) for row in rows]]


def in_short(benchmark: Benchmark) -> Iterator[str]:
    """Say how good the predicted best is over all widths, and how long others take."""
    first, last = benchmark.widths[0], benchmark.widths[-1]
    about = f"For a softmax of {first.problem.rows} rows of {first.cols} to {last.cols} columns"
    most = max(width.configurations for width in benchmark.widths)
    if not benchmark.is_predicted:
        lost = benchmark.longer(CHOSEN, FASTEST)
        yield (
            f"{about}, the configuration that is predicted to be the best, without launching any,"
            f" takes **{lost.mean:.1%} longer on average than the fastest** of up to {most}"
            f" measured ones, and {lost.most:.1%} at worst."
        )
        rivals = [
            f"{RIVALS[name]} {times.median:.2f} ({times.most:.2f})"
            for name, times in benchmark.rivals().items()
        ]
        if rivals:
            yield (
                "The times of others as multiples of that configuration's, median (maximum):"
                f" {listed(rivals)}."
            )
    elif TUTORIAL in benchmark.names:
        longer = benchmark.longer(TUTORIAL, CHOSEN)
        yield (
            f"{about}, the tutorial's launch is predicted to take **{longer.median:.1%}"
            f" longer** than the best of up to {most} configurations at the median width, and"
            f" {longer.most:.1%} at worst."
        )


def the_bandwidths(benchmark: Benchmark) -> Picture:
    """Return the picture of all times as bandwidths over the columns."""
    last = benchmark.widths[-1]
    words = [f"{name} {gbs_of(last.problem, us):.0f}" for name, us in last.us.items()]
    title = "Predicted GB/s" if benchmark.is_predicted else "GB/s"
    return Picture(
        "bandwidths",
        f"{title} over the columns of {last.problem.rows} rows; at {last.cols} columns"
        f" {listed(words)}",
        partial(draw_bandwidths, benchmark),
    )


TITLE = "The tutorial's benchmark"
EVERY = 16
"""The table has every 16th width, or all if there are fewer."""


def the_benchmark(benchmark: Benchmark | None) -> Chapter:
    """Return the chapter with the times at several widths, and the choice for each."""
    if benchmark is None:
        words = "Left out: there are no launches of one problem with several numbers of columns."
        return Chapter(TITLE, (words,))
    first = benchmark.widths[0].problem
    setting = (
        f"{len(benchmark.widths)} widths of {first.rows} rows, {first.dtype}. GB/s counts one read"
        " and one write of the matrix, whatever is actually moved. *chosen* is the configuration,"
        " of all kernels, with the shortest predicted time; nothing is launched to find it."
        " *tutorial* has the tutorial's kernel, num_warps and num_stages, with the number of"
        " programs that the tutorial's formula gives."
    )
    if benchmark.is_predicted:
        return Chapter(TITLE, (setting, _table(benchmark), _spans(benchmark)))
    right = sum(width.chosen == width.fastest for width in benchmark.widths)
    worst = max(benchmark.widths, key=lambda width: width.longer(CHOSEN, FASTEST))
    lost = (
        f"The chosen one is the fastest at {right} of {count(len(benchmark.widths), 'width')}. It"
        f" loses the most at {worst.cols} columns: {microseconds(worst.us[CHOSEN])} against"
        f" {microseconds(worst.us[FASTEST])} for {config_words(*worst.fastest)}."
    )
    return Chapter(TITLE, (setting, _table(benchmark), lost, _spans(benchmark)))


def _table(benchmark: Benchmark) -> Table:
    every = EVERY if len(benchmark.widths) > EVERY else 1

    def row(width: Width) -> tuple[str, ...]:
        times = map(width.us.get, benchmark.names)
        gbs = ("-" if us is None else f"{gbs_of(width.problem, us):.0f}" for us in times)
        lost = () if benchmark.is_predicted else (f"{width.longer(CHOSEN, FASTEST):.1%}",)
        return (str(width.cols), config_words(*width.chosen), *gbs, *lost)

    headers = [*benchmark.names, "lost"]
    caption = "GB/s; *lost* is how much longer the chosen one takes than the fastest:"
    if benchmark.is_predicted:
        headers, caption = [f"{name}, predicted" for name in benchmark.names], "GB/s:"
    rows = tuple(map(row, benchmark.widths[::every]))
    return Table(("columns", "configuration", *headers), rows, caption)


def _spans(benchmark: Benchmark) -> Table:
    def row(span: Span) -> tuple[str, ...]:
        longer = [width.longer(TUTORIAL, CHOSEN) for width in span if TUTORIAL in width.us]
        tutorial = span_words(f"{min(longer):.1%}", f"{max(longer):.1%}") if longer else "-"
        columns = span_words(str(span[0].cols), str(span[-1].cols))
        chosen = config_words(*span[0].chosen)
        if benchmark.is_predicted:
            return columns, chosen, tutorial
        lost = max(width.longer(CHOSEN, FASTEST) for width in span)
        return columns, chosen, tutorial, f"{lost:.1%}"

    lost = () if benchmark.is_predicted else ("the chosen one loses at most",)
    headers = ("columns", "chosen", "the tutorial's takes longer by", *lost)
    return Table(headers, tuple(map(row, benchmark.spans)), "The choice by columns:")


WIDTH, HEIGHT = 9.6, 4.8
"""Inches."""
GREEN, PURPLE, OLIVE, WINE = "#117733", "#aa4499", "#999933", "#882255"
PALE_BLUE = "#a6cee3"
"""The first four are from Paul Tol's muted, colour-blind-safe palette; the last is a pale EXACT."""
FEW = 16
"""The largest number of points that are drawn as dots."""
HEADROOM = 1.05
"""The factor of room for labels above the curves."""
STYLES: Mapping[str, Mapping[str, Any]] = {
    COPY: {"color": INK, "linewidth": 1.4, "linestyle": (0, (1, 1.5))},
    NAIVE: {"color": MUTED, "linewidth": 1.6},
    "torch": {"color": GREEN, "linewidth": 1.6},
    "torch.compile": {"color": PURPLE, "linewidth": 1.6},
    "liger": {"color": OLIVE, "linewidth": 1.6},
    "quack": {"color": WINE, "linewidth": 1.6},
    TUTORIAL: {"color": TUTORIAL_COLOUR, "linewidth": 1.8, "linestyle": (0, (4, 2))},
    FASTEST: {"color": PALE_BLUE, "linewidth": 6.0},
    CHOSEN: {"color": EXACT, "linewidth": 2.0},
}
"""The styles of curves, in the order in which they are drawn."""
LABELS: Mapping[str, str] = {
    COPY: "a plain copy",
    TUTORIAL: "the tutorial's",
    CHOSEN: "predicted best",
}
"""The labels of curves that differ from their names."""


def draw_bandwidths(benchmark: Benchmark) -> Figure:
    """Return a figure of all bandwidths over the columns."""
    first = benchmark.widths[0].problem
    curves = {
        name: [
            (one.cols, gbs_of(one.problem, one.us[name]))
            for one in benchmark.widths
            if name in one.us
        ]
        for name in STYLES
        if name in benchmark.names
    }
    predicted = ", predicted" if benchmark.is_predicted else ""
    title = f"GB/s of softmax, {first.rows} rows of {first.dtype}{predicted}"
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        lines = {}
        for name, points in curves.items():
            marker = "o" if len(points) <= FEW else None
            style = {"marker": marker, "markersize": 4} | dict(STYLES[name])
            (lines[name],) = axes.plot(*zip(*points, strict=True), **style)
        most = benchmark.widths[-1].cols
        axes.set_xlim(0, most * 1.01)
        axes.set_ylim(0, axes.get_ylim()[1] * HEADROOM)
        even_ticks(axes, most)
        axes.set_xlabel("columns")
        axes.set_ylabel("GB/s (one read and one write)")
        lined(axes)
        head(figure, title)
        figure.draw_without_rendering()
        outlines = {name: outline(axes, line) for name, line in lines.items()}
        placer = Placer(axes, list(outlines.values()))
        pale = {CHOSEN: " (pale: fastest of all)"} if FASTEST in curves else {}
        for name, place in reversed(outlines.items()):
            if name != FASTEST:
                label = LABELS.get(name, name) + pale.get(name, "")
                placer.at_curve(label, place, color=str(STYLES[name]["color"]))
    describe(figure, f"{title}: {', '.join(LABELS.get(name, name) for name in curves)}")
    return figure
