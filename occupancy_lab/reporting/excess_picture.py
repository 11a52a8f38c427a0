"""What too many programs cost, over the rows that each of them does, and as predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from occupancy_lab.plotting.style import FAINT, MUTED, TUTORIAL, describe, styled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from occupancy_lab.reporting.excess import Excesses

PANEL, HEIGHT = 5.2, 3.8
"""Inches."""
DOT: Mapping[str, Any] = {"color": TUTORIAL, "markersize": 4, "markeredgewidth": 0, "alpha": 0.5}


def draw_excesses(excesses: Excesses) -> Figure:
    """Return a figure of the time lost by each launch, over the rows a program.

    A second panel has what is predicted to be lost over that, where anything is.
    """
    launches = excesses.launches
    measured = [(launch.rows_a_program, launch.lost) for launch in launches]
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
        axes.set_xlabel("rows a program, with as many programs as fit")
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
