"""The benchmark where nothing was launched: predictions, and beside them what was measured."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.kernel import load_kernel
from occupancy_lab.plotting.style import EXACT, MUTED, Placer, describe, outline, styled
from occupancy_lab.reporting.chapters.benchmark import (
    CHOSEN,
    FASTEST,
    HEIGHT,
    LABELS,
    MEANINGS,
    STYLES,
    TITLE,
    TUTORIAL,
    WIDTH,
    Benchmark,
    launches_of_widths,
    meanings,
    others_of,
    scale,
    setting,
    span_words,
    tutorial_words,
    width_of,
)
from occupancy_lab.reporting.launches import (
    config_words,
    known_summary,
    launches_of,
    row_record,
    share,
)
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.text.document import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.axes import Axes

    from occupancy_lab.reporting.chapters.benchmark import Width
    from occupancy_lab.reporting.launches import Summary
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.values import Problem


@dataclass(frozen=True, slots=True)
class RecordedWidth:
    """A number of columns of which something was measured."""

    width: Width
    """What is predicted of it."""
    us: Mapping[str, float]
    """The measured times, of FASTEST, TUTORIAL and the providers."""

    def gbs(self, name: str) -> float:
        """Return the bandwidth of *name* as it was measured, GB/s; KeyError where it was not."""
        return self.width.total_bytes / self.us[name] / 1e3


@dataclass(frozen=True, slots=True)
class Forecast:
    """A benchmark of predicted times, of all configurations and of the tutorial's launch."""

    benchmark: Benchmark
    recorded: tuple[RecordedWidth, ...]
    """In ascending order of the columns; not all of them need be the benchmark's."""

    @property
    def every(self) -> tuple[Width, ...]:
        """Every width of which something is predicted."""
        return (*self.benchmark.widths, *(one.width for one in self.recorded))

    @property
    def names(self) -> tuple[str, ...]:
        """What was measured at any width, in a fixed order."""
        return tuple(dict.fromkeys(name for one in self.recorded for name in one.us))

    def against_fastest(self, name: str) -> Summary | None:
        """Return the measured times of *name* over the fastest; None where both never were."""
        both = [one.us for one in self.recorded if {name, FASTEST} <= set(one.us)]
        return known_summary(us[name] / us[FASTEST] for us in both)


def make_forecast(source: Source) -> Forecast | None:
    """Return the benchmark as predicted; None where fewer than two numbers of columns are."""
    problems = tuple(launches_of_widths(source))
    if not problems:
        return None
    first = problems[0]
    widths = tuple(_width(source, problem) for problem in problems)
    recorded = _recorded(source.recorded, first)
    shapes = (dataclasses.replace(first, cols=cols) for cols in sorted(recorded))
    return Forecast(
        Benchmark(first.rows, first.dtype, widths),
        tuple(
            RecordedWidth(_width(source, problem), recorded[problem.cols])
            for problem in shapes
            if launches_of(source, problem)
        ),
    )


def _width(source: Source, problem: Problem) -> Width:
    rows = list(launches_of(source, problem).values())
    tutorial = _tutorial_us(source, problem)
    return width_of(problem, rows, {} if tutorial is None else {TUTORIAL: tutorial})


def _tutorial_us(source: Source, problem: Problem) -> float | None:
    """Return the predicted time of the tutorial's launch, with its own number of programs.

    None where it was not compiled, its formula fails, or nothing is predicted of it.
    """
    kernel = load_kernel(TUTORIAL_KERNEL)
    config = kernel.default_config(problem, source.gpu.architecture.max_shared)
    row = launches_of(source, problem).get((TUTORIAL_KERNEL, config))
    if row is None:
        return None
    record = row_record(row, source.gpu)
    if record.tutorial_plan.num_programs is None:
        return None
    prediction = record.prediction_of(record.tutorial_plan)
    return None if prediction is None else prediction.us


def _recorded(recorded: Source | None, problem: Problem) -> dict[int, dict[str, float]]:
    """Return by columns what was measured on matrices with the rows and dtype of *problem*."""
    if recorded is None:
        return {}
    found, launches = others_of(recorded, problem), recorded.planned
    same = launches[(launches["rows"] == problem.rows) & (launches["dtype"] == problem.dtype)]
    for row in same.to_dict("records"):
        us = found.setdefault(int(row["cols"]), {})
        us[FASTEST] = min(float(row["us"]), us.get(FASTEST, float("inf")))
    return found


PREDICTED_NAMES = (CHOSEN, TUTORIAL)


