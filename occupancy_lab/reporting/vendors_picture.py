"""Where each vendor keeps the rows in flight: registers and shared memory over num_stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from occupancy_lab.plotting.style import (
    EXACT,
    FAINT,
    TUTORIAL,
    Placer,
    are_alike,
    describe,
    outline,
    styled,
)
from occupancy_lab.reporting.words import problem_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from occupancy_lab.reporting.vendors_stages import Steps

WIDTH, HEIGHT = 9.0, 4.2
"""Inches."""
COLOURS: Mapping[str, str] = {"AMD": TUTORIAL, "NVIDIA": EXACT}
KIB = 1024


def draw_stages(shown: Sequence[Steps]) -> Figure:
    """Return a figure of one kernel: a panel of its registers and one of its shared memory."""
    record = shown[0].records[0]
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        registers, shared = figure.subplots(1, 2)
        _draw(registers, [(steps, steps.n_regs) for steps in shown])
        registers.set_ylabel("registers a thread (VGPRs a lane)")
        _draw(shared, [(steps, [size / KIB for size in steps.shared]) for steps in shown])
        shared.set_ylabel("shared memory (LDS) a program, KiB")
        kernel = f"{problem_words(record.problem)}, num_warps {record.config.num_warps}"
        title = f"What num_stages takes: {kernel}"
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=11)
        figure.draw_without_rendering()
        for axes in (registers, shared):
            _label(axes, shown)
    describe(figure, title)
    return figure


def _draw(axes: Axes, lines: Sequence[tuple[Steps, Sequence[float]]]) -> None:
    for steps, amounts in lines:
        stages = [record.config.num_stages for record in steps.records]
        colour = COLOURS[steps.gpu.vendor]
        style: dict[str, Any] = {"color": colour, "markersize": 4, "linewidth": 1.8}
        axes.plot(stages, amounts, "o-", clip_on=False, zorder=3, **style)
    axes.set_xticks(stages)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("num_stages")
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def _label(axes: Axes, shown: Sequence[Steps]) -> None:
    """Write the GPUs beside the lines, those of lines that lie on each other together."""
    curves = [outline(axes, line) for line in axes.lines]
    groups: list[list[int]] = []
    for place, curve in enumerate(curves):
        vendor = shown[place].gpu.vendor
        alike = (
            group
            for group in groups
            if shown[group[0]].gpu.vendor == vendor and are_alike(curves[group[0]], curve)
        )
        group = next(alike, None)
        if group is None:
            groups.append([place])
        else:
            group.append(place)
    placer = Placer(axes, [curves[group[0]] for group in groups])
    for group in groups:
        first = shown[group[0]].gpu
        words = "\n".join(shown[place].gpu.title for place in group)
        placer.at_curve(words, curves[group[0]], color=COLOURS[first.vendor])
