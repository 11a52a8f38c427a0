"""What a program of a launch needs of its multiprocessor, from what its warps execute."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from occupancy_lab.compiling.sass import BULK_COPIES
from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.work import operations
from occupancy_lab.work.counts import SECTOR
from occupancy_lab.work.execution import (
    CACHED_CYCLES,
    DISTANCES,
    LATENCIES,
    LOADS,
    TRANSFERS,
    Common,
    GlobalAccess,
    LocalReuse,
    Program,
    SharedAccess,
)
from occupancy_lab.work.pipes import FMA, FMA_HEAVY, ISSUE, LSU, SCHEDULERS, fma_cycles, pipe_of
from occupancy_lab.work.replay import BARRIER, CODE_CYCLES, Replay
from occupancy_lab.work.slices import Code
from occupancy_lab.work.warps import Followed

OPERAND_SHARE = 0.7
"""The share of the reads of a product's operands that delays other accesses; from products of
matrices of FP16 and FP32 (TF32) on an H100."""
LOOKUP_CYCLES, COPY_CYCLES, COPY_MISS_CYCLES = 1.5, 0.8, 1.0
"""Cycles of the lsu pipe that a copy through the L1 cache takes in addition to the passes that look
up its lines, in addition to those that write it, and for each line that misses (H100, copies of 4
and 8 bytes per thread with 12 strides)."""
CROSSED_CYCLES = 1.5
"""Additional cycles of such a copy while tensor cores read their operands from shared memory. Of
1.3 to 2, the value with the least median error of 30 tuned products in float32 on an H100: 5.0%."""
LOAD_MISS_CYCLES = 0.3
"""The additional cycles of a load per line that misses (H100, 0.1 to 0.8 for 1, 2 and 4 bytes per
thread)."""
LOADING = frozenset({*operations.LOADS, operations.LDGSTS, *BULK_COPIES})
BARRIERS = frozenset({BARRIER, operations.SYNCS_WAIT})
STORING = frozenset({operations.STG, operations.ST})
"""The opcodes of loads and copies, of barriers of a program, and of stores."""
MOST_PLACED = 1 << 14
"""Programs that are scheduled one by one."""
LEAST_ROUNDS, RARER = 16, 4.0
"""How often programs load all of a table for a multiprocessor to find parts of it again; and how
many times as many turns as the first of several tables the others may have."""
SAME = 1.02
"""Programs count as equal where none executes more than this many times the mean."""
TYPICAL = 0.5
"""The least share of the mean that a typical program executes; programs below it end early."""


def program_of(  # noqa: PLR0913 - the parts of a launch
    code: Code,
    way: Followed,
    accesses: Sequence[GlobalAccess],
    shared: Iterable[SharedAccess],
    *,
    architecture: CudaArchitecture,
    threads: int,
    programs: int,
    resident: int | None,
    waiting: Iterable[int],
) -> Program:
    """Return what a program of a launch needs of its multiprocessor.

    *way* is what all or a sample of the *programs* programs, of *threads* threads each, did.
    *resident* programs run at once, and they wait for others in the loops *waiting*.
    """
    num_warps = threads // operations.WARP
    weights = _weights(code, way)
    typical = slice(None) if weights is None else weights >= TYPICAL
    weight = 1.0 if weights is None else float(weights[typical].mean())

    def a_warp(counted: Mapping[int, Any], which: Any) -> dict[int, float]:
        return {one: _mean(warps, which) / num_warps for one, warps in counted.items()}

    moving, finding = lsu_cycles(accesses, shared)
    cycles = {one: max(taken, finding.get(one, 0.0)) for one, taken in moving.items()}
    executions = a_warp(way.executions, typical)
    for start, block in code.blocks.items():
        some = 0 < executions[start] < 1
        if some and any(word & 0x1FF in BULK_COPIES for word in code.words[start : block.stop]):
            executions[start] *= num_warps  # one warp issues the copy that all wait for
    entered = a_warp(way.entered, typical)

    mean = {one: _mean(warps, slice(None)) for one, warps in way.executions.items()}
    pipes = {one: pipe_of(code.words[one], architecture) for one, _ in _executed(code, mean)}

    def replay_of(some: Iterable[GlobalAccess]) -> Replay:
        own = {one.instruction: one for one in some}
        known: dict[str, Any] = {"num_warps": num_warps, "architecture": architecture}
        return Replay(code, executions, entered, pipes, cycles, own, **known)

    replay = replay_of(accesses)
    alone = tuple(replay.cycles(latency) for latency in LATENCIES)
    kept = replay.cycles(LATENCIES[1], refetches=False) if replay.loses_code else alone[1]
    loaded_lines, stored_lines = asked_lines(accesses, programs)
    empties = any(code.opcodes[one] == operations.CCTL for one in pipes)
    found = Program(
        pipes=_pipes(code, mean, pipes, moving, finding, shared, architecture, programs),
        alone=tuple(cycles / weight for cycles in alone),
        rounds=None if weights is None or resident is None else rounds(weights, programs, resident),
        code_cycles=replay.cycles(LATENCIES[1], code=CODE_CYCLES) - alone[1],
        cached=cached_share(accesses),
        loaded_lines=loaded_lines,
        stored_lines=stored_lines,
        transferred=tuple(
            (replay.cycles(LATENCIES[1], one) - alone[1]) / max(replay.loaded * one, 1.0)
            for one in TRANSFERS
        ),
        refetch_cycles=(alone[1] - kept) / weight,
        memory_code_cycles=replay.fetches.memory_cycles,
        port_cycles=replay.fetches.port_cycles,
        waits=sum(entered[one] for one in waiting) / weight,
        phases=phases(code, executions) / weight,
        fences=sum(
            times
            for number, times in _executed(code, mean)
            if code.opcodes[number] == operations.MEMBAR
            if operations.reaches_gpu(code.words[number])
        ),
        common=None if empties else _common(accesses, replay_of, programs, weight),
    )
    loaded, stored = (_local_bytes(code, mean, one) for one in (operations.LDL, operations.STL))
    if not loaded and not stored:
        return found
    slower = replay.cycles(LATENCIES[1], local=LATENCIES[0])
    return replace(
        found,
        local_loaded=loaded,
        local_stored=stored,
        local_reuse=local_reuse(code, executions, entered),
        local_waits=(slower - alone[1]) / (LATENCIES[0] - CACHED_CYCLES) / weight,
    )


def phases(code: Code, executions: Mapping[int, float]) -> float:
    """Return how often a program stores behind a barrier that is behind its loads.

    *executions* is how often a warp executes each block. Return 0 if most of what it stores is not
    stored so, or most of what it loads is loaded more often. Blocks are taken in the order of the
    code, which is that of their execution but for branches back.
    """
    has_loaded = is_behind = False
    loads, behind, elsewhere = list[float](), list[float](), 0.0
    for number, times in _executed(code, dict(sorted(executions.items()))):
        opcode = code.opcodes[number]
        if opcode in LOADING:
            has_loaded, is_behind = True, False
            loads.append(times)
        elif opcode in BARRIERS:
            is_behind = has_loaded
        elif opcode in STORING and is_behind:
            behind.append(times)
        elif opcode in STORING:
            elsewhere += times
    found = max(behind, default=0.0)
    again = sum(times for times in loads if times > SAME * found)
    return found if sum(behind) > elsewhere and again <= sum(loads) / 2 else 0.0


def _common(
    accesses: Sequence[GlobalAccess],
    replay_of: Callable[[Iterable[GlobalAccess]], Replay],
    programs: int,
    weight: float,
) -> Common | None:
    """Return the change where tables that all programs load hit in L1; None where there are none.

    *weight* is the amount that the replayed program executes, in units of the mean. Tables that few
    of the *programs* programs load a second time do not count, nor those that are loaded more
    rarely than others by far.
    """
    rarest = RARER * min((one.turns / one.common for one in accesses if one.common), default=0.0)
    accesses = [
        one if one.turns <= rarest * one.common else replace(one, common=0.0, turns=0.0)
        for one in accesses
    ]
    common, turns = (
        sum(one.sectors.middle * getattr(one, name) for one in accesses)
        for name in ("common", "turns")
    )
    if not common or turns * LEAST_ROUNDS > common * programs:
        return None
    turns /= common
    # Sectors that several warps of a program request count once.
    there = [
        replace(one, cached=min(one.cached + one.common / (1.0 - one.shared), 1.0))
        for one in accesses
    ]
    asked = [replace(one, cached=one.cached + one.common) for one in accesses]
    replay = replay_of(there)
    distinct = sum(one.sectors.middle * one.distinct for one in accesses) / programs
    return Common(
        alone=tuple(replay.cycles(latency) / weight for latency in LATENCIES),
        cached=cached_share(there),
        loaded_lines=asked_lines(asked, programs)[0],
        distinct_bytes=distinct * SECTOR * turns,
        turns=turns,
    )


def _executed(code: Code, executions: Mapping[int, float]) -> Iterator[tuple[int, float]]:
    """Yield the number of each executed instruction, and how often it is executed."""
    for start, times in executions.items():
        for number in range(start, code.blocks[start].stop if times else start):
            yield number, times


def _local_bytes(code: Code, mean: Mapping[int, float], opcode: int) -> float:
    """Return the bytes of local memory that a program moves by instructions of *opcode*."""
    if opcode not in code.opcodes:
        return 0
    return sum(
        times * operations.WARP * operations.local_bytes(code.words[number])
        for number, times in _executed(code, mean)
        if code.opcodes[number] == opcode
    )


def cached_share(accesses: Iterable[GlobalAccess]) -> float:
    """Return the L1 hit rate of loads and copies.

    Sectors that several warps of a program request count once, as they do in the source's counts.
    """
    loads = [
        (one.sectors.middle * (1.0 - one.shared), one.cached)
        for one in accesses
        if one.operation in LOADS
    ]
    return sum(one * share for one, share in loads) / max(sum(one for one, _ in loads), 1.0)


def asked_lines(accesses: Iterable[GlobalAccess], programs: int) -> tuple[float, float]:
    """Return the lines that one of *programs* requests from the L2 cache, for loads and for stores.

    L1 hits are not requested, nor lines that another warp has requested already. Where addresses
    are not known, the fewest possible lines count.
    """
    loaded = stored = 0.0
    for one in accesses:
        lines = one.lines.middle if one.is_known else float(one.lines.low)
        if one.operation in LOADS:
            loaded += lines * (1.0 - one.cached - one.merged)
        else:
            stored += lines * (1.0 - one.merged)
    return loaded / programs, stored / programs


def lsu_cycles(
    accesses: Iterable[GlobalAccess], shared: Iterable[SharedAccess]
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the cycles in which lsu moves, and finds, what each access of a warp requests.

    Both are by instruction number. A load or a store takes its lookups and its passes, and a load
    additional cycles for each line that misses. A copy past the L1 cache takes its time to be
    written. A narrower copy takes the longest of all three, and CROSSED_CYCLES more where products
    read shared memory at the same time.
    """
    shared = list(shared)
    crossed = CROSSED_CYCLES if any(one.operation == "product" for one in shared) else 0.0
    found = {
        one.instruction: passes.middle / one.executions.middle
        for one in shared
        for passes in (one.written if one.operation == "copy" else one.wavefronts,)
        if one.operation != "product" and one.executions.middle
    }
    finding = {}
    for one in accesses:
        times = one.executions.middle
        if not times:
            continue
        lookups, passes = one.lookups.middle / times, one.passes.middle / times
        if one.operation != "copy" or one.thread_bytes < operations.BYPASSING_BYTES:
            finding[one.instruction] = lookups
        missed = one.lines.middle / times * (1.0 - one.cached - one.merged)
        if one.operation != "copy":
            found[one.instruction] = max(passes, 1.0)
        elif one.thread_bytes < operations.BYPASSING_BYTES:
            written = found.get(one.instruction, 0.0) + COPY_CYCLES
            taken = max(max(lookups, passes) + LOOKUP_CYCLES, written)
            found[one.instruction] = taken + crossed + COPY_MISS_CYCLES * missed
        if one.operation == "load":
            found[one.instruction] += LOAD_MISS_CYCLES * missed
    return found, finding


