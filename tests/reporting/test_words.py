"""The words of a report by chapter, for a small table."""

from collections.abc import Callable

import pytest
from small_table import predicted_of, rows, table_of

from occupancy_lab.reporting.contents import write_page
from occupancy_lab.reporting.page import Page
from occupancy_lab.reporting.source import Source
from occupancy_lab.text.document import to_markdown

TITLES = (
    "In short",
    "The tutorial's benchmark",
    "Predicted against measured",
    "Where the tutorial's num_programs is wrong",
    "A worked example: 781 columns, 8 warps, 4 stages",
    "How the numbers were obtained",
)


@pytest.fixture(scope="module")
def pages(small: Source, predicted: Source) -> dict[str, Page]:
    """Return the page of the small table and of its predictions."""
    return {"": write_page(small), "predicted-": write_page(predicted)}


@pytest.mark.parametrize("place", range(len(TITLES)), ids=TITLES)
@pytest.mark.parametrize("kind", ["", "predicted-"], ids=["measured", "predicted"])
def test_words(
    kind: str, place: int, pages: dict[str, Page], check_golden: Callable[[str, str], None]
) -> None:
    """The chapter equals its golden file, with measured times and with predicted ones."""
    page = pages[kind]
    assert tuple(chapter.title for chapter in page.chapters) == TITLES
    text = to_markdown(Page(page.title, (page.chapters[place],)).blocks(lambda one: one.name))
    check_golden(f"{kind}{place + 1}.md", text)


def test_a_page_of_predictions_without_any_time() -> None:
    """No chapter of a page without measurements claims that something was measured."""
    text = to_markdown(write_page(predicted_of(table_of(rows()))).blocks(None))
    assert "no GH200 96 GB was measured" in text
    assert text.count("Left out: ") == 1
    assert "Left out: no time was measured on GH200 96 GB." in text
    assert "ecorded" not in text
