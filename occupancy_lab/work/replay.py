"""How long a program takes alone on a multiprocessor, by replaying one of its warps.

Each instruction encodes for how many cycles the next one waits, which of six scoreboards it sets
until its result is there or its operands are read, and for which scoreboards it waits (Jia,
Maggioni, Staiger and Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", 2018, 2.1). Asynchronous copies and products are waited for by group. The other
warps of the program are assumed to do the same at the same time, on the same pipes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from occupancy_lab.compiling.sass import BULK_COPIES
from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.work import operations, waits
from occupancy_lab.work.execution import CACHED_CYCLES, GlobalAccess
from occupancy_lab.work.fetches import CODE_BYTES, NEAR_CODE_BYTES, fetches
from occupancy_lab.work.pipes import LSU, SCHEDULERS, TENSOR, XU
from occupancy_lab.work.slices import EXIT, Block, Code

NO_SCOREBOARD = 7
SHARED_CYCLES, SHUFFLE_CYCLES, SPECIAL_CYCLES, OTHER_CYCLES = 30.0, 24.0, 20.0, 30.0
"""Latencies of shared memory, of a shuffle, of a special function, and of all else without a known
latency. On an H100 an exponential takes 19 cycles in a dependent chain, and 21 in softmaxes, by
where their warps stall."""
READ_CYCLES, TENSOR_CYCLES = 14.0, 33.0
"""Cycles until an instruction's operands are read, and until a product's last sums are there."""
BULK_CYCLES, BARRIER_CYCLES = 250.0, 20.0
"""The extra latency of a TMA copy compared with a load, and that of a barrier that all warps have
reached."""
CODE_CYCLES = 18.0
"""Cycles to fetch the next line of code where no cache of the multiprocessor holds it yet. With
this value the waits of ten softmaxes of 100 to 500 such lines are as Nsight Compute samples them on
an H100; `calibrate` measures 11.7 cycles more than a line takes to issue."""
BARRIER, LEFT_BIT, TRY_WAIT = 0x11D, 47, 2
"""The opcode of a barrier; the bit of a DEPBAR that lets some groups continue; the form of a SYNCS
that waits for TMA copies."""
STALL_BIT = 105
MOST_STEPS = 200_000
"""Instructions that are replayed; the rest is assumed to go on at the same speed."""
SETTLED, LEAST_PASSES, MOST_PASSES = 3, 2, 12
"""Passes of a loop after which further passes are assumed to take the mean of the last ones, and
the least and most passes in that mean. It covers as many passes as the loop prefetches ahead,
because only one of these waits for memory on behalf of all."""

PLAIN, LOAD, COPY, END_COPIES, WAIT_COPIES, PRODUCT, END_PRODUCTS, WAIT_PRODUCTS = range(8)
BULK, EXPECT, WAIT_BULK, SYNCHRONIZE, LOCAL, FENCE = range(8, 14)


class Step(NamedTuple):
    """An instruction as it is replayed."""

    stall: float
    """The least cycles until the next instruction."""
    waits: tuple[int, ...]
    """The scoreboards that the instruction waits for."""
    result: int
    """The scoreboard that it sets until its result is there; NO_SCOREBOARD for none."""
    operands: int
    """The scoreboard that it sets until its operands are read."""
    kind: int
    left: int
    """For a wait, the number of groups that may still be pending."""
    pipe: str | None
    cycles: float
    """Cycles for which a warp keeps the pipe busy."""
    busy: float
    """Cycles for which all warps of the program on the same pipe keep it busy."""
    latency: float
    """Cycles from issue to the result; for memory the replay's latency is used."""
    cached: float
    """The L1 hit rate of what it loads."""
    asking: float
    """The share of executions in which it loads anything; 1 for a copy, which fills what it does
    not copy with zeros."""
    line: int
    """The line of code that contains it."""


_LATENCIES: Mapping[int, float] = {
    **dict.fromkeys((operations.LDS, operations.LDSM, operations.ATOMS), SHARED_CYCLES),
    operations.SHFL: SHUFFLE_CYCLES,
}
_KINDS: Mapping[int, int] = {
    **dict.fromkeys(operations.LOADS | operations.ATOMICS, LOAD),
    **dict.fromkeys(BULK_COPIES, BULK),
    operations.LDGSTS: COPY,
    waits.LDGDEPBAR: END_COPIES,
    BARRIER: SYNCHRONIZE,
    operations.LDL: LOCAL,
}


