"""The benchmark as curves over the columns: bandwidths, and time lost against the fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, PercentFormatter

from occupancy_lab.inputs import next_power_of_two
from occupancy_lab.plotting.style import (
    EXACT,
    FAINT,
    INK,
    MUTED,
    TUTORIAL,
    Placer,
    describe,
    outline,
    styled,
)
from occupancy_lab.reporting import benchmark as data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from occupancy_lab.reporting.benchmark import Benchmark

    Point = tuple[int, float]

WIDTH, HEIGHT, LOW_HEIGHT = 9.6, 4.8, 3.2
"""Inches."""
GREEN, PURPLE, PALE_BLUE = "#117733", "#aa4499", "#a6cee3"
"""Of Paul Tol's muted palette, which the colour-blind tell apart, and a pale EXACT."""
MOST_TICKS = 8
FEW = 16
"""Points up to which each is a dot."""
HEADROOM = 1.05
"""Room for labels above the curves, as a factor."""
STYLES: Mapping[str, Mapping[str, Any]] = {
    data.COPY: {"color": INK, "linewidth": 1.4, "linestyle": (0, (1, 1.5))},
    "naive": {"color": MUTED, "linewidth": 1.6},
    "torch": {"color": GREEN, "linewidth": 1.6},
    "torch.compile": {"color": PURPLE, "linewidth": 1.6},
    data.TUTORIAL: {"color": TUTORIAL, "linewidth": 1.8, "linestyle": (0, (4, 2))},
    data.FASTEST: {"color": PALE_BLUE, "linewidth": 6.0},
    data.CHOSEN: {"color": EXACT, "linewidth": 2.0},
}
"""By what is drawn, the later ones over the earlier."""
LABELS: Mapping[str, str] = {
    data.COPY: "a plain copy",
    data.TUTORIAL: "the tutorial's",
    data.CHOSEN: "predicted best",
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
        for name in (data.TUTORIAL, data.CHOSEN)
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
            if name != data.FASTEST:
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
    if name == data.CHOSEN and data.FASTEST in curves:
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
