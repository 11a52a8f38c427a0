"""How long a program takes with a multiprocessor to itself: one of its warps, replayed.

Each instruction says for how many cycles the next one waits, which of six scoreboards it sets until
its result is there or its operands are read, and for which it waits (Jia, Maggioni, Staiger and
Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, 2.1). Copies
and products that go on by themselves are waited for by the group. The other warps of the program
are taken to do the same at the same time, on the same pipes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from occupancy_lab.compiling.sass import BULK_COPIES
from occupancy_lab.work import operations
from occupancy_lab.work.counts import CACHED_CYCLES
from occupancy_lab.work.memory import beyond
from occupancy_lab.work.pipes import LSU, SCHEDULERS, TENSOR, XU, pipe_of
from occupancy_lab.work.slices import EXIT
from occupancy_lab.work.waits import (
    COPIES_LEFT_BIT,
    DEPBAR,
    GROUP_BIT,
    LDGDEPBAR,
    NO_GROUP,
    OPERANDS_BIT,
    PRODUCTS_LEFT_BIT,
    RESULT_BIT,
    SCOREBOARDS,
    WAITED_BIT,
    WAITS_BIT,
    WARPGROUP,
    Groups,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from occupancy_lab.gpus import CudaArchitecture
    from occupancy_lab.work.counts import GlobalAccess
    from occupancy_lab.work.slices import Block, Code

NO_SCOREBOARD = 7
SHARED_CYCLES, SHUFFLE_CYCLES, SPECIAL_CYCLES, OTHER_CYCLES = 30.0, 24.0, 20.0, 30.0
"""Until a result of shared memory, of a shuffle, of a special function and of all else of unknown
latency is there. Of an exponential an H100 takes 19 cycles, of which each is added to itself, and
21 in softmaxes, by where their warps stand."""
READ_CYCLES, TENSOR_CYCLES = 14.0, 33.0
"""Until operands are read, and a product's last sums are there."""
BULK_CYCLES, BARRIER_CYCLES = 250.0, 20.0
"""What a copy by the TMA unit takes longer than a load, and a barrier at which all warps are."""
CODE_CYCLES, CODE_BYTES = 18.0, 128
"""Until the next so many bytes of code are there that no cache of the multiprocessor has yet. With
it the waits of ten softmaxes of 100 to 500 such lines come out as Nsight Compute samples them on an
H100; calibrate measures 11.7 more than it takes to issue what is in a line."""
NEAR_CODE_BYTES, CODE_LOST = 32 * 1024, 1.2
"""The code that the schedulers' own caches hold, and how many times its size code has that is
executed again and again of which a cache holds nothing."""
FETCH_CYCLES, FAR_FETCH_CYCLES, MEMORY_FETCH_CYCLES = 22.5, 48.3, 102.0
"""The cycles from one line of code to the next where these caches lack it, where the
multiprocessor's instruction cache does, and where the L2 cache does as well: by straight code of 2
to 320 KiB, executed once a launch and in a loop, of 1 to 8 warps, on an H200."""
CODE_STAYS = 0.5
"""Of the instruction cache: what it still has of larger code that was executed by the launch
before. By the same."""
BARRIER, LEFT_BIT, TRY_WAIT = 0x11D, 47, 2
"""A barrier of warps; where a DEPBAR says that some groups may go on; the form of a SYNCS that
waits for copies by the TMA unit."""
STALL_BIT = 105
MOST_STEPS = 200_000
"""Instructions that are replayed before what is left is taken to go on as fast."""
WAITED = [tuple(one for one in range(SCOREBOARDS) if bits >> one & 1) for bits in range(64)]
"""The scoreboards by the bits of a wait."""
SETTLED, LEAST_PASSES, MOST_PASSES = 3, 2, 12
"""Passes of a loop, after which the next ones take as long as these last ones in the mean: as many
as its loads run ahead, since where it waits for memory one of so many waits for all."""

