"""Markdown on a terminal: the words and tables that reports and notebooks show too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markdown import Markdown, TableElement
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import ConsoleOptions, RenderResult


LONGEST_NAME = 20
"""Characters up to which the names in a table's first column stay on one line."""


class _FoldingTable(TableElement):
    """Breaks a word that is too long for its column, where rich would cut it off.

    Short names in the first column are not broken: the other columns are narrower instead.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
                first = part.columns[0]
                names = map(str, (first.header, *first.cells))
                first.no_wrap = max(map(len, names)) <= LONGEST_NAME
            yield part


class _FoldingMarkdown(Markdown):
    elements = {**Markdown.elements, "table_open": _FoldingTable}  # noqa: RUF012 - rich's own form


def print_markdown(markdown: str, print_text: Callable[[str], None]) -> None:
    """Print *markdown* with *print_text*, as wide and as colourful as the terminal allows.

    rich obeys NO_COLOR, FORCE_COLOR, TERM and COLUMNS; without a terminal it prints plain text,
    80 columns wide.
    """
    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(_FoldingMarkdown(markdown, justify="left"))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    # rich leaves two blank lines around a table, and one before its first.
    shown = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    print_text("\n".join(shown) + "\n")
