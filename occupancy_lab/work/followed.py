"""Counts what the machine code of a launch executes by following the warps of its programs.

Only the values that branches and addresses depend on are computed. The control flow of up to
MOST_PROGRAMS programs is followed. Addresses are followed for a sample, as large as ADDRESSES
allows, that is spread evenly over programs sorted by how much they execute.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from occupancy_lab.errors import unreadable
from occupancy_lab.work.asked import COUNTED, KEPT_LINES, Asked, Asking
from occupancy_lab.work.banks import Served, a_time
from occupancy_lab.work.counts import (
    NO_WAIT,
    NOTHING,
    Amount,
    Loop,
    Place,
    Unknown,
    total,
    weighted,
)
from occupancy_lab.work.execution import (
    LOADS,
    TOO_LONG,
    Executed,
    ExecutedLine,
    ExecutedLoop,
    GlobalAccess,
)
from occupancy_lab.work.gathers import Gather, gathered
from occupancy_lab.work.module import UNKNOWN_PLACE
from occupancy_lab.work.passed import Passed
from occupancy_lab.work.samples import GOLDEN
from occupancy_lab.work.slices import Slice
from occupancy_lab.work.threads import Launched
from occupancy_lab.work.tickets import Tickets
from occupancy_lab.work.trips import Ending, ending_jumps
from occupancy_lab.work.warps import MOST_NUMBERS, Assumed, Followed, TooWideError, Visits, Warps

MOST_PROGRAMS = 1 << 16
"""The most programs whose control flow is followed; of more programs, a sample is."""
MOST_BLOCKS, MOST_BLOCKS_OF_ADDRESSES = 200_000, 2_000
"""The most basic blocks that are followed: before a launch is given up, and before the addresses
seen so far stand for the rest."""
ADDRESSES = 1 << 18
"""The number of addresses that are computed."""
MOST_COMPUTED, AS_LONG_AS, FEW_PROGRAMS = 1 << 29, 10_000, 16
"""The most values that are computed for more than FEW_PROGRAMS programs before fewer are followed,
some two seconds; and the values whose computation takes as long as the rest of an instruction."""
LEAST_PROGRAMS = 4
"""The fewest programs whose addresses are followed."""
PASSES = 8
"""Iterations per warp assumed in `ExecutedLine.cycles` for a loop of unknown length."""
AMOUNTS = {"threads": "threads", "places": "places"} | {one: f"most_{one}" for one in COUNTED}
"""The amounts of a GlobalAccess, which are fields of Asked, with those of their upper limits."""
SHARES = ("cached", "merged", "partial", "common", "turns", "distinct", "shared")
"""The shares of a GlobalAccess, which are fields of Asked too."""
NOT_KNOWN = "values from memory"


@dataclass(frozen=True, slots=True)
class Marks:
    """What is known of each instruction, per execution by a warp."""

    stalls: Sequence[int]
    """Cycles until the next instruction as scheduled by the compiler; 0 where not in the binary."""
    stands: Sequence[float]
    """Cycles that the warp spends at the instruction, including waits."""
    local_bytes: Sequence[int]
    flops: Sequence[int | None]
    """FLOPs of the tensor cores; None where they are not known."""
    live: Sequence[int]


class Run(ABC):
    """A launch whose programs are followed."""

    asks_shared = False
    """Whether accesses to shared memory are followed as well."""
    most_blocks = MOST_BLOCKS
    """Basic blocks that are followed before the launch is given up."""
    waiting: Collection[int] = frozenset()
    """The first blocks of loops in which programs only wait for others."""
    loops: Sequence[Loop] = ()
    """The loops of the source, of which some have assumed trips or a limit."""
    gathers: Mapping[Place, Gather] = MappingProxyType({})
    """What lines of the source read at unknown places."""
    kept_lines: int = KEPT_LINES
    """As in Asking."""
    counted_ends: Mapping[int, Ending] = MappingProxyType({})
    """The jumps that end loops whose trips only the source's counts have."""
    accessing: Mapping[int, tuple[str, int]]
    """The kind of each access to global memory and its bytes per thread, by its number."""
    in_step = True
    """Whether the warps of a program meet at barriers."""
    ctas = 1
    """CTAs per program: the CTAs of clusters are followed as if they were the grid's programs."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a launch
        self,
        code: Any,
        passed: Passed,
        places: Sequence[Place],
        kinds: Sequence[str | None],
        grid: Sequence[int],
        threads: int,
    ) -> None:
        """Take a kernel's code, the place and the kind of each instruction, and the launch.

        *code* is a Code or a GcnCode. Equal *places* must be one object, because comparing them is
        slow.
        """
        self.code, self.passed, self.places, self.kinds = code, passed, places, kinds
        self.grid = (*grid, 1, 1)[:3]
        self.programs = math.prod(self.grid)
        self.threads = threads
        self.shared = 0
        """Bytes of shared memory that a program can reach, where its contents matter."""

    @abstractmethod
    def _warps(
        self, needed: Slice, launched: Launched, visits: Visits | None, assumed: Assumed
    ) -> Warps:
        """Return what follows the warps of the *launched* programs."""

    @abstractmethod
    def _needed(self, *, addresses: bool) -> Slice:
        """Return the instructions to compute: for branches, and for *addresses* if wanted."""

    def axes_read(self, _needed: Slice) -> Collection[int]:
        """Return the axes of the grid along which the *needed* values differ between programs."""
        return range(len(self.grid))

    def _adds_floats(self, _number: int) -> bool:
        """Tell whether an instruction is known to be an atomic operation on floats."""
        return False

    @abstractmethod
    def _marks(self, often: Mapping[int, float]) -> Marks:
        """Return what is known of each instruction; *often* has the executions of each block."""

    def _visiting(self, programs: int) -> tuple[Asking, Visits]:
        """Return what records the accesses of *programs* programs."""
        moved = {number: size for number, (_, size) in self.accessing.items()}
        asking = Asking(
            *(programs, self.threads, self.passed.tensor_at, moved, self.code.lanes),
            in_step=self.in_step,
            kept_lines=self.kept_lines,
        )
        return asking, Visits(asking.visit)

    def executed(self) -> Executed:
        """Return what the launch executes.

        Raises BinaryError if that is not known, also where only the source tells the trips of a
        loop that the compiler has divided.
        """
        if self.passed.has_values:
            self._forget_written()
        chosen, ways = self._paths()
        self.counted_ends = self._counted_ends(_unknown_in(ways))
        if self.counted_ends:
            chosen, ways = self._paths()
        unknown = _unknown_in(ways)
        endless = {
            start
            for header, inside, jump in self._exits()
            if jump in unknown and header not in self.waiting
            for start in inside
        }
        counted = [
            {start: self._scaled(one) for start, one in way.executions.items()} for way in ways
        ]
        self.executions = executions = {
            start: _between([one[start] for one in counted], endless=start in endless)
            for start in self.code.blocks
        }
        asked, self.others = self._asked(chosen, ways[0], counted[0])
        asking = [
            self._access(number, *access, executions[start], asked)
            for start, block in self.code.blocks.items()
            if executions[start] != NOTHING
            for number in range(block.start, block.stop)
            if (access := self.accessing.get(number)) is not None
        ]
        accesses = gathered(asking, self.gathers, self.programs)
        lines = self._lines(executions)
        return Executed(
            programs=self.programs,
            followed=len(chosen),
            instructions=total(one.instructions for one in lines),
            kinds=_summed(one.kinds for one in lines),
            lines=lines,
            loops=tuple(self._loop(header, executions, ways) for header in self.code.loops),
            accesses=accesses,
            unknowns=self._unknowns(unknown | self.others, accesses),
        )

    def _forget_written(self) -> None:
        """Treat the contents of tensors that the launch writes as unknown."""
        some = spread(self.programs, min(self.programs, LEAST_PROGRAMS))
        asking, visits = self._visiting(len(some))
        needed = self._needed(addresses=True)
        assumed = Assumed(None, self._endings()[0])
        self._followed(needed, some, assumed, visits, MOST_BLOCKS_OF_ADDRESSES)
        for number, asked in asking.by_instruction.items():
            access = self.accessing.get(number)
            if access is not None and access[0] not in LOADS and asked.tensor is not None:
                self.passed.forget(asked.tensor)

    def _paths(self) -> tuple[Any, list[Followed]]:
        """Return the programs whose control flow is followed, and what they did.

        Where a condition is not known they are followed three times: with the condition true,
        false, and both ways as in warps whose threads diverge, except for branches that only
        unusual values take. Where the source limits the trips of its loops, this is done with the
        fewest and with the most; with these, `typical` is what they did last.
        """
        needed = self._needed(addresses=False)
        each = self._endings()
        most = MOST_PROGRAMS
        while True:
            chosen = (
                np.arange(self.programs) if self.programs <= most else spread(self.programs, most)
            )
            some, standing = self._standing(needed, chosen)
            ways: list[Followed] = []
            try:
                for endings in each:
                    for assume in (True, False, None):
                        found = self._followed(needed, some, Assumed(assume, endings))
                        ways.append(found.of_all(standing))
                        if not found.is_whole:
                            _give_up(len(some))
                        if assume and not found.unknown:
                            break
                    if endings is each[0]:
                        self.typical = ways[-1]
            except TooWideError:
                most = max(min(most // 2, len(chosen) // 8, ADDRESSES // self.threads), 1)
                continue
            return chosen, ways

    def _endings(self) -> list[Mapping[int, Ending]]:
        """Return the jumps that end loops with assumed or limited trips, for each number of trips.

        The most trips come first. Loops in which programs only wait end at once; the code of an
        NVIDIA GPU says itself which ones these are.
        """
        found = bool(self.waiting)
        steered = [
            one for one in self.loops if one.allowed is not None or (one.waits and not found)
        ]
        least = {one.place: one.least for one in steered if one.least is not None}
        most = {one.place: one.most for one in steered if one.most is not None}
        each = [most] if least == most else [most, least]
        each_ends = [ending_jumps(self.code, self.places, trips) for trips in each]
        return [{**self.counted_ends, **ends} for ends in each_ends]

    def _counted_ends(self, unknown: Collection[int]) -> Mapping[int, Ending]:
        """Return the jumps of *unknown* that end loops whose trips the source's counts have.

        The source's counts also know values that went through a reduction. Each program is taken to
        run such a loop as often as the mean of all.
        """
        trips = {
            one.place: max(round(one.trips.low / one.entered.low), min(one.trips.low, 1))
            for one in self.loops
            if not one.waits and one.allowed is None and one.trips.is_exact and one.entered.exact
        }
        ends = ending_jumps(self.code, self.places, trips) if unknown else {}
        of_unknown = {end.lines for number, end in ends.items() if number in unknown}
        return {number: end for number, end in ends.items() if end.lines in of_unknown}

    def _standing(self, needed: Slice, chosen: Any) -> tuple[Any, Any]:
        """Return representatives of the *chosen* programs, and the index of each program's own.

        Programs that are equal along all axes of the grid that the *needed* values depend on take
        the same path.
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
        assumed: Assumed,
        visits: Visits | None = None,
        most: int | None = None,
    ) -> Followed:
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
        threads = len(chosen) * self.threads
        return self._warps(needed, launched, visits, assumed).follow(
            self.most_blocks if most is None else most,
            math.inf if len(chosen) <= FEW_PROGRAMS else MOST_COMPUTED / (threads + AS_LONG_AS),
        )

    def _scaled(self, warps: Any) -> float:
        """Return the warps of the whole launch from those of each followed program, or any one."""
        return float(np.sum(warps)) * self.programs / np.size(warps)

    def _exits(self) -> Iterator[tuple[int, set[int], int]]:
        """Yield each jump out of a loop, behind the first block and all blocks of the loop."""
        for header, inside in self.code.loops.items():
            for block in map(self.code.blocks.__getitem__, inside):
                if not inside.issuperset(block.successors):
                    yield header, inside, block.stop - 1

    def _asked(
        self, chosen: Any, way: Followed, counted: Mapping[int, float]
    ) -> tuple[list[Mapping[int, Asked]], set[int]]:
        """Return what each access requests per execution by a warp, and the unknown conditions.

        Where the condition of an access is not known, it is taken as true, and then as false.
        """
        accesses = Counter(
            start
            for start, block in self.code.blocks.items()
            for number in range(block.start, block.stop)
            if number in self.accessing
        )
        times = sum(counted[start] * number for start, number in accesses.items())
        if not times and not self.asks_shared:
            return [{}], set()
        warps = self.programs * self.threads / self.code.lanes
        room = ADDRESSES / max(times / warps, 1.0) / self.threads
        some = chosen[self._sample(way, len(chosen), max(int(room), LEAST_PROGRAMS))]
        needed = self._needed(addresses=True)
        found: list[Mapping[int, Asked]] = []
        unknown: set[int] = set()
        for assume in (True, False):
            asking, visits = self._visiting(len(some))
            assumed = Assumed(assume, self._endings()[0])
            followed = self._followed(needed, some, assumed, visits, MOST_BLOCKS_OF_ADDRESSES)
            unknown |= followed.unknown.keys()
            found.append(self._means(asking, followed, len(some)))
            if not unknown:
                break
        return found, unknown

    def _means(self, asking: Asking, followed: Followed, programs: int) -> Mapping[int, Asked]:
        """Return what was requested per execution of each instruction by a warp."""
        found = {}
        by_instruction = asking.by_instruction
        for start, block in self.code.blocks.items():
            warps = followed.executions[start]
            times = float(np.sum(warps)) * (programs if np.size(warps) == 1 else 1)
            for number in range(block.start, block.stop):
                one = by_instruction.get(number)
                if one is not None and times:
                    found[number] = a_time(one, times)
        return found

    def _sample(self, way: Followed, programs: int, most: int) -> Any:
        """Return at most *most* programs, spread evenly over those sorted by what they execute."""
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
        amounts: dict[str, Any] = {
            name: between(known, executions, name, most) for name, most in AMOUNTS.items()
        }
        shares: dict[str, Any] = {
            name: min((getattr(one, name) / max(one.sectors, 1e-9) for one in known), default=0.0)
            for name in SHARES
        }
        warps = self.threads // int(self.code.lanes)
        asking = max((one.programs * warps for one in known), default=1.0)

        return GlobalAccess(
            place=self.places[number],
            instruction=number,
            operation=operation,
            tensor=tensors.pop() if len(tensors) == 1 else None,
            thread_bytes=thread_bytes,
            executions=executions,
            is_known=all(one.is_known for one in known),
            **amounts,
            **shares,
            adds_floats=self._adds_floats(number),
            asking=min(asking, 1.0),
        )

    def _lines(self, executions: Mapping[int, Amount]) -> tuple[ExecutedLine, ...]:
        often = {start: self._typical(one) for start, one in executions.items()}
        marks = self._marks(often)
        by_place: dict[int, list[tuple[Amount, int]]] = defaultdict(list)
        cycles: Counter[int] = Counter()
        for start, block in self.code.blocks.items():
            if executions[start] != NOTHING:
                for number in range(block.start, block.stop):
                    place = id(self.places[number])
                    by_place[place].append((executions[start], number))
                    cycles[place] += round(often[start] * marks.stands[number])

        def line(place: int, some: Sequence[tuple[Amount, int]]) -> ExecutedLine:
            kinds: dict[str, list[Amount]] = defaultdict(list)
            for times, number in some:
                if (kind := self.kinds[number]) is not None:
                    kinds[kind].append(times)
            local = [(times, moved) for times, one in some if (moved := marks.local_bytes[one])]
            flops = [(times, done) for times, one in some if (done := marks.flops[one]) != 0]
            known = [(times, done) for times, done in flops if done is not None]
            return ExecutedLine(
                self.places[some[0][1]],
                total(times for times, _ in some),
                {kind: total(amounts) for kind, amounts in kinds.items()},
                weighted((times, marks.stalls[number]) for times, number in some),
                cycles[place],
                weighted(local),
                weighted(known) if len(known) == len(flops) else None,
                max(marks.live[number] for _, number in some),
            )

        lines = (line(*one) for one in by_place.items())
        return tuple(sorted(lines, key=lambda one: -one.instructions.low))

    def _typical(self, executions: Amount) -> float:
        """Return one number for the executions of a block by warps, even for a range."""
        if executions.high is None:
            warps = self.programs * self.threads // int(self.code.lanes)
            return max(executions.low, PASSES * warps)
        return executions.middle

    def _loop(
        self, header: int, executions: Mapping[int, Amount], ways: Sequence[Followed]
    ) -> ExecutedLoop:
        loops = self.code.loops
        inside = loops[header]
        latch = max(one for one in inside if header in self.code.blocks[one].successors)
        back = self.places[self.code.blocks[latch].stop - 1]
        numbers = [
            number for start in inside for number in range(start, self.code.blocks[start].stop)
        ]
        entered = [self._scaled(way.entered[header]) for way in ways]
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
        """Return the unknown values and what depends on them, each line once."""
        ends = {block.stop - 1 for block in self.code.blocks.values() if block.jump is not None}
        leaves = {jump for *_, jump in self._exits()}
        waiting = {
            number
            for header in self.waiting
            for start in self.code.loops[header]
            for number in range(start, self.code.blocks[start].stop)
        }
        found = [
            ("loop" if one in leaves else "branch", one) if one in ends else ("mask", one)
            for one in sorted(unknown)
            if one in ends or one in self.accessing
        ]
        found += [("address", one.instruction) for one in accesses if not one.is_known]
        return tuple(
            dict.fromkeys(
                Unknown(self.places[one], NOT_KNOWN, steers, NO_WAIT if one in waiting else None)
                for steers, one in found
            )
        )


