"""Every picture of a report: axes with names and units, and labels within the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from occupancy_lab.reporting.contents import write_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from occupancy_lab.reporting.source import Source

NAMES = ("bandwidths", "losses", "accuracy", "occupancies", "excesses", "example")


@pytest.fixture(params=NAMES)
def figure(request: pytest.FixtureRequest, small: Source) -> Figure:
    """Give each picture of the small table."""
    (picture,) = (one for one in write_page(small).pictures if one.name == request.param)
    return picture.draw()


def test_report_has_its_pictures(small: Source) -> None:
    """Each picture is there once, with words for those who cannot see it."""
    pictures = write_page(small).pictures
    assert tuple(one.name for one in pictures) == NAMES
    assert all(len(one.words) > 30 for one in pictures)
    assert not any(set("[]\n") & set(one.words) for one in pictures)


def test_axes_are_named(figure: Figure) -> None:
    """Each axis that shows numbers says which; the figure has a title and a description."""
    assert figure.get_suptitle()
    assert figure.get_label()
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel() or axes is not figure.axes[0]


def test_nothing_is_cut_off(figure: Figure) -> None:
    """Every text lies within the figure."""
    figure.draw_without_rendering()
    box = figure.bbox
    texts = [text for axes in figure.axes for text in axes.texts]
    texts += [label for axes in figure.axes for label in (axes.title, axes.xaxis.label)]
    for text in texts:
        extent = text.get_window_extent()
        assert box.x0 <= extent.x0
        assert extent.x1 <= box.x1
        assert box.y0 <= extent.y0
        assert extent.y1 <= box.y1
