"""How long a warp waits at each instruction of a kernel for what it needs.

Each instruction encodes which of six scoreboards it sets until its result is there, or until its
operands are read, and which scoreboards it waits for (Jia, Maggioni, Staiger and Scarpazza,
"Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, 2.1). One warp is
replayed alone along the most frequent path, and each loop a few times. A wait counts for the
instruction that waits, as in the samples of a profiler. The cycles are only meant for comparing
lines, and not for the time of the launch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.work import operations
from occupancy_lab.work.operations import ATOMICS, HGMMA, LOADS, SYNCS_WAIT

if TYPE_CHECKING:
    from occupancy_lab.work.slices import Block, Code

RESULT_BIT, OPERANDS_BIT, WAITED_BIT = 110, 113, 116
"""Bit positions of the scoreboard that an instruction sets until its result is there, of that until
its operands are read, and of the mask of those it waits for."""
SCOREBOARDS = 6
MEMORY_CYCLES, OTHER_CYCLES = 800, 25
"""Latencies of device memory, and of shared memory, special functions, shuffles and all else. On an
H100 the L2 cache takes 430 to 470 cycles, and device memory 330 to 380 more. Any value between 500
and 2000 gives the same slowest line."""
LDGDEPBAR, DEPBAR, WARPGROUP = 0x1AF, 0x11A, 0x1C5
"""Opcodes: the end of a group of asynchronous copies, the wait for all but some of these groups,
and the same wait for products of warp groups, which WARPGROUP.ARRIVE does not do."""
COPIES_LEFT_BIT, PRODUCTS_LEFT_BIT, WAITS_BIT = 38, 72, 80
"""Bit positions of the number of groups that may be pending (6 bits), and of whether a WARPGROUP
waits."""
GROUP_BIT, NO_GROUP = 84, 7
"""The field of a product, and its value where the product is not the last of its group."""
GROUP_THREADS = 128
GROUPED = HGMMA | {operations.LDGSTS, LDGDEPBAR, DEPBAR, WARPGROUP}
SLOW = LOADS | ATOMICS | {SYNCS_WAIT}
ROUNDS, MOST_ROUNDS = 4, 16
"""How often a block is replayed, so that a pass of a loop starts from the state that the pass
before left; and the most replays, where all paths lead back to it."""


@dataclass(slots=True)
class Groups:
    """Asynchronous operations of a warp, which it waits for by group."""

    last: float = 0.0
    """When everything begun so far is done."""
    ended: list[float] = field(default_factory=list)
    """When each ended group is done."""

    def begin(self, done: float) -> None:
        """Begin an operation that will be done at *done*."""
        self.last = max(self.last, done)

    def end(self) -> None:
        """End the current group."""
        self.ended.append(self.last)

    def until(self, left: int) -> float:
        """Return when all ended groups except the last *left* are done."""
        return self.ended[-left - 1] if len(self.ended) > left else 0.0

    def shift(self, cycles: float) -> None:
        """Delay everything by *cycles*."""
        self.last += cycles
        self.ended = [one + cycles for one in self.ended]


def waits(
    code: Code, stalls: Sequence[int], executions: Mapping[int, float], threads: int
) -> dict[int, float]:
    """Return the cycles that a warp waits at each instruction, per execution.

    *stalls* are the cycles from each instruction to the next without waits, *executions* has the
    executions of each block, and *threads* are those of a program. Instructions that are missing in
    the result do not wait.
    """
    return _SassWaits(code, stalls, executions, max(threads / GROUP_THREADS, 1.0)).waited()


class Waits(ABC):
    """A replay of warps along paths that together cover all executed blocks."""

    def __init__(
        self, code: Any, stalls: Sequence[int], executions: Mapping[int, float], parts: float
    ) -> None:
        """Take a Code or a GcnCode, and how many *parts* of a program share a matrix unit."""
        self.code, self.parts = code, parts
        self._stalls, self._executions = stalls, executions
        self._events: dict[int, tuple[list[tuple[int, int]], int]] = {}
        self._rounds: Counter[int] = Counter()
        self._waited: dict[int, float] = {}
        self.now = 0.0

    @abstractmethod
    def _reset(self) -> None:
        """Forget everything that is pending, as at a warp's start."""

    @abstractmethod
    def _matters(self, number: int) -> bool:
        """Tell whether an instruction waits for something, or begins what others wait for."""

    @abstractmethod
    def _ready(self, number: int) -> float:
        """Return when an instruction can be issued."""

    @abstractmethod
    def _begin(self, number: int) -> None:
        """Begin what an instruction that is issued now does."""

    def waited(self) -> dict[int, float]:
        """Return the cycles that a warp waits at each instruction where it does."""
        for start in sorted(self.code.blocks):
            if self._executions[start] and not self._rounds[start]:
                self._run(start)
        return self._waited

    def _run(self, start: int | None) -> None:
        """Follow one warp from a block on along the most frequent path, until it ends or loops.

        A loop that was replayed often enough is left for a less frequent path.
        """
        self.now = 0.0
        self._reset()
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
            self.now = max(issued, self._ready(number))
            self._waited[number] = self.now - issued
            begin += self.now - issued
            self._begin(number)
        self.now = begin + cycles

    def _read(self, block: Block) -> tuple[list[tuple[int, int]], int]:
        """Return the relevant instructions of a block with their issue cycles, and its length.

        These cycles do not include waits.
        """
        events, cycle = [], 0
        for number in range(block.start, block.stop):
            if self._matters(number):
                events.append((number, cycle))
            cycle += self._stalls[number]
        return events, cycle


class _SassWaits(Waits):
    """The replay of NVIDIA's machine code."""

    def _reset(self) -> None:
        self._scoreboards = [0.0] * SCOREBOARDS
        self._copies, self._products = Groups(), Groups()

    def _matters(self, number: int) -> bool:
        word = self.code.words[number]
        sets = ~word >> RESULT_BIT & 0x3F or word >> WAITED_BIT & 0x3F
        return bool(sets) or word & 0x1FF in GROUPED

    def _ready(self, number: int) -> float:
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

    def _begin(self, number: int) -> None:
        word = self.code.words[number]
        opcode = word & 0x1FF
        if opcode == operations.LDGSTS:
            self._copies.begin(self.now + MEMORY_CYCLES)
        elif opcode == LDGDEPBAR:
            self._copies.end()
        elif opcode in HGMMA:
            # N / 2 cycles for 64 x N results, which take N / 2 registers of each of 128 threads.
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