def the_forecast(forecast: Forecast | None) -> Chapter:
    """Say what is predicted to be the best at every width, beside what was measured."""
    if forecast is None:
        words = (
            "Left out: no launches of one problem with several numbers of columns are predicted."
        )
        return Chapter(TITLE, (words,))
    names = dict.fromkeys((*PREDICTED_NAMES, *forecast.names))
    texts = {**MEANINGS, FASTEST: "the fastest of the launches that were recorded"}
    return Chapter(
        TITLE,
        (
            setting(forecast.benchmark),
            meanings(tuple(names), texts),
            *_tables(forecast),
            *_against_tutorial(forecast),
            _spans(forecast),
        ),
    )


def _tables(forecast: Forecast) -> Iterator[Table]:
    if not forecast.recorded:
        return
    names = [name for name in MEANINGS if name in forecast.names]

    def row(one: RecordedWidth) -> tuple[str, ...]:
        width = one.width
        return (
            str(width.cols),
            config_words(width.chosen.kernel, width.chosen.config),
            *(f"{width.gbs(name):.0f}" if name in width.us else "-" for name in PREDICTED_NAMES),
            *(f"{one.gbs(name):.0f}" if name in one.us else "-" for name in names),
        )

    headers = ("columns", "what is chosen", *(f"{name}, predicted" for name in PREDICTED_NAMES))
    yield Table(
        (*headers, *(f"{name}, recorded" if name in PREDICTED_NAMES else name for name in names)),
        tuple(map(row, forecast.recorded)),
        "GB/s at the widths of which something was recorded; what is not called predicted is"
        " recorded:",
    )


def _against_tutorial(forecast: Forecast) -> Iterator[str]:
    benchmark = forecast.benchmark
    if TUTORIAL not in benchmark.names:
        return
    longer = benchmark.against_chosen(TUTORIAL)
    worst = max(
        benchmark.with_name(TUTORIAL),
        key=lambda width: width.us[TUTORIAL] / width.us[CHOSEN],
    )
    yield (
        f"The tutorial's launch is predicted to take {share(longer.median - 1.0)} longer than the"
        f" chosen at the median width, {share(longer.p90 - 1.0)} or more at one width in ten, and"
        f" {share(longer.most - 1.0)} at worst, at {worst.cols} columns."
    )


def _spans(forecast: Forecast) -> Table:
    headers = ("columns", "chosen", "the tutorial's is predicted to take longer by")
    rows = tuple((*span_words(span), tutorial_words(span)) for span in forecast.benchmark.spans)
    return Table(headers, rows, "What is chosen where:")


NAMES = (TUTORIAL, CHOSEN)
DOT: Mapping[str, Any] = {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.6}
CAPTION = "Lines: predicted. Dots: recorded by others."


def draw_forecast(forecast: Forecast) -> Figure:
    """Return a figure of the predicted bandwidths over the columns, and of those recorded."""
    benchmark = forecast.benchmark
    title = f"GB/s of softmax, {benchmark.rows} rows of {benchmark.dtype}, predicted"
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        lines = {
            name: axes.plot(
                [width.cols for width in benchmark.with_name(name)],
                [width.gbs(name) for width in benchmark.with_name(name)],
                **STYLES[name],
            )[0]
            for name in NAMES
            if name in benchmark.names
        }
        dots = {name: _dots(axes, forecast, name) for name in STYLES if name in forecast.names}
        scale(axes, max(width.cols for width in forecast.every))
        axes.set_ylabel("GB/s (one read and one write)")
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=11)
        if dots:
            figure.supxlabel(CAPTION, x=0.01, ha="left", color=MUTED, fontsize=9)
        figure.draw_without_rendering()
        curves = {name: outline(axes, line) for name, line in lines.items()}
        places = {name: axes.transData.transform(points) for name, points in dots.items()}
        placer = Placer(axes, [*curves.values(), *places.values()])
        for name, curve in (places | curves).items():
            placer.at_curve(_label(name), curve, color=_colour(name))
    describe(figure, f"{title}: {', '.join(map(_label, (*lines, *dots)))}")
    return figure


def _dots(axes: Axes, forecast: Forecast, name: str) -> list[tuple[float, float]]:
    found = [one for one in forecast.recorded if name in one.us]
    points = [(float(one.width.cols), one.gbs(name)) for one in found]
    axes.plot(*zip(*points, strict=True), "o", color=_colour(name), zorder=3, **DOT)
    return points


def _colour(name: str) -> str:
    return EXACT if name == FASTEST else str(STYLES[name]["color"])


def _label(name: str) -> str:
    return "fastest recorded" if name == FASTEST else LABELS.get(name, name)
