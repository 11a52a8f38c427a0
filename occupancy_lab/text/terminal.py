"""A document on a terminal: tables keep words whole and all of their columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from occupancy_lab.text import document
from occupancy_lab.text.document import Block
from occupancy_lab.text.words import visible

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

Column = Sequence[Text]
"""The header of a column, and its cells."""

LONGEST_NAME = 20
"""The longest name in a table's first column that is never wrapped."""
_BESIDE = 2
"""The characters of spacing for each column."""
_WORD = re.compile(r"\S+")
_GROUP = re.compile(rf"\([^()\s][^()]{{,{LONGEST_NAME}}}\)\S*|\S+")
"""A word, or a few in parentheses, as the range of a time."""
_PIECE = re.compile(r"[^\s_/]*[_/]+|[^\s_/]+")
"""A part of a word that is not broken: it ends in an underscore or a slash."""
_BULLET = " \N{BULLET} "


def drawn(block: Block, width: int) -> Iterator[RenderableType]:
    """Yield the parts of *block* for a terminal of *width* characters, from top to bottom."""
    match block:
        case document.Heading():
            side: JustifyMethod = "center" if block.level == 1 else "left"
            yield _text(block.title, f"markdown.h{block.level}", side)
        case document.Bullets():
            items = Table.grid()
            items.add_column(width=len(_BULLET), style="markdown.item.bullet")
            items.add_column(width=width - len(_BULLET), overflow="fold")
            for sentence in block.sentences:
                items.add_row(_BULLET, _text(sentence))
            yield items
        case document.Commands():
            lines = visible("\n".join(block.lines))
            yield Padding(Text(lines, "markdown.code_block", overflow="fold"), (0, 1))
        case document.Listing():
            is_wide = any(cell_len(visible(line)) > width for line in block.lines)
            for line in block.narrow if is_wide and block.narrow else block.lines:
                yield Text(visible(line), no_wrap=True, overflow="ellipsis")
        case document.Table():
            if block.caption:
                yield from (_text(block.caption), "")
            rows = (block.headers, *block.rows)
            columns = zip(block.sides, *rows, strict=True)
            texts = [[_text(cell, "", side) for cell in cells] for side, *cells in columns]
            yield from fitted(texts, width)
        case document.Image():
            yield _text(f"*Picture: {block.words}.*")
        case _:
            yield _text(block)


def _text(sentence: str, style: str = "", justify: JustifyMethod = "left") -> Text:
    text = Text(justify=justify, overflow="fold")
    for span in document.spans(sentence):
        text.append(span.text)
        for mark in span.marks:
            text.stylize(f"markdown.{mark}", len(text) - len(span.text))
    text.stylize_before(style)
    return text


def fitted(columns: Sequence[Column], width: int) -> Iterator[Table]:
    """Return the table of *columns* in *width* characters, or several tables.

    Columns shrink to their longest word, if possible without breaking what is in parentheses. Then
    names are broken after an underscore or a slash.
    If that is not enough, the columns are distributed over several tables that all begin with the
    first column. Only a word that is wider than a table is broken elsewhere.
    """
    natural = [max(cell_len(text.plain) for text in column) for column in columns]
    for pattern in (_GROUP, _WORD, _PIECE):
        least = [_least(column, pattern) for column in columns]
        if natural[0] <= LONGEST_NAME and pattern is not _PIECE:
            least[0] = natural[0]
        if _taken(least) <= width:
            break
    for places in _parts(least, width):
        room = width - _BESIDE * len(places)
        widths = _shared([natural[n] for n in places], [least[n] for n in places], room)
        yield _table([columns[n] for n in places], widths)


def _least(column: Column, pattern: re.Pattern[str]) -> int:
    found = (cell_len(one) for text in column for one in pattern.findall(text.plain))
    return max(found, default=1)


def _taken(widths: Sequence[int]) -> int:
    return sum(widths) + _BESIDE * len(widths)


def _parts(least: Sequence[int], width: int) -> Iterator[list[int]]:
    """Return the indices of the columns of each table; all have the first column."""
    part = [0]
    for place in range(1, len(least)):
        if len(part) > 1 and _taken([least[n] for n in (*part, place)]) > width:
            yield part
            part = [0]
        part.append(place)
    yield part


def _shared(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns; the widest shrink first, below the least only if necessary."""
    widths = list(natural)
    while sum(widths) > room:
        wide = [n for n, width in enumerate(widths) if width > least[n]]
        wide = wide or [n for n, width in enumerate(widths) if width > 1]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _table(columns: Sequence[Column], widths: Sequence[int]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, style="markdown.table.border", collapse_padding=True)
    cells = [
        [_folded(text, width) for text in column]
        for column, width in zip(columns, widths, strict=True)
    ]
    for (header, *_), width in zip(cells, widths, strict=True):
        header.stylize("markdown.table.header")
        table.add_column(header, width=width, overflow="fold")
    for row in itertools.islice(zip(*cells, strict=True), 1, None):
        table.add_row(*row)
    return table


def _folded(text: Text, width: int) -> Text:
    """Return *text* with words wider than *width* broken after "_" or "/".

    A line ends before what is in parentheses if that fits the next line but not this one.
    """
    ends, room = [], width
    for group in _GROUP.finditer(text.plain):
        size = cell_len(group[0])
        if room < size <= width and room < width:
            ends.append(group.start())
            room = width
        room = (room if size <= room else width) - size % width - 1
    for word in _WORD.finditer(text.plain):
        line = 0
        for piece in _PIECE.finditer(word[0]) if cell_len(word[0]) > width else ():
            if line and line + cell_len(piece[0]) > width:
                ends.append(word.start() + piece.start())
                line = 0
            line += cell_len(piece[0])
    folded = Text("\n").join(text.divide(sorted(ends)))
    folded.justify = text.justify
    return folded
