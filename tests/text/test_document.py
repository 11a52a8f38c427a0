"""One document, three views, and what a notebook shows of it."""

import dataclasses
import html
import json
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from occupancy_lab import Explanation, calculate_occupancy
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.text.document import Document, Section, Table, literal, to_html

DOCUMENT = Document(
    "title",
    ("the answer",),
    (Section("first", (Table(("", "a|b"), (("row", "1 | 2"),), "caption"),), ("a sentence",)),),
)


def test_markdown_escapes_what_would_end_a_cell() -> None:
    """A bar inside a cell, of a header too, stays inside it."""
    rows = [line for line in DOCUMENT.to_markdown().splitlines() if line.startswith("|")]
    assert all(row.replace(r"\|", "").count("|") == 3 for row in rows)


TAGS = {"h1", "h2", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}


class Cells(HTMLParser):
    """Reads the tags of HTML, and the text of its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self._inside = False
        self.feed(page)

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


def test_a_result_is_one_line_a_page_and_json() -> None:
    """`repr` is a line with the title, `str` the page, `to_json` the values."""
    found = calculate_occupancy("h100,mi300x", n_regs=32, shared=0, num_warps=8)
    assert repr(found) == "<Calculations: n_regs 32, shared 0, num_warps 8>"
    assert str(found) == found.to_markdown()
    assert str(found).startswith("# n_regs 32, shared 0, num_warps 8\n\n- **H100 SXM**: 8 programs")
    assert [one["gpu"] for one in json.loads(found.to_json())] == ["h100", "mi300x"]


def test_markdown_and_html_say_the_same() -> None:
    """A notebook gets the markdown as it is, and HTML with the same title, list and table."""
    explanation = Explanation((), (), Compiler(None), page=document("8"))
    assert explanation._repr_markdown_() == explanation.to_markdown()
    found = Cells(explanation._repr_html_())
    assert found.tags == TAGS
    assert found.cells == ["limit", "programs", "warps", "8"]


@given(st.text("<>&\"'/=! abcdrst"))
def test_html_in_text_is_text(cell: str) -> None:
    """What looks like HTML, in the name of a kernel or a file, is shown and not understood."""
    found = Cells(to_html(document(cell).blocks()))
    assert found.tags <= TAGS


PIECES = st.sampled_from(["**a b**", "*a*", "**a `b*` c**", "`a ** b*`", "`a`", "2 * 3", "``"])


@given(st.lists(PIECES | st.text("ab<>&\\`*~$[]#_|-+ ").map(literal)).map(" ".join))
def test_html_is_that_of_the_markdown(words: str) -> None:
    """A renderer that nobody here wrote understands the markdown as what the HTML says."""
    page = document(f"x {words} x")
    page = dataclasses.replace(page, answer=(f"x {words} x", "8 programs."))
    rendered = MarkdownIt("commonmark").enable("table").render(page.to_markdown())
    assert flat(to_html(page.blocks())) == flat(rendered)


def flat(text: str) -> str:
    """Return HTML with one blank for several, characters as they are, and tags that meet as one."""
    return " ".join(html.unescape(text).replace("</strong><strong>", "").split())
