"""One document in three forms, and its display in a notebook."""

import dataclasses
import html
import json

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from occupancy_lab import calculate_occupancy
from occupancy_lab.text.document import Document, Section, Table, literal, to_html

DOCUMENT = Document(
    "title",
    ("the answer",),
    (Section("first", (Table(("", "a|b"), (("row", "1 | 2"),), "caption"),), ("a sentence",)),),
)


def test_markdown_escapes_what_would_end_a_cell() -> None:
    """A bar in a cell or a header is escaped."""
    rows = [line for line in DOCUMENT.to_markdown().splitlines() if line.startswith("|")]
    assert all(row.replace(r"\|", "").count("|") == 3 for row in rows)


def document(cell: str) -> Document:
    """Return a document whose table has *cell* in its one row."""
    section = Section("Limits", (Table(("limit", "programs"), (("warps", cell),)),), ("Why.",))
    return Document("softmax", ("8 programs.",), (section,))


def test_a_result_is_one_line_a_page_and_json() -> None:
    """`repr` is one line with the title, `str` is the page, and `to_json` has the values."""
    found = calculate_occupancy("h100,mi300x", n_regs=32, shared=0, num_warps=8)
    assert repr(found) == "<Calculations: n_regs 32, shared 0, num_warps 8>"
    assert str(found) == found.to_markdown()
    assert str(found).startswith("# n_regs 32, shared 0, num_warps 8\n\n- **H100 SXM**: 8 programs")
    assert [one["gpu"] for one in json.loads(found.to_json())] == ["h100", "mi300x"]


PIECES = st.sampled_from(["**a b**", "*a*", "**a `b*` c**", "`a ** b*`", "`a`", "2 * 3", "``"])


@given(st.lists(PIECES | st.text("ab<>&\\`*~$[]#_|-+ ").map(literal)).map(" ".join))
def test_html_is_that_of_the_markdown(words: str) -> None:
    """An independent renderer makes the same HTML from the markdown."""
    page = document(f"x {words} x")
    page = dataclasses.replace(page, answer=(f"x {words} x", "8 programs."))
    rendered = MarkdownIt("commonmark").enable("table").render(page.to_markdown())
    assert flat(to_html(page.blocks())) == flat(rendered)


def flat(text: str) -> str:
    """Return HTML with single blanks, unescaped characters, and no space between tags."""
    return " ".join(html.unescape(text).replace("</strong><strong>", "").split())
