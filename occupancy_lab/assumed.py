"""Values assumed for numbers that are not known before a launch: for one, or a whole tensor."""

from __future__ import annotations

import re

Assumption = int | range
"""A number, which each element of a tensor has; or the numbers of the elements in order."""

ELEMENTS = 1 << 31
"""The assumed number of elements of a tensor, more than any launch line has."""
_PROGRESSION = re.compile(r"(?:(-?\d{1,18})\s*\*\s*)?i(?:\s*([+-])\s*(\d{1,18}))?")


def read_progression(text: str) -> Assumption | None:
    """Return the numbers "36*i" or "36*i + 4" for the index i; None for any other text."""
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
    first = f" {'-' if one.start < 0 else '+'} {abs(one.start)}" if one.start else ""
    return f"{one.step}*i{first}"