PLAIN, LOAD, COPY, END_COPIES, WAIT_COPIES, PRODUCT, END_PRODUCTS, WAIT_PRODUCTS = range(8)
BULK, EXPECT, WAIT_BULK, SYNCHRONIZE, LOCAL = range(8, 13)


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction as it is replayed."""

    stall: float
    """Cycles until the next one, at the least."""
    waits: tuple[int, ...]
    """The scoreboards that it waits for."""
    result: int
    """The scoreboard that it sets until its result is there; NO_SCOREBOARD for none."""
    operands: int
    """The same until its operands are read."""
    kind: int
    left: int
    """Of a wait: the groups that may go on."""
    pipe: str | None
    cycles: float
    """For which a warp keeps the pipe busy."""
    busy: float
    """For which all warps of the program that share it do."""
    latency: float
    """Cycles from then until its result is there; of memory they are the replay's."""
    cached: float
    """The share of what it loads that the L1 cache has."""
    asking: float
    """The share of its executions in which it loads anything; 1 of a copy, which fills with zeros
    what it does not copy."""
    line: int
    """Of the code, in which it lies."""


_LATENCIES: Mapping[int, float] = MappingProxyType(
    {
        **dict.fromkeys((operations.LDS, operations.LDSM, operations.ATOMS), SHARED_CYCLES),
        operations.SHFL: SHUFFLE_CYCLES,
    }
)
_KINDS: Mapping[int, int] = MappingProxyType(
    {
        **dict.fromkeys(operations.LOADS | operations.ATOMICS, LOAD),
        **dict.fromkeys(BULK_COPIES, BULK),
        operations.LDGSTS: COPY,
        LDGDEPBAR: END_COPIES,
        BARRIER: SYNCHRONIZE,
        operations.LDL: LOCAL,
    }
)


def _latency(word: int, pipe: str | None) -> float:
    """Return the cycles from an instruction's turn until its result is there, but of memory."""
    if pipe in {TENSOR, XU}:
        return TENSOR_CYCLES if pipe == TENSOR else SPECIAL_CYCLES
    is_late = word >> RESULT_BIT & 7 != NO_SCOREBOARD
    return _LATENCIES.get(word & 0x1FF, OTHER_CYCLES if is_late else 0.0)


def _kind(word: int) -> tuple[int, int]:
    """Return what an instruction does besides its own, and how many groups a wait leaves."""
    opcode = word & 0x1FF
    if opcode in operations.HGMMA:
        return PRODUCT if word >> GROUP_BIT & 7 == NO_GROUP else END_PRODUCTS, 0
    if opcode == DEPBAR and word >> LEFT_BIT & 1:
        return WAIT_COPIES, word >> COPIES_LEFT_BIT & 63
    if opcode == WARPGROUP and word >> WAITS_BIT & 1:
        return WAIT_PRODUCTS, word >> PRODUCTS_LEFT_BIT & 63
    if opcode == operations.SYNCS_WAIT:
        return WAIT_BULK if word >> 9 & 7 == TRY_WAIT else EXPECT, 0
    return _KINDS.get(opcode, PLAIN), 0


