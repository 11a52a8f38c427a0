"""How a page speaks of its times: as measured, or as predicted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """The words that tell measured times from predicted ones."""

    word: str
    """What the times are."""
    take: str
    """What launches do, before the times that they take."""
    are: str
    """What launches are, before what they turned out to be."""


MEASURED = Times("measured", "take", "are")
PREDICTED = Times("predicted", "are predicted to take", "are predicted to be")
