"""Documents of sections, tables and sentences, and how they become markdown and HTML.

A document is a list of blocks, which the terminal, markdown and HTML render. Sentences and cells
use markdown's markup for strong, emphasized and code text; foreign text, such as an error, a path
or a cell of a file, must go through `literal` first.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar, TypeAlias

from occupancy_lab.text.words import Item, visible

_MARKUP = re.compile(r"[\\`*~$\[\]<>#&]|(?<![^\W_])_|_(?![^\W_])")
_MARKS = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<fence>`+)(?!`)(?P<code>.*?[^`])(?P=fence)(?!`)|`+"
    r"|\*\*(?=\S)(?P<strong>(?:\\.|[^\\])+?)(?<=\S)\*\*"
    r"|\*(?=[^\s*])(?P<em>(?:\\.|[^\\*])+?)(?<=[^\s*])\*"
)
"""The markup of a sentence; the names of groups are those of HTML tags."""


def literal(text: str) -> str:
    """Return *text* on one line, with backslashes before characters that are markup.

    An underscore between letters or digits is not.
    """
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a sentence with the same *marks* throughout: "strong", "em", "code"."""

    text: str
    marks: tuple[str, ...] = ()


def spans(sentence: str) -> Iterator[Span]:
    """Return the pieces of a sentence or a cell, with invisible characters escaped."""
    pieces = _pieces(visible(_line(sentence)), ())
    for marks, group in itertools.groupby(pieces, lambda piece: piece.marks):
        yield Span("".join(piece.text for piece in group), marks)


def _pieces(text: str, marks: tuple[str, ...]) -> Iterator[Span]:
    end = 0
    for found in _MARKS.finditer(text):
        yield Span(text[end : found.start()], marks)
        end = found.end()
        match found.lastgroup:
            case "strong" | "em" as mark:
                yield from _pieces(found[mark], (*marks, mark))
            case "code":
                code = found["code"]
                padded = code[0] == code[-1] == " " and code.strip()
                yield Span(code[1:-1] if padded else code, (*marks, "code"))
            case _:
                yield Span(found["escaped"] or found[0], marks)
    yield Span(text[end:], marks)


def _line(text: str) -> str:
    return " ".join(text.splitlines())


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a document, at level 1, or of a part of it."""

    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines for a shell."""

    lines: tuple[str, ...]
    language: ClassVar[str] = "sh"


@dataclass(frozen=True, slots=True)
class Listing:
    """Preformatted lines, such as those of a program."""

    lines: tuple[str, ...]
    narrow: tuple[str, ...] = ()
    """The lines for a terminal that is too narrow for *lines*."""
    language: ClassVar[str] = "text"


@dataclass(frozen=True, slots=True)
class Image:
    """A picture at an address, with its alternative text."""

    words: str
    address: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text whose first column names the rows; a `prose` table has sentences as cells."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    prose: bool = False

    @property
    def sides(self) -> tuple[str, ...]:
        """The alignment of each column, "left" or "right"."""
        return ("left", *["left" if self.prose else "right"] * (len(self.headers) - 1))


LONGEST_HEADER = 24
"""Characters up to which the names of settings, or of what is compared, head a column."""
UNTOLD = {"-", "0 B per thread"}
"""A row of `side_by_side` is left out if every cell is one of these."""


def side_by_side(
    items: Sequence[Item],
    rows: Iterable[tuple[str, Callable[[Item], str]]],
    *,
    corner: str = "",
    prose: bool = False,
) -> Table:
    """Return a table with a column for each item, without rows that are empty for all."""
    headers = (corner, *(item.title for item in items))
    found = ((name, *map(text_of, items)) for name, text_of in rows)
    shown = tuple(row for row in found if not UNTOLD.issuperset(row[1:]))
    return Table(headers, shown, prose=prose)


Block: TypeAlias = str | Heading | Bullets | Commands | Listing | Table | Image
"""A block of a document; a str is a paragraph."""
Shown: TypeAlias = "str | tuple[Block, ...]"
"""The output of a command: the text of a file, or blocks for a screen."""


def to_markdown(blocks: Iterable[Block]) -> str:
    """Return *blocks* in GitHub's markdown, with a newline at its end."""
    return visible("\n\n".join(map(_markdown, blocks))) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_line(block.title)}"
        case Bullets():
            return "\n".join(f"- {_line(sentence)}" for sentence in block.sentences)
        case Commands() | Listing():
            text = "\n".join(block.lines)
            # The fence is longer than any backticks in a line.
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            return f"{fence}{block.language}\n{text}\n{fence}"
        case Image():
            return f"![{block.words}]({block.address})"
        case Table():
            body = _table_markdown(block)
            return f"{_line(block.caption)}\n\n{body}" if block.caption else body
        case _:
            return _line(block)


def _table_markdown(table: Table) -> str:
    from tabulate import tabulate

    headers, *rows = (
        [_line(cell.replace("|", r"\|")) for cell in row] for row in (table.headers, *table.rows)
    )
    return tabulate(rows, headers, tablefmt="pipe", disable_numparse=True, colalign=table.sides)


