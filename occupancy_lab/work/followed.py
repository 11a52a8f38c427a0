"""What the machine code of a launch executes, by following the warps of its programs through it.

Only what jumps and addresses need is computed. Where warps go is followed for all programs, up to
MOST_PROGRAMS. Addresses are followed for as many as ADDRESSES allows, evenly of those that execute
equally many instructions, and stand for all.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.errors import BinaryError
from occupancy_lab.work.asked import Asked, Asking
from occupancy_lab.work.counts import (
    LOADS,
    NO_WAIT,
    NOTHING,
    Amount,
    Executed,
    ExecutedLine,
    ExecutedLoop,
    GlobalAccess,
    Place,
    Unknown,
    total,
)
from occupancy_lab.work.module import UNKNOWN_PLACE
from occupancy_lab.work.threads import Launched
from occupancy_lab.work.tickets import Tickets
from occupancy_lab.work.warps import MOST_NUMBERS, Followed, TooWideError, Visits, Warps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from occupancy_lab.work.banks import Served
    from occupancy_lab.work.passed import Passed
    from occupancy_lab.work.slices import Slice

MOST_PROGRAMS = 1 << 16
"""Programs whose way is followed; of more, some stand for all."""
MOST_BLOCKS, MOST_BLOCKS_OF_ADDRESSES = 200_000, 2_000
"""Basic blocks that are followed before a launch is given up, and before what was asked for until
then stands for the rest."""
ADDRESSES = 1 << 18
"""Addresses that are looked at."""
LEAST_PROGRAMS = 4
"""Programs of a class whose addresses are followed."""
PASSES = 8
"""Passes of a loop by each warp where nobody knows them, in `ExecutedLine.cycles`."""
GOLDEN = (math.sqrt(5) - 1) / 2
NOT_KNOWN = "values from memory"
INSTRUCTIONS, STALLS, LOCAL_BYTES = "instructions", "stalls", "local bytes"
FLOPS, NOT_DECODED = "FLOPs", "products whose shape is not known"
SUMMED = frozenset({INSTRUCTIONS, STALLS, LOCAL_BYTES, FLOPS, NOT_DECODED})
"""What is summed for a line, and is no kind of instruction."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What is known of each instruction, each time that a warp executes it."""

    stalls: Sequence[int]
    """Cycles until the next one, as the compiler scheduled; 0 where the binary does not say."""
    stands: Sequence[float]
    """Cycles for which the warp stands at it."""
    local_bytes: Sequence[int]
    flops: Sequence[int | None]
    """Of the tensor cores; None where they are not known."""
    live: Sequence[int]
    """Registers of a thread that are live at it."""


