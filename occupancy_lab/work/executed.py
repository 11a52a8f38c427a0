"""What the machine code of a launch executes: instructions by kind, line and loop, and sectors.

The warps of the launch are followed through the binary (`warps`), where only what jumps and
addresses need is computed. Where warps go is followed for all programs, up to MOST_PROGRAMS.
Addresses are followed for as many as ADDRESSES allows, evenly of those that execute equally many
instructions, and stand for all.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.compiling.cubin import (
    EM_CUDA,
    RESERVED_SHARED,
    compute_capability,
    kernel_text,
    read_elf,
)
from occupancy_lab.compiling.sass import BULK_COPIES, KINDS_BY_OPCODE, stalls
from occupancy_lab.errors import BinaryError
from occupancy_lab.gpus import architectures
from occupancy_lab.work import operations
from occupancy_lab.work.asked import Asked, Asking
from occupancy_lab.work.banks import PASS, WARP_GROUP, Served, Serving, product_wavefronts
from occupancy_lab.work.counts import (
    NOTHING,
    Amount,
    Executed,
    ExecutedLine,
    ExecutedLoop,
    GlobalAccess,
    Place,
    SharedAccess,
    Unknown,
    total,
)
from occupancy_lab.work.line_tables import read_lines
from occupancy_lab.work.live import live_registers
from occupancy_lab.work.operations import ATOMICS, LOADS, SHARED_ACCESSES
from occupancy_lab.work.passed import Passed, parameters_of
from occupancy_lab.work.products import product_flops
from occupancy_lab.work.program import program_of
from occupancy_lab.work.slices import ACCESSES, ENDS, Slice, accesses_of, read_code, slice_of
from occupancy_lab.work.threads import Launched
from occupancy_lab.work.waits import waits
from occupancy_lab.work.warps import MOST_NUMBERS, WARP, Followed, TooWideError, Visits, Warps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from occupancy_lab.compiling.texts import Texts
    from occupancy_lab.launch import Plain

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
NOWHERE = Place("", 0)
READING = LOADS | {operations.LDGSTS}
NEVER = 15
"""The guard of what is never executed: !PT."""
SHARED_OPERATIONS = {
    **dict.fromkeys((operations.LDS, operations.LDSM), "load"),
    **dict.fromkeys((operations.STS, operations.STSM), "store"),
    **dict.fromkeys(operations.HGMMA, "product"),
    operations.ATOMS: "atomic",
    operations.LDGSTS: "copy",
}
LOCAL = frozenset({operations.LDL, operations.STL})
INSTRUCTIONS, STALLS, LOCAL_BYTES = "instructions", "stalls", "local bytes"
FLOPS, NOT_DECODED = "FLOPs", "products whose shape is not known"
SUMMED = frozenset({INSTRUCTIONS, STALLS, LOCAL_BYTES, FLOPS, NOT_DECODED})
"""What is summed for a line, and is no kind of instruction."""


def execute(
    texts: Texts,
    arguments: Mapping[str, Plain],
    grid: Sequence[int],
    *,
    values: Mapping[str, Sequence[int]] | None = None,
    resident: int | None = None,
) -> Executed:
    """Return what a launch executes of its binary for an NVIDIA GPU.

    *arguments* are the launch's by the names of the kernel's parameters; *values* has what is in
    tensors of whole numbers, as far as it is known; *resident* programs run at once, None where
    that is not known. A condition that hangs on other values of memory is named in `unknowns`, and
    what hangs on it is a range.

    Raises:
        BinaryError: there is no cubin, it is damaged, its programs are clusters, or it jumps in a
            way that is not known.
    """
    if texts.cubin is None or texts.num_ctas > 1:
        why = "it has no cubin" if texts.cubin is None else "its programs are clusters"
        message = f"The instructions that {texts.name} executes are not counted: {why}."
        raise BinaryError(message)
    return _Run(texts, texts.cubin, arguments, grid, values or {}).executed(resident)


class _Run:
    """One launch."""

    def __init__(
        self,
        texts: Texts,
        cubin: bytes,
        arguments: Mapping[str, Plain],
        grid: Sequence[int],
        values: Mapping[str, Sequence[int]],
    ) -> None:
        elf = read_elf(cubin, EM_CUDA, "a cubin")
        self.arch = arch = compute_capability(elf)
        content = kernel_text(elf, texts.name).content
        self.grid = (*grid, 1, 1)[:3]
        self.programs = math.prod(self.grid)
        self.threads = texts.num_warps * WARP
        names = parameters_of(texts.ttir, texts.name)
        self.passed = Passed(elf, texts.name, names, arguments, values)
        self.passed.set_sizes(arch, self.threads, self.grid)
        self.shared = (
            texts.shared
            + sum(one.size for one in elf.sections if one.name.startswith(".nv.shared."))
            + RESERVED_SHARED
        )
        self.code = read_code(content, arch, self.passed.tables)
        places = [one or NOWHERE for one in read_lines(elf, texts.name, texts.ptx)]
        once = {one: one for one in places}
        self.places = [once[one] for one in places]
        """Those of each instruction; equal ones are one object, as looking them up takes long."""
        self.stalls = stalls(content)
        self.loops = self.code.loops
        self.kinds = [
            "bulk_copies" if word & 0x1FF in BULK_COPIES else KINDS_BY_OPCODE.get(word & 0x1FF)
            for word in self.code.words
        ]

    def executed(self, resident: int | None = None) -> Executed:
        """Return what it executes where *resident* programs run at once."""
        if self.passed.has_values:
            self._forget_written()
        chosen, ways = self._ways()
        unknown = {number for way in ways for number in way.unknown}
        endless = self._endless(unknown)
        counted = [self._counted(way, len(chosen)) for way in ways]
        executions = {
            start: _between([one[start] for one in counted], endless=start in endless)
            for start in self.code.blocks
        }
        asked, served, others = self._asked(chosen, ways[0], counted[0])
        accesses = tuple(
            self._access(number, executions[start], asked)
            for start, block in self.code.blocks.items()
            for number in range(block.start, block.stop)
            if executions[start] != NOTHING and self.code.words[number] & 0x1FF in ACCESSES
        )
        shared = tuple(
            self._shared_access(number, executions[start], served, others)
            for start, block in self.code.blocks.items()
            for number in range(block.start, block.stop)
            if executions[start] != NOTHING and self._is_shared(self.code.words[number])
        )
        program = program_of(
            *(self.code, ways[-1], accesses, shared),
            architecture=architectures()[f"sm_{self.arch}"],
            threads=self.threads,
            programs=self.programs,
            resident=resident,
        )
        lines = self._lines(executions)
        return Executed(
            programs=self.programs,
            followed=len(chosen),
            instructions=total(one.instructions for one in lines),
            kinds=_summed(one.kinds for one in lines),
            lines=lines,
            loops=tuple(self._loop(header, executions, ways, len(chosen)) for header in self.loops),
            accesses=accesses,
            shared=shared,
            program=program,
            unknowns=self._unknowns(unknown | others, accesses),
        )

    def _forget_written(self) -> None:
        """Take for unknown what is in tensors that the launch writes to."""
        some = spread(self.programs, min(self.programs, LEAST_PROGRAMS))
        asking = Asking(len(some), self.threads, self.passed.tensor_at)
        needed = slice_of(self.code, ACCESSES)
        visits = Visits(asking.visit)
        self._followed(needed, some, assume=None, visits=visits, most=MOST_BLOCKS_OF_ADDRESSES)
        for number, asked in asking.by_instruction.items():
            opcode = self.code.words[number] & 0x1FF
            if opcode not in READING and asked.tensor is not None:
                self.passed.forget(asked.tensor)

    def _ways(self) -> tuple[Any, list[Followed]]:
        """Return the programs whose way is followed, and what they did.

        They are followed thrice where a condition is not known: taken as true, as false, and both
        ways, as warps go whose threads differ.
        """
        needed = slice_of(self.code, frozenset())
        most = MOST_PROGRAMS
        while True:
            chosen = (
                np.arange(self.programs) if self.programs <= most else spread(self.programs, most)
            )
            try:
                ways = [self._followed(needed, chosen, assume=True)]
                if ways[0].unknown:
                    ways += [self._followed(needed, chosen, assume=one) for one in (False, None)]
            except TooWideError:
                most = min(most // 2, ADDRESSES // self.threads)
                continue
            if not all(way.is_whole for way in ways):
                message = f"It takes more than {MOST_BLOCKS} basic blocks to follow its warps."
                raise BinaryError(message)
            return chosen, ways

    def _followed(
        self,
        needed: Slice,
        chosen: Any,
        *,
        assume: bool | None,
        visits: Visits | None = None,
        most: int = MOST_BLOCKS,
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
        )
        return Warps(self.code, needed, launched, visits, assume=assume).follow(most)

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
        for inside in self.loops.values():
            for start in inside:
                block = self.code.blocks[start]
                if block.stop - 1 in unknown and not inside.issuperset(block.successors):
                    found |= inside
        return found

    def _asked(
        self, chosen: Any, way: Followed, counted: Mapping[int, float]
    ) -> tuple[list[Mapping[int, Asked]], list[Mapping[int, Served]], set[int]]:
        """Return what programs ask for by each access, once an execution by a warp.

        First of global, then of shared memory; then the accesses whose condition is not known: for
        them it is taken as true, and as false.
        """
        accesses = Counter(
            start
            for start, block in self.code.blocks.items()
            for number in range(block.start, block.stop)
            if self.code.words[number] & 0x1FF in ACCESSES
        )
        times = sum(counted[start] * number for start, number in accesses.items())
        if not times and not any(map(self._is_shared, self.code.words)):
            return [{}], [{}], set()
        warps = self.programs * self.threads / WARP
        room = ADDRESSES / max(times / warps, 1.0) / self.threads
        some = chosen[self._alike(way, len(chosen), max(int(room), LEAST_PROGRAMS))]
        needed = accesses_of(self.code)
        found: list[Mapping[int, Asked]] = []
        shared: list[Mapping[int, Served]] = []
        unknown: set[int] = set()
        for assume in (True, False):
            asking = Asking(len(some), self.threads, self.passed.tensor_at)
            serving = Serving(len(some), self.threads, self.code.decoder)
            visits = Visits(asking.visit, serving.visit)
            followed = self._followed(
                needed, some, assume=assume, visits=visits, most=MOST_BLOCKS_OF_ADDRESSES
            )
            unknown |= followed.unknown.keys()
            found.append(self._means(asking, followed, len(some)))
            shared.append(serving.means())
            if not unknown:
                break
        return found, shared, unknown

    def _means(self, asking: Asking, followed: Followed, programs: int) -> Mapping[int, Asked]:
        """Return what was asked for each time that a warp executed an instruction."""
        found = {}
        for start, block in self.code.blocks.items():
            warps = followed.executions[start]
            times = float(np.sum(warps)) * (programs if np.size(warps) == 1 else 1)
            for number in range(block.start, block.stop):
                one = asking.by_instruction.get(number)
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
        self, number: int, executions: Amount, asked: Sequence[Mapping[int, Asked]]
    ) -> GlobalAccess:
        word = self.code.words[number]
        opcode = word & 0x1FF
        operation = "copy" if opcode == operations.LDGSTS else "store"
        if opcode in LOADS | ATOMICS:
            operation = "load" if opcode in LOADS else "atomic"
        known = [one[number] for one in asked if number in one]
        tensors = {one.tensor for one in known}
        amount = functools.partial(_amount, known, executions)
        return GlobalAccess(
            place=self.places[number],
            instruction=number,
            operation=operation,
            tensor=tensors.pop() if len(tensors) == 1 else None,
            thread_bytes=self.code.decoder.moved_bytes(word),
            executions=executions,
            threads=amount("threads", "threads"),
            sectors=amount("sectors", "most_sectors"),
            lines=amount("lines", "most_lines"),
            passes=amount("passes", "most_passes"),
            is_known=all(one.is_known for one in known),
            cached=min((one.cached / max(one.sectors, 1e-9) for one in known), default=0.0),
        )

    def _is_shared(self, word: int) -> bool:
        """Tell whether an instruction asks for shared memory, and ever does."""
        opcode = word & 0x1FF
        return opcode in SHARED_ACCESSES | operations.HGMMA and word >> 12 & 15 != NEVER

    def _shared_access(
        self,
        number: int,
        executions: Amount,
        served: Sequence[Mapping[int, Served]],
        unknown: Collection[int],
    ) -> SharedAccess:
        word = self.code.words[number]
        opcode = word & 0x1FF
        known = [one[number] for one in served if number in one]
        size = self.code.decoder.shared_bytes(word)
        moved = _amount(known, executions, "threads", "threads") * size
        passes = _amount(known, executions, "wavefronts", "most_wavefronts")
        if opcode in operations.HGMMA:
            a_warp = product_wavefronts(word) // WARP_GROUP
            passes, size = executions * a_warp, a_warp * PASS // WARP
            moved = passes * PASS
        return SharedAccess(
            place=self.places[number],
            instruction=number,
            operation=SHARED_OPERATIONS[opcode],
            thread_bytes=size,
            executions=executions,
            bytes=moved,
            wavefronts=passes,
            is_known=number not in unknown and all(one.is_known for one in known),
            cache_passes=_amount(known, executions, "cache_passes", "cache_passes"),
        )

    def _lines(self, executions: Mapping[int, Amount]) -> tuple[ExecutedLine, ...]:
        """Return what is executed of each line, the lines with most instructions first."""
        found: dict[int, dict[str | None, list[Amount]]] = defaultdict(lambda: defaultdict(list))
        often = {start: self._typical(one) for start, one in executions.items()}
        waited = waits(self.code, self.stalls, often, self.threads)
        cycles: Counter[int] = Counter()
        registers = live_registers(self.code)
        live: dict[int, int] = {}
        for start, block in self.code.blocks.items():
            if executions[start] == NOTHING:
                continue
            counts: dict[int, Counter[str | None]] = defaultdict(Counter)
            for number in range(block.start, block.stop):
                place = id(self.places[number])
                counter = counts[place]
                live[place] = max(live.get(place, 0), registers[number])
                counter[INSTRUCTIONS] += 1
                counter[STALLS] += self.stalls[number]
                stands = self.stalls[number] + waited.get(number, 0.0)
                cycles[place] += round(often[start] * stands)
                if self.code.words[number] & 0x1FF in LOCAL:
                    counter[LOCAL_BYTES] += WARP * operations.access_bytes(self.code.words[number])
                flops = product_flops(self.code.words[number])
                counter[NOT_DECODED if flops is None else FLOPS] += flops or int(flops is None)
                counter[self.kinds[number]] += 1
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
            return max(executions.low, PASSES * self.programs * self.threads // WARP)
        return (executions.low + executions.high) / 2

    def _loop(
        self,
        header: int,
        executions: Mapping[int, Amount],
        ways: Sequence[Followed],
        programs: int,
    ) -> ExecutedLoop:
        inside = self.loops[header]
        latch = max(one for one in inside if header in self.code.blocks[one].successors)
        back = self.places[self.code.blocks[latch].stop - 1]
        numbers = [
            number for start in inside for number in range(start, self.code.blocks[start].stop)
        ]
        entered = [self._scaled(way.entered[header], programs) for way in ways]
        endless = any(
            header in others and executions[outer].high is None
            for outer, others in self.loops.items()
            if outer != header
        )
        return ExecutedLoop(
            place=self.places[header] if back == NOWHERE else back,
            depth=sum(header in others for others in self.loops.values()) - 1,
            instructions=len(numbers),
            kinds=dict(Counter(kind for one in numbers if (kind := self.kinds[one]) is not None)),
            entered=_between(entered, endless=endless),
            trips=executions[header],
        )

    def _unknowns(self, unknown: set[int], accesses: Sequence[GlobalAccess]) -> tuple[Unknown, ...]:
        """Return what hangs on values of memory, each line once."""
        leaves = {
            self.code.blocks[start].stop - 1
            for inside in self.loops.values()
            for start in inside
            if not inside.issuperset(self.code.blocks[start].successors)
        }
        found = [
            ("loop" if one in leaves else "branch", one)
            if self.code.words[one] & 0x1FF in ENDS
            else ("mask", one)
            for one in sorted(unknown)
            if self.code.words[one] & 0x1FF in ENDS | ACCESSES
        ]
        found += [("address", one.instruction) for one in accesses if not one.is_known]
        return tuple(
            dict.fromkeys(Unknown(self.places[one], NOT_KNOWN, steers) for steers, one in found)
        )


def spread(number: int, most: int) -> Any:
    """Return *most* of so many places, one in each part of equal length, at golden-ratio steps.

    Evenly spaced ones would fall on the same column of a grid.
    """
    steps = np.arange(most)
    return ((steps + steps * GOLDEN % 1) * (number / most)).astype(np.int64)


def _amount(known: Sequence[Asked | Served], executions: Amount, least: str, most: str) -> Amount:
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
