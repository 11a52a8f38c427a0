"""How long a warp stands at each instruction of a kernel until what it needs is there.

Each instruction names which of six scoreboards it sets until its result is there, or until its
operands are read, and for which scoreboards it waits (Jia, Maggioni, Staiger and Scarpazza,
"Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, 2.1). One warp is
replayed so, alone, where most warps go, each loop a few times: a wait falls on the instruction that
waits, as in the samples of a profiler. It is the share of the lines that these cycles are for, and
no time of the launch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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


@dataclass(slots=True)
class Groups:
    """What a warp has begun and waits for by the group."""

    last: float = 0.0
    """When all that was begun is done."""
    ended: list[float] = field(default_factory=list)
    """When each group is done that was ended."""

    def begin(self, done: float) -> None:
        """Begin what is done then."""
        self.last = max(self.last, done)

    def end(self) -> None:
        """End the group of what was begun."""
        self.ended.append(self.last)

    def until(self, left: int) -> float:
        """Return when all but the *left* last groups that were ended are done."""
        return self.ended[-left - 1] if len(self.ended) > left else 0.0

    def shift(self, cycles: float) -> None:
        """Let so many cycles go by in which all was begun as before."""
        self.last += cycles
        self.ended = [one + cycles for one in self.ended]


def waits(
    code: Code, stalls: Sequence[int], executions: Mapping[int, float], threads: int
) -> dict[int, float]:
    """Return the cycles for which a warp waits at each instruction, each time that it executes it.

    *stalls* are the cycles from each to the next without that; *executions* how often each block is
    executed; *threads* those of a program. What is not in it does not wait.
    """
    return _SassWaits(code, stalls, executions, max(threads / GROUP_THREADS, 1.0)).waited()


class Waits(ABC):
    """Warps that go one after the other through the blocks that none has been in yet."""

    def __init__(
        self, code: Any, stalls: Sequence[int], executions: Mapping[int, float], parts: float
    ) -> None:
        """Take a Code or a GcnCode, and how many *parts* of a program share what multiplies."""
        self.code, self.parts = code, parts
        self._stalls, self._executions = stalls, executions
        self._events: dict[int, tuple[list[tuple[int, int]], int]] = {}
        self._rounds: Counter[int] = Counter()
        self._waited: dict[int, float] = {}
        self.now = 0.0

    @abstractmethod
    def reset(self) -> None:
        """Forget what was begun, as nothing is where a warp starts."""

    @abstractmethod
    def matters(self, number: int) -> bool:
        """Tell whether an instruction waits for something, or begins what is waited for."""

    @abstractmethod
    def ready(self, number: int) -> float:
        """Return when an instruction can be issued."""

    @abstractmethod
    def begin(self, number: int) -> None:
        """Begin what an instruction does that is issued now."""

    def waited(self) -> dict[int, float]:
        """Return the cycles for which a warp waits at each instruction where it does."""
        for start in sorted(self.code.blocks):
            if self._executions[start] and not self._rounds[start]:
                self._run(start)
        return self._waited

    def _run(self, start: int | None) -> None:
        """Follow one warp from a block on, where most warps go, until it ends or goes in circles.

        A loop that was replayed often enough is left for what is executed less.
        """
        self.now = 0.0
        self.reset()
        while start is not None:
            self._rounds[start] += 1
            self._block(self.code.blocks[start])
            start = self._next(self.code.blocks[start])

    def _next(self, block: Block) -> int | None:
        ways = [
            one
            for one in block.successors
            if self._executions[one] and self._rounds[one] < MOST_ROUNDS
        ]
        return min(
            ways,
            key=lambda one: (max(self._rounds[one], ROUNDS), -self._executions[one]),
            default=None,
        )

    def _block(self, block: Block) -> None:
        if block.start not in self._events:
            self._events[block.start] = self._read(block)
        events, cycles = self._events[block.start]
        begin = self.now
        for number, cycle in events:
            issued = begin + cycle
            self.now = max(issued, self.ready(number))
            self._waited[number] = self.now - issued
            begin += self.now - issued
            self.begin(number)
        self.now = begin + cycles

    def _read(self, block: Block) -> tuple[list[tuple[int, int]], int]:
        """Return what of a block matters, with the cycle of the block at which it is issued.

        That is where nothing waits; behind them are the cycles that the block takes then.
        """
        events, cycle = [], 0
        for number in range(block.start, block.stop):
            if self.matters(number):
                events.append((number, cycle))
            cycle += self._stalls[number]
        return events, cycle


class _SassWaits(Waits):
    """The same of NVIDIA's machine code."""

    def reset(self) -> None:
        self._scoreboards = [0.0] * SCOREBOARDS
        self._copies, self._products = Groups(), Groups()

    def matters(self, number: int) -> bool:
        word = self.code.words[number]
        sets = ~word >> RESULT_BIT & 0x3F or word >> WAITED_BIT & 0x3F
        return bool(sets) or word & 0x1FF in GROUPED

    def ready(self, number: int) -> float:
        word = self.code.words[number]
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

    def begin(self, number: int) -> None:
        word = self.code.words[number]
        opcode = word & 0x1FF
        if opcode == operations.LDGSTS:
            self._copies.begin(self.now + MEMORY_CYCLES)
        elif opcode == LDGDEPBAR:
            self._copies.end()
        elif opcode in HGMMA:
            # N / 2 cycles for 64 x N results, which are N / 2 registers of each of 128 threads.
            cycles = self.parts * operations.warpgroup_registers(word)
            self._products.last = max(self._products.last, self.now) + cycles
            if word >> GROUP_BIT & 7 != NO_GROUP:
                self._products.end()
        cycles = MEMORY_CYCLES if opcode in SLOW else OTHER_CYCLES
        for bit, taken in ((RESULT_BIT, cycles), (OPERANDS_BIT, OTHER_CYCLES)):
            scoreboard = word >> bit & 7
            if scoreboard < SCOREBOARDS:
                done = self.now + taken
                self._scoreboards[scoreboard] = max(self._scoreboards[scoreboard], done)