def _latency(word: int, pipe: str | None) -> float:
    """Return the cycles from issue to the result, except for memory."""
    if pipe in {TENSOR, XU}:
        return TENSOR_CYCLES if pipe == TENSOR else SPECIAL_CYCLES
    is_late = word >> waits.RESULT_BIT & 7 != NO_SCOREBOARD
    return _LATENCIES.get(word & 0x1FF, OTHER_CYCLES if is_late else 0.0)


def _kind(word: int) -> tuple[int, int]:
    """Return an instruction's effect on the replay, and how many groups a wait leaves pending."""
    opcode = word & 0x1FF
    if opcode in operations.HGMMA:
        return PRODUCT if word >> waits.GROUP_BIT & 7 == waits.NO_GROUP else END_PRODUCTS, 0
    if opcode == waits.DEPBAR and word >> LEFT_BIT & 1:
        return WAIT_COPIES, word >> waits.COPIES_LEFT_BIT & 63
    if opcode == waits.WARPGROUP and word >> waits.WAITS_BIT & 1:
        return WAIT_PRODUCTS, word >> waits.PRODUCTS_LEFT_BIT & 63
    if opcode == operations.MEMBAR and operations.reaches_gpu(word):
        return FENCE, 0
    if opcode == operations.SYNCS_WAIT:
        return WAIT_BULK if word >> 9 & 7 == TRY_WAIT else EXPECT, 0
    return _KINDS.get(opcode, PLAIN), 0


