"""Leaves out passes of a loop in which nothing happens that did not happen in the one before.

Addresses and counters mostly grow by the same amount in each pass of a loop, and its conditions
stay what they are for many passes. Two passes are noted. Where all that the next one needs grew
equally in both, by instructions of which the same is to be expected again, each comparison tells
when it will turn out otherwise, and one pass stands for all until then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work.arithmetic import HIGH_BIT, RIGHT_BIT, looked_up
from occupancy_lab.work.counts import SECTOR
from occupancy_lab.work.operations import (
    LDL,
    NEVER_WRITTEN,
    PREDICATES,
    R2UR,
    R2UR_BEFORE,
    SHARED,
    STL,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from occupancy_lab.work.registers import Registers
    from occupancy_lab.work.threads import Step

NOTED = 2
"""Passes that are noted."""
LEAST = 4
"""Passes that are left out at the least."""
NEVER = 1 << 31
"""More passes than any loop has."""
WORD_BITS = 32
WORDS = 1 << WORD_BITS
LINEAR = frozenset({"move", "iadd3", "add64", "viadd", "imad", "imad_wide", "lea", "select"})
"""What makes equally growing results of equally growing sources, predicates staying the same."""
PRODUCTS = frozenset({"imad", "imad_wide"})
SHIFT = "shf"
COMPARISON, EXTENDED_BIT, SIGNED_BIT = "isetp", 72, 73
LOGIC = "lop3"
MOVES = frozenset({R2UR, R2UR_BEFORE, LDL, STL})


@dataclass(slots=True)
class _Pass:
    """A pass of a loop, as it was noted."""

    registers: list[Any]
    """At its begin."""
    unknown: Mapping[int, Any]
    """The threads of which registers are not known then."""
    mask: Any
    path: list[int] = field(default_factory=list)
    read: dict[int, tuple[Step, Sequence[Any]]] = field(default_factory=dict)
    """What each instruction read, by its number."""


class Skipping:
    """Leaves out passes of the innermost loop that is followed."""

    def __init__(self, loops: Mapping[int, set[int]], live: Mapping[int, int]) -> None:
        """Take the loops, and the registers that are needed from the begin of each block on."""
        self._loops = {
            header: inside
            for header, inside in loops.items()
            if not any(other in inside for other in loops if other != header)
        }
        self._live = live
        self._header: int | None = None
        self._growth: dict[int, Any] = {}
        self._passes: list[_Pass] = []
        self.repeat = 1
        """How many passes the one that is followed stands for."""
        self.parts: dict[int, float] = {}
        """By which part of a sector an access to one place moves on in each of them, if by less."""

    @property
    def notes(self) -> bool:
        """Whether a pass is being noted."""
        return bool(self._passes)

    def note(self, step: Step, sources: Sequence[Any]) -> None:
        """Note what an instruction reads."""
        self._passes[-1].read[step.number] = step, sources

    def arrive(self, start: int, registers: Registers, mask: Any, pending: Iterable[int]) -> None:
        """Come to a block, with threads *pending* at others.

        The registers change where passes are left out.
        """
        if self._header is not None and start not in self._loops[self._header]:
            self._header, self.repeat, self._passes = None, 1, []
        if start in self._loops:
            if start == self._header:
                self._begin(start, registers, mask, pending)
            else:
                self._header, self.repeat, self._passes = start, 1, []
        if self._passes:
            self._passes[-1].path.append(start)

    def _begin(self, start: int, registers: Registers, mask: Any, pending: Iterable[int]) -> None:
        if self.repeat > 1:
            for register, growth in self._growth.items():
                registers.values[register] += np.uint32(self.repeat - 1) * growth
            self.repeat = 1
            return
        if any(other in self._loops[start] for other in pending):
            self._passes = []
            return
        if len(self._passes) == NOTED:
            passes = self._left_out(start, registers, mask)
            if passes >= LEAST:
                self.repeat, self._passes = 1 + passes, []
                return
            del self._passes[0]
        self._passes.append(_Pass(list(registers.values), dict(registers.unknown), mask))

    def _left_out(self, start: int, registers: Registers, mask: Any) -> int:
        """Return how many passes behind the one that begins are like the two that were noted."""
        first, second = self._passes
        if first.path != second.path or not (
            np.array_equal(first.mask, second.mask) and np.array_equal(second.mask, mask)
        ):
            return 0
        most = self._grown(start, registers)
        self.parts = {}
        for number, (step, sources) in second.read.items():
            if most < LEAST or number not in first.read:
                return 0
            before = first.read[number][1]
            changed = [not _same(one, other) for one, other in zip(before, sources, strict=True)]
            if not any(changed):
                continue
            most = min(most, _alike(step, before, sources, changed) - 1)
            if most >= LEAST and step.compute is None:
                moved = np.abs((sources[0] - before[0]).astype(np.int32).astype(np.int64)).max()
                if 0 < moved < SECTOR:
                    self.parts[number] = float(moved) / SECTOR
        return most

    def _grown(self, start: int, registers: Registers) -> int:
        """Return for how many passes no needed register wraps around, and note how each grows."""
        first, second = self._passes
        live, most = self._live[start], NEVER
        self._growth = {}
        unknown = [
            {one: lanes.tobytes() for one, lanes in then.items() if live >> one & 1}
            for then in (first.unknown, second.unknown, registers.unknown)
        ]
        if not unknown[0] == unknown[1] == unknown[2]:
            return 0
        for register in range(live.bit_length()):
            states = (
                first.registers[register],
                second.registers[register],
                registers.values[register],
            )
            # Of shared memory each access is noted: with other numbers there passes are not alike.
            if register == SHARED or not live >> register & 1 or all(one is None for one in states):
                continue
            if any(one is None for one in states):
                return 0
            before, between, now = states
            if _same(before, between) and _same(between, now):
                continue
            are_masks = any(one.dtype == bool for one in states)
            if are_masks or before.shape != between.shape != now.shape:
                return 0
            growth = now - between
            if not np.array_equal(growth, between - before):
                return 0
            self._growth[register] = growth
            most = min(most, _until_carried(growth, now, WORD_BITS) - 1)
        return most


def _same(one: Any, other: Any) -> bool:
    """Tell whether two values are equal, or both not known."""
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _alike(
    step: Step, before: Sequence[Any], sources: Sequence[Any], changed: Sequence[bool]
) -> int:
    """Return for how many passes an instruction does the same with sources that grow on."""
    if any(one is None for one in (*before, *sources)) or step.shared:
        return 0
    if step.compute is None:
        moved = sources[0] - before[0]
        # By part of a sector addresses move on to other numbers of sectors, but for a single one.
        is_one = all(one.shape[1] == 1 for one in sources)
        return NEVER if is_one or not (moved & np.uint32(SECTOR - 1)).any() else 0
    if any(one and value.dtype == bool for one, value in zip(changed, sources, strict=True)):
        return 0
    if step.name == COMPARISON:
        return _until_turned(step.word, before, sources)
    if step.name == SHIFT:
        return _until_shifted(step.word, before, sources, changed)
    return NEVER if _is_even(step, before, sources, changed) else 0


def _until_carried(growth: Any, now: Any, low_bits: Any) -> int:
    """Return for how many passes the bits above the lowest *low_bits* of a number stay."""
    up = growth.astype(np.int32).astype(np.int64)
    above = np.int64(1) << low_bits
    place = now.astype(np.int64) % above
    room = np.where(up > 0, above - 1 - place, place)
    return int(
        (room // np.maximum(np.abs(up), 1))[np.broadcast_to(up != 0, room.shape)].min(initial=NEVER)
    )


def _until_shifted(
    word: int, before: Sequence[Any], sources: Sequence[Any], changed: Sequence[bool]
) -> int:
    """Return for how many passes what SHF makes of a pair of numbers stays, or grows equally.

    What is shifted out at the lower end does not matter, if it is always the same.
    """
    is_right, is_high = word >> RIGHT_BIT & 1, word >> HIGH_BIT & 1
    shifted = 2 if is_high and is_right else 0
    amount = sources[1].astype(np.int64)
    if changed[1] or (amount >= WORD_BITS).any():
        return 0
    if not changed[shifted] or not (is_right or is_high):
        return NEVER
    now, growth = sources[shifted], sources[shifted] - before[shifted]
    out = amount if is_right else WORD_BITS - amount
    whole = (growth & (np.int64(1) << out) - 1 == 0).all()
    return _until_carried(growth, now, WORD_BITS - 1 if whole else out)


def _is_even(
    step: Step, before: Sequence[Any], sources: Sequence[Any], changed: Sequence[bool]
) -> bool:
    """Tell whether results grow equally with sources that do, or not at all."""
    if step.name == LOGIC:
        return _is_apart(step, before, sources, changed)
    is_square = step.name in PRODUCTS and changed[0] and changed[1]
    return step.word & 0x1FF in MOVES or (step.name in LINEAR and not is_square)


def _is_apart(
    step: Step, before: Sequence[Any], sources: Sequence[Any], changed: Sequence[bool]
) -> bool:
    """Tell whether LOP3 combines no bit of a number that grows with one that the others have.

    Above the lowest bit that the growth changes the result is then all zeros, all ones, or what is
    there of the number, or the opposite: it grows as the number does, up or down, or not at all.
    """
    written = [one for one in step.results if not NEVER_WRITTEN >> one & 1]
    if sum(changed) != 1 or any(one >= PREDICATES for one in written):
        return False
    growing = changed.index(True)
    growth = int(np.bitwise_or.reduce(sources[growing] - before[growing], axis=None))
    kept = np.uint32((growth & -growth) - 1)
    numbers = list(sources[:3])
    for numbers[growing] in (np.zeros((1, 1), np.uint32), np.full((1, 1), WORDS - 1, np.uint32)):
        above = looked_up(step.word >> 72 & 255, *numbers) | kept
        if ((above != kept) & (above != WORDS - 1)).any():
            return False
    return True


def _until_turned(word: int, before: Sequence[Any], sources: Sequence[Any]) -> int:
    """Return for how many passes a comparison turns out as it did."""
    if word >> EXTENDED_BIT & 1:
        return 0
    signed = word >> SIGNED_BIT & 1
    kind, turn = (np.int32, np.uint32(1 << WORD_BITS - 1)) if signed else (np.uint32, np.uint32(0))
    stays = min(
        _until_carried(now - then, now ^ turn, WORD_BITS)
        for then, now in zip(before[:2], sources[:2], strict=True)
    )
    then, now = (
        one[0].astype(kind).astype(np.int64) - one[1].astype(kind).astype(np.int64)
        for one in (before, sources)
    )
    growth = now - then
    then, now, growth = np.broadcast_arrays(then, now, growth)
    moving = growth != 0
    then, now, growth = then[moving], now[moving], growth[moving]
    if (np.sign(then) != np.sign(now)).any():
        return 0
    nears = np.sign(now) != np.sign(growth)
    left = np.where(nears, (np.abs(now) - 1) // np.abs(growth), NEVER // np.abs(growth))
    return min(int(left.min(initial=NEVER)), stays)