def spread(number: int, most: int) -> Any:
    """Return *most* of *number* indices, one in each of as many intervals of equal length.

    Their positions in the intervals go in golden-ratio steps: equally spaced indices would fall on
    the same column of a grid.
    """
    steps = np.arange(most)
    return ((steps + steps * GOLDEN % 1) * (number / most)).astype(np.int64)


def _unknown_in(ways: Sequence[Followed]) -> set[int]:
    return {number for way in ways for number in way.unknown}


def _give_up(programs: int) -> NoReturn:
    """Raise an error because following *programs* programs takes too long."""
    if programs > FEW_PROGRAMS:
        raise TooWideError
    unreadable(TOO_LONG)


def between(known: Sequence[Asked | Served], executions: Amount, least: str, most: str) -> Amount:
    """Return what *executions* request, between the least and the most of what is *known*."""
    if not known:
        return Amount(0, None)
    low = min(getattr(one, least) for one in known) * executions.low
    high = max(getattr(one, most) for one in known)
    return Amount(round(low), None if executions.high is None else round(high * executions.high))


def _between(numbers: Sequence[float], *, endless: bool) -> Amount:
    return Amount(round(min(numbers)), None if endless else round(max(numbers)))


def _summed(counts: Iterable[Mapping[str, Amount]]) -> dict[str, Amount]:
    found: dict[str, list[Amount]] = defaultdict(list)
    for one in counts:
        for kind, amount in one.items():
            found[kind].append(amount)
    return {kind: total(amounts) for kind, amounts in found.items()}
