"""What all pictures share: colours, fonts, and files that are the same bytes every time."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

from occupancy_lab.errors import InputError
from occupancy_lab.files import PICTURES, export

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from matplotlib.figure import Figure

EXACT, TUTORIAL = "#0072b2", "#d55e00"
"""Blue and vermilion of Okabe and Ito's palette, which the colour-blind tell apart."""
INK, MUTED, FAINT, PALE = "#24292f", "#57606a", "#d0d7de", "#f3f4f6"
"""Greys, from that of text to that of an empty background."""
COLOUR_MAP = "cividis"
"""A colour map that reads the same with any colour vision, and in grey."""

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


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Set the style for as long as it lasts, whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def describe(figure: Figure, description: str) -> None:
    """Return *figure* the sentences that stand for it where it cannot be seen."""
    figure.set_label(description)


def _format_of(path: Path) -> str:
    """Return the format that the suffix of *path* names: svg or png.

    Raises InputError for any other.
    """
    found = path.suffix.lower()
    if found not in PICTURES:
        msg = f"{path} does not end in .svg or .png, the two kinds of picture there are"
        raise InputError(msg)
    return found.removeprefix(".")


def save(figure: Figure, path: Path | str) -> None:
    """Write *figure* to *path*, the same bytes for the same figure, as its suffix says.

    The figure's title and description go with it, for those who cannot see it.

    Raises InputError where the suffix is neither .svg nor .png, or the file cannot be written.
    """
    path = Path(path)
    picture_format = _format_of(path)
    metadata = {
        "Title": " ".join(figure.get_suptitle().split()),
        "Description": str(figure.get_label()),
    }
    if picture_format == "svg":
        metadata["Date"] = None  # type: ignore[assignment] # None is how a date is left out
    drawn = io.BytesIO()
    with styled():
        figure.savefig(drawn, format=picture_format, metadata=metadata, dpi=_PNG_DOTS_PER_INCH)
    export(path, drawn.getvalue())
