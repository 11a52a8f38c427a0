"""What too many programs cost, over the rows that each of them does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from occupancy_lab.plotting.style import FAINT, MUTED, TUTORIAL, describe, styled

if TYPE_CHECKING:
    from occupancy_lab.reporting.excess import Excesses

WIDTH, HEIGHT = 7.2, 3.8
"""Inches."""


def draw_excesses(excesses: Excesses) -> Figure:
    """Give a figure of the time lost by each launch, over the rows a program."""
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.plot(
            [launch.rows_a_program for launch in excesses.launches],
            [launch.lost for launch in excesses.launches],
            "o",
            color=TUTORIAL,
            markersize=4,
            markeredgewidth=0,
            alpha=0.5,
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rows, _: f"{rows:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_xlabel("rows a program, with as many programs as fit")
        axes.set_ylabel("time lost")
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        title = "Time lost with the tutorial's num_programs where that is wrong"
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=11)
    describe(figure, f"{title}, {len(excesses.launches)} launches")
    return figure
