"""What a notebook shows of the Python API's results."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab import Comparison, Explanation, Tuning
from occupancy_lab.evaluating import Evaluation
from occupancy_lab.text.document import Document, Section, Table
from occupancy_lab.text.notebook import ShownAsTables, to_html

TAGS = {"h1", "h2", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}


class Cells(HTMLParser):
    """Reads the tags of HTML, and the text of its cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - HTMLParser's own
        """Note a tag, and begin a cell at `th` and `td`."""
        self.tags.add(tag)
        self._inside = tag in {"th", "td"}
        if self._inside:
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        """End a cell."""
        self._inside = self._inside and tag not in {"th", "td"}

    def handle_data(self, data: str) -> None:
        """Add to the text of a cell."""
        if self._inside:
            self.cells[-1] += data


def document(cell: str) -> Document:
    """Return a document whose table has *cell* in its one row."""
    section = Section("Limits", (Table(("limit", "programs"), (("warps", cell),)),), ("Why.",))
    return Document("softmax", ("8 programs.",), (section,))


@pytest.mark.parametrize("shown", [Explanation, Comparison, Tuning, Evaluation])
def test_results_are_shown_by_their_markdown(shown: type) -> None:
    """Each result of the API is shown in one way, and has its own markdown."""
    assert issubclass(shown, ShownAsTables)
    assert shown.to_markdown is not ShownAsTables.to_markdown
    for name in ("_repr_markdown_", "_repr_html_"):
        assert getattr(shown, name) is getattr(ShownAsTables, name)


def test_markdown_and_html_say_the_same() -> None:
    """A notebook gets the markdown as it is, and HTML with the same title, list and table."""
    explanation = Explanation((), document("8"))
    assert explanation._repr_markdown_() == explanation.to_markdown()
    found = Cells(explanation._repr_html_())
    assert found.tags == TAGS
    assert found.cells == ["limit", "programs", "warps", "8"]


@given(st.text("<>&\"'/=! abcdrst"))
def test_html_in_text_is_text(cell: str) -> None:
    """What looks like HTML, in the name of a kernel or a file, is shown and not understood."""
    found = Cells(to_html(document(cell).to_markdown()))
    assert found.tags <= TAGS


def test_a_script_is_shown_and_not_run() -> None:
    """A tag in a cell arrives as the text of that cell."""
    found = Cells(to_html(document("<script>alert(1)</script>").to_markdown()))
    assert found.cells[-1] == "<script>alert(1)</script>"
