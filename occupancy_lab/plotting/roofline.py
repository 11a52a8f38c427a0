"""A roofline: the FLOPs per second of kernels over their FLOPs per byte, under a GPU's roofs.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52 (2009).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from occupancy_lab.errors import refuse
from occupancy_lab.plotting.style import EXACT, FAINT, INK, MUTED, Placer, describe, head, styled
from occupancy_lab.text.words import scaled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, DOTS = 9.0, 5.4, 100
"""Inches, and the dots per inch at which labels are placed."""
MARGIN = 3.0
"""The factor by which the axes extend beyond the points and the ridge point."""
LEAST_RANGE = 30.0
"""The least ratio of the highest roof to the lowest rate of the axis, so that it has two ticks."""
LEAST_SIZE, ALL_SIZE = 25.0, 1600.0
"""Square points: the area of a kernel without time, and the additional area for all the time."""
NAMED = 6
"""How many kernels, those with the most time, are labelled."""
LONGEST_NAME = 32
CAPTION_WIDTH = 140
"""Characters per line."""


@dataclass(frozen=True, slots=True)
class Roof:
    """A rate that a GPU cannot exceed."""

    name: str
    rate: float
    """FLOPs per second."""


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel under the roofs."""

    name: str
    intensity: float
    """FLOPs per byte of device memory."""
    rate: float
    """FLOPs per second."""
    us: float
    """The time of all its launches."""
    words: str
    """The text that is shown on hover."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The limits of the axes: FLOPs per byte, and FLOPs per second."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, points: Sequence[Point], roofs: Sequence[Roof], bandwidth: float) -> Frame:
        """Return the frame that contains *points* and the highest ridge point of *roofs*."""
        rates = [point.rate for point in points]
        highest = max(roof.rate for roof in roofs)
        every = [*(point.intensity for point in points), highest / bandwidth]
        left, right = min(every) / MARGIN, max(every) * MARGIN
        bottom = min(min(rates) / MARGIN, left * bandwidth, highest / LEAST_RANGE)
        return cls(left, right, bottom, max(highest, *rates) * MARGIN)


@dataclass(frozen=True, slots=True)
class Line:
    """A roof as it is drawn, from *start* to *end* in FLOPs per byte and FLOPs per second."""

    words: str
    start: tuple[float, float]
    end: tuple[float, float]


def roof_lines(roofs: Sequence[Roof], bandwidth: float, frame: Frame) -> Iterator[Line]:
    """Return the bandwidth's roof up to the highest rate, and each rate's from there on."""
    left, right, highest = frame.left, frame.right, max(roof.rate for roof in roofs)
    words = f"device memory, {scaled(bandwidth)}B/s"
    yield Line(words, (left, left * bandwidth), (highest / bandwidth, highest))
    for roof in roofs:
        words = f"{roof.name}, {scaled(roof.rate)}FLOP/s"
        yield Line(words, (roof.rate / bandwidth, roof.rate), (right, roof.rate))


def area(us: float, total: float) -> float:
    """Return the area in square points of a kernel that takes *us* of the *total* time."""
    return LEAST_SIZE + (ALL_SIZE * (us / total) if total else 0.0)


def draw_roofline(
    points: Sequence[Point],
    roofs: Sequence[Roof],
    bandwidth: float,
    *,
    title: str,
    caption: str,
) -> Figure:
    """Return a figure of *points* under *roofs*; a point's size is its share of the time.

    *bandwidth* is the device memory's in bytes per second. In an SVG the words of a point are its
    title, which a browser shows on hover.

    Raises InputError without points or roofs.
    """
    if not points or not roofs:
        refuse("a roofline needs kernels with FLOPs, bytes and a time, and the GPU's rates")
    frame = Frame.around(points, roofs, bandwidth)
    lines = [*roof_lines(roofs, bandwidth, frame)]
    with styled():
        figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DOTS, layout="constrained")
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log")
        axes.set(xlim=(frame.left, frame.right), ylim=(frame.bottom, frame.top))
        axes.grid(color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        _draw_roofs(axes, lines)
        _draw_points(axes, points)
        axes.set_xlabel("FLOPs per byte of device memory")
        axes.set_ylabel("FLOPs per second")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter(lambda value, _: scaled(value))
        head(figure, title, textwrap.fill(caption, CAPTION_WIDTH), 8)
        figure.draw_without_rendering()
        _label(axes, points, lines[0])
    names = ", ".join(point.words for point in points)
    describe(figure, f"{title}. {caption} {names}")
    return figure


def _draw_roofs(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the roofs; all but the first, the bandwidth's, with their words."""
    for number, line in enumerate(lines):
        xs, ys = zip(line.start, line.end, strict=True)
        axes.plot(xs, ys, color=INK, linewidth=1.2 if number else 1.6)
    for line in lines[1:]:
        place: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 8, "color": MUTED}
        axes.text(*line.end, f"{line.words} ", **place)


def _draw_points(axes: Axes, points: Sequence[Point]) -> None:
    """Draw each point with its words as label, the largest at the bottom."""
    total = sum(point.us for point in points)
    for place, point in sorted(enumerate(points, 1), key=lambda pair: -pair[1].us):
        drawn = axes.scatter(
            [point.intensity],
            [point.rate],
            s=area(point.us, total),
            color=EXACT,
            alpha=0.65,
            edgecolors="white",
            linewidths=0.8,
            label=point.words,
            zorder=3,
        )
        drawn.set_gid(f"kernel-{place}")


def _outlines(axes: Axes, points: Sequence[Point]) -> Iterator[Any]:
    """Return pixels of each point's centre and edge."""
    total, angles = sum(point.us for point in points), np.linspace(0, 2 * np.pi, 16)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    for point in points:
        middle = axes.transData.transform([(point.intensity, point.rate)])
        radius = area(point.us, total) ** 0.5 / 2 * DOTS / 72  # an inch has 72 points
        yield np.concatenate([middle, middle + radius * circle])


def _label(axes: Axes, points: Sequence[Point], memory: Line) -> None:
    """Label the bandwidth's roof and the kernels with the most time."""
    ends = [axes.transData.transform(np.column_stack(line.get_data())) for line in axes.lines]
    lines = [np.linspace(first, last, 120) for first, last in ends]
    placer = Placer(axes, [*lines, *_outlines(axes, points)])
    left, rate = memory.start
    placer.at_point(memory.words, (left * 1.2, rate * 1.2), color=MUTED)
    most = sorted(points, key=lambda point: point.us, reverse=True)[:NAMED]
    for point in most:
        whole, half = len(point.name) <= LONGEST_NAME, LONGEST_NAME // 2
        name = point.name if whole else f"{point.name[:half]}…{point.name[1 - half :]}"
        placer.at_point(name, (point.intensity, point.rate), color=INK)
