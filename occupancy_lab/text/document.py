"""What is said, before it is said anywhere: a document of sections, tables and sentences.

Sentences and cells are markdown; a text of others, as a reason, a path or a cell of a file is, goes
through `literal` first. The terminal, markdown and JSON are views of one Document.
"""

from __future__ import annotations

import dataclasses
import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.text.words import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_MARKUP = re.compile(r"[\\`*~$\[\]<>#&]|(?<![^\W_])_|_(?![^\W_])")


def literal(text: str) -> str:
    """Return *text* on one line, with a backslash before what markdown or HTML would understand.

    An underscore between letters and digits means nothing to them.
    """
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text; the first column names the rows, a `prose` table's others are sentences."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    prose: bool = False

    def to_markdown(self) -> str:
        """Return the table in GitHub's markdown."""
        from tabulate import tabulate

        headers, *rows = (
            [" ".join(cell.replace("|", r"\|").splitlines()) for cell in row]
            for row in (self.headers, *self.rows)
        )
        others = "left" if self.prose else "right"
        aligned = ["left", *[others] * (len(self.headers) - 1)]
        body = tabulate(rows, headers, tablefmt="pipe", disable_numparse=True, colalign=aligned)
        return visible(f"{self.caption}\n\n{body}" if self.caption else body)


@dataclass(frozen=True, slots=True)
class Section:
    """One question answered: tables first, then sentences; a title of "" has no heading."""

    title: str
    tables: tuple[Table, ...] = ()
    sentences: tuple[str, ...] = ()

    def to_markdown(self) -> str:
        """Return the section in markdown, sentences as a list."""
        parts = [f"## {self.title}"] if self.title else []
        parts += [table.to_markdown() for table in self.tables]
        if self.sentences:
            parts.append("\n".join(f"- {sentence}" for sentence in self.sentences))
        return "\n\n".join(parts)


@dataclass(frozen=True, slots=True)
class Document:
    """A title, the answer in a few sentences, and the sections that give its reasons."""

    title: str
    answer: tuple[str, ...]
    sections: tuple[Section, ...]

    def to_markdown(self) -> str:
        """Return the document in GitHub's markdown, with a newline at its end."""
        answer = "\n".join(f"- {sentence}" for sentence in self.answer)
        parts = [f"# {self.title}", answer, *(section.to_markdown() for section in self.sections)]
        return visible("\n\n".join(parts)) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain values for JSON."""
        return dataclasses.asdict(self)


def html_renderer() -> MarkdownIt:
    """Return what makes HTML of markdown with tables, and text of what looks like HTML in it."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table")


def to_html(markdown: str) -> str:
    """Return *markdown* as a piece of HTML; whatever looks like HTML in it is shown as text."""
    html: str = html_renderer().render(markdown)
    return html


class Answer:
    """What a function of the lab gives: a page of words, its title, or plain values.

    `str` is the page in markdown, which a notebook shows; `repr` is one line.
    """

    __slots__ = ()

    @abstractmethod
    def to_document(self) -> Document:
        """Return what there is to say."""

    @abstractmethod
    def to_dict(self) -> Any:
        """Return everything as plain values, for JSON."""

    def to_markdown(self) -> str:
        """Return the page in GitHub's markdown."""
        return self.to_document().to_markdown()

    def to_json(self) -> str:
        """Return everything as a JSON document."""
        from occupancy_lab.text.printing import json_text

        return json_text(self.to_dict())

    def __str__(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {visible(self.to_document().title)}>"

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return to_html(self.to_markdown())
