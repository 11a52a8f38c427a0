"""The example's times over num_warps: the tutorial's stages, one stage, and one program a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

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
from occupancy_lab.reporting.words import problem_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

    from occupancy_lab.reporting.example import Example
    from occupancy_lab.reporting.variants import Variant

WIDTH, HEIGHT = 7.2, 4.0
"""Inches."""
GREEN = "#117733"


def draw_example(example: Example) -> Figure:
    """Return a figure of the times over num_warps, the tutorial's choice marked."""
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        lines = []
        for label, colour, variants in _curves(example):
            warps = [variant.config.num_warps for variant in variants]
            times = [variant.us for variant in variants]
            (line,) = axes.plot(warps, times, "o-", color=colour, markersize=4, linewidth=1.8)
            if any(one.recorded_us for one in variants):
                _draw_recorded(axes, variants, colour)
            lines.append((label, colour, line))
        tutorial = example.tutorial
        mark: dict[str, Any] = {"color": INK, "markersize": 9, "markeredgecolor": "white"}
        at = tutorial.config.num_warps, tutorial.us
        axes.plot([at[0]], [at[1]], "o", zorder=4, **mark)
        axes.set_xscale("log", base=2)
        axes.set_xticks(example.num_warps, [str(number) for number in example.num_warps])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("num_warps")
        axes.set_ylabel(f"{example.times.word} us")
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        title = f"Time of a launch over its warps, {problem_words(example.case.record.problem)}"
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=11)
        if example.recorded:
            words = "In diamonds: what others recorded."
            figure.supxlabel(words, x=0.01, ha="left", color=MUTED, fontsize=9)
        figure.draw_without_rendering()
        outlines = [outline(axes, line) for _, _, line in lines]
        placer = Placer(axes, outlines)
        placer.at_point(f"the tutorial's\n{at[1]:.1f} us", at, color=INK)
        for (label, colour, _), curve in zip(lines, outlines, strict=True):
            placer.at_curve(label, curve, color=colour)
    describe(figure, title)
    return figure


def _draw_recorded(axes: Axes, variants: Sequence[Variant], colour: str) -> None:
    """Draw what others measured of *variants* beside what is predicted."""
    found = [one for one in variants if one.recorded_us is not None]
    warps = [one.config.num_warps for one in found]
    times = [one.recorded_us or 0.0 for one in found]
    style: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": colour}
    axes.plot(warps, times, "D", markersize=6, markeredgewidth=1.4, zorder=3, **style)


def _curves(example: Example) -> Iterator[tuple[str, str, list[Variant]]]:
    """Return what is drawn: its label, its colour and its launches."""
    stages = example.tutorial.config.num_stages
    warps = example.num_warps
    found = [example.with_stages(stages, number) for number in warps]
    yield f"persistent, num_stages {stages}", TUTORIAL, [one for one in found if one]
    found = [example.with_stages(1, number) for number in warps]
    yield "persistent, num_stages 1", EXACT, [one for one in found if one]
    found = [example.with_rows(number) for number in warps]
    if any(found):
        yield "one program a row", GREEN, [one for one in found if one]
