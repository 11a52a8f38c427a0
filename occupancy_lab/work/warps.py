"""Follows the warps of some programs through a kernel's machine code, all at once.

Every value is an array over programs and threads, (programs or 1, threads or 1). Threads at
different instructions are followed one group after the other, those furthest behind first. At a
BSYNC they wait for each other, as on the GPU (CUDA C++ Programming Guide, Independent Thread
Scheduling). The contents of memory are not known, and conditions that depend on them are assumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from occupancy_lab.compiling.sass import BYTES
from occupancy_lab.errors import unreadable
from occupancy_lab.work import arithmetic, float_arithmetic, operations, threads
from occupancy_lab.work.banks import one_row
from occupancy_lab.work.operations import NEVER_WRITTEN, WARP, Constant
from occupancy_lab.work.registers import Registers
from occupancy_lab.work.shared import MOST_BYTES, SharedMemory
from occupancy_lab.work.skipping import Skipping
from occupancy_lab.work.slices import ACCESSES, CALL, EXIT, TRAP, Block, Code, Jump, Slice
from occupancy_lab.work.threads import Launched, Step
from occupancy_lab.work.trips import Ending, Turns

Copied: TypeAlias = tuple[Any, Any]


PAIR = 2
"""Registers of an address without the uniform registers that may be added."""
OF_CTA = (1 << 24) - 1
"""The bits of a shared-memory address within a CTA's window; higher bits select the CTA."""
MOST_SECONDS = 5.0
"""The limit of processor time; recorded launches take three seconds at the most."""
UNTIMED = 32
"""Blocks between looks at the clock, one of which takes as long as a few instructions."""
MOST_NUMBERS = 1 << 20
"""The most elements of an array: programs times threads."""
ALIKE: Any = np.full((1, 1), 1 << 14, np.uint32)
"""Stands for an unknown value from memory: it moves addresses by whole cache lines, and rows to
lines of their own."""
CARRY = frozenset({"iadd3", "lea"})
"""Instructions whose predicates are carries into the upper half of a 64-bit sum."""


class TooWideError(Exception):
    """So many programs are followed that an array has more than MOST_NUMBERS elements."""


@dataclass(slots=True)
class Followed:
    """What the programs' warps did: each value is an array over programs, or one number for all."""

    executions: dict[int, Any]
    """Executions of each block by warps, by the block's first instruction."""
    entered: dict[int, Any]
    """How often warps entered each loop from outside, by the loop's first instruction."""
    unknown: dict[int, int] = field(default_factory=dict)
    """How often the condition of an instruction was not known, by its number."""
    is_whole: bool = True
    """Whether all warps were followed to their end."""

    def of_all(self, standing: Any) -> Followed:
        """Return the result for all programs; *standing* has each one's representative."""

        def spread(counts: Mapping[int, Any]) -> dict[int, Any]:
            return {at: one[standing] if np.size(one) > 1 else one for at, one in counts.items()}

        return replace(self, executions=spread(self.executions), entered=spread(self.entered))


@dataclass(frozen=True, slots=True)
class Visits:
    """Callbacks for the accesses to memory that followed warps make.

    Each is called with the instruction, its addresses (None where they are not known), the
    accessing threads, and the number of such accesses that this one stands for.
    """

    of_global: Callable[..., None]
    """Also takes `is_known`, false for addresses made from ALIKE, and *part*, the part of a sector
    by which the address moves between the accesses that this one stands for, if less than one."""
    of_shared: Callable[[Step, Any, Any, int, Any, Copied | None], bool] | None = None
    """Also takes the threads that execute the instruction, whatever its guard. For a copy to shared
    memory it takes the source addresses and the threads that copy; the others write zeros. Returns
    whether further calls for this instruction are unnecessary."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is assumed of conditions that are not known."""

    condition: bool | None = True
    """Their value; with None threads go both ways at a branch."""
    endings: Mapping[int, Ending] = field(default_factory=dict)
    """The jumps that end loops after a given number of trips."""


