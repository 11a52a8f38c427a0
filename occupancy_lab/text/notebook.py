"""How a notebook shows what the Python API gives: as its tables."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


def html_renderer() -> MarkdownIt:
    """Return what makes HTML of markdown with tables, and text of what looks like HTML in it."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table")


def to_html(markdown: str) -> str:
    """Return *markdown* as a piece of HTML; whatever looks like HTML in it is shown as text."""
    html: str = html_renderer().render(markdown)
    return html


class ShownAsTables:
    """What has markdown, and is shown by it in a notebook."""

    __slots__ = ()

    @abstractmethod
    def to_markdown(self) -> str:
        """Return it in GitHub's markdown."""

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return to_html(self.to_markdown())
