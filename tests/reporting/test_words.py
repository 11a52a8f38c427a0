"""The words of a report, chapter by chapter, of a small table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from occupancy_lab.explaining.document import Section
from occupancy_lab.reporting.contents import write_page
from occupancy_lab.reporting.page import Chapter, Page

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
OTHERS = ("The limits", "The next step", "How long it takes", "What the numbers are")
"""Sections whose words are another room's, and held by its own tests."""


def own_words(chapter: Chapter) -> Chapter:
    """Give *chapter* without the sections of other rooms."""
    kept = tuple(
        block
        for block in chapter.blocks
        if not (isinstance(block, Section) and block.title.startswith(("H200 SXM, ", *OTHERS)))
    )
    return Chapter(chapter.title, kept)


def test_chapters_come_in_their_order(small: Source) -> None:
    """Each question is answered, in the order in which a reader asks."""
    assert tuple(chapter.title for chapter in write_page(small).chapters) == TITLES


@pytest.mark.parametrize("place", range(len(TITLES)), ids=TITLES)
def test_words(place: int, small: Source, check_golden: Callable[[str, str], None]) -> None:
    """The chapter says what its golden file says."""
    page = write_page(small)
    chapter = own_words(page.chapters[place])
    text = Page(page.title, (chapter,)).to_markdown(lambda one: f"![{one.words}]({one.name})")
    check_golden(f"{place + 1}.md", text)
