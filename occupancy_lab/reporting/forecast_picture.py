"""Predicted bandwidths as curves over the columns, with what others measured as dots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from occupancy_lab.plotting.style import EXACT, MUTED, Placer, describe, outline, styled
from occupancy_lab.reporting import benchmark as data
from occupancy_lab.reporting.benchmark_picture import HEIGHT, LABELS, STYLES, WIDTH, scale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from occupancy_lab.reporting.forecast import Forecast

NAMES = (data.TUTORIAL, data.CHOSEN)
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
    return EXACT if name == data.FASTEST else str(STYLES[name]["color"])


def _label(name: str) -> str:
    return "fastest recorded" if name == data.FASTEST else LABELS.get(name, name)