class Replay:
    """A warp of a program that is alone on a multiprocessor."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a warp does, and where
        self,
        code: Code,
        executions: Mapping[int, float],
        entered: Mapping[int, float],
        pipes: Mapping[int, tuple[str | None, float]],
        cycles: Mapping[int, float],
        accesses: Mapping[int, GlobalAccess],
        *,
        num_warps: int,
        architecture: CudaArchitecture,
    ) -> None:
        """Take how often a warp executes each block of *code*, and how often it enters each loop.

        By an instruction's number, *pipes* has what `pipe_of` returns, *cycles* for how long an
        access keeps the lsu pipe busy, and *accesses* its access to global memory.
        """
        self._code, self._executions, self._entered = code, executions, entered
        self._share = max(num_warps / SCHEDULERS, 1.0)
        self._num_warps = num_warps
        a_line = CODE_BYTES // architecture.instruction_bytes

        def step(number: int) -> Step:
            word = code.words[number]
            pipe, least = pipes[number]
            kind, left = _kind(word)
            taken = cycles.get(number, least)
            access = accesses.get(number)
            return Step(
                stall=max(word >> STALL_BIT & 15, self._share),
                waits=waits.WAITED[word >> waits.WAITED_BIT & 0x3F],
                result=word >> waits.RESULT_BIT & 7,
                operands=word >> waits.OPERANDS_BIT & 7,
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
        self._around = {
            start: [header for header, inside in code.loops.items() if start in inside]
            for start in self._steps
        }
        self.fetches = fetches(
            {start: {one.line for one in some} for start, some in self._steps.items()},
            code.loops,
            executions,
            entered,
            num_warps=num_warps,
            cache=architecture.instruction_cache_bytes,
        )
        self.loses_code = any(self.fetches.cycles.values())
        """Whether code is executed again after the instruction caches have evicted it."""
        self._periods = {header: self._period(inside) for header, inside in code.loops.items()}
        self._ways_in = Counter(
            other for start in self._steps for other in code.blocks[start].successors
        )

    def _period(self, inside: Iterable[int]) -> int:
        """Return how many passes ahead a loop of these blocks prefetches."""
        steps = [one for start in inside for one in self._steps.get(start, ())]
        ended = sum(one.kind == END_COPIES for one in steps)
        left = min((one.left for one in steps if one.kind == WAIT_COPIES), default=0)
        return left // max(ended, 1) + 1

    @property
    def loaded(self) -> float:
        """The loads of a program that miss in the L1 cache, in units of 128 bytes."""
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
        """Return the cycles from the program's beginning to its end.

        *latency* is the latency of memory, and *local* that of local memory. *code* is the time to
        fetch a line of code that is executed for the first time. *transfer* is the additional time
        for each 128 bytes of loads, one load after the other; copies that are prefetched across a
        wait do not take longer. Evicted code is fetched again where *refetches* is true.
        """
        self._now, self._latency, self._transfer, self._arrived = 0.0, latency, transfer, 0.0
        self._local, self._returned = local, 0.0
        self._a_line, self._line_there = code, 0.0
        self._refetches = refetches and self.loses_code
        self._lines: set[int] = set()
        self._near: dict[int, None] = {}
        self._ready = [0.0] * (NO_SCOREBOARD + 1)
        self._free: dict[str | None, float] = defaultdict(float)
        self._copies, self._products = waits.Groups(), waits.Groups()
        self._bulks: list[float] = []
        self._total: dict[int, float] = defaultdict(float)
        self._credit: dict[int, float] = defaultdict(float)
        self._visits: dict[int, dict[int, float]] = {}
        self._begun: dict[int, list[float]] = {}
        start: int | None = 0 if 0 in self._steps else None
        left, before = MOST_STEPS, list[int]()
        while start is not None and left > 0:
            around = self._around[start]
            for header in around:
                if header not in before:
                    self._visits[header], self._begun[header] = defaultdict(float), []
            if start in self._code.loops:
                self._leave_out(start)
            self._total[start] += 1
            for header in around:
                self._visits[header][start] += 1
            self._run(start)
            left -= len(self._steps[start])
            start, before = self._next(self._code.blocks[start]), around
        went = sum(self._total[one] * len(steps) for one, steps in self._steps.items())
        wanted = sum(self._executions[one] * len(steps) for one, steps in self._steps.items())
        return max(self._now, *self._ready[: waits.SCOREBOARDS]) * wanted / max(went, 1.0)

    def _leave_out(self, header: int) -> None:
        """Skip the passes of a loop that repeat the last ones, except for the final passes."""
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
        """Return how often a warp executes a block each time that it enters a loop."""
        return self._executions[start] / max(self._entered.get(header) or 1.0, 1e-9)

    def _next(self, block: Block) -> int | None:
        """Return the block that a warp goes to next, so that all executions come out right.

        A jump to itself, behind the call of a failed assertion, ends the program.
        """
        if block.successors == [block.start]:
            return None
        ways = [one for one in dict.fromkeys(block.successors) if one in self._steps]
        left = [one for one in ways if self._total[one] + 0.5 < self._executions[one]]
        if len(left) == 1 or (block.jump is not None and block.jump.opcode == EXIT):
            return left[0] if left else None
        if len(ways) <= 1:
            return ways[0] if ways else None
        for header in reversed(self._around[block.start]):
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

    def _run(self, start: int) -> None:  # noqa: C901 - in one piece, as most of a replay's time
        """Replay a block: waits, issue on a pipe, and the scoreboards that instructions set.

        It calls no function for most instructions, not even `max`.
        """
        ready, free, now, line = self._ready, self._free, self._now, None
        fetches = self._a_line or self._refetches
        for one in self._steps[start]:
            stall, waited, result, operands, kind, _, pipe, cycles, busy, latency, _, _, at = one
            if at != line and fetches:
                line = at
                now = self._come_to(line, self.fetches.cycles[start], now)
            for place in waited:
                if ready[place] > now:  # noqa: PLR1730
                    now = ready[place]
            done = now
            if pipe is not None:
                if free[pipe] > done:  # noqa: PLR1730
                    done = free[pipe]
                free[pipe] = done + busy
                if pipe == LSU:  # it has a queue: the warp goes on before the request is served
                    done += cycles
                elif pipe == TENSOR:
                    done += busy
                else:
                    now = done
            read = done + READ_CYCLES
            done += latency
            if kind != PLAIN:
                self._now = now
                done = self._special(one, done)
                now = self._now
            if result != NO_SCOREBOARD and done > ready[result]:
                ready[result] = done
            if operands != NO_SCOREBOARD and read > ready[operands]:
                ready[operands] = read
            now += stall
        self._now = now

    def _come_to(self, line: int, fetch: float, now: float) -> float:
        """Return when a line of code is there, which takes *fetch* cycles where it was evicted."""
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
            now = max(now, self._line_there)
            self._line_there = now + cycles
        return now

    def _special(self, one: Step, done: float) -> float:
        """Apply an instruction's special effect, and return when its result is there."""
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
        """Return when a load's result is there: L1 hits do not overtake earlier misses."""
        if one.result == NO_SCOREBOARD:  # an atomic operation without a result
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
            until = self._bulks.pop(0)  # in the order of their requests
        elif one.kind == SYNCHRONIZE:
            until = max(self._now, self._free[LSU]) + BARRIER_CYCLES
        elif one.kind == FENCE:
            until = max(self._now, self._free[LSU], self._returned) + self._latency
        self._now = max(self._now, until)
