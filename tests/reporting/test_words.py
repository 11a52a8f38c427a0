"""The words of a report, chapter by chapter, of a small table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_table import H100

from occupancy_lab.reporting.contents import write_page
from occupancy_lab.reporting.page import Chapter, Page
from occupancy_lab.reporting.source import make_predicted
from occupancy_lab.text.document import Section

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.reporting.source import Source

TITLES = (
    "What was run",
    "In short",
    "The tutorial's benchmark",
    "Predicted against measured",
    "The occupancy grid",
    "Where the tutorial's num_programs is wrong",
    "A worked example: 781 columns, 8 warps, 4 stages",
    "How the numbers were taken",
)
PREDICTED_TITLES = (*TITLES[:-1], "How sure the numbers are")
OTHERS = ("The limits", "The next step", "How long it takes", "What the numbers are")
"""Sections whose words come from another package, whose own tests cover them."""


def own_words(chapter: Chapter) -> Chapter:
    """Return *chapter* without the sections of other rooms."""
    kept = tuple(
        block
        for block in chapter.blocks
        if not (
            isinstance(block, Section)
            and block.title.startswith(("H200 SXM, ", "H100 SXM, ", *OTHERS))
        )
    )
    return Chapter(chapter.title, kept)


@pytest.fixture(scope="module")
def page(small: Source) -> Page:
    """Return the page of the small table."""
    return write_page(small)


@pytest.fixture(scope="module")
def predicted_page(predicted: Source) -> Page:
    """Return the page of what is predicted of the small table."""
    return write_page(predicted)


def test_chapters_come_in_their_order(page: Page) -> None:
    """Each question is answered, in the order in which a reader asks."""
    assert tuple(chapter.title for chapter in page.chapters) == TITLES


@pytest.mark.parametrize("place", range(len(TITLES)), ids=TITLES)
def test_words(place: int, page: Page, check_golden: Callable[[str, str], None]) -> None:
    """The chapter says what its golden file says."""
    chapter = own_words(page.chapters[place])
    text = Page(page.title, (chapter,)).to_markdown(lambda one: f"![{one.words}]({one.name})")
    check_golden(f"{place + 1}.md", text)


def test_predicted_chapters_come_in_the_same_order(predicted_page: Page) -> None:
    """Where nothing was launched the same questions are answered."""
    assert predicted_page.title == "Fused softmax on H100 SXM, predicted"
    assert tuple(chapter.title for chapter in predicted_page.chapters) == PREDICTED_TITLES


@pytest.mark.parametrize("place", range(len(PREDICTED_TITLES)), ids=PREDICTED_TITLES)
def test_predicted_words(
    place: int, predicted_page: Page, check_golden: Callable[[str, str], None]
) -> None:
    """A chapter of predictions says what its golden file says."""
    chapter = own_words(predicted_page.chapters[place])
    text = Page(predicted_page.title, (chapter,)).to_markdown(
        lambda one: f"![{one.words}]({one.name})"
    )
    check_golden(f"predicted-{place + 1}.md", text)


def test_a_page_of_predictions_without_any_time(small: Source) -> None:
    """Where nobody measured anything no chapter says that somebody did."""
    text = write_page(make_predicted(H100, small)).to_markdown(lambda one: one.words)
    assert "no time that was measured on one is known" in text
    assert text.count("Left out: ") == 1
    assert "Left out: no time that was measured on H100 SXM is known." in text
    assert "ecorded" not in text.replace("reports/", "")
