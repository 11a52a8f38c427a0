"""Skips passes of a loop that only repeat what the pass before did.

Addresses and counters mostly grow by the same amount in each pass of a loop, and its conditions
stay the same for many passes. Two passes are recorded. Where every value that the next pass needs
grew equally in both, by instructions that will make it grow so again, each comparison tells after
how many passes its result changes. Until then one pass stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work import operations
from occupancy_lab.work.arithmetic import HIGH_BIT, RIGHT_BIT, SIGNED_BIT, looked_up
from occupancy_lab.work.banks import one_row
from occupancy_lab.work.counts import SECTOR

if TYPE_CHECKING:
    from occupancy_lab.work.registers import Registers
    from occupancy_lab.work.threads import Step

NOTED = 2
"""The number of passes that are recorded."""
LEAST = 4
"""The fewest passes that are worth skipping."""
NEVER = 1 << 31
"""More passes than any loop has."""
WORD_BITS = 32
WORDS = 1 << WORD_BITS
LINEAR = frozenset({"move", "iadd3", "add64", "viadd", "imad", "imad_wide", "lea", "select"})
"""Instructions whose results grow linearly with their sources, as long as predicates stay the
same."""
PRODUCTS = frozenset({"imad", "imad_wide"})
EXTENDED_BIT = 72
MOVES = frozenset({operations.R2UR, operations.R2UR_BEFORE, operations.LDL, operations.STL})


@dataclass(slots=True)
class _Pass:
    """A recorded pass of a loop."""

    registers: list[Any]
    """The registers at its beginning."""
    unknown: Mapping[int, Any]
    """The threads for which registers are not known at its beginning."""
    mask: Any
    path: list[int] = field(default_factory=list)
    read: dict[int, tuple[Step, Sequence[Any]]] = field(default_factory=dict)
    """The sources of each instruction, by its number."""


class Skipping:
    """Skips passes of the innermost loop that is being followed."""

    def __init__(self, loops: Mapping[int, set[int]], live: Mapping[int, int]) -> None:
        """Take the loops, and the registers that are live at the beginning of each block."""
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
        """The number of passes that the current pass stands for."""
        self.parts: dict[int, float] = {}
        """The part of a sector by which an access to one place moves per pass, where it is less
        than one."""

    @property
    def notes(self) -> bool:
        """Whether a pass is being recorded."""
        return bool(self._passes)

    def note(self, step: Step, sources: Sequence[Any]) -> None:
        """Record the sources of an instruction."""
        self._passes[-1].read[step.number] = step, sources

    def arrive(
        self,
        start: int,
        registers: Registers,
        mask: Any,
        pending: Iterable[int],
        further: int = NEVER,
    ) -> None:
        """Enter a block, with threads *pending* at other blocks.

        The registers change where passes are skipped. No more than *further* passes behind the
        next one are skipped.
        """
        if self._header is not None and start not in self._loops[self._header]:
            self._header, self.repeat, self._passes = None, 1, []
        if start in self._loops:
            if start == self._header:
                self._begin(start, registers, mask, pending, further)
            else:
                self._header, self.repeat, self._passes = start, 1, []
        if self._passes:
            self._passes[-1].path.append(start)

    def _begin(
        self, start: int, registers: Registers, mask: Any, pending: Iterable[int], further: int
    ) -> None:
        if self.repeat > 1:
            for register, growth in self._growth.items():
                grown = np.uint32(self.repeat - 1) * growth
                registers.values[register] = registers.values[register] + grown
            self.repeat = 1
            return
        if any(other in self._loops[start] for other in pending):
            self._passes = []
            return
        if len(self._passes) == NOTED:
            passes = min(self._further_passes(start, registers, mask), further)
            if passes >= LEAST:
                self.repeat, self._passes = 1 + passes, []
                return
            del self._passes[0]
        self._passes.append(_Pass(list(registers.values), dict(registers.unknown), mask))

    def _further_passes(self, start: int, registers: Registers, mask: Any) -> int:
        """Return how many further passes are like the two that were recorded."""
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
            most = min(most, _until_different(step, before, sources, changed) - 1)
            if most >= LEAST and step.compute is None:
                moved = np.abs((sources[0] - before[0]).astype(np.int32).astype(np.int64)).max()
                if 0 < moved < SECTOR:
                    self.parts[number] = float(moved) / SECTOR
        return most

    def _grown(self, start: int, registers: Registers) -> int:
        """Return for how many passes no live register wraps around, and record their growth."""
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
            # Accesses to shared memory are recorded: passes differ where their sources do.
            if (
                register == operations.SHARED
                or not live >> register & 1
                or all(one is None for one in states)
            ):
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
    """Tell whether two values are equal, or both unknown.

    A value for all threads equals one that has the same number for each of them.
    """
    return one is other or (one is not None and other is not None and bool((one == other).all()))


def _until_different(
    step: Step, before: Sequence[Any], sources: Sequence[Any], changed: Sequence[bool]
) -> int:
    """Return for how many passes an instruction does the same with sources that keep growing."""
    if any(one is None for one in (*before, *sources)) or step.shared:
        return 0
    if step.compute is None:
        moved = sources[0] - before[0]
        # Moving by part of a sector changes the number of sectors, except for a single address.
        is_one = all(one.shape[1] == 1 for one in sources)
        return NEVER if is_one or not (moved & np.uint32(SECTOR - 1)).any() else 0
    if any(one and value.dtype == bool for one, value in zip(changed, sources, strict=True)):
        return 0
    if step.name == "isetp":
        return _until_turned(step.word, before, sources)
    if step.name == "shf":
        return _until_shifted(step.word, before, sources, changed)
    if step.name == "lop3":
        is_even = _keeps_bits(step, before, sources, changed)
    else:
        is_square = step.name in PRODUCTS and changed[0] and changed[1]
        is_even = step.word & 0x1FF in MOVES or (step.name in LINEAR and not is_square)
    return NEVER if is_even else 0


def _until_carried(growth: Any, now: Any, low_bits: Any) -> int:
    """Return for how many passes the bits above the lowest *low_bits* of a number stay."""
    growth = one_row(growth)
    up = growth.astype(np.int32).astype(np.int64)
    last = (np.int64(1) << low_bits) - 1
    highest = lowest = now & last.astype(np.uint32)
    if len(growth) == 1 and np.ndim(low_bits) == 0:  # the programs next to the end are enough
        highest, lowest = highest.max(axis=0), lowest.min(axis=0)
    room = np.where(up > 0, last - highest, lowest)
    return int(
        (room // np.maximum(np.abs(up), 1))[np.broadcast_to(up != 0, room.shape)].min(initial=NEVER)
    )


def _until_shifted(
    word: int, before: Sequence[Any], sources: Sequence[Any], changed: Sequence[bool]
) -> int:
    """Return for how many passes the result of SHF stays the same or grows equally.

    Bits that are shifted out at the lower end do not matter if they are always the same.
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


def _keeps_bits(
    step: Step, before: Sequence[Any], sources: Sequence[Any], changed: Sequence[bool]
) -> bool:
    """Tell whether LOP3 treats all bits of a growing number alike that may change.

    Then, from the lowest bit that the growth changes upwards, the result is all zeros, all ones,
    the number's own bits or their complement, so that it grows like the number, up or down, or not
    at all.
    """
    written = [one for one in step.results if not operations.NEVER_WRITTEN >> one & 1]
    if sum(changed) != 1 or any(one >= operations.PREDICATES for one in written):
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
    """Return for how many passes the result of a comparison stays the same."""
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
