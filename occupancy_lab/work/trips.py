"""How often loops of machine code run where the trips of the source's loops are assumed.

A compiler asks a loop's condition in front of the loop, and at the beginning or at the end of each
pass. The jumps that do so are found by their line, which is that of the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from occupancy_lab.errors import unreadable
from occupancy_lab.work.counts import Place
from occupancy_lab.work.skipping import NEVER

Lines = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """A jump that asks whether a loop of the source goes on."""

    lines: Lines
    """The line of the loop, and those of the calls that lead to it."""
    header: int | None
    """The first block of the loop that the jump may leave; None for a jump in front of it."""
    last: int
    """It leaves the loop when it is executed so often after the loop was entered."""
    goes_on: bool | None
    """Whether the jump is taken where the loop goes on or, in front of it, where it has any trips;
    None where that is not known."""


def ending_jumps(
    code: Any, places: Sequence[Place], trips: Mapping[Place, int]
) -> dict[int, Ending]:
    """Return the jumps of *code* that ask whether a loop of the source goes on, by their number.

    *trips* has the trips of each such loop. *places* are those of the instructions.
    """
    assumed = {_lines(place): number for place, number in trips.items()}
    if not assumed:
        return {}
    jumps = {
        block.stop - 1: (block, lines)
        for block in code.blocks.values()
        if block.jump is not None
        and len({*block.successors}) > 1
        and (lines := _lines(places[block.stop - 1])) in assumed
    }
    passes = {
        number: _Passes.of(code, places, lines, block) for number, (block, lines) in jumps.items()
    }
    exits = {one: found for one, found in passes.items() if found is not None and found.may_leave}
    found = {}
    for number, (block, lines) in jumps.items():
        headers = {one.header for other, one in exits.items() if jumps[other][1] == lines}
        inside = exits.get(number) or (None if headers else passes[number])
        last = assumed[lines]
        if inside is None:
            found[number] = Ending(lines, None, last, _enters(code, block, headers))
        else:
            last += inside.is_first
            found[number] = Ending(lines, inside.header, last, inside.goes_on)
    return found


def _lines(place: Place) -> Lines:
    """Return the file and the line of a place and of the calls that lead to it."""
    return tuple((one.file.rpartition("/")[2], one.line) for one in (place, *place.called_from))


@dataclass(frozen=True, slots=True)
class _Passes:
    """What a jump in a loop decides on its passes."""

    header: int
    may_leave: bool
    """Whether one of its ways leaves the loop. Otherwise one of them leads past the loop's body, to
    a jump that then leaves it."""
    is_first: bool
    """Whether it is in front of the loop's body, not behind it."""
    goes_on: bool
    """Whether it is taken where the loop goes on."""

    @classmethod
    def of(cls, code: Any, places: Sequence[Place], lines: Lines, block: Any) -> _Passes | None:
        """Return what the jump at the end of *block* decides; None where it is in no loop.

        The body of a loop is its instructions that are neither at the *lines* of its condition nor
        in functions that are called there. None also where the jump stays in the loop, but does not
        lead past the body on one of its ways.
        """
        around = [one for one, inside in code.loops.items() if block.start in inside]
        if not around:
            return None
        header = min(around, key=lambda one: len(code.loops[one]))
        inside = code.loops[header]

        def behind(way: int) -> set[int]:
            todo, found = [way], set[int]()
            while todo:
                one = todo.pop()
                if one in inside and one not in {*found, header, block.start}:
                    found.add(one)
                    todo += code.blocks[one].successors
            return found

        def body(blocks: Iterable[int]) -> int:
            numbers = (n for one in blocks for n in range(one, code.blocks[one].stop))
            return sum(_lines(places[one])[-len(lines) :] != lines for one in numbers)

        taken, other = block.jump.target, block.stop
        after, past = behind(taken), behind(other)
        if not inside.issuperset({taken, other}):
            is_first = body(after | past) > body(inside - after - past)
            return cls(header, may_leave=True, is_first=is_first, goes_on=taken in inside)
        own, others = body(after - past), body(past - after)
        if bool(own) == bool(others):
            return None
        return cls(header, may_leave=False, is_first=True, goes_on=bool(own))


def _enters(code: Any, block: Any, headers: set[int]) -> bool | None:
    """Tell whether the jump at the end of a block leads into a loop where it is taken.

    None where not exactly one of its ways leads to one of *headers* without a further condition.
    """

    def leads(at: int) -> bool:
        seen = set[int]()
        while at not in headers and at not in seen and len(code.blocks[at].successors) == 1:
            seen.add(at)
            (at,) = code.blocks[at].successors
        return at in headers

    ways = [one for one in block.successors if leads(one)]
    return block.jump.target in ways if len(ways) == 1 else None


class Turns:
    """How often the followed threads have asked whether a loop goes on, since they entered it."""

    def __init__(self, endings: Mapping[int, Ending]) -> None:
        """Take the jumps that ask, by their number."""
        self._endings = endings
        self._last = {one.header: one.last for one in endings.values() if one.header is not None}
        self._asked: dict[int, Any] = dict.fromkeys(self._last, np.zeros((1, 1), np.int64))
        self._first: dict[tuple[Lines, bool], int] = {}
        """The first jump that asked about a loop, in front of it and in it."""

    def __contains__(self, number: int) -> bool:
        return number in self._endings

    def enter(self, header: int, mask: Any) -> None:
        """Begin anew for the threads of *mask*, which enter the loop."""
        if header in self._last:
            self._asked[header] = np.where(mask, 0, self._asked[header])

    def further(self, header: int, mask: Any) -> int:
        """Return after how many passes behind the next one a thread of *mask* leaves the loop."""
        if header not in self._last:
            return NEVER
        asked = np.where(mask, self._asked[header], 0).max()
        return max(self._last[header] - 2 - int(asked), 0)

    def taken(self, number: int, mask: Any, repeat: int) -> Any:
        """Return which threads of *mask* take a jump that asks, which stands for *repeat* passes.

        Raises BinaryError where another jump has asked about the same loop.
        """
        one = self._endings[number]
        if self._first.setdefault((one.lines, one.header is None), number) != number or (
            one.goes_on is None
        ):
            unreadable(
                f"The compiler has divided the loop at line {one.lines[0][1]}, so that it is not"
                " known how often its parts run."
            )
        if one.header is None:
            return np.full((1, 1), one.goes_on == (one.last > 0))
        asked = np.where(mask, self._asked[one.header] + repeat, self._asked[one.header])
        self._asked[one.header] = asked
        return (asked < one.last) == one.goes_on
