"""How long a warp stands at each instruction of a kernel until what it needs is there.

Each instruction names which of six scoreboards it sets until its result is there, or until its
operands are read, and for which scoreboards it waits (Jia, Maggioni, Staiger and Scarpazza,
"Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, 2.1). One warp is
replayed so, alone, where most warps go, each loop a few times: a wait falls on the instruction that
waits, as in the samples of a profiler. It is the share of the lines that these cycles are for, and
no time of the launch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from occupancy_lab.work import operations
from occupancy_lab.work.operations import ATOMICS, HGMMA, LOADS, SYNCS_WAIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from occupancy_lab.work.slices import Block, Code

RESULT_BIT, OPERANDS_BIT, WAITED_BIT = 110, 113, 116
"""Where an instruction names the scoreboard that it sets until its result is there, that until its
operands are read, and those for which it waits, a bit each."""
SCOREBOARDS = 6
MEMORY_CYCLES, OTHER_CYCLES = 800, 25
"""Until a result is there: of device memory, and of shared memory, special functions, shuffles and
all else. On an H100 the L2 cache takes 430 to 470 cycles, and device memory 330 to 380 more. Which
line takes most does not change between 500 and 2000."""
LDGDEPBAR, DEPBAR, WARPGROUP = 0x1AF, 0x11A, 0x1C5
"""What ends a group of asynchronous copies, what waits for all but some of these groups, and what
waits so for products of warp groups or, as WARPGROUP.ARRIVE, does not."""
COPIES_LEFT_BIT, PRODUCTS_LEFT_BIT, WAITS_BIT = 38, 72, 80
"""How many groups may go on, 6 bits, and whether a WARPGROUP waits."""
GROUP_BIT, NO_GROUP = 84, 7
"""Whether a product is the last of its group."""
GROUP_THREADS = 128
GROUPED = HGMMA | {operations.LDGSTS, LDGDEPBAR, DEPBAR, WARPGROUP}
SLOW = LOADS | ATOMICS | {SYNCS_WAIT}
ROUNDS, MOST_ROUNDS = 4, 16
"""How often a block is replayed, so that what a pass of a loop leaves to the next is there; and at
most, where all ways on lead back to it."""


@dataclass(frozen=True, slots=True)
class _Event:
    """An instruction that sets a scoreboard or waits."""

    number: int
    cycle: int
    """When it is issued, from the begin of its block, where nothing waits."""
    word: int


@dataclass(slots=True)
class _Groups:
    """What a warp has begun and waits for by the group."""

    last: float = 0.0
    """When all that was begun is done."""
    ended: list[float] = field(default_factory=list)
    """When each group is done that was ended."""

    def until(self, left: int) -> float:
        """Return when all but the *left* last groups that were ended are done."""
        return self.ended[-left - 1] if len(self.ended) > left else 0.0

    def end(self) -> None:
        self.ended.append(self.last)


def waits(
    code: Code, stalls: Sequence[int], executions: Mapping[int, float], threads: int
) -> dict[int, float]:
    """Return the cycles for which a warp waits at each instruction, each time that it executes it.

    *stalls* are the cycles from each to the next without that; *executions* how often each block is
    executed; *threads* those of a program. What is not in it does not wait.
    """
    replay = _Replay(code, stalls, executions, threads)
    for start in sorted(code.blocks):
        if executions[start] and not replay.rounds[start]:
            replay.run(start)
    return replay.waited


class _Replay:
    """Warps that go one after the other through the blocks that none has been in yet."""

    def __init__(
        self, code: Code, stalls: Sequence[int], executions: Mapping[int, float], threads: int
    ) -> None:
        self._code, self._stalls, self._executions = code, stalls, executions
        self._warpgroups = max(threads / GROUP_THREADS, 1.0)
        self._events: dict[int, tuple[list[_Event], int]] = {}
        self.rounds: Counter[int] = Counter()
        self.waited: dict[int, float] = {}

    def run(self, start: int | None) -> None:
        """Follow one warp from a block on, where most warps go, until it ends or goes in circles.

        A loop that was replayed often enough is left for what is executed less.
        """
        self._now = 0.0
        self._scoreboards = [0.0] * SCOREBOARDS
        self._copies, self._products = _Groups(), _Groups()
        while start is not None:
            self.rounds[start] += 1
            self._block(self._code.blocks[start])
            start = self._next(self._code.blocks[start])

    def _next(self, block: Block) -> int | None:
        ways = [
            one
            for one in block.successors
            if self._executions[one] and self.rounds[one] < MOST_ROUNDS
        ]
        return min(
            ways,
            key=lambda one: (max(self.rounds[one], ROUNDS), -self._executions[one]),
            default=None,
        )

    def _block(self, block: Block) -> None:
        if block.start not in self._events:
            self._events[block.start] = self._read(block)
        events, cycles = self._events[block.start]
        begin = self._now
        for event in events:
            issued = begin + event.cycle
            self._now = max(issued, self._ready(event.word))
            self.waited[event.number] = self._now - issued
            begin += self._now - issued
            self._begin(event.word)
        self._now = begin + cycles

    def _read(self, block: Block) -> tuple[list[_Event], int]:
        """Return what of a block sets or waits, and the cycles that it takes without waiting."""
        events, cycle = [], 0
        for number in range(block.start, block.stop):
            word = self._code.words[number]
            sets = ~word >> RESULT_BIT & 0x3F or word >> WAITED_BIT & 0x3F
            if sets or word & 0x1FF in GROUPED:
                events.append(_Event(number, cycle, word))
            cycle += self._stalls[number]
        return events, cycle

    def _ready(self, word: int) -> float:
        """Return when an instruction can be issued."""
        waited = word >> WAITED_BIT & 0x3F
        found = max(
            (self._scoreboards[one] for one in range(SCOREBOARDS) if waited >> one & 1), default=0.0
        )
        opcode = word & 0x1FF
        if opcode == DEPBAR:
            found = max(found, self._copies.until(word >> COPIES_LEFT_BIT & 63))
        elif opcode == WARPGROUP and word >> WAITS_BIT & 1:
            found = max(found, self._products.until(word >> PRODUCTS_LEFT_BIT & 63))
        return found

    def _begin(self, word: int) -> None:
        opcode = word & 0x1FF
        if opcode == operations.LDGSTS:
            self._copies.last = self._now + MEMORY_CYCLES
        elif opcode == LDGDEPBAR:
            self._copies.end()
        elif opcode in HGMMA:
            # N / 2 cycles for 64 x N results, which are N / 2 registers of each of 128 threads.
            cycles = self._warpgroups * operations.warpgroup_registers(word)
            self._products.last = max(self._products.last, self._now) + cycles
            if word >> GROUP_BIT & 7 != NO_GROUP:
                self._products.end()
        cycles = MEMORY_CYCLES if opcode in SLOW else OTHER_CYCLES
        for bit, taken in ((RESULT_BIT, cycles), (OPERANDS_BIT, OTHER_CYCLES)):
            scoreboard = word >> bit & 7
            if scoreboard < SCOREBOARDS:
                done = self._now + taken
                self._scoreboards[scoreboard] = max(self._scoreboards[scoreboard], done)
