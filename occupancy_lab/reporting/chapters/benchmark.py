"""The tutorial's benchmark: what is chosen for matrices of more and more columns, and its worth."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, PercentFormatter

from occupancy_lab.inputs import TUTORIAL_KERNEL, next_power_of_two
from occupancy_lab.kernel import load_kernel
from occupancy_lab.occupancy.planning import traffic
from occupancy_lab.plotting.style import EXACT, FAINT, INK, MUTED, Placer, describe, outline, styled
from occupancy_lab.plotting.style import TUTORIAL as TUTORIAL_COLOUR
from occupancy_lab.reporting.launches import config_words, share, summary_of
from occupancy_lab.reporting.page import Chapter, Picture
from occupancy_lab.reporting.source import ALL, COPY, NAIVE, USE
from occupancy_lab.sweeping.recorded import CHECK, OTHER_SOFTMAXES
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count, listed, microseconds
from occupancy_lab.throughput.predict import row_config, row_problem
from occupancy_lab.tuning.choice import choice_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from occupancy_lab.reporting.launches import Summary
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.tuning.choice import Choice
    from occupancy_lab.values import Problem

    Row = Mapping[Any, Any]

    Point = tuple[int, float]
    Span = tuple["Width", ...]
    """Neighbouring widths for which the same was chosen."""


CHOSEN, FASTEST, TUTORIAL = "chosen", "fastest", "tutorial"
"""What is set side by side, beside the names of providers."""


@dataclass(frozen=True, slots=True)
class Width:
    """What was measured, or else is predicted, of one number of columns."""

    cols: int
    total_bytes: int
    """Of one read and one write of the matrix."""
    configurations: int
    """Those that have a time as planned, all of every kernel."""
    chosen: Choice
    """The one with the least predicted time."""
    fastest: Choice
    """The one with the least time."""
    us: Mapping[str, float]
    """Times of CHOSEN, FASTEST, TUTORIAL and the providers, those that are known."""

    def gbs(self, name: str) -> float:
        """Return the bandwidth of *name*, GB/s; KeyError where it has no time."""
        return self.total_bytes / self.us[name] / 1e3

    def lost(self, name: str = CHOSEN) -> float:
        """Return how much longer *name* takes than the fastest, as a share of that."""
        return self.us[name] / self.us[FASTEST] - 1.0

    @property
    def is_right(self) -> bool:
        """Whether the chosen is the fastest."""
        return self.chosen == self.fastest


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Widths in ascending order, all of as many rows and one dtype."""

    rows: int
    dtype: str
    widths: tuple[Width, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What has a time at any width, in a fixed order, the providers last."""
        return tuple(dict.fromkeys(name for width in self.widths for name in width.us))

    def with_name(self, name: str) -> tuple[Width, ...]:
        """Return the widths at which *name* has a time."""
        return tuple(width for width in self.widths if name in width.us)

    def lost(self, name: str = CHOSEN) -> Summary:
        """Return how much longer *name*, one of `names`, takes than the fastest."""
        return summary_of(width.lost(name) for width in self.with_name(name))

    def against_chosen(self, name: str) -> Summary:
        """Return the times of *name*, one of `names`, over those of the chosen."""
        return summary_of(width.us[name] / width.us[CHOSEN] for width in self.with_name(name))

    @property
    def most_configurations(self) -> int:
        """The most configurations that have a time at one width."""
        return max(width.configurations for width in self.widths)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The widths, neighbours with the same choice together."""
        groups = itertools.groupby(self.widths, lambda width: _knobs(width.chosen))
        return tuple(tuple(widths) for _, widths in groups)


def _knobs(choice: Choice) -> tuple[str, int, int]:
    """Return what is chosen beside a BLOCK_SIZE that follows from the columns."""
    return choice.kernel, choice.config.num_warps, choice.config.num_stages


def make_benchmark(source: Source) -> Benchmark | None:
    """Return the benchmark of *source*, of the rows and the dtype with the most numbers of columns.

    None where fewer than two numbers of columns were measured and predicted.
    """
    launches = launches_of_widths(source)
    if not launches:
        return None
    first = next(iter(launches))
    others = others_of(source, first)
    widths = (width_of(one, rows, others.get(one.cols, {})) for one, rows in launches.items())
    return Benchmark(first.rows, first.dtype, tuple(widths))


def launches_of_widths(source: Source) -> dict[Problem, list[Row]]:
    """Return the launches of the benchmark by problem, in ascending order of the columns.

    Its problems have the rows and the dtype for which there are the most numbers of columns; it
    is empty where there is not more than one.
    """
    rows = source.predictions_for(USE).to_dict("records")
    of_problem: dict[Problem, list[Row]] = {}
    for row in rows:
        of_problem.setdefault(row_problem(row), []).append(row)
    widths = Counter((problem.rows, problem.dtype) for problem in of_problem)
    shape, number = max(widths.items(), key=lambda item: item[1], default=(None, 0))
    if number <= 1:
        return {}
    problems = (one for one in of_problem if (one.rows, one.dtype) == shape)
    return {one: of_problem[one] for one in sorted(problems, key=lambda one: one.cols)}


def width_of(problem: Problem, rows: Sequence[Row], others: Mapping[str, float]) -> Width:
    """Return what the launches *rows* of *problem* and the times of *others* come to."""
    chosen = min(rows, key=lambda row: float(row["predicted_us"]))
    fastest = min(rows, key=lambda row: float(row["us"]))
    kernel = load_kernel(str(chosen["kernel"]))
    return Width(
        cols=problem.cols,
        total_bytes=traffic(kernel.steps(problem), problem).total_bytes,
        configurations=len(rows),
        chosen=choice_of(chosen),
        fastest=choice_of(fastest),
        us={CHOSEN: float(chosen["us"]), FASTEST: float(fastest["us"]), **others},
    )


def others_of(source: Source, problem: Problem) -> dict[int, dict[str, float]]:
    """Return by columns the times of the tutorial's launch and of the providers.

    They are those measured on matrices of as many rows as *problem* and of its dtype.
    """
    found: dict[int, dict[str, float]] = {}
    for table in (_tutorial_launches(source).assign(provider=TUTORIAL), source.providers):
        if table.empty:
            continue
        same = table[(table["rows"] == problem.rows) & (table["dtype"] == problem.dtype)]
        for row in same.to_dict("records"):
            found.setdefault(int(row["cols"]), {})[str(row["provider"])] = float(row["us"])
    return found


def _tutorial_launches(source: Source) -> pd.DataFrame:
    """Return the launches of the tutorial's own configuration with its own num_programs."""
    kernel, most = load_kernel(TUTORIAL_KERNEL), source.gpu.architecture.max_shared
    table = source.measured
    table = table[
        (table["kernel"] == TUTORIAL_KERNEL)
        & (table["launched"] == table["tutorial_num_programs"])
        & table["use"].isin((USE, ALL, CHECK))
    ]
    own = [
        row_config(row) == kernel.default_config(row_problem(row), most)
        for row in table.to_dict("records")
    ]
    return table.loc[own]


TITLE = "The tutorial's benchmark"
EVERY = 16
"""One in so many widths is in the table, all where there are fewer."""
MEANINGS: Mapping[str, str] = {
    CHOSEN: "the configuration with the least predicted time, of every kernel; finding it"
    " launches nothing",
    FASTEST: "the fastest of every configuration that was measured",
    TUTORIAL: "the tutorial's kernel, num_warps and num_stages, with as many programs as its"
    " own formula says",
    **OTHER_SOFTMAXES,
    NAIVE: "the same in five operations of torch, each through memory",
    COPY: "a plain copy of the matrix, which computes nothing",
}


def the_benchmark(benchmark: Benchmark | None) -> Chapter:
    """Say how good the predicted best is at every width, and what it is compared with."""
    if benchmark is None:
        words = "Left out: there are no launches of one problem with several numbers of columns."
        return Chapter(TITLE, (words,))
    return Chapter(
        TITLE,
        (
            setting(benchmark),
            meanings(benchmark.names),
            _table(benchmark),
            _against_fastest(benchmark),
            _losses(benchmark),
            _spans(benchmark),
        ),
    )


def setting(benchmark: Benchmark) -> str:
    """Say which widths there are, and what a bandwidth counts."""
    first, last = benchmark.widths[0].cols, benchmark.widths[-1].cols
    return (
        f"A softmax of {benchmark.rows} rows of {first} to {last} columns, {benchmark.dtype},"
        f" {len(benchmark.widths)} widths. GB/s counts one read and one write of the matrix,"
        " whatever is moved."
    )


def meanings(names: Sequence[str], words: Mapping[str, str] = MEANINGS) -> str:
    """Return a list of what each of *names* is, in the order of *words*."""
    return "\n".join(f"- **{name}**: {text}." for name, text in words.items() if name in names)


def _table(benchmark: Benchmark) -> Table:
    names = [name for name in MEANINGS if name in benchmark.names]

    def row(width: Width) -> tuple[str, ...]:
        return (
            str(width.cols),
            config_words(width.chosen.kernel, width.chosen.config),
            *(f"{width.gbs(name):.0f}" if name in width.us else "-" for name in names),
            share(width.lost()),
        )

    many = len(benchmark.widths) > EVERY
    caption = (
        f"GB/s of every {f'{EVERY}th ' if many else ''}width; *lost* is the time that the chosen"
        " takes longer than the fastest:"
    )
    rows = tuple(map(row, benchmark.widths[:: EVERY if many else 1]))
    return Table(("columns", "what is chosen", *names, "lost"), rows, caption)


def _against_fastest(benchmark: Benchmark) -> str:
    lost = benchmark.lost()
    right = sum(width.is_right for width in benchmark.widths)
    worst = max(benchmark.widths, key=lambda width: width.lost())
    most = count(benchmark.most_configurations, "configuration")
    return (
        f"The chosen is the fastest of up to {most} at {right} of {lost.count} widths. It takes"
        f" {share(lost.mean)} longer than the fastest on average, {share(lost.p90)} or more at one"
        f" width in ten, and {share(lost.most)} at worst: at {worst.cols} columns it takes"
        f" {microseconds(worst.us[CHOSEN])}, and"
        f" {config_words(worst.fastest.kernel, worst.fastest.config)}"
        f" {microseconds(worst.us[FASTEST])}."
    )


def _losses(benchmark: Benchmark) -> Picture:
    names = [name for name in (CHOSEN, TUTORIAL) if name in benchmark.names]
    lost = [(name, benchmark.lost(name)) for name in names]
    words = [f"{name} {share(one.median)} (at most {share(one.most)})" for name, one in lost]
    return Picture(
        "losses",
        f"Time lost against the fastest configuration over the columns, medians: {listed(words)}",
        partial(draw_losses, benchmark),
    )


def _spans(benchmark: Benchmark) -> Table:
    headers = (
        "columns",
        "chosen",
        "is the fastest at",
        "loses at most",
        "the tutorial's takes longer by",
    )
    return Table(headers, tuple(map(_span_row, benchmark.spans)), "What is chosen where:")


def _span_row(span: Span) -> tuple[str, ...]:
    return (
        *span_words(span),
        f"{sum(width.is_right for width in span)} of {len(span)}",
        share(max(width.lost() for width in span)),
        tutorial_words(span),
    )


def span_words(span: Span) -> tuple[str, str]:
    """Return the columns of a span, and what is chosen for them."""
    first, last = span[0].cols, span[-1].cols
    columns = str(first) if first == last else f"{first} to {last}"
    return columns, config_words(span[0].chosen.kernel, span[0].chosen.config)


def tutorial_words(span: Span) -> str:
    """Return how much longer than the chosen the tutorial's takes, from the least to the most."""
    shares = [width.us[TUTORIAL] / width.us[CHOSEN] - 1.0 for width in span if TUTORIAL in width.us]
    if not shares:
        return "-"
    least, most = share(min(shares)), share(max(shares))
    return least if least == most else f"{least} to {most}"


WIDTH, HEIGHT, LOW_HEIGHT = 9.6, 4.8, 3.2
"""Inches."""
GREEN, PURPLE, OLIVE, WINE = "#117733", "#aa4499", "#999933", "#882255"
PALE_BLUE = "#a6cee3"
"""Of Paul Tol's muted palette, which the colour-blind tell apart, and a pale EXACT."""
MOST_TICKS = 8
FEW = 16
"""Points up to which each is a dot."""
HEADROOM = 1.05
"""Room for labels above the curves, as a factor."""
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
"""By what is drawn, the later ones over the earlier."""
LABELS: Mapping[str, str] = {
    COPY: "a plain copy",
    TUTORIAL: "the tutorial's",
    CHOSEN: "predicted best",
}
"""What a curve is called where that is not its name."""


def draw_bandwidths(benchmark: Benchmark) -> Figure:
    """Return a figure of the bandwidths of everything that was measured, over the columns."""
    curves = {
        name: [(width.cols, width.gbs(name)) for width in benchmark.with_name(name)]
        for name in STYLES
        if name in benchmark.names
    }
    title = f"GB/s of softmax, {benchmark.rows} rows of {benchmark.dtype}"
    return _draw(curves, HEIGHT, title, "GB/s (one read and one write)")


def draw_losses(benchmark: Benchmark) -> Figure:
    """Return a figure of how much longer than the fastest the chosen and the tutorial's take."""
    curves = {
        name: [(width.cols, width.lost(name)) for width in benchmark.with_name(name)]
        for name in (TUTORIAL, CHOSEN)
        if name in benchmark.names
    }
    title = "Time lost against the fastest of all configurations"
    figure = _draw(curves, LOW_HEIGHT, title, "time lost")
    figure.axes[0].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    return figure


def _draw(
    curves: Mapping[str, Sequence[Point]], height: float, title: str, vertical: str
) -> Figure:
    with styled():
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots()
        lines = {name: _line(axes, name, points) for name, points in curves.items()}
        scale(axes, max(cols for points in curves.values() for cols, _ in points))
        axes.set_ylabel(vertical)
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=11)
        figure.draw_without_rendering()
        outlines = {name: outline(axes, line) for name, line in lines.items()}
        placer = Placer(axes, list(outlines.values()))
        for name in reversed(list(curves)):
            if name != FASTEST:
                placer.at_curve(_label(name, curves), outlines[name], color=STYLES[name]["color"])
    describe(figure, f"{title}: {', '.join(LABELS.get(name, name) for name in curves)}")
    return figure


def _line(axes: Axes, name: str, points: Sequence[Point]) -> Line2D:
    """Draw a curve, with a dot a point where there are few."""
    cols, values = zip(*points, strict=True)
    marker = "o" if len(points) <= FEW else None
    (line,) = axes.plot(cols, values, marker=marker, markersize=4, **STYLES[name])
    return line


def _label(name: str, curves: Mapping[str, Sequence[Point]]) -> str:
    label = LABELS.get(name, name)
    if name == CHOSEN and FASTEST in curves:
        return f"{label} (pale: fastest of all)"
    return label


def scale(axes: Axes, most: int) -> None:
    """Scale *axes* to bandwidths or losses over columns up to *most*."""
    axes.set_xlim(0, most * 1.01)
    axes.set_ylim(0, axes.get_ylim()[1] * HEADROOM)
    axes.xaxis.set_major_locator(MultipleLocator(next_power_of_two(-(-most // MOST_TICKS))))
    axes.set_xlabel("columns")
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
