"""The pictures of a report have named axes with units, and their labels are inside the picture."""

import pytest
from matplotlib.figure import Figure

from occupancy_lab.reporting.contents import write_page
from occupancy_lab.reporting.page import Page
from occupancy_lab.reporting.source import Source

NAMES = {
    "small": ("bandwidths", "accuracy", "excesses", "example"),
    "predicted": ("bandwidths", "excesses", "example"),
}
"""The pictures by their source."""


@pytest.fixture(scope="module")
def pages(small: Source, predicted: Source) -> dict[str, Page]:
    """Return the page of each source."""
    return {"small": write_page(small), "predicted": write_page(predicted)}


@pytest.fixture(scope="module")
def drawn(pages: dict[str, Page]) -> dict[tuple[str, str], Figure]:
    """Return each picture of the small table and of its predictions."""
    return {
        (source, one.name): one.draw() for source, page in pages.items() for one in page.pictures
    }


@pytest.fixture(params=[(source, name) for source, names in NAMES.items() for name in names])
def figure(request: pytest.FixtureRequest, drawn: dict[tuple[str, str], Figure]) -> Figure:
    """Return one of the pictures."""
    return drawn[request.param]


def test_axes_are_named(figure: Figure) -> None:
    """Each axis with numbers has a label; the figure has a title and a description."""
    assert figure.get_suptitle()
    assert figure.get_label()
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel() or axes is not figure.axes[0]


def test_nothing_is_cut_off(figure: Figure) -> None:
    """Every text lies inside the figure."""
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