STYLE = """\
:root { color-scheme: light dark; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
body { font: 1rem/1.55 system-ui, sans-serif; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8884; padding-bottom: 0.2rem; }
table { display: block; overflow-x: auto; border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #8884; }
img { max-width: 100%; background: white; border-radius: 6px; }
pre { overflow-x: auto; padding: 0.8rem; background: #8882; border-radius: 6px; }
"""


def html_page(title: str, blocks: Iterable[Block]) -> str:
    """Return a complete HTML page with *blocks*."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(visible(title))}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n{to_html(blocks)}</body>\n</html>\n"
    )


def to_html(blocks: Iterable[Block]) -> str:
    """Return *blocks* as HTML, with their text escaped."""
    return "".join(f"{_html(block)}\n" for block in blocks)


def _html(block: Block) -> str:
    match block:
        case Heading():
            return f"<h{block.level}>{_inline(block.title)}</h{block.level}>"
        case Bullets():
            items = "".join(f"<li>{_inline(sentence)}</li>\n" for sentence in block.sentences)
            return f"<ul>\n{items}</ul>"
        case Commands() | Listing():
            text = escape(visible("\n".join(block.lines)), quote=False)
            return f'<pre><code class="language-{block.language}">{text}\n</code></pre>'
        case Image():
            return f'<p><img alt="{escape(block.words)}" src="{escape(block.address)}"></p>'
        case Table():
            rows = "".join(_row_html(block, "td", row) for row in block.rows)
            body = f"<tbody>\n{rows}</tbody>\n" if rows else ""
            header = f"<thead>\n{_row_html(block, 'th', block.headers)}</thead>\n"
            caption = f"{_html(block.caption)}\n" if block.caption else ""
            return f"{caption}<table>\n{header}{body}</table>"
        case _:
            return f"<p>{_inline(block)}</p>"


def _row_html(table: Table, tag: str, cells: tuple[str, ...]) -> str:
    written = "".join(
        f'<{tag} style="text-align:{side}">{_inline(cell)}</{tag}>\n'
        for side, cell in zip(table.sides, cells, strict=True)
    )
    return f"<tr>\n{written}</tr>\n"


def _inline(sentence: str) -> str:
    pieces = []
    for span in spans(sentence):
        before = "".join(f"<{mark}>" for mark in span.marks)
        after = "".join(f"</{mark}>" for mark in reversed(span.marks))
        pieces.append(f"{before}{escape(span.text, quote=False)}{after}")
    return "".join(pieces)


@dataclass(frozen=True, slots=True)
class Section:
    """Tables, listings and sentences under a title; "" has no heading."""

    title: str
    tables: tuple[Table, ...] = ()
    sentences: tuple[str, ...] = ()
    listings: tuple[Listing, ...] = ()

    def blocks(self, level: int = 2) -> Iterator[Block]:
        """Return the blocks of the section, with a heading of *level*."""
        if self.title:
            yield Heading(level, self.title)
        yield from self.tables
        yield from self.listings
        if self.sentences:
            yield Bullets(self.sentences)


@dataclass(frozen=True, slots=True)
class Document:
    """A title, the answer in a few sentences, and the sections that give its reasons."""

    title: str
    answer: tuple[str, ...]
    sections: tuple[Section, ...]

    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks of the document, with adjacent lists merged."""
        found: list[Block] = [Heading(1, self.title)]
        for section in (Section("", sentences=self.answer), *self.sections):
            for block in section.blocks():
                if isinstance(block, Bullets) and isinstance(found[-1], Bullets):
                    found[-1] = Bullets(found[-1].sentences + block.sentences)
                else:
                    found.append(block)
        return tuple(found)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of all sections."""
        return tuple(table for section in self.sections for table in section.tables)

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences of all sections."""
        return tuple(sentence for section in self.sections for sentence in section.sentences)

    def to_markdown(self) -> str:
        """Return the document in GitHub's markdown, with a newline at its end."""
        return to_markdown(self.blocks())

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain values for JSON."""
        return dataclasses.asdict(self)


def json_text(values: Any) -> str:
    """Return plain *values* as indented, strict JSON; numbers that are not finite become null."""
    import json

    try:
        text = json.dumps(values, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(values), indent=2, allow_nan=False)
    # The same to a reader of JSON, but not a command to GitHub's runner.
    return text.replace("##[", "#\\u0023[")


def _finite(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


class Answer:
    """The result of a function of the lab, as a page or as plain values.

    `str` is the page in markdown, which a notebook shows; `repr` is one line.
    """

    __slots__ = ()

    @abstractmethod
    def to_document(self) -> Document:
        """Return the page."""

    @abstractmethod
    def to_dict(self) -> Any:
        """Return everything as plain values, for JSON."""

    def to_markdown(self) -> str:
        """Return the page in GitHub's markdown."""
        return self.to_document().to_markdown()

    def to_json(self) -> str:
        """Return everything as a JSON document."""
        return json_text(self.to_dict())

    def __str__(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {visible(self.to_document().title)}>"

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return to_html(self.to_document().blocks())