class Run(ABC):
    """A launch whose programs are followed."""

    asks_shared = False
    """Whether accesses to shared memory are followed too."""
    most_blocks = MOST_BLOCKS
    """Basic blocks that are followed before the launch is given up."""
    waiting: Collection[int] = frozenset()
    """The first blocks of loops in which programs only wait for others."""
    ctas = 1
    """Of a program: of clusters it is their CTAs that are followed, as programs of a grid are."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it is made of
        self,
        code: Any,
        passed: Passed,
        places: Sequence[Place],
        kinds: Sequence[str | None],
        grid: Sequence[int],
        threads: int,
    ) -> None:
        """Take a kernel's code, the line and the kind of each instruction, and how it is launched.

        *code* is a Code or a GcnCode; equal *places* are one object, as looking them up takes long.
        """
        self.code, self.passed, self.places, self.kinds = code, passed, places, kinds
        self.grid = (*grid, 1, 1)[:3]
        self.programs = math.prod(self.grid)
        self.threads = threads
        self.shared = 0
        """Bytes of shared memory that a program can reach, where what is in it matters."""

    @abstractmethod
    def warps(
        self, needed: Slice, launched: Launched, visits: Visits | None, *, assume: bool | None
    ) -> Warps:
        """Return what follows the warps of the programs that are *launched*."""

    @abstractmethod
    def needed(self, *, addresses: bool) -> Slice:
        """Return what of the code is to be computed, for the *addresses* of accesses too."""

    def axes_read(self, _needed: Slice) -> Collection[int]:
        """Return the axes of the grid in which a program's place decides what is *needed*."""
        return range(len(self.grid))

    @abstractmethod
    def access_of(self, number: int) -> tuple[str, int] | None:
        """Return what an instruction does to global memory, and the bytes of a thread, if any."""

    def adds_floats(self, _number: int) -> bool:
        """Tell whether an instruction is known to be an atomic operation on floats."""
        return False

    def bytes_of(self, number: int) -> int:
        """Return the bytes that a thread moves by an access to global memory."""
        access = self.access_of(number)
        return 0 if access is None else access[1]

    @abstractmethod
    def marks(self, often: Mapping[int, float]) -> Marks:
        """Return what is known of each instruction; *often* says how often blocks are executed."""

    def visiting(self, programs: int) -> tuple[Asking, Visits]:
        """Return who is told of the accesses of so many programs."""
        tensor_at = self.passed.tensor_at
        asking = Asking(programs, self.threads, tensor_at, self.bytes_of, self.code.lanes)
        return asking, Visits(asking.visit)

    def executed(self) -> Executed:
        """Return what it executes."""
        if self.passed.has_values:
            self._forget_written()
        chosen, ways = self._ways()
        self.typical = ways[-1]
        unknown = {number for way in ways for number in way.unknown}
        endless = self._endless(unknown)
        counted = [self._counted(way, len(chosen)) for way in ways]
        self.executions = executions = {
            start: _between([one[start] for one in counted], endless=start in endless)
            for start in self.code.blocks
        }
        asked, self.others = self._asked(chosen, ways[0], counted[0])
        accesses = tuple(
            self._access(number, *access, executions[start], asked)
            for start, block in self.code.blocks.items()
            if executions[start] != NOTHING
            for number in range(block.start, block.stop)
            if (access := self.access_of(number)) is not None
        )
        lines = self._lines(executions)
        return Executed(
            programs=self.programs,
            followed=len(chosen),
            instructions=total(one.instructions for one in lines),
            kinds=_summed(one.kinds for one in lines),
            lines=lines,
            loops=tuple(
                self._loop(header, executions, ways, len(chosen)) for header in self.code.loops
            ),
            accesses=accesses,
            unknowns=self._unknowns(unknown | self.others, accesses),
        )

    def _forget_written(self) -> None:
        """Take for unknown what is in tensors that the launch writes to."""
        some = spread(self.programs, min(self.programs, LEAST_PROGRAMS))
        asking, visits = self.visiting(len(some))
        needed = self.needed(addresses=True)
        self._followed(needed, some, assume=None, visits=visits, most=MOST_BLOCKS_OF_ADDRESSES)
        for number, asked in asking.by_instruction.items():
            access = self.access_of(number)
            if access is not None and access[0] not in LOADS and asked.tensor is not None:
                self.passed.forget(asked.tensor)

    def _ways(self) -> tuple[Any, list[Followed]]:
        """Return the programs whose way is followed, and what they did.

        They are followed thrice where a condition is not known: taken as true, as false, and both
        ways, as warps go whose threads differ, but for ways that only unusual numbers take.
        """
        needed = self.needed(addresses=False)
        most = MOST_PROGRAMS
        while True:
            chosen = (
                np.arange(self.programs) if self.programs <= most else spread(self.programs, most)
            )
            some, standing = self._standing(needed, chosen)
            ways: list[Followed] = []
            try:
                for assume in (True, False, None):
                    ways.append(self._followed(needed, some, assume=assume).of_all(standing))
                    if not ways[-1].is_whole:
                        message = "It takes too long to follow its warps."
                        raise BinaryError(message)
                    if not ways[0].unknown:
                        break
            except TooWideError:
                most = min(most // 2, ADDRESSES // self.threads)
                continue
            return chosen, ways

    def _standing(self, needed: Slice, chosen: Any) -> tuple[Any, Any]:
        """Return programs that stand for the *chosen* ones, and which one stands for each of them.

        Those that differ along no axis of the grid that what is *needed* reads go the same way.
        """
        columns, rows, _ = self.grid
        steps = (1, columns, columns * rows)
        place = np.zeros_like(chosen)
        for axis in self.axes_read(needed):
            place += chosen // steps[axis] % self.grid[axis] * steps[axis]
        _, first, standing = np.unique(place, return_index=True, return_inverse=True)
        return chosen[first], standing

    def _followed(
        self,
        needed: Slice,
        chosen: Any,
        *,
        assume: bool | None,
        visits: Visits | None = None,
        most: int | None = None,
    ) -> Followed:
        """Follow the programs that are *chosen* by their numbers."""
        columns, rows, _ = self.grid
        numbers = chosen[:, None]
        places = (numbers % columns, numbers // columns % rows, numbers // (columns * rows))
        launched = Launched(
            [one.astype(np.uint32) if one.any() else np.zeros((1, 1), np.uint32) for one in places],
            self.threads,
            self.shared,
            self.passed.constant,
            self.passed.loaded,
            self.ctas,
            Tickets(numbers, self.programs) if self.ctas == 1 else None,
        )
        return self.warps(needed, launched, visits, assume=assume).follow(
            self.most_blocks if most is None else most
        )

    def _counted(self, way: Followed, programs: int) -> dict[int, float]:
        """Return the warps of the launch that execute each block."""
        return {start: self._scaled(one, programs) for start, one in way.executions.items()}

    def _scaled(self, warps: Any, programs: int) -> float:
        """Return the warps of the launch, from those of each of *programs*, or of every program."""
        if np.size(warps) == 1:
            return float(np.sum(warps)) * self.programs
        return float(np.sum(warps)) * self.programs / programs

    def _endless(self, unknown: set[int]) -> set[int]:
        """Return the blocks of loops that end on a condition that is not known."""
        found: set[int] = set()
        for header, inside in self.code.loops.items():
            if header in self.waiting:
                continue
            for start in inside:
                block = self.code.blocks[start]
                if block.stop - 1 in unknown and not inside.issuperset(block.successors):
                    found |= inside
        return found

    def _asked(
        self, chosen: Any, way: Followed, counted: Mapping[int, float]
    ) -> tuple[list[Mapping[int, Asked]], set[int]]:
        """Return what programs ask for by each access, once an execution by a warp.

        Then the accesses whose condition is not known: for them it is taken as true, and as false.
        """
        accesses = Counter(
            start
            for start, block in self.code.blocks.items()
            for number in range(block.start, block.stop)
            if self.access_of(number) is not None
        )
        times = sum(counted[start] * number for start, number in accesses.items())
        if not times and not self.asks_shared:
            return [{}], set()
        warps = self.programs * self.threads / self.code.lanes
        room = ADDRESSES / max(times / warps, 1.0) / self.threads
        some = chosen[self._alike(way, len(chosen), max(int(room), LEAST_PROGRAMS))]
        needed = self.needed(addresses=True)
        found: list[Mapping[int, Asked]] = []
        unknown: set[int] = set()
        for assume in (True, False):
            asking, visits = self.visiting(len(some))
            followed = self._followed(
                needed, some, assume=assume, visits=visits, most=MOST_BLOCKS_OF_ADDRESSES
            )
            unknown |= followed.unknown.keys()
            found.append(self._means(asking, followed, len(some)))
            if not unknown:
                break
        return found, unknown

    def _means(self, asking: Asking, followed: Followed, programs: int) -> Mapping[int, Asked]:
        """Return what was asked for each time that a warp executed an instruction."""
        found = {}
        by_instruction = asking.by_instruction
        for start, block in self.code.blocks.items():
            warps = followed.executions[start]
            times = float(np.sum(warps)) * (programs if np.size(warps) == 1 else 1)
            for number in range(block.start, block.stop):
                one = by_instruction.get(number)
                if one is not None and times:
                    found[number] = one.a_time(times)
        return found

    def _alike(self, way: Followed, programs: int, most: int) -> Any:
        """Return at most so many of *programs*, evenly of those that execute equally much."""
        most = min(most, MOST_NUMBERS // self.threads)
        if programs <= most:
            return np.arange(programs)
        executed = np.zeros(programs)
        for start, warps in way.executions.items():
            block = self.code.blocks[start]
            executed = executed + np.asarray(warps) * (block.stop - block.start)
        return np.argsort(executed, kind="stable")[spread(programs, most)]

    def _access(
        self,
        number: int,
        operation: str,
        thread_bytes: int,
        executions: Amount,
        asked: Sequence[Mapping[int, Asked]],
    ) -> GlobalAccess:
        known = [one[number] for one in asked if number in one]
        tensors = {one.tensor for one in known}
        amount = functools.partial(between, known, executions)

        def share(name: str) -> float:
            return min((getattr(one, name) / max(one.sectors, 1e-9) for one in known), default=0.0)

        warps = self.threads // int(self.code.lanes)
        asking = max((one.programs * warps for one in known), default=1.0)

        return GlobalAccess(
            place=self.places[number],
            instruction=number,
            operation=operation,
            tensor=tensors.pop() if len(tensors) == 1 else None,
            thread_bytes=thread_bytes,
            executions=executions,
            threads=amount("threads", "threads"),
            sectors=amount("sectors", "most_sectors"),
            lines=amount("lines", "most_lines"),
            passes=amount("passes", "most_passes"),
            is_known=all(one.is_known for one in known),
            cached=share("cached"),
            merged=share("merged"),
            common=share("common"),
            distinct=share("distinct"),
            shared=share("shared"),
            places=amount("places", "places"),
            adds_floats=self.adds_floats(number),
            asking=min(asking, 1.0),
        )

    def _lines(self, executions: Mapping[int, Amount]) -> tuple[ExecutedLine, ...]:
        """Return what is executed of each line, the lines with most instructions first."""
        found: dict[int, dict[str | None, list[Amount]]] = defaultdict(lambda: defaultdict(list))
        often = {start: self._typical(one) for start, one in executions.items()}
        marks = self.marks(often)
        cycles: Counter[int] = Counter()
        live: Counter[int] = Counter()
        for start, block in self.code.blocks.items():
            if executions[start] == NOTHING:
                continue
            counts: dict[int, dict[str | None, int]] = defaultdict(lambda: defaultdict(int))
            for number in range(block.start, block.stop):
                place, flops = id(self.places[number]), marks.flops[number]
                counter = counts[place]
                live[place] = max(live[place], marks.live[number])
                counter[INSTRUCTIONS] += 1
                counter[STALLS] += marks.stalls[number]
                counter[self.kinds[number]] += 1
                cycles[place] += round(often[start] * marks.stands[number])
                if marks.local_bytes[number]:
                    counter[LOCAL_BYTES] += marks.local_bytes[number]
                if flops is None:
                    counter[NOT_DECODED] += 1
                elif flops:
                    counter[FLOPS] += flops
            for place, counter in counts.items():
                for kind, times in counter.items():
                    found[place][kind].append(executions[start] * times)
        places = {id(one): one for one in self.places}
        lines = [
            ExecutedLine(
                places[place],
                total(kinds[INSTRUCTIONS]),
                {
                    kind: total(amounts)
                    for kind, amounts in kinds.items()
                    if kind is not None and kind not in SUMMED
                },
                total(kinds[STALLS]),
                cycles[place],
                total(kinds[LOCAL_BYTES]),
                None if NOT_DECODED in kinds else total(kinds[FLOPS]),
                live[place],
            )
            for place, kinds in found.items()
        ]
        return tuple(sorted(lines, key=lambda one: -one.instructions.low))

    def _typical(self, executions: Amount) -> float:
        """Return a number for how often warps execute a block, where it is not known exactly."""
        if executions.high is None:
            warps = self.programs * self.threads // int(self.code.lanes)
            return max(executions.low, PASSES * warps)
        return (executions.low + executions.high) / 2

    def _loop(
        self,
        header: int,
        executions: Mapping[int, Amount],
        ways: Sequence[Followed],
        programs: int,
    ) -> ExecutedLoop:
        loops = self.code.loops
        inside = loops[header]
        latch = max(one for one in inside if header in self.code.blocks[one].successors)
        back = self.places[self.code.blocks[latch].stop - 1]
        numbers = [
            number for start in inside for number in range(start, self.code.blocks[start].stop)
        ]
        entered = [self._scaled(way.entered[header], programs) for way in ways]
        endless = any(
            header in others and executions[outer].high is None
            for outer, others in loops.items()
            if outer != header
        )
        return ExecutedLoop(
            place=self.places[header] if back == UNKNOWN_PLACE else back,
            depth=sum(header in others for others in loops.values()) - 1,
            instructions=len(numbers),
            kinds=dict(Counter(kind for one in numbers if (kind := self.kinds[one]) is not None)),
            entered=_between(entered, endless=endless),
            trips=executions[header],
        )

    def _unknowns(
        self, unknown: Collection[int], accesses: Sequence[GlobalAccess]
    ) -> tuple[Unknown, ...]:
        """Return what hangs on values of memory, each line once."""
        ends = {block.stop - 1 for block in self.code.blocks.values() if block.jump is not None}
        leaves = {
            self.code.blocks[start].stop - 1
            for inside in self.code.loops.values()
            for start in inside
            if not inside.issuperset(self.code.blocks[start].successors)
        }
        waiting = {
            number
            for header in self.waiting
            for start in self.code.loops[header]
            for number in range(start, self.code.blocks[start].stop)
        }
        found = [
            ("loop" if one in leaves else "branch", one) if one in ends else ("mask", one)
            for one in sorted(unknown)
            if one in ends or self.access_of(one) is not None
        ]
        found += [("address", one.instruction) for one in accesses if not one.is_known]
        return tuple(
            dict.fromkeys(
                Unknown(self.places[one], NOT_KNOWN, steers, NO_WAIT if one in waiting else None)
                for steers, one in found
            )
        )


def spread(number: int, most: int) -> Any:
    """Return *most* of so many places, one in each part of equal length, at golden-ratio steps.

    Evenly spaced ones would fall on the same column of a grid.
    """
    steps = np.arange(most)
    return ((steps + steps * GOLDEN % 1) * (number / most)).astype(np.int64)


def between(known: Sequence[Asked | Served], executions: Amount, least: str, most: str) -> Amount:
    """Return what so many executions ask for, between the least and the most of what is *known*."""
    if not known:
        return Amount(0, None)
    low = min(getattr(one, least) for one in known) * executions.low
    high = max(getattr(one, most) for one in known)
    return Amount(round(low), None if executions.high is None else round(high * executions.high))


def _between(numbers: Sequence[float], *, endless: bool) -> Amount:
    """Return the range of *numbers*, without an upper limit where it is *endless*."""
    return Amount(round(min(numbers)), None if endless else round(max(numbers)))


def _summed(counts: Iterable[Mapping[str, Amount]]) -> dict[str, Amount]:
    """Return the sum of *counts* by their keys."""
    found: dict[str, list[Amount]] = defaultdict(list)
    for one in counts:
        for kind, amount in one.items():
            found[kind].append(amount)
    return {kind: total(amounts) for kind, amounts in found.items()}