class Warps:
    """The state of the warps of some programs."""

    def __init__(
        self,
        code: Code,
        chosen: Slice,
        launched: Launched,
        visits: Visits | None = None,
        assumed: Assumed = Assumed(),
    ) -> None:
        """Take *code*, of which the slice *chosen* is computed."""
        self.code: Any = code
        self.launched = launched
        self.visits = visits
        self.assume = np.full((1, 1), assumed.condition is not False)
        self.both = assumed.condition is None
        self._turns = Turns(assumed.endings)
        self.loops = code.loops
        zeros = dict.fromkeys(code.blocks, 0)
        self.followed = Followed(zeros, dict.fromkeys(self.loops, 0))
        self.registers = Registers(code.slots)
        self.mask = np.ones((1, 1), bool)
        """The threads that are being followed."""
        self._are_all = True
        self.alike: dict[int, Any] = {}
        """The threads whose register derives from an unknown value from memory that all threads of
        a warp share; ALIKE stands for it. It moves the addresses of these threads together, so that
        they request the same number of sectors wherever it is. A condition that is made from it is
        not known."""
        self._shared: SharedMemory | None = None
        self._skipping = Skipping(code.working_loops, chosen.live)
        self._constants: dict[Constant, int] = {}
        self._settled: set[int] = set()
        """Accesses to shared memory that need no further callbacks."""
        self._steps = {
            start: [
                self._step(number, only_for_shared=number in chosen.only_for_shared)
                for number in numbers
            ]
            for start, numbers in chosen.needed.items()
        }

    def follow(self, most: int, most_steps: float = math.inf) -> Followed:
        """Follow all programs from the kernel's first instruction until they have ended.

        After *most* blocks, *most_steps* computed instructions or MOST_SECONDS, the rest is not
        followed.
        """
        blocks, syncs = self.code.blocks, self.code.syncs
        pending = {0: np.ones((1, 1), bool)}
        for _ in _turns(most):
            start = min(pending, key=lambda one: (one in syncs, one))
            most_steps -= len(self._steps[start])
            if most_steps < 0:
                break
            self.mask = pending.pop(start)
            self._are_all = not pending
            further = self._turns.further(start, self.mask)
            self._skipping.arrive(start, self.registers, self.mask, pending, further)
            if start not in syncs:
                self._count(start, self.mask)
            for step in self._steps[start]:
                if not step.only_for_shared or step.number not in self._settled:
                    self._compute(step)
            for target, mask in self._leave(blocks[start]):
                self._arrive(start, target, mask)
                pending[target] = pending[target] | mask if target in pending else mask
            if not pending:
                return self.followed
        self.followed.is_whole = False
        return self.followed

    def _arrive(self, start: int, target: int, mask: Any) -> None:
        """Note that the threads of *mask* go from the block at *start* to that at *target*."""
        if target not in self.code.blocks:
            unreadable("The kernel jumps to where none of its instructions begins.")
        if target in self.code.syncs:  # threads that arrive later execute it again
            self._count(target, mask)
        if target in self.loops and start not in self.loops[target]:
            entered = self.followed.entered
            entered[target] = entered[target] + self.warps_of(mask)
            self._turns.enter(target, mask)

    def _count(self, start: int, mask: Any) -> None:
        warps = self.warps_of(mask) * self._skipping.repeat
        self.followed.executions[start] = self.followed.executions[start] + warps

    def warps_of(self, mask: Any) -> Any:
        """Return the warps with a thread in *mask*, for each program or once for all."""
        warps = self.launched.threads // self.code.lanes
        if mask.shape[1] == 1:
            return mask[:, 0] * warps
        if mask.all():  # which is known much sooner than each warp's threads
            return np.full(len(mask), warps)
        return by_warp(mask, self.code.lanes).any(axis=2).sum(axis=1)

    def _leave(self, block: Block) -> list[tuple[int, Any]]:
        """Return the successors of a block with the threads that go to each."""
        jump, mask = block.jump, self.mask
        if jump is None:
            return [(block.stop, mask)]
        if jump.target == block.start and not jump.conditions:
            return []  # behind the call of a failed assertion, which ends the launch
        ways = []
        taken = mask
        if jump.conditions:
            holds = self._holds(block.stop - 1, jump)
            if holds is None:
                return [(block.stop, mask), (jump.target or 0, mask)]
            if jump.of_all and holds.shape[1] > 1:
                of_warps = by_warp(holds | ~mask, self.code.lanes)
                holds = np.repeat(of_warps.all(axis=2), self.code.lanes, axis=1)
            taken, stays = mask & holds, mask & ~holds
            if stays.any():
                ways.append((block.stop, stays))
        if jump.opcode in {EXIT, TRAP} or not taken.any():
            return ways
        if jump.register is None:
            return [*ways, (jump.target or 0, taken)]
        address = self.registers.read(jump.register, taken)
        if address is None:
            unreadable("The kernel jumps to an address that is not known.")
        targets = (address.astype(np.int32) + np.int32(jump.offset)) // BYTES
        return [
            *ways,
            *(
                (int(one), goes)
                for one in np.unique(targets)
                if (goes := taken & (targets == one)).any()
            ),
        ]

    def _holds(self, number: int, jump: Jump) -> Any:
        """Return whether all conditions of *jump*, which is instruction *number*, hold.

        None means that a condition is not known and that threads go both ways.
        """
        holds: Any = True
        taken: Any = None
        for predicate, negated in jump.conditions:
            value = self._predicate(predicate, self.mask)
            if value is None and number in self._turns:
                if taken is None:
                    taken = self._turns.taken(number, self.mask, self._skipping.repeat)
                value = taken
            elif value is None and number in self.code.avoided:
                value = np.full((1, 1), self.code.avoided[number])
            elif value is None:
                self._note(number)
                value = self._assumed(number, jump)
                if value is None:
                    return None
            elif negated:
                value = ~value
            holds = holds & value
        return holds

    def _assumed(self, number: int, jump: Jump) -> Any:
        """Return whether a jump with an unknown condition is taken; None means both ways.

        Loops are left as soon as possible after they are entered. Functions are not called. Threads
        exit early where conditions are assumed to be false.
        """
        if jump.opcode in {CALL, EXIT, TRAP}:
            ends = jump.opcode == EXIT and not self.both and not self.assume
            return np.full((1, 1), ends)
        for header, inside in reversed(list(self.loops.items())):
            if all(self.code.blocks[one].stop - 1 != number for one in inside):
                continue
            stay, go = ((one in inside) + (one == header) for one in (number + 1, jump.target))
            if stay != go:
                return np.full((1, 1), go < stay)
        if not self.both or jump.target is None:
            return self.assume
        usual = self.code.usual.get(number)
        return None if usual is None else np.full((1, 1), usual)

    def _predicate(self, predicate: int, mask: Any) -> Any:
        """Return a predicate as `Registers.read` does; None where it derives from ALIKE."""
        is_alike = self._is_alike((predicate,), mask)
        return None if is_alike else self.registers.read(predicate, mask)

    def _note(self, number: int) -> None:
        self.followed.unknown[number] = self.followed.unknown.get(number, 0) + 1

    def _compute(self, step: Step) -> None:
        registers = self.registers
        mask, unknown = self._guarded(step)
        sources = [registers.values[one] for one in step.sources]
        if registers.unknown:
            lanes = registers.unknown_of(step.sources, mask)
            if lanes is not None:
                unknown = lanes if unknown is None else unknown | lanes
        if self._skipping.notes and not step.only_for_shared:
            self._skipping.note(step, [*sources, unknown] if step.shared else sources)
        values: Sequence[Any]
        is_alike = self._is_alike(step.sources, mask)
        if step.compute is None:
            values, more, is_alike = self._memory(step, sources, mask, unknown)
            unknown = more if unknown is None else unknown
        else:
            for source in sources:
                if source is None:
                    values = [None] * len(step.results)
                    break
            else:
                values = step.compute(sources)
        where = None if self._are_all and step.guard is None else mask
        for result, value in zip(step.results, values, strict=False):
            if is_alike and value is not None and value.dtype == bool and step.name not in CARRY:
                self._write(result, None, unknown, where, is_alike=False)
            else:
                self._write(result, value, unknown, where, is_alike=is_alike)

    def _write(self, place: int, value: Any, unknown: Any, where: Any, *, is_alike: bool) -> None:
        if value is not None:
            if value.size > MOST_NUMBERS:
                raise TooWideError
            if value.shape[1] > 1:
                value = one_row(value)
        self.registers.write(place, value, unknown, where)
        before = self.alike.pop(place, None)
        if value is None or NEVER_WRITTEN >> place & 1:
            return
        lanes = None if before is None or where is None else before & ~where
        if is_alike:
            own = self.mask if where is None else where
            lanes = own if lanes is None else lanes | own
        if lanes is not None and lanes.any():
            self.alike[place] = lanes

    def _is_alike(self, places: Sequence[int], mask: Any) -> bool:
        """Tell whether any of the registers derives from ALIKE for a thread of *mask*."""
        if not self.alike:
            return False
        found = [self.alike[place] for place in places if place in self.alike]
        return any(bool((lanes & mask).any()) for lanes in found)

    def _guarded(self, step: Step) -> tuple[Any, Any]:
        """Return the threads whose guard holds, and those whose results are therefore not known."""
        if step.guard is None:
            return self.mask, None
        guard = self._predicate(step.guard, self.mask)
        if guard is not None:
            return self.mask & (~guard if step.negated else guard), None
        if step.compute is None:
            self._note(step.number)
        return self.mask & self.assume, self.mask

    def _memory(
        self, step: Step, sources: Sequence[Any], mask: Any, unknown: Any
    ) -> tuple[Sequence[Any], Any, bool]:
        """Access memory with the threads of *mask*, of which *unknown* have unknown sources.

        Returns the loaded values by register, the threads for which they are not known, and whether
        they derive from ALIKE.
        """
        opcode = step.word & 0x1FF
        is_unknown = unknown is not None and bool((unknown & mask).any())
        if not step.shared:
            sources = [None] * len(sources) if is_unknown else sources
            return self._access(step, sources, mask)
        address = self._shared_address(step, sources, mask)
        if opcode in operations.SHARED_ACCESSES:
            self._tell(step, address, mask, None)
        nothing = [None] * len(step.results), None, False
        if step.only_for_shared:
            return nothing
        if self._shared is None:
            programs = max(len(one) for one in self.launched.places)
            if programs * max(self.launched.shared, 64 * self.launched.threads) > MOST_BYTES:
                raise TooWideError
            self._shared = SharedMemory(self.launched.shared)
        if opcode not in {operations.LDS, operations.STS}:
            if opcode != operations.LDSM:
                self._shared.forget()
            return nothing
        mask = np.broadcast_to(mask, (mask.shape[0], self.launched.threads))
        size = operations.access_bytes(step.word)
        if opcode == operations.STS:
            stored = [
                None if self._is_alike((place,), mask) else source
                for place, source in zip(step.sources[2:], sources[2:], strict=True)
            ]
            self._shared.store(address, stored, size, mask, unknown)
            return nothing
        if is_unknown:
            return nothing
        loaded = self._shared.load(address, size, mask, signed=operations.is_signed(step.word))
        return *loaded, False

    def _tell(self, step: Step, address: Any, mask: Any, copied: Copied | None) -> None:
        if self.visits is None or self.visits.of_shared is None or step.number in self._settled:
            return
        repeat = self._skipping.repeat
        if self.visits.of_shared(step, address, mask, repeat, self.mask, copied):
            self._settled.add(step.number)

    def _shared_address(self, step: Step, sources: Sequence[Any], mask: Any) -> Any:
        """Return the shared-memory addresses of the threads of *mask*; None where not known."""
        if len(sources) < PAIR or any(source is None for source in sources[:PAIR]):
            return None
        places = self.code.decoder.shared_address(step.word)
        if self.registers.unknown_of(places, mask) is not None or self._is_alike(places, mask):
            return None
        shift, offset = operations.shared_offset(step.word)
        address = (sources[0].astype(np.int64) << shift) + sources[1].astype(np.int64) + offset
        return address & OF_CTA

    def _copying(self, step: Step, mask: Any) -> Any:
        """Return the threads of *mask* whose LDGSTS copies anything."""
        also = self._predicate(operations.PREDICATES + (step.word >> 87 & 7), mask)
        if also is None:
            self._note(step.number)
            also = self.assume
        elif step.word >> 90 & 1:
            also = ~also
        return mask & also

    def _access(
        self, step: Step, sources: Sequence[Any], mask: Any
    ) -> tuple[Sequence[Any], Any, bool]:
        """Record an access to global memory, and return what `_memory` does."""
        filling, place = mask, None
        if step.word & 0x1FF == operations.LDGSTS:
            place = self._shared_address(step, sources[-PAIR:], mask)
            sources, mask = sources[:-PAIR], self._copying(step, mask)
        address: Any = None
        if all(source is not None for source in sources):
            address = operations.address_offset(step.word) + sources[0].astype(np.int64)
            if len(sources) > 1:
                address = address + (sources[1].astype(np.int64) << 32)
            if len(sources) > PAIR:
                address = address + arithmetic.joined(*sources[PAIR:])
            if address.size > MOST_NUMBERS:
                raise TooWideError
        is_known = address is not None and not self._is_alike(step.sources, mask)
        if self.visits is not None:
            repeat = self._skipping.repeat
            part = self._skipping.parts.get(step.number) if repeat > 1 else None
            self.visits.of_global(step, address, mask, repeat, is_known=is_known, part=part)
            if step.word & 0x1FF == operations.LDGSTS:
                self._tell(step, place, filling, (address, mask))
        if is_known and operations.adds(step.word) and step.results:
            return self._taken(step, address, mask), None, False
        if address is None or step.word & 0x1FF not in operations.LOADS:
            return [None] * len(step.results), None, False
        return self._loaded(step, address, mask, is_known=is_known)

    def _taken(self, step: Step, address: Any, mask: Any) -> Sequence[Any]:
        """Return what an addition to the counter at *address* returns, by register."""
        tickets, added = self.launched.tickets, step.word >> 32 & 255
        value = None if self._is_alike((added,), mask) else self.registers.read(added, mask)
        taken = None
        if tickets is not None and value is not None:
            taken = tickets.taken(address, value, mask, self._skipping.repeat)
        return [taken, *[None] * (len(step.results) - 1)]

    def _loaded(
        self, step: Step, address: Any, mask: Any, *, is_known: bool
    ) -> tuple[Sequence[Any], Any, bool]:
        """Return what a load from *address* gives, as `_memory` does."""
        count = len(step.results)
        size, signed = operations.access_bytes(step.word), operations.is_signed(step.word)
        if is_known:
            loaded = self.launched.loaded(address, mask, size, count, signed=signed)
            if any(value is not None for value in loaded):
                return loaded, None, False
        of_warp = address if address.shape[1] == 1 else by_warp(address, self.code.lanes)
        is_alike = bool((of_warp == of_warp[..., :1]).all())
        return [ALIKE if is_alike else None] * count, None, is_alike

    def _place(self, source: int | Constant) -> int:
        """Return the index of a source in `registers.values`, to which constants are appended."""
        if isinstance(source, int):
            return source
        if source not in self._constants:
            self._constants[source] = len(self.registers.values)
            value: Any = np.full((1, 1), source.number, np.uint32)
            if source.bank is not None:
                value = self.launched.constant(source.bank, source.number)
            self.registers.values.append(value)
        return self._constants[source]

    def _step(self, number: int, *, only_for_shared: bool) -> Step:
        word, decoder = self.code.words[number], self.code.decoder
        opcode = word & 0x1FF
        guard = None if word >> 12 & 15 == operations.ALWAYS else decoder.guard(word)
        compute: Callable[[Sequence[Any]], Sequence[Any]] | None
        form = decoder.form(word)
        written = 0 if form is not None else self.code.written[number] & ~(1 << operations.SHARED)
        results = tuple(operations.places_of(written))
        if form is not None:
            floats = hasattr(float_arithmetic, form.compute)
            operation = getattr(float_arithmetic if floats else arithmetic, form.compute)
            compute = lambda values: operation(word, values)  # noqa: E731
            sources = tuple(self._place(one) for one in decoder.sources(word, form))
            results = tuple(decoder.results(word, form))
        elif opcode in ACCESSES:
            compute, sources = None, decoder.address_registers(word)
            if opcode == operations.LDGSTS:
                sources += decoder.shared_address(word)
        elif opcode in operations.SHARED_ACCESSES or opcode in operations.WRITES_SHARED:
            is_access = opcode in operations.SHARED_ACCESSES
            compute, sources = None, decoder.shared_registers(word) if is_access else ()
        elif opcode in {operations.LDL, operations.STL}:
            compute, (sources, results) = tuple, decoder.local(word)
        else:
            sources, compute = threads.special(word, results, self)
        return Step(
            number,
            word,
            compute,
            sources,
            results,
            guard,
            bool(word >> 15 & 1),
            name="" if form is None else form.compute,
            shared=compute is None and opcode not in ACCESSES,
            only_for_shared=only_for_shared,
        )


def _turns(most: int) -> Iterator[int]:
    """Yield *most* numbers, or fewer where that takes longer than MOST_SECONDS."""
    deadline = time.process_time() + MOST_SECONDS
    for number in range(most):
        if number % UNTIMED == 0 and time.process_time() > deadline:
            return
        yield number


def by_warp(values: Any, lanes: int = WARP) -> Any:
    """Return an array with its last axis, threads, split into warps and lanes."""
    return values.reshape(*values.shape[:-1], -1, lanes)
