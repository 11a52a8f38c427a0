"""A page before it is written: chapters of paragraphs, tables, pictures and commands.

Text has the same markup as the sentences of a Document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from occupancy_lab.text.document import Block, Heading, Image, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, with a name that is unique on its page."""

    name: str
    words: str
    """The alternative text."""
    draw: Callable[[], Figure] = field(compare=False, repr=False)


Part: TypeAlias = Block | Section | Picture


@dataclass(frozen=True, slots=True)
class Chapter:
    """A chapter; a Section among its blocks is a part with a title of its own."""

    title: str
    blocks: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A title and chapters."""

    title: str
    chapters: tuple[Chapter, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures in order."""
        parts = (part for chapter in self.chapters for part in chapter.blocks)
        return tuple(part for part in parts if isinstance(part, Picture))

    def blocks(self, address: Callable[[Picture], str] | None) -> tuple[Block, ...]:
        """Return the blocks in order; *address* gives a picture's URL, None replaces it by text."""
        found: list[Block] = [Heading(1, self.title)]
        for chapter in self.chapters:
            found.append(Heading(2, chapter.title))
            for block in chapter.blocks:
                if isinstance(block, Section):
                    found += block.blocks(level=3)
                elif not isinstance(block, Picture):
                    found.append(block)
                elif address is None:
                    found.append(f"*Picture: {block.words}.*")
                else:
                    found.append(Image(block.words, address(block)))
        return tuple(found)
