"""What all pictures share: colours, fonts, the placement of labels, and reproducible files."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.cbook import STEP_LOOKUP_MAP
from matplotlib.patches import ConnectionPatch
from matplotlib.ticker import MultipleLocator

from occupancy_lab.files import check_picture, export
from occupancy_lab.inputs import next_power_of_two

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

Points = np.ndarray[Any, np.dtype[np.float64]]

EXACT, TUTORIAL = "#0072b2", "#d55e00"
"""Blue and vermilion of Okabe and Ito's colour-blind-safe palette."""
INK, MUTED, FAINT, PALE = "#24292f", "#57606a", "#d0d7de", "#f3f4f6"
"""Greys, from text to an empty background."""
COLOUR_MAP = "cividis"
"""A colour map that also works for the colour-blind and in grey."""

_SETTINGS: Mapping[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.h_pad": 0.07,
    "figure.constrained_layout.w_pad": 0.07,
    "figure.facecolor": "white",
    "hatch.linewidth": 0.8,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "occupancy-lab",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
}
_PNG_DOTS_PER_INCH = 160
MOST_TICKS = 8


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Use the style of the lab within the context, whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def describe(figure: Figure, description: str) -> None:
    """Give *figure* a text for those who cannot see it."""
    figure.set_label(description)


def head(figure: Figure, title: str, caption: str = "", size: int = 9) -> None:
    """Give *figure* its title, and a caption of font size *size* below it."""
    figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=11)
    if caption:
        figure.supxlabel(caption, x=0.01, ha="left", color=MUTED, fontsize=size)


