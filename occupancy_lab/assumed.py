"""What is assumed where a launch leaves it open: a number, a whole tensor, the trips of a loop."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

ELEMENTS = 1 << 31
"""The assumed number of elements of a tensor, more than any launch line has."""
MOST_TRIPS = 1_000_000
"""The most trips of a loop that can be assumed."""
TRIPS = re.compile(r"trips@([1-9]\d{0,8})")
"""The name of the trips of the loops at a line of the kernel's source: `trips@12`."""
_PROGRESSION = re.compile(r"(?:(-?\d{1,18})\s*\*\s*)?i(?:\s*([+-])\s*(\d{1,18}))?")
_RANDOM = re.compile(r"(-?\d{1,18})\s*\.\.\s*(-?\d{1,18})")


@dataclass(frozen=True, slots=True)
class RandomNumbers:
    """Numbers that are drawn between two limits, the same ones each time."""

    low: int
    high: int
    """The largest number."""

    def __len__(self) -> int:
        return ELEMENTS


Assumption = int | range | RandomNumbers
"""A number, which each element of a tensor has; or the numbers of the elements in order."""


def trips_at(line: int) -> str:
    """Return the name of the trips of the loops at a line, as TRIPS reads it."""
    return f"trips@{line}"


def lines_of_trips(names: Iterable[str]) -> list[int]:
    """Return the lines of the loops whose trips are among the *names* of assumptions."""
    return [int(found[1]) for one in names if (found := TRIPS.fullmatch(one))]


def read_elements(text: str) -> Assumption | None:
    """Return the numbers "36*i" or "36*i + 4" for the index i, or "0..255"; None for other text."""
    if drawn := _RANDOM.fullmatch(text.strip()):
        low, high = map(int, drawn.groups())
        return RandomNumbers(low, high) if low <= high else None
    found = _PROGRESSION.fullmatch(text.strip())
    if found is None:
        return None
    step, sign, first = int(found[1] or 1), found[2], int(found[3] or 0)
    first = -first if sign == "-" else first
    return range(first, first + step * ELEMENTS, step) if step else first


def assumption_words(one: Assumption) -> str:
    """Return an assumption as it is written."""
    if isinstance(one, int):
        return str(one)
    if isinstance(one, RandomNumbers):
        return f"{one.low}..{one.high}"
    first = f" {'-' if one.start < 0 else '+'} {abs(one.start)}" if one.start else ""
    return f"{one.step}*i{first}"


def elements(one: Any, index: Any) -> Any:
    """Return the elements at each *index* of an array, as an array.

    *one* is a range, RandomNumbers or an array. Random numbers are those of SplitMix64 (Steele et
    al. 2014) for the index. Of an array, an index beyond either end gives the element there.
    """
    if isinstance(one, range):
        return one.start + one.step * index
    import numpy as np

    if not isinstance(one, RandomNumbers):
        return one[np.clip(index, 0, len(one) - 1)]

    mixed = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return one.low + (mixed % np.uint64(one.high - one.low + 1)).astype(np.int64)
