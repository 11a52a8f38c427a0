"""How much lies between two touches of the same place of local memory.

A cache still has it if it holds all that was touched in between: the reuse distance, or stack
distance (Mattson et al., "Evaluation techniques for storage hierarchies", 1970). The places of
registers that were spilled are constants in the code, so that the distances are known from it: in
the order of the code, each loop once for its first pass and once for all later ones, and the whole
once more for the next program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work.counts import DISTANCES, LocalReuse
from occupancy_lab.work.operations import (
    BYPASSING_BYTES,
    LDG,
    LDGSTS,
    LDL,
    STACK,
    STG,
    STL,
    access_bytes,
    local_bytes,
    shared_offset,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from occupancy_lab.work.slices import Code

MOST_ACCESSES = 512
"""Accesses whose distance is computed, evenly over the code."""
WORD = 4
NEVER = 1e9
"""The distance to what was never touched before."""


def local_reuse(
    code: Code, executions: Mapping[int, float], entered: Mapping[int, float]
) -> LocalReuse:
    """Return how far apart a thread touches the same places of local memory.

    *executions* and *entered* say how often a warp executes a block, and comes to it from outside
    of its loop.
    """
    touches = {start: [*_touches(code, start)] for start in code.blocks if executions[start]}
    if not any(one.is_local for own in touches.values() for one in own):
        return LocalReuse()
    found = [
        (replace(one, size=one.size * passed) if passed else one, executions[start] * share)
        for start, share, passed in _Passes(executions, entered).of({*touches}, code.loops)
        for one in touches[start]
        if not (passed and one.is_local)
    ]
    found *= 2  # the next program of a multiprocessor has the same places
    near = _Trace([(one, weight) for one, weight in found if one.is_local or one.is_load])
    far = _Trace(found)
    narrow = sum(weight for one, weight in found if one.is_store and one.is_narrow)
    return LocalReuse(
        loads=near.before(lambda one: one.is_local and one.is_load),
        fetched=far.before(lambda one: one.is_local and (one.is_load or one.is_narrow)),
        stored=far.until_stored(),
        narrow=narrow / max(sum(weight for one, weight in found if one.is_store), 1.0),
    )


class _Trace:
    """What a thread touches, one after the other, and how often."""

    def __init__(self, touches: Sequence[tuple[_Touch, float]]) -> None:
        self.touches = [one for one, _ in touches]
        self.weights = np.array([weight for _, weight in touches])
        self.sizes = np.array([one.size for one in self.touches])
        self.last, self.next = np.full(len(touches), -1), np.full(len(touches), NEVER)
        latest: dict[Any, int] = {}
        for number, one in enumerate(self.touches):
            if one.place is not None:
                if one.place in latest:
                    self.last[number] = latest[one.place]
                    self.next[latest[one.place]] = number
                latest[one.place] = number

    def distance(self, number: int) -> float:
        """Return the bytes from the touch before of the same place to this one."""
        if self.last[number] < 0:
            return NEVER
        between = slice(self.last[number], number)
        # What is touched again in between counts where it is touched last.
        return float(self.sizes[between][self.next[between] >= number].sum())

    def before(self, is_asked: Callable[[_Touch], bool]) -> tuple[float, ...]:
        """Return the distances of what is asked for, by the later half of all."""
        half = len(self.touches) // 2
        asked = [
            number
            for number in range(half, len(self.touches))
            if self.weights[number] and is_asked(self.touches[number])
        ]
        return self._quantiles(asked, self.distance)

    def until_stored(self) -> tuple[float, ...]:
        """Return the longest distance between touches from each store to the next one.

        A cache that has lost it then has written it before.
        """
        half = len(self.touches) // 2

        def longest(number: int) -> float:
            found = 0.0
            while (after := self.next[number]) != NEVER:
                number = int(after)
                found = max(found, self.distance(number))
                if self.touches[number].is_store:
                    return found
            return NEVER

        asked = [n for n in range(half) if self.weights[n] and self.touches[n].is_store]
        return self._quantiles(asked, longest)

    def _quantiles(
        self, asked: Sequence[int], distance: Callable[[int], float]
    ) -> tuple[float, ...]:
        if not asked:
            return ()
        places = np.linspace(0, len(asked) - 1, min(len(asked), MOST_ACCESSES)).astype(int)
        some = np.array(asked)[places]
        found = np.array([distance(int(one)) for one in some])
        order = np.argsort(found, kind="stable")
        reached = np.cumsum(self.weights[some][order])
        shares = (np.arange(DISTANCES) + 0.5) / DISTANCES * reached[-1]
        return tuple(float(one) for one in found[order][np.searchsorted(reached, shares)])


@dataclass(frozen=True, slots=True)
class _Touch:
    """What an instruction touches: a word of local memory, or something in global memory."""

    place: Any
    """Of local memory; None is something new each time."""
    size: float
    """Bytes."""
    is_load: bool
    """Whether the L1 cache has it then."""
    is_narrow: bool = False

    @property
    def is_local(self) -> bool:
        return self.place is not None

    @property
    def is_store(self) -> bool:
        return self.is_local and not self.is_load


def _touches(code: Code, start: int) -> Iterator[_Touch]:
    for number in range(start, code.blocks[start].stop):
        word = code.words[number]
        opcode = word & 0x1FF
        if opcode in {LDL, STL} and local_bytes(word):
            _, offset = shared_offset(word)
            is_known = word >> 24 & 255 == STACK and not word >> 91 & 1
            for one in range(0, local_bytes(word), WORD):
                place = (offset + one) // WORD if is_known else (number, one)
                yield _Touch(place, WORD, opcode == LDL, access_bytes(word) < WORD)
        elif opcode in {LDG, LDGSTS, STG}:
            size = code.decoder.moved_bytes(word)
            is_cached = opcode == LDG or (opcode == LDGSTS and size < BYPASSING_BYTES)
            yield _Touch(None, size, is_cached)


@dataclass(frozen=True, slots=True)
class _Passes:
    """The passes of loops of which all can be told: the first two, the third and the last.

    The second stands for all later ones. The third and the last are for what comes after: what the
    second stores is stored next in the third, and what is touched after the loop was touched before
    in the last.
    """

    executions: Mapping[int, float]
    entered: Mapping[int, float]

    def of(
        self, starts: set[int], loops: Mapping[int, set[int]], share: float = 1.0
    ) -> Iterator[tuple[int, float, float]]:
        """Yield blocks in their order, with the share of their executions that is so.

        Last comes 0, or how often a block is executed in passes that are left out: what it touches
        but once it touches so often.
        """
        done: set[int] = set()
        for start in sorted(starts):
            around = [header for header, inside in loops.items() if start in inside]
            if start in done:
                continue
            if not around:
                yield start, share, 0.0
                continue
            header = max(around, key=lambda one: len(loops[one]))
            inside = loops[header] & starts
            within = {one: own for one, own in loops.items() if own < loops[header]}
            entered = max(self.entered[header], 1e-9)
            passes = max(round(self.executions.get(header, 0.0) / entered), 1)
            told = [1.0 / passes, 1.0 - 1.0 / passes, 0.0, 0.0][:passes] if share else [0.0]
            for place, part in enumerate(told):
                if place == len(told) - 1 and passes > len(told):
                    often = (1.0 - len(told) / passes) / entered
                    for one in sorted(inside):
                        yield one, 0.0, self.executions[one] * often
                yield from self.of(inside, within, share * part)
            done |= inside
