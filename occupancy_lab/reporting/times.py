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
    alike: float
    """Times that differ by less than this share say nothing of which is shorter."""


MEASURED = Times("measured", "take", "are", alike=0.0)
PREDICTED = Times("predicted", "are predicted to take", "are predicted to be", alike=0.05)
