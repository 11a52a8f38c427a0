"""Where a label goes so that it covers neither a curve nor another label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.cbook import STEP_LOOKUP_MAP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    Points = np.ndarray[Any, np.dtype[np.float64]]

APART = 2.0
"""Pixels between the points that stand for a curve."""
MARGIN = 4.0
"""Pixels that stay free around a label."""
NEAR = 30.0
"""Pixels from another curve within which a label might seem to be that curve's."""
COLLISION = 1e6
"""What a collision costs, in pixels of distance: any place without one is better."""
GRID = 40
"""Places tried in each direction."""


def outline(line: Line2D) -> Points:
    """Give the pixels, every few of them, of a step line where its axes show it."""
    steps = STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_data())
    corners = line.get_transform().transform(np.column_stack(steps))
    along = np.concatenate(([0.0], np.cumsum(np.abs(np.diff(corners, axis=0)).sum(axis=1))))
    stops = np.arange(0.0, along[-1] + APART, APART)
    points = np.column_stack([np.interp(stops, along, corners[:, axis]) for axis in (0, 1)])
    box = line.axes.bbox if line.axes else line.clipbox
    return points[(points[:, 1] <= box.y1) & (points[:, 1] >= box.y0)]


def _distances(boxes: Points, points: Points) -> Points:
    """Give the distance in pixels of each box (x0, y0, x1, y1) to the nearest point."""
    if not len(points):
        return np.full(len(boxes), np.inf)
    low, high = boxes[:, None, :2], boxes[:, None, 2:]
    away = np.maximum(0.0, np.maximum(low - points, points - high))
    return np.asarray(np.hypot(away[..., 0], away[..., 1]).min(axis=1))


class Placer:
    """Finds a free place for each label of one axes, whose layout must be settled."""

    def __init__(self, axes: Axes, curves: Sequence[Points]) -> None:
        self._axes = axes
        self._curves = curves
        self._taken: list[Points] = []

    def place(self, text: str, near: Points, **style: Any) -> Text:
        """Write *text* in the free place nearest to *near*, pixels of a curve or of a mark."""
        label = self._axes.text(0, 0, text, ha="left", va="bottom", in_layout=False, **style)
        boxes = self._places(label)
        others = [curve for curve in self._curves if curve is not near]
        cost = _distances(boxes, near)
        for curve in self._curves:
            cost = cost + COLLISION * (_distances(boxes, curve) == 0)
        for other in others:
            cost = cost + np.maximum(0.0, NEAR - _distances(boxes, other))
        for taken in self._taken:
            apart = (boxes[:, :2] >= taken[2:]) | (boxes[:, 2:] <= taken[:2])
            cost = cost + COLLISION * ~apart.any(axis=1)
        best = boxes[int(cost.argmin())]
        self._taken.append(best)
        corner = self._axes.transData.inverted().transform(best[:2] + MARGIN)
        label.set_position((float(corner[0]), float(corner[1])))
        return label

    def _places(self, label: Text) -> Points:
        """Give the boxes, margins included, in which *label* lies within the axes."""
        extent, box = label.get_window_extent(), self._axes.bbox
        width, height = extent.width + 2 * MARGIN, extent.height + 2 * MARGIN
        left = np.linspace(box.x0, max(box.x0, box.x1 - width), GRID)
        bottom = np.linspace(box.y0, max(box.y0, box.y1 - height), GRID)
        corners = np.array(np.meshgrid(left, bottom)).reshape(2, -1).T
        return np.hstack([corners, corners + (width, height)])
