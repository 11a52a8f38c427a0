"""What programs get from a counter that all of them share, and loops in which they wait for others.

Both hang on when each program gets there, which nobody knows before a launch. Programs are taken to
come to a counter in turn, which is 0 at first, as where each takes the next piece of work when it
is done with its own. In a loop that does nothing but look at the same place again and again nobody
is taken to wait: what it looks for is there.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work import tiles
from occupancy_lab.work.evaluate import Pointer
from occupancy_lab.work.module import operations_of
from occupancy_lab.work.operations import ATOMICS, LDS, LOADS, places_of
from occupancy_lab.work.slices import STORES
from occupancy_lab.work.tiles import Mask, Number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.work.evaluate import Evaluator, Made
    from occupancy_lab.work.module import Operation
    from occupancy_lab.work.slices import Code

LOOKS = frozenset({"tt.load", "tt.atomic_cas", "tt.atomic_rmw"})
"""What looks at memory in a loop that waits; an atomic operation takes a lock."""
LOOKING = LOADS | ATOMICS
WRITES = ("tt.store", "tt.descriptor_", "tt.dot", "scf.for", "scf.while")
"""What a loop that waits has none of, by how its name begins."""


class Counters:
    """The counters of a kernel in TTIR to which its programs add."""

    def __init__(self, evaluator: Evaluator) -> None:
        """Take what has the programs that are walked."""
        self._evaluator = evaluator
        self._before: dict[tuple[str, int], dict[int, int | None]] = {}
        """Of each counter the operations that add to it, with how often a program added before;
        None is that nobody knows."""

    def ticket(
        self, operation: Operation, operands: Sequence[Made], turns: Any, depth: int
    ) -> Number | None:
        """Return what an addition gives back to each program, in each pass of a loop.

        *turns* counts the passes, an array over the outer axes. None where it is no addition of one
        known number to one counter of all programs, and where that is in several loops.
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
        """Return how often a program added to *counter* before it comes to *operation* first."""
        known = self._before.setdefault(counter, {})
        if id(operation) not in known:
            once = all(one is not None for one in known.values()) and depth <= 1
            known[id(operation)] = len(known) if once else None
            if depth:
                known[-1] = None  # after a loop nobody knows
        return known[id(operation)]


class Tickets:
    """What additions to counters give back to the programs that are followed."""

    def __init__(self, numbers: Any, programs: int) -> None:
        """Take the numbers of those that are followed, a column, and how many are launched."""
        self._numbers, self._programs = numbers, programs
        self._taken: dict[int, Any] = defaultdict(lambda: np.zeros_like(numbers))

    def taken(self, address: Any, added: Any, mask: Any, repeat: int) -> Any:
        """Return what the threads of *mask* get, for one time that stands for *repeat* of them.

        None where not one thread a program adds, or they do not all add to one counter.
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
    """Tell whether a while loop of TTIR does nothing but look at the same place again and again."""
    inside = [one for region in loop.regions for one in operations_of(region)]
    looks = [one for one in inside if one.name in LOOKS]
    if not looks or any(one.name.startswith(WRITES) for one in inside):
        return False
    changing = {value for one in inside for value in one.results}
    changing |= {value for region in loop.regions for value in region.blocks[0].arguments}
    return not any(changing & {*one.operands[:1]} for one in looks)


def waiting(code: Code) -> Iterator[int]:
    """Yield the loops of machine code that do the same, by their first instruction."""
    for header, inside in code.loops.items():
        numbers = [one for start in sorted(inside) for one in range(start, code.blocks[start].stop)]
        opcodes = {code.words[one] & 0x1FF for one in numbers}
        looks = [one for one in numbers if code.words[one] & 0x1FF in LOOKING]
        if looks and not opcodes & STORES and not any(_moves(code, numbers, one) for one in looks):
            yield header


def _moves(code: Code, numbers: Sequence[int], access: int) -> bool:
    """Tell whether an access to memory may be to another place in the next pass of a loop.

    So it is where its address is made of what the pass before left, or of what is in memory.
    *numbers* are the instructions of the loop.
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
