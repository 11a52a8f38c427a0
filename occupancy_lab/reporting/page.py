"""A page before it is written anywhere: chapters of paragraphs, tables, pictures and commands.

Text is markdown, as that of a Document is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from occupancy_lab.text.document import Section, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, by a name that its page has once."""

    name: str
    words: str
    """What it shows, for those who cannot see it."""
    draw: Callable[[], Figure] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines for a shell."""

    lines: tuple[str, ...]

    def to_markdown(self) -> str:
        """Return the lines in a fence that no backticks of theirs end."""
        text = "\n".join(self.lines)
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        return f"{fence}sh\n{text}\n{fence}"


Block: TypeAlias = str | Table | Section | Picture | Commands


@dataclass(frozen=True, slots=True)
class Chapter:
    """One question answered; a Section among its blocks is a part of it with a title."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A title and chapters."""

    title: str
    chapters: tuple[Chapter, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures in their order."""
        blocks = (block for chapter in self.chapters for block in chapter.blocks)
        return tuple(block for block in blocks if isinstance(block, Picture))

    def to_markdown(self, show: Callable[[Picture], str]) -> str:
        """Return the page in GitHub's markdown, *show* giving the markdown of a picture."""
        parts = [f"# {self.title}"]
        for chapter in self.chapters:
            parts.append(f"## {chapter.title}")
            parts += [_markdown(block, show) for block in chapter.blocks]
        return "\n\n".join(parts) + "\n"


def _markdown(block: Block, show: Callable[[Picture], str]) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Picture):
        return show(block)
    if isinstance(block, Section):
        return f"#{block.to_markdown()}"
    return block.to_markdown()