def lined(axes: Axes) -> None:
    """Draw pale horizontal grid lines behind the content of *axes*."""
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def even_ticks(axes: Axes, most: int) -> None:
    """Set ticks up to *most* on the x axis, spaced by a power of two."""
    axes.xaxis.set_major_locator(MultipleLocator(next_power_of_two(-(-most // MOST_TICKS))))


def save(figure: Figure, path: Path | str) -> None:
    """Write *figure* to *path* as SVG or PNG, with the same bytes for the same figure.

    The file has the figure's title and description. In an SVG, an artist with an id has its label
    as a title, which is shown on hover.

    Raises InputError if the suffix is neither .svg nor .png, or the file cannot be written.
    """
    check_picture(path)
    form = Path(path).suffix.lower().removeprefix(".")
    export(Path(path), svg_text(figure) if form == "svg" else _drawn(figure, form))


def svg_text(figure: Figure) -> str:
    """Return *figure* as the text of an SVG, as `save` writes it."""
    svg = _drawn(figure, "svg").decode()
    for artist in figure.findobj(lambda one: one.get_gid() is not None):
        group = f'<g id="{artist.get_gid()}">'
        svg = svg.replace(group, f"{group}<title>{escape(str(artist.get_label()))}</title>", 1)
    return svg


def _drawn(figure: Figure, form: str) -> bytes:
    metadata = {
        "Title": " ".join(figure.get_suptitle().split()),
        "Description": str(figure.get_label()),
    }
    if form == "svg":
        metadata["Date"] = None  # type: ignore[assignment] # None leaves the date out
    drawn = io.BytesIO()
    with styled():
        figure.savefig(drawn, format=form, metadata=metadata, dpi=_PNG_DOTS_PER_INCH)
    return drawn.getvalue()


STEP = 3.0
"""The distance in pixels between the sampled points of a curve."""
ALIKE = 6.0
"""The largest distance in pixels of curves that look the same."""
MARGIN = 5.0
"""The margin around a label in pixels."""
NEAR = 30.0
"""The distance in pixels within which a label might seem to belong to another curve."""
LEADER_FROM = 14.0
"""The distance in pixels from which on a line joins a label to what it names."""
COLLISION = 1e6
"""The cost of a collision in pixels of distance: any place without one is better."""
GRID = 40
"""How many places are tried in each direction."""


def outline(axes: Axes, line: Line2D) -> Points:
    """Return sampled pixels of a step line within *axes*."""
    steps = STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_data())
    corners = line.get_transform().transform(np.column_stack(steps))
    along = np.concatenate(([0.0], np.cumsum(np.abs(np.diff(corners, axis=0)).sum(axis=1))))
    stops = np.arange(0.0, along[-1] + STEP, STEP)
    points: Points = np.column_stack([np.interp(stops, along, corners[:, axis]) for axis in (0, 1)])
    shown = (points[:, 1] <= axes.bbox.y1) & (points[:, 1] >= axes.bbox.y0)
    return np.asarray(points[shown])


def are_alike(curve: Points, other: Points) -> bool:
    """Return whether two curves look the same."""
    return all(
        (_distances(np.hstack([one, one]), another) <= ALIKE).all()
        for one, another in ((curve, other), (other, curve))
    )


def _distances(boxes: Points, points: Points) -> Points:
    """Return the distance in pixels of each box (x0, y0, x1, y1) to the nearest point."""
    if not len(points):
        return np.full(len(boxes), np.inf)
    return np.asarray(_all_distances(boxes, points).min(axis=1))


def _all_distances(boxes: Points, points: Points) -> Any:
    low, high = boxes[:, None, :2], boxes[:, None, 2:]
    away = np.maximum(0.0, np.maximum(low - points, points - high))
    return np.hypot(away[..., 0], away[..., 1])


def _leaders(boxes: Points, near: Points) -> Points:
    """Return points along the line from each box to the nearest point of *near*."""
    ends = near[_all_distances(boxes, near).argmin(axis=1)]
    starts = np.clip(ends, boxes[:, :2] + MARGIN, boxes[:, 2:] - MARGIN)
    return np.linspace(starts, ends, 12, axis=1)


class Placer:
    """Finds a free place for each label of an axes, whose layout must be final."""

    def __init__(self, axes: Axes, curves: Sequence[Points]) -> None:
        self._axes = axes
        self._curves = curves
        self._lines = list(curves)
        self._taken: list[Points] = []

    def at_point(self, text: str, point: tuple[float, float], **style: Any) -> None:
        """Write *text* in the free place nearest to *point*, given in data coordinates."""
        self._place(text, self._axes.transData.transform([point]), (), style)

    def at_curve(self, text: str, curve: Points, **style: Any) -> None:
        """Write *text* in the free place nearest to where *curve* is apart from other curves."""
        others = [other for other in self._curves if other is not curve]
        alone = np.full(len(curve), fill_value=True)
        for other in others:
            alone &= _distances(np.hstack([curve, curve]), other) > ALIKE
        self._place(text, curve[alone] if alone.any() else curve, others, style)

    def _place(
        self, text: str, near: Points, others: Sequence[Points], style: dict[str, Any]
    ) -> None:
        place: dict[str, Any] = {"ha": "left", "va": "bottom", "fontsize": 9, "in_layout": False}
        label = self._axes.text(0, 0, text, **place, **style)
        boxes = self._places(label)
        distances, leaders = _distances(boxes, near), _leaders(boxes, near)
        cost = distances + COLLISION * self._collisions(boxes, leaders)
        for other in others:
            cost = cost + np.maximum(0.0, NEAR - _distances(boxes, other))
        best = int(cost.argmin())
        self._taken.append(boxes[best])
        to_data = self._axes.transData.inverted()
        x, y = to_data.transform(boxes[best][:2] + MARGIN)
        label.set_position((float(x), float(y)))
        if distances[best] > LEADER_FROM:
            self._lines.append(leaders[best])
            start, *_, end = to_data.transform(leaders[best])
            style = {"color": style["color"], "linewidth": 0.7, "in_layout": False}
            self._axes.add_patch(ConnectionPatch(start, end, "data", "data", **style))

    def _collisions(self, boxes: Points, leaders: Points) -> Points:
        """Count for each box the curves and labels that it covers or its leader crosses."""
        found = np.zeros(len(boxes))
        for line in self._lines:
            found += _distances(boxes, line) == 0
        for taken in self._taken:
            low, high = taken[:2], taken[2:]
            found += np.all((boxes[:, :2] < high) & (boxes[:, 2:] > low), axis=1)
            found += np.any(np.all((leaders > low) & (leaders < high), axis=2), axis=1)
        return found

    def _places(self, label: Text) -> Points:
        """Return the candidate boxes for *label* within the axes, including margins."""
        extent, box = label.get_window_extent(), self._axes.bbox
        width, height = extent.width + 2 * MARGIN, extent.height + 2 * MARGIN
        left = np.linspace(box.x0, max(box.x0, box.x1 - width), GRID)
        bottom = np.linspace(box.y0, max(box.y0, box.y1 - height), GRID)
        corners = np.array(np.meshgrid(left, bottom)).reshape(2, -1).T
        return np.hstack([corners, corners + np.array([width, height])])