def _pipes(  # noqa: PLR0913, PLR0917 - the parts of a launch
    code: Code,
    executions: Mapping[int, float],
    pipes: Mapping[int, tuple[str | None, float]],
    moving: Mapping[int, float],
    finding: Mapping[int, float],
    shared: Iterable[SharedAccess],
    architecture: CudaArchitecture,
    programs: int,
) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    lookups = 0.0
    for number, times in _executed(code, executions):
        found[ISSUE] += times / SCHEDULERS
        pipe, busy = pipes[number]
        if pipe == LSU:
            found[LSU] += times * moving.get(number, busy)
            lookups += times * finding.get(number, 0.0)
        elif pipe is not None:
            found[pipe] += times * busy / SCHEDULERS
    found[FMA] = fma_cycles(found[FMA], found.pop(FMA_HEAVY, 0.0), architecture)
    operands = sum(one.wavefronts.middle for one in shared if one.operation == "product")
    found[LSU] = max(found[LSU] + OPERAND_SHARE * operands / programs, lookups)
    return {name: one for name, one in found.items() if one}


def _weights(code: Code, way: Followed) -> Any:
    """Return what each program executes in units of the mean; None where all do the same."""
    executed = np.zeros(1)
    for start, warps in way.executions.items():
        executed = executed + np.asarray(warps, float) * (code.blocks[start].stop - start)
    if executed.size == 1 or executed.max() <= SAME * executed.mean():
        return None
    return executed / executed.mean()


