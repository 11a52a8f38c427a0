"""A page in markdown: its blocks, and the escaping of text."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from matplotlib.figure import Figure

from occupancy_lab.reporting.page import Chapter, Page, Picture
from occupancy_lab.text.document import Commands, Section, Table, literal, to_markdown

PRINTABLE = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]))


@given(PRINTABLE)
def test_literal_text_is_shown_as_it_is(text: str) -> None:
    """An independent renderer shows escaped text unchanged and without tags."""
    renderer = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    shown = html.escape(" ".join(text.split()), quote=False).replace('"', "&quot;")
    rendered = renderer.render(f"It says: {literal(text)}.")
    assert rendered == f"<p>It says: {shown}.</p>\n"
    cell = to_markdown((Table(("",), ((f"x {literal(text)} x",),)),))
    (content,) = re.findall(r"<td[^>]*>(.*)</td>", renderer.render(cell))
    assert " ".join(content.split()) == " ".join(f"x {shown} x".split())


@pytest.mark.parametrize("line", ["echo 1", "echo ```", "`````"])
def test_commands_stay_in_their_fence(line: str) -> None:
    """Backticks in a command do not end the fence around it."""
    rendered = MarkdownIt().render(to_markdown((Commands(("first", line)),)))
    assert rendered == f'<pre><code class="language-sh">first\n{line}\n</code></pre>\n'


def test_page_has_its_blocks_in_order() -> None:
    """Chapters are headings of the second level, and their sections of the third."""
    picture = Picture("curve", "A curve", Figure)
    table = Table(("a", "b"), (("1", "2"),))
    chapter = Chapter("One", ("Words.", table, picture, Section("Part", sentences=("So.",))))
    page = Page("All", (chapter, Chapter("Two", (Commands(("ls",)),))))
    assert page.pictures == (picture,)
    assert to_markdown(page.blocks(lambda one: f"{one.name}.svg")) == (
        "# All\n\n## One\n\nWords.\n\n| a   |   b |\n|:----|----:|\n| 1   |   2 |\n\n"
        "![A curve](curve.svg)\n\n### Part\n\n- So.\n\n## Two\n\n```sh\nls\n```\n"
    )