class Replay:
    """A warp of a program, which has a multiprocessor to itself."""

    def __init__(  # noqa: PLR0913 - what a warp does, on what
        self,
        code: Code,
        executions: Mapping[int, float],
        entered: Mapping[int, float],
        cycles: Mapping[int, float],
        accesses: Mapping[int, GlobalAccess],
        *,
        num_warps: int,
        architecture: CudaArchitecture,
    ) -> None:
        """Take how often a warp executes each block of *code*, and how often it comes to each loop.

        By the instruction's number, *cycles* has for how long an access to memory keeps lsu busy,
        and *accesses* what it asks of global memory.
        """
        self._code, self._executions, self._entered = code, executions, entered
        self._share = max(num_warps / SCHEDULERS, 1.0)
        self._num_warps = num_warps
        a_line = CODE_BYTES // architecture.instruction_bytes

        def step(number: int) -> Step:
            word = code.words[number]
            pipe, least = pipe_of(word, architecture)
            kind, left = _kind(word)
            taken = cycles.get(number, least)
            access = accesses.get(number)
            return Step(
                stall=max(word >> STALL_BIT & 15, self._share),
                waits=WAITED[word >> WAITED_BIT & 0x3F],
                result=word >> RESULT_BIT & 7,
                operands=word >> OPERANDS_BIT & 7,
                kind=kind,
                left=left,
                pipe=pipe,
                cycles=taken,
                busy=taken * (num_warps if pipe == LSU else self._share),
                latency=_latency(word, pipe),
                cached=0.0 if access is None else access.cached,
                asking=1.0 if access is None or kind == COPY else access.asking,
                line=number // a_line,
            )

        self._steps = {
            start: [step(number) for number in range(start, block.stop)]
            for start, block in code.blocks.items()
            if executions.get(start)
        }
        steps = [one for some in self._steps.values() for one in some]
        ahead = any(one.kind == WAIT_COPIES and one.left for one in steps)
        self._in_turn = {LOAD} if ahead else {LOAD, COPY}
        self._around: dict[int, list[int]] = {start: [] for start in code.blocks}
        for header, inside in code.loops.items():
            for start in inside:
                self._around[start].append(header)
        self._fetch, lost = self._fetches(architecture)
        self.loses_code = any(self._fetch.values())
        """Whether code is executed again that the instruction caches have lost by then."""
        self.memory_code_cycles = lost * (MEMORY_FETCH_CYCLES - FAR_FETCH_CYCLES)
        """For which it waits besides where the L2 cache does not have what they have lost."""
        self._periods = {header: self._period(inside) for header, inside in code.loops.items()}
        self._ways_in: dict[int, int] = defaultdict(int)
        for start in self._steps:
            for other in code.blocks[start].successors:
                self._ways_in[other] += 1

    def _fetches(self, architecture: CudaArchitecture) -> tuple[dict[int, float], float]:
        """Return the cycles from one line of code to the next where it is fetched again, by block.

        That hangs on all that is executed before it comes again: a loop, or the whole program. And
        how many lines the instruction cache has not, where the launch before was the same.
        """
        own = {start: {one.line for one in steps} for start, steps in self._steps.items()}
        cache = architecture.instruction_cache_bytes

        def lost(blocks: Iterable[int], stays: float) -> tuple[float, float, int]:
            lines = len(set[int]().union(*(own.get(one, ()) for one in blocks)))
            size = max(lines * CODE_BYTES, 1)
            far = beyond(size / cache, CODE_LOST) * (1.0 - stays * cache / size)
            return beyond(size / NEAR_CODE_BYTES, CODE_LOST), far, lines

        def cycles(near: float, far: float) -> float:
            return near * FETCH_CYCLES + far * (FAR_FETCH_CYCLES - FETCH_CYCLES)

        near, far, lines = lost(own, CODE_STAYS)
        found = dict.fromkeys(own, cycles(near, far))
        for inside in sorted(self._code.loops.values(), key=len):
            found |= dict.fromkeys(inside, cycles(*lost(inside, 0.0)[:2]))
        return found, far * lines

    def _period(self, inside: Iterable[int]) -> int:
        """Return how many passes ahead a loop of these blocks copies."""
        steps = [one for start in inside for one in self._steps.get(start, ())]
        ended = sum(one.kind == END_COPIES for one in steps)
        left = min((one.left for one in steps if one.kind == WAIT_COPIES), default=0)
        return left // max(ended, 1) + 1

    @property
    def loaded(self) -> float:
        """The times 128 bytes that a program loads and the L1 cache does not have."""
        return self._num_warps * sum(
            self._executions[start] * one.cycles * (1.0 - one.cached)
            for start, steps in self._steps.items()
            for one in steps
            if one.kind in {LOAD, COPY}
        )

    def cycles(
        self,
        latency: float,
        transfer: float = 0.0,
        *,
        local: float = CACHED_CYCLES,
        code: float = 0.0,
        refetches: bool = True,
    ) -> float:
        """Return the cycles from the begin of the program to its end.

        *latency* is how many cycles memory takes, *local* how many local memory does, *code* how
        many the next line of code does that the program comes to first, and *transfer* how many
        more memory takes for each 128 bytes, one load after the other. Copies of which some may go
        on at each wait run ahead, and take no longer. Code that was lost is fetched again, where
        it *refetches* any.
        """
        self._now, self._latency, self._transfer, self._arrived = 0.0, latency, transfer, 0.0
        self._local, self._returned = local, 0.0
        self._a_line, self._line_there = code, 0.0
        self._refetches = refetches and self.loses_code
        self._lines: set[int] = set()
        self._near: dict[int, None] = {}
        self._ready = [0.0] * (NO_SCOREBOARD + 1)
        self._free: dict[str | None, float] = defaultdict(float)
        self._copies, self._products = Groups(), Groups()
        self._bulks: list[float] = []
        self._total: dict[int, float] = defaultdict(float)
        self._credit: dict[int, float] = defaultdict(float)
        loops: list[int] = []
        self._visits: dict[int, dict[int, float]] = {}
        self._begun: dict[int, list[float]] = {}
        start: int | None = 0 if 0 in self._steps else None
        left = MOST_STEPS
        while start is not None and left > 0:
            around = self._around[start]
            loops = [one for one in loops if one in around]
            for header in around:
                if header not in loops:
                    loops.append(header)
                    self._visits[header], self._begun[header] = defaultdict(float), []
            if start in self._code.loops:
                self._leave_out(start)
            self._total[start] += 1
            for header in around:
                self._visits[header][start] += 1
            self._run(start)
            left -= len(self._steps[start])
            start = self._next(self._code.blocks[start], loops)
        went = sum(self._total[one] * len(steps) for one, steps in self._steps.items())
        wanted = sum(self._executions[one] * len(steps) for one, steps in self._steps.items())
        return max(self._now, *self._ready[:SCOREBOARDS]) * wanted / max(went, 1.0)

    def _leave_out(self, header: int) -> None:
        """Leave out what passes a loop goes on with as before, all but the last ones."""
        begun, visits = self._begun[header], self._visits[header]
        begun.append(self._now)
        ahead = max(self._periods[header], len(self._bulks) + 1, LEAST_PASSES)
        period = min(ahead, MOST_PASSES)
        left = round(self._passes(header, header)) - visits[header] - period
        if len(begun) <= SETTLED + period or left <= 0:
            return
        cycles = left * (begun[-1] - begun[-1 - period]) / period
        self._now += cycles
        self._ready = [one + cycles for one in self._ready]
        self._free = defaultdict(float, {pipe: at + cycles for pipe, at in self._free.items()})
        self._bulks = [one + cycles for one in self._bulks]
        self._arrived += cycles
        self._returned += cycles
        self._line_there += cycles
        self._copies.shift(cycles)
        self._products.shift(cycles)
        share = left / visits[header]
        for start in visits:
            self._total[start] += visits[start] * share
            visits[start] += visits[start] * share
        begun.clear()

    def _passes(self, header: int, start: int) -> float:
        """Return how often a warp executes a block each time that it comes to a loop."""
        return self._executions[start] / max(self._entered.get(header) or 1.0, 1e-9)

    def _next(self, block: Block, loops: Sequence[int]) -> int | None:
        """Return the block that a warp goes to, so that each is executed as often as it is."""
        ways = [one for one in dict.fromkeys(block.successors) if one in self._steps]
        left = [one for one in ways if self._total[one] + 0.5 < self._executions[one]]
        if len(left) == 1 or (block.jump is not None and block.jump.opcode == EXIT):
            return left[0] if left else None
        if len(ways) <= 1:
            return ways[0] if ways else None
        for header in reversed(loops):
            inside = self._code.loops[header]
            stay = [one for one in ways if one in inside]
            if 0 < len(stay) < len(ways):
                gone = self._visits[header][block.start] + 0.5
                if gone < self._passes(header, block.start):
                    return stay[0]
                return next(one for one in ways if one not in inside)
        return self._branch(block.start, *ways[:2])

    def _branch(self, start: int, first: int, other: int) -> int:
        """Return the one of two blocks that is due, by how often each follows."""
        if self._ways_in[first] > 1 and self._ways_in[other] == 1:
            first, other = other, first
        whole = self._executions[start]
        if self._ways_in[first] > 1:
            whole = self._executions[first] + self._executions[other]
        self._credit[start] += min(self._executions[first] / whole, 1.0)
        if self._credit[start] < 0.5:  # noqa: PLR2004 - half of one
            return other
        self._credit[start] -= 1.0
        return first

    def _run(self, start: int) -> None:
        """Replay a block: what each instruction waits for, its turn on its pipe, what it sets."""
        ready, free, line = self._ready, self._free, None
        for one in self._steps[start]:
            if one.line != line:
                line = one.line
                self._come_to(line, self._fetch[start])
            now = self._now
            for place in one.waits:
                now = max(now, ready[place])
            done, pipe = now, one.pipe
            if pipe is not None:
                done = max(now, free[pipe])
                free[pipe] = done + one.busy
                if pipe == LSU:  # it has a queue: the warp goes on, and what it asked for is first
                    done += one.cycles
                elif pipe == TENSOR:
                    done += one.busy
                else:
                    now = done
            self._now = now
            read = done + READ_CYCLES
            done += one.latency
            if one.kind != PLAIN:
                done = self._beside(one, done)
            if one.result != NO_SCOREBOARD and done > ready[one.result]:
                ready[one.result] = done
            if one.operands != NO_SCOREBOARD and read > ready[one.operands]:
                ready[one.operands] = read
            self._now += one.stall

    def _come_to(self, line: int, fetch: float) -> None:
        """Wait until a line of code is there, which takes *fetch* cycles where it was lost."""
        cycles = 0.0 if line in self._lines else self._a_line
        self._lines.add(line)
        if self._refetches:
            if line not in self._near:
                cycles = max(cycles, fetch)
            self._near.pop(line, None)
            self._near[line] = None
            if len(self._near) * CODE_BYTES > NEAR_CODE_BYTES:
                del self._near[next(iter(self._near))]
        if cycles:
            self._now = max(self._now, self._line_there)
            self._line_there = self._now + cycles

    def _beside(self, one: Step, done: float) -> float:
        """Do what an instruction does besides, and return when its result is there."""
        if one.kind == LOCAL:
            return done - one.latency + self._local
        latency = self._latency + one.cached * (CACHED_CYCLES - self._latency)
        latency *= one.asking
        kind, asked = one.kind, done - one.latency + latency
        if self._transfer and kind in self._in_turn:
            moved = self._num_warps * one.cycles * (1.0 - one.cached)
            asked = self._arrived = max(self._arrived, asked) + moved * self._transfer
        if kind == LOAD:
            return self._come(one, asked)
        if kind == COPY:
            self._copies.begin(asked)
        elif kind == END_COPIES:
            self._copies.end()
            return self._copies.last
        elif kind in {PRODUCT, END_PRODUCTS}:
            self._products.begin(done)
            if kind == END_PRODUCTS:
                self._products.end()
        elif kind == EXPECT:
            self._bulks.append(self._now + self._latency)
        elif kind == BULK and self._bulks:
            self._bulks[-1] = max(self._bulks[-1], self._now + self._latency + BULK_CYCLES)
        else:
            self._wait(one)
        return done

    def _come(self, one: Step, asked: float) -> float:
        """Return when a load is there: what the L1 cache has does not overtake what it lacks."""
        if one.result == NO_SCOREBOARD:  # of an atomic operation nothing comes
            return asked
        self._returned = max(asked, self._returned + one.cycles * self._num_warps)
        return self._returned

    def _wait(self, one: Step) -> None:
        until = 0.0
        if one.kind == WAIT_COPIES:
            until = self._copies.until(one.left)
        elif one.kind == WAIT_PRODUCTS:
            until = self._products.until(one.left)
        elif one.kind == WAIT_BULK and self._bulks:
            until = self._bulks.pop(0)  # in the order in which they were asked for
        elif one.kind == SYNCHRONIZE:
            until = max(self._now, self._free[LSU]) + BARRIER_CYCLES
        self._now = max(self._now, until)
