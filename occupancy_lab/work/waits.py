"""How long a warp waits at each instruction of a kernel for what it needs.

Each instruction encodes which of six scoreboards it sets until its result is there, or until its
operands are read, and which scoreboards it waits for (Jia, Maggioni, Staiger and Scarpazza,
"Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, 2.1). One warp is
replayed alone along the most frequent path, and each loop a few times. A wait counts for the
instruction that waits, as in the samples of a profiler. The cycles are only meant for comparing
lines, and not for the time of the launch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from occupancy_lab.work import operations
from occupancy_lab.work.operations import ATOMICS, HGMMA, LOADS, SYNCS_WAIT

if TYPE_CHECKING:
    from occupancy_lab.work.slices import Block

RESULT_BIT, OPERANDS_BIT, WAITED_BIT = 110, 113, 116
"""Bit positions of the scoreboard that an instruction sets until its result is there, of that until
its operands are read, and of the mask of those it waits for."""
SCOREBOARDS = 6
WAITED = [tuple(one for one in range(SCOREBOARDS) if bits >> one & 1) for bits in range(64)]
"""The scoreboards for each value of that mask."""
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
SLOW = LOADS | ATOMICS | {SYNCS_WAIT}
ROUNDS, MOST_ROUNDS = 4, 16
"""How often a block is replayed, so that a pass of a loop starts from the state that the pass
before left; and the most replays, where all paths lead back to it."""
COPIES, PRODUCTS = "copies", "products"
"""The names of queues; a scoreboard is a queue too, named by its number."""


class Begun(NamedTuple):
    """An asynchronous operation that an instruction begins."""

    queue: str | int
    cycles: float
    ends_group: bool = True
    """Whether it is the last one of its group."""
    in_turn: bool = False
    """Whether it takes its cycles after those before it in the queue."""


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

    def begin_at(self, now: float, one: Begun) -> None:
        """Begin an operation at cycle *now*."""
        self.begin((max(self.last, now) if one.in_turn else now) + one.cycles)
        if one.ends_group:
            self.end()

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


class Event(NamedTuple):
    """What an instruction waits for, and what it begins."""

    waits: Sequence[tuple[str | int, int]]
    """Each queue that it waits for, and how many of its groups may be pending."""
    begins: Sequence[Begun]


def sass_events(words: Sequence[int], threads: int) -> dict[int, Event]:
    """Return the events of NVIDIA's instructions by their number, for programs of *threads*."""
    parts = max(threads / GROUP_THREADS, 1.0)
    events = {number: _sass_event(word, parts) for number, word in enumerate(words)}
    return {number: one for number, one in events.items() if one.waits or one.begins}


def _sass_event(word: int, parts: float) -> Event:
    """Return what an instruction does, where *parts* of a program share a tensor core."""
    opcode = word & 0x1FF
    waits: list[tuple[str | int, int]] = [(one, 0) for one in WAITED[word >> WAITED_BIT & 0x3F]]
    begins = []
    if opcode == DEPBAR:
        waits.append((COPIES, word >> COPIES_LEFT_BIT & 63))
    elif opcode == WARPGROUP and word >> WAITS_BIT & 1:
        waits.append((PRODUCTS, word >> PRODUCTS_LEFT_BIT & 63))
    elif opcode == operations.LDGSTS:
        begins.append(Begun(COPIES, MEMORY_CYCLES, ends_group=False))
    elif opcode == LDGDEPBAR:
        begins.append(Begun(COPIES, 0))
    elif opcode in HGMMA:
        # N / 2 cycles for 64 x N results, which take N / 2 registers of each of 128 threads.
        cycles = parts * operations.warpgroup_registers(word)
        is_last = word >> GROUP_BIT & 7 != NO_GROUP
        begins.append(Begun(PRODUCTS, cycles, is_last, in_turn=True))
    cycles = MEMORY_CYCLES if opcode in SLOW else OTHER_CYCLES
    for bit, taken in ((RESULT_BIT, cycles), (OPERANDS_BIT, OTHER_CYCLES)):
        scoreboard = word >> bit & 7
        if scoreboard < SCOREBOARDS:
            begins.append(Begun(scoreboard, taken))
    return Event(waits, begins)


def waits(
    blocks: Mapping[int, Block],
    stalls: Sequence[int],
    executions: Mapping[int, float],
    events: Mapping[int, Event],
) -> dict[int, float]:
    """Return the cycles that a warp waits at each instruction, per execution.

    *stalls* are the cycles from each instruction to the next without waits, *executions* has the
    executions of each block, and *events* what instructions wait for and begin. Instructions that
    are missing in the result do not wait.
    """
    waited: dict[int, float] = {}
    for path in _paths(blocks, executions):
        now = 0.0
        queues: dict[str | int, Groups] = defaultdict(Groups)
        for number in (one for block in path for one in range(block.start, block.stop)):
            event = events.get(number)
            if event is not None:
                ready = [queues[queue].until(left) for queue, left in event.waits]
                waited[number] = max([now, *ready]) - now
                now += waited[number]
                for begun in event.begins:
                    queues[begun.queue].begin_at(now, begun)
            now += stalls[number]
    return waited


def _paths(blocks: Mapping[int, Block], executions: Mapping[int, float]) -> Iterator[list[Block]]:
    """Yield paths of warps that together cover all executed blocks.

    Each is the most frequent one from its first block on, until the warp ends or loops. A loop that
    was replayed often enough is left for a less frequent path.
    """
    rounds: Counter[int] = Counter()

    def rank(start: int) -> tuple[int, float]:
        return max(rounds[start], ROUNDS), -executions[start]

    for first in sorted(blocks):
        start = first if executions[first] and not rounds[first] else None
        path = []
        while start is not None:
            rounds[start] += 1
            path.append(blocks[start])
            ways = (one for one in blocks[start].successors if executions[one])
            left = [one for one in ways if rounds[one] < MOST_ROUNDS]
            start = min(left, key=rank, default=None)
        yield path