def rounds(weights: Any, programs: int, resident: int) -> float:
    """Return how long the busiest of *resident* slots works, in units of a mean program's time.

    *weights* are the times of a sample of the *programs* programs in order; the others take the
    time of their nearest neighbour. Each program begins where a slot is free first. Of very many
    programs, the first ones are assumed to fill the slots evenly.
    """
    places = [0.0] * max(min(resident, programs), 1)
    placed = min(programs, max(MOST_PLACED, len(places)))
    for weight in weights[np.arange(placed) * len(weights) // placed].tolist():
        heapq.heapreplace(places, places[0] + weight)
    return float(max(places) + weights.mean() * (programs - placed) / len(places))


def _mean(warps: Any, which: Any) -> float:
    """Return the warps per program, as the mean over the programs *which*."""
    found = np.asarray(warps, float).reshape(-1)
    return float(found[0] if found.size == 1 else found[which].mean())


MOST_ACCESSES = 512
"""Accesses whose distance is computed, spread evenly over the code."""
NEVER = 1e9
"""The distance to a place that was never touched before."""


def local_reuse(
    code: Code, executions: Mapping[int, float], entered: Mapping[int, float]
) -> LocalReuse:
    """Return the reuse distances of a thread's accesses to local memory.

    *executions* and *entered* say how often a warp executes each block and enters each loop from
    outside.
    """
    touches = {start: [*_touches(code, start)] for start in code.blocks if executions[start]}
    if not any(one.is_local for own in touches.values() for one in own):
        return LocalReuse()
    found = [
        (replace(one, size=one.size * passed) if passed else one, executions[start] * share)
        for start, share, passed in _passes(executions, entered, {*touches}, code.loops)
        for one in touches[start]
        if not (passed and one.is_local)
    ]
    found *= 2  # the next program on the multiprocessor has the same places
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
    """The sequence of a thread's accesses, and how often each is made."""

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
        """Return the bytes touched from the previous access to the same place up to this one."""
        if self.last[number] < 0:
            return NEVER
        between = slice(self.last[number], number)
        # A place that is touched repeatedly in between counts once, at its last access.
        return float(self.sizes[between][self.next[between] >= number].sum())

    def before(self, is_asked: Callable[[_Touch], bool]) -> tuple[float, ...]:
        """Return the distances of the wanted accesses in the second half of the trace."""
        half = len(self.touches) // 2
        asked = [
            number
            for number in range(half, len(self.touches))
            if self.weights[number] and is_asked(self.touches[number])
        ]
        return self._quantiles(asked, self.distance)

    def until_stored(self) -> tuple[float, ...]:
        """Return the longest distance between accesses from each store to the next store.

        A cache that has evicted the place in between has written it back.
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
    """What an instruction touches: a word of local memory, or data in global memory."""

    place: Any
    """The place in local memory; None for data in global memory, which is new each time."""
    size: float
    is_load: bool
    """Whether the access loads data into the L1 cache."""
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
        if opcode in {operations.LDL, operations.STL} and operations.local_bytes(word):
            _, offset = operations.shared_offset(word)
            is_known = word >> 24 & 255 == operations.STACK and not word >> 91 & 1
            is_narrow = operations.access_bytes(word) < operations.WORD
            for one in range(0, operations.local_bytes(word), operations.WORD):
                place = (offset + one) // operations.WORD if is_known else (number, one)
                yield _Touch(place, operations.WORD, opcode == operations.LDL, is_narrow)
        elif opcode in {operations.LDG, operations.LDGSTS, operations.STG}:
            size = code.decoder.moved_bytes(word)
            is_copy = opcode == operations.LDGSTS and size < operations.BYPASSING_BYTES
            yield _Touch(None, size, is_copy or opcode == operations.LDG)


def _passes(
    executions: Mapping[int, float],
    entered: Mapping[int, float],
    starts: set[int],
    loops: Mapping[int, set[int]],
    share: float = 1.0,
) -> Iterator[tuple[int, float, float]]:
    """Yield blocks in execution order, with the share of their executions that each entry has.

    Loops have up to four passes: the first two, the third and the last. The second pass stands for
    all later ones. The third and the last have no weight but are needed as context: a place that
    the second pass stores is stored again in the third, and a place that is touched after the loop
    was touched before in the last pass.

    The third value is 0, or how often a block is executed in the passes left out: the data that it
    touches once per pass counts that often.
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
        times = max(entered[header], 1e-9)
        passes = max(round(executions.get(header, 0.0) / times), 1)
        told = [1.0 / passes, 1.0 - 1.0 / passes, 0.0, 0.0][:passes] if share else [0.0]
        for place, part in enumerate(told):
            if place == len(told) - 1 and passes > len(told):
                often = (1.0 - len(told) / passes) / times
                for one in sorted(inside):
                    yield one, 0.0, executions[one] * often
            yield from _passes(executions, entered, inside, within, share * part)
        done |= inside
