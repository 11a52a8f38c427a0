"""What programs get from a counter that they share, and loops in which they wait for others.

Both depend on when each program gets there, which is not known before a launch. Programs are
assumed to reach a counter in order, and a counter to start at 0, as where each program takes the
next piece of work when it has finished one. In a loop that only polls the same place, programs are
assumed not to wait: the value that they wait for is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from occupancy_lab.work import tiles
from occupancy_lab.work.evaluate import Evaluator, Made, Pointer
from occupancy_lab.work.module import Operation, operations_of
from occupancy_lab.work.operations import ATOMICS, LDS, LOADS, places_of
from occupancy_lab.work.slices import STORES, Code
from occupancy_lab.work.tiles import Mask, Number

LOOKS = frozenset({"tt.load", "tt.atomic_cas", "tt.atomic_rmw"})
"""Operations that poll memory in a loop that waits; an atomic operation takes a lock."""
LOOKING = LOADS | ATOMICS
WRITES = ("tt.store", "tt.descriptor_", "tt.dot", "scf.for", "scf.while")
"""The prefixes of operations that a loop that waits does not contain."""


class Counters:
    """The counters in a kernel's TTIR to which its programs add."""

    def __init__(self, evaluator: Evaluator) -> None:
        """Take the evaluator of the programs that are walked."""
        self._evaluator = evaluator
        self._before: dict[tuple[str, int], dict[int, int | None]] = {}
        """For each counter, the operations that add to it, with how often a program added to it
        before each of them; None where that is not known."""

    def ticket(
        self, operation: Operation, operands: Sequence[Made], turns: Any, depth: int
    ) -> Number | None:
        """Return what an addition returns to each program in each pass of a loop.

        *turns* numbers the passes, as an array over the outer axes. None where it is not an
        addition of one known number to one counter of all programs, or where it is in nested loops.
        """
        if not operation.text.strip().startswith("add"):
            return None
        pointer, added, *others = operands
        if not isinstance(pointer, Pointer) or not isinstance(added, Number):
            return None
        if not pointer.offset.is_constant or not added.is_constant or added.shape:
            return None
        if any(not isinstance(one, Mask) or one.constant is not True for one in others):
            return None
        before = self._times_before(operation, (pointer.tensor or "", pointer.offset.const), depth)
        if before is None:
            return None
        columns, rows, layers = self._evaluator.grid
        across, down, deep = (
            np.asarray(one).reshape([-1 if place == axis else 1 for place in range(turns.ndim)])
            for axis, one in enumerate(self._evaluator.programs)
        )
        number = across + columns * (down + rows * deep)
        tiles.fits(number, turns)
        return tiles.of_outer(added.const * ((turns + before) * columns * rows * layers + number))

    def _times_before(
        self, operation: Operation, counter: tuple[str, int], depth: int
    ) -> int | None:
        """Return how often a program added to *counter* before it first reaches *operation*."""
        known = self._before.setdefault(counter, {})
        if id(operation) not in known:
            once = all(one is not None for one in known.values()) and depth <= 1
            known[id(operation)] = len(known) if once else None
            if depth:
                known[-1] = None  # not known after a loop
        return known[id(operation)]


class Tickets:
    """What additions to counters return to the programs that are followed."""

    def __init__(self, numbers: Any, programs: int) -> None:
        """Take the indices of the followed programs, as a column, and the number launched."""
        self._numbers, self._programs = numbers, programs
        self._taken: dict[int, Any] = defaultdict(lambda: np.zeros_like(numbers))

    def taken(self, address: Any, added: Any, mask: Any, repeat: int) -> Any:
        """Return what the threads of *mask* get, where this addition stands for *repeat* additions.

        None where more than one thread of a program adds, or where they add to several counters.
        """
        shape = np.broadcast_shapes(self._numbers.shape, address.shape, mask.shape)
        asking = np.broadcast_to(mask, shape)
        counters = np.unique(np.broadcast_to(address, shape)[asking])
        each = asking.sum(axis=1, keepdims=True)
        if len(counters) != 1 or each.max() > 1:
            return None
        times = self._taken[int(counters[0])]
        found = (times * self._programs + self._numbers) * added.astype(np.int64)
        self._taken[int(counters[0])] = times + repeat * each
        return found.astype(np.uint32)


def only_waits(loop: Operation) -> bool:
    """Tell whether a while loop of TTIR only polls the same place."""
    inside = [one for region in loop.regions for one in operations_of(region)]
    looks = [one for one in inside if one.name in LOOKS]
    if not looks or any(one.name.startswith(WRITES) for one in inside):
        return False
    changing = {value for region in loop.regions for value in region.blocks[0].arguments}
    for one in inside:
        if one in looks or changing & {*one.operands}:
            changing |= {*one.results}
    return not any(changing & {*one.operands[:1]} for one in looks)


def waiting(code: Code) -> Iterator[int]:
    """Yield the loops of machine code that only poll the same place, by their first instruction."""
    for header, inside in code.loops.items():
        numbers = [one for start in sorted(inside) for one in range(start, code.blocks[start].stop)]
        opcodes = {code.words[one] & 0x1FF for one in numbers}
        looks = [one for one in numbers if code.words[one] & 0x1FF in LOOKING]
        if looks and not opcodes & STORES and not any(_moves(code, numbers, one) for one in looks):
            yield header


def _moves(code: Code, numbers: Sequence[int], access: int) -> bool:
    """Tell whether an access may go to another place in the next pass of a loop.

    This is so where its address derives from the pass before or from memory. *numbers* are the
    instructions of the loop.
    """
    registers = code.decoder.address_registers(code.words[access])
    todo = [(access, one) for one in registers]
    while todo:
        reader, register = todo.pop()
        made = [one for one in numbers if code.written[one] >> register & 1]
        before = [one for one in made if one < reader]
        if not made:
            continue
        if not before or code.words[before[-1]] & 0x1FF in LOOKING | {LDS}:
            return True
        reads = places_of(code.decoder.reads(code.words[before[-1]]))
        todo += [(before[-1], one) for one in reads]
    return False
