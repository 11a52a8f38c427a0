"""What a launch does, from its kernel's TTIR, its arguments and its grid: all programs at once.

Whole numbers are followed through the kernel for all programs and all iterations of its loops
together, as far as an address, a mask, a loop or a branch depends on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work import flops, tiles
from occupancy_lab.work.accesses import Reach, Touch, measure, scaled
from occupancy_lab.work.accesses import count as count_cells
from occupancy_lab.work.counts import (
    NOTHING,
    Access,
    Amount,
    Branch,
    Counts,
    Loop,
    Unknown,
)
from occupancy_lab.work.evaluate import Block, Evaluator, Made, Pointer, numbers_of, with_numbers
from occupancy_lab.work.footprint import distinct, footprints
from occupancy_lab.work.module import UNKNOWN_PLACE, Operation, Value, targets
from occupancy_lab.work.needed import needed_values
from occupancy_lab.work.tiles import Known, Mask, Number, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from occupancy_lab.launch import Plain
    from occupancy_lab.work.module import Module, Region

GRID_AXES = 3
MOST_STEPS = 200_000
"""Operations that are evaluated of a launch."""
FIRST_GUESS = 64
"""Iterations of a while loop that are tried first."""
UNKNOWN = Amount(0, None)


def count(  # noqa: PLR0913 - what a launch is
    module: Module,
    arguments: Mapping[str, Plain],
    grid: tuple[int, ...],
    *,
    values: Mapping[str, Sequence[int]] | None = None,
    assume: Mapping[str, int] | None = None,
    resident: int | None = None,
) -> Counts:
    """Return what a launch of the kernel of *module* does.

    *arguments* are by the names of its parameters, *values* the numbers in tensors, by the
    parameter's name. *assume* gives numbers for all that a tensor holds, or for an argument, by
    the name. *resident* programs run at once, where that is known.
    """
    whole = (*grid, 1, 1, 1)[:GRID_AXES]
    try:
        walk = _Walk(module, arguments, (whole[0], whole[1], whole[2]), values or {}, assume or {})
        return walk.counts(resident)
    except (WorkError, TooLargeError):
        return Counts(math.prod(whole), 0, not_counted={module.kernel.name: 1})


class WorkError(Exception):
    """A kernel does what nobody knows how to follow."""


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that is walked: its axis, its iterations, and what of them each program does."""

    axis: int
    size: int
    trips: Number


class _Walk:
    def __init__(
        self,
        module: Module,
        arguments: Mapping[str, Plain],
        grid: tuple[int, int, int],
        values: Mapping[str, Sequence[int]],
        assume: Mapping[str, int],
    ) -> None:
        self.module, self.grid = module, grid
        kernel = module.kernel
        self.dimensions = GRID_AXES + _depth(kernel.body)
        self.sizes = [*grid, *[1] * (self.dimensions - GRID_AXES)]
        self.evaluator = Evaluator(module, grid, self.dimensions, values, assume)
        self.needed = needed_values(module)
        self.recording = True
        self.steps = 0
        self.env: dict[Value, Made] = {
            value: self.evaluator.argument(value.name, value.type, arguments.get(value.name))
            for value in kernel.arguments
        }
        self.storage = {
            name: size
            for name, value in arguments.items()
            if (size := getattr(getattr(value, "base", value), "storage_bytes", None)) is not None
        }
        self.touches: list[Touch] = []
        self.accesses: list[Access] = []
        self.arithmetic: list[Any] = []
        self.loops: list[Loop] = []
        self.branches: list[Branch] = []
        self.unknowns: dict[Any, Unknown] = {}
        self.not_counted: dict[str, int] = {}

    def counts(self, resident: int | None) -> Counts:
        """Walk the kernel, and return what was counted."""
        self.region(self.module.kernel.body, Reach((), tuple(self.sizes)), 0)
        asked = [one.bytes for one in self.accesses]
        programs = int(np.prod(self.grid, dtype="int64"))
        return Counts(
            programs,
            programs,
            tuple(self.accesses),
            footprints(self.touches, asked, self.grid, resident, self.storage),
            tuple(self.arithmetic),
            tuple(self.loops),
            tuple(self.branches),
            tuple(self.unknowns.values()),
            self.not_counted,
        )

    # Regions

    def region(self, region: Region, reach: Reach, depth: int) -> list[Made]:
        """Walk a region, and return what its end hands on; only what is needed is there."""
        if len(region.blocks) == 1:
            return self.block(region.blocks[0].operations, reach, depth)
        return self.blocks(region, reach, depth)

    def block(self, operations: Sequence[Operation], reach: Reach, depth: int) -> list[Made]:
        """Walk operations in a row, and return what the last of them hands on."""
        for operation in operations:
            self.operation(operation, reach, depth)
        return [self.value(one) for one in operations[-1].operands] if operations else []

    def blocks(self, region: Region, reach: Reach, depth: int) -> list[Made]:
        """Walk blocks that branch forward to each other, as after an early return."""
        entries: dict[str, list[tuple[Reach, list[Made]]]] = {}
        entries[region.blocks[0].name] = [
            (reach, [self.value(x) for x in region.blocks[0].arguments])
        ]
        returned: list[tuple[Reach, list[Made]]] = []
        done = set()
        for block in region.blocks:
            done.add(block.name)
            incoming = entries.get(block.name, [])
            if not incoming:
                continue
            here, passed = self.joined(incoming, reach)
            self.env.update(zip(block.arguments, passed, strict=False))
            self.block(block.operations, here, depth)
            last = block.operations[-1]
            operands = [self.value(one) for one in last.operands]
            if last.name not in {"cf.br", "cf.cond_br"}:
                returned.append((here, operands))
            for place, (name, start, end) in enumerate(targets(last)):
                if name in done:
                    raise WorkError
                there = here
                if last.name == "cf.cond_br":
                    there = self.narrowed(here, self.mask(operands[0]), truth=not place)
                if count_cells(there.where, there.sizes):
                    entries.setdefault(name, []).append((there, operands[start:end]))
        return self.joined(returned, reach)[1] if returned else []

    def joined(
        self, incoming: Sequence[tuple[Reach, list[Made]]], whole: Reach
    ) -> tuple[Reach, list[Made]]:
        """Return who comes by any of several ways, and what they bring."""
        reach, values = incoming[0]
        if len(incoming) == 1:
            return reach, values
        factor = Amount(min(one.factor.low for one, _ in incoming), whole.factor.high)
        arrays = [self.together(one) for one, _ in incoming]
        either = arrays[0]
        for other in arrays[1:]:
            tiles.fits(either, other)
            either = either | other
        for (_, others), array in zip(incoming[1:], arrays[1:], strict=True):
            mask = tiles.mask_outer(array)
            values = [
                self.evaluator.chosen(mask, other, one, ("joined", id(array), place))
                for place, (one, other) in enumerate(zip(values, others, strict=True))
            ]
        return Reach((either,), whole.sizes, factor), values

    def together(self, reach: Reach) -> Any:
        """Return for which programs and iterations all of a reach is true, as one array."""
        return self.evaluator_outer(Mask(reach.where))

    def evaluator_outer(self, mask: Mask) -> Any:
        return tiles.outer_of(mask, self.dimensions)

    def narrowed(self, reach: Reach, mask: Mask, *, truth: bool) -> Reach:
        """Return those of *reach* for which *mask* is true, or false."""
        if mask.hidden:
            return replace(reach, factor=Amount(0, reach.factor.high))
        if not truth:
            mask = tiles.inverted(mask, self.dimensions)
        return replace(reach, where=(*reach.where, *mask.outer))

    # Values

    def value(self, value: Value) -> Made:
        """Return what is known of a value; nothing of one that is not needed."""
        found = self.env.get(value)
        if found is None:
            return Number()
        return found

    def mask(self, value: Made) -> Mask:
        """Return a truth value."""
        if isinstance(value, Mask):
            return value
        (number,) = numbers_of(value)
        if number.hidden:
            return Mask(hidden=number.hidden, shape=number.shape)
        return tiles.as_mask(number, number.shape, self.dimensions)

    def number(self, value: Value) -> Number:
        """Return a whole number."""
        found = self.value(value)
        if isinstance(found, Mask) and not found.hidden:
            return tiles.as_number(found, found.shape, self.dimensions)
        (number,) = numbers_of(found)[:1]
        return number if isinstance(number, Number) else Number(hidden=number.hidden)

    # Operations

    def operation(  # noqa: C901 - a line for each kind
        self, operation: Operation, reach: Reach, depth: int
    ) -> None:
        """Walk one operation."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise WorkError
        match operation.name:
            case "scf.for":
                self.for_loop(operation, reach, depth)
            case "scf.while":
                self.while_loop(operation, reach, depth)
            case "scf.if":
                self.branch(operation, reach, depth)
            case "tt.call":
                self.call(operation, reach, depth)
            case name if name in ACCESSES and self.recording:
                self.access(operation, reach)
        if operation.results and operation.name not in CONTROL:
            if any(one in self.needed for one in operation.results):
                operands = [self.value(one) for one in operation.operands]
                made = self.evaluator.results(operation, operands)
                self.env.update(zip(operation.results, made, strict=True))
            if self.recording:
                found = flops.of(operation, self.module, reach)
                if found is not None:
                    self.arithmetic.append(found)

    def call(self, operation: Operation, reach: Reach, depth: int) -> None:
        """Walk the function that is called."""
        results: list[Made] = []
        if operation.regions:
            body = operation.regions[0]
            for inside, given in zip(body.blocks[0].arguments, operation.operands, strict=True):
                self.env[inside] = self.value(given)
            results = self.region(body, reach, depth)
        elif self.recording:
            self.not_counted["tt.call"] = self.not_counted.get("tt.call", 0) + 1
        for place, result in enumerate(operation.results):
            if result in self.needed:
                self.env[result] = (
                    results[place]
                    if place < len(results)
                    else self.evaluator.unknown(operation, [], place)
                )

    def branch(self, operation: Operation, reach: Reach, depth: int) -> None:
        """Walk an if."""
        condition = self.mask(self.value(operation.operands[0]))
        ways = [self.narrowed(reach, condition, truth=truth) for truth in (True, False)]
        if condition.hidden:
            self.note(condition.hidden, "branch")
        if self.recording:
            reached, taken = reach.executions(), ways[0].executions()
            self.branches.append(Branch(self.module.place(operation), reached, taken))
        made: list[list[Made]] = []
        for region, way in zip(operation.regions, ways, strict=False):
            walks = count_cells(way.where, way.sizes)
            made.append(self.region(region, way, depth) if walks else [])
        for place, result in enumerate(operation.results):
            if result in self.needed:
                there = [one[place] for one in made if one]
                if len(there) < 2:  # noqa: PLR2004
                    self.env[result] = there[0] if there else Number(shape=result.type.shape)
                else:
                    self.env[result] = self.evaluator.chosen(condition, there[0], there[1], result)

    def note(self, hidden: Iterable[tiles.Hidden], steers: str) -> None:
        """Note the unknown values that steer an address, a mask, a loop or a branch."""
        if not self.recording:
            return
        for root in sorted({x for one in hidden for x in one.source.roots}, key=lambda x: x.name):
            place = root.place or UNKNOWN_PLACE
            self.unknowns.setdefault((root, steers), Unknown(place, root.name, steers))

    # Loops

    def for_loop(self, operation: Operation, reach: Reach, depth: int) -> None:
        """Walk a for loop."""
        axis = GRID_AXES + depth
        low, high, step = (self.number(one) for one in operation.operands[:3])
        body = operation.regions[0]
        variable, *carried = body.blocks[0].arguments
        inits = dict(zip(carried, map(self.value, operation.operands[3:]), strict=True))
        span = tiles.add(high, tiles.scaled(low, -1), ())
        if span.hidden or step.hidden:
            self.unknown_loop(operation, reach, depth, [*span.hidden, *step.hidden])
            return
        trips = tiles.elementwise(
            lambda distance, by: np.where(
                by > 0, np.maximum(-(-distance // np.maximum(by, 1)), 0), 0
            ),
            [span, step],
            (),
            self.dimensions,
        )
        size = self.most(trips, reach)
        self.record_loop(operation, reach, trips, depth, step.const if step.is_constant else None)
        if size > tiles.MOST_CELLS:
            raise TooLargeError
        if not size:
            for argument, result in zip(carried, operation.results, strict=True):
                self.env[result] = inits[argument]
            return
        loop = _Loop(axis, size, trips)
        inner = self.within(reach, loop)
        turns = self.axis_array(axis, size)
        index = tiles.of_outer(turns)
        self.env[variable] = tiles.add(low, tiles.multiplied(index, step, (), self.dimensions), ())
        saved, self.sizes[axis] = self.sizes[axis], size

        def turn() -> list[Made]:
            return self.region(body, inner, depth + 1)

        def single(place: int) -> list[Made]:
            at = tiles.multiplied(tiles.number(place), step, (), self.dimensions)
            self.env[variable] = tiles.add(low, at, ())
            return self.region(body, replace(inner, where=reach.where), depth + 1)

        after = self.carry(carried, inits, loop, turn, single)
        self.env[variable] = tiles.add(low, tiles.multiplied(index, step, (), self.dimensions), ())
        if self.recording:
            turn()
        self.sizes[axis] = saved
        for argument, result in zip(carried, operation.results, strict=True):
            if argument in after:
                self.env[result] = after[argument]

    def within(self, reach: Reach, loop: _Loop) -> Reach:
        """Return the iterations of a loop that programs come to."""
        sizes = list(reach.sizes)
        sizes[loop.axis] = loop.size
        where = reach.where
        if not (loop.trips.is_constant and loop.trips.const == loop.size):
            turns = self.axis_array(loop.axis, loop.size)
            trips = tiles.total(loop.trips, self.dimensions)
            tiles.fits(turns, trips)
            where = (*where, turns < trips)
        return replace(reach, where=where, sizes=tuple(sizes))

    def axis_array(self, axis: int, size: int) -> Any:
        """Return 0, 1, 2 ... along an outer axis."""
        shape = [1] * self.dimensions
        shape[axis] = size
        return np.arange(size).reshape(shape)

    def most(self, trips: Number, reach: Reach) -> int:
        """Return the most that *trips* is of those that get there."""
        if trips.is_constant:
            return trips.const
        reached = self.reached(trips, reach)
        return int(reached.max(initial=0))

    def reached(self, number: Number, reach: Reach) -> Any:
        """Return what a number is for those that get there."""
        array = tiles.total(number, self.dimensions)
        where = self.together(reach)
        tiles.fits(array, where)
        array, where = np.broadcast_arrays(array, where)
        return array[where]

    def record_loop(
        self, operation: Operation, reach: Reach, trips: Number, depth: int, step: int | None
    ) -> None:
        """Note how often a loop runs."""
        if not self.recording:
            return
        entered = count_cells(reach.where, reach.sizes)
        if trips.is_constant:
            turns, least, most = trips.const * entered, trips.const, trips.const
        else:
            array = tiles.total(trips, self.dimensions)
            where = self.together(reach)
            tiles.fits(array, where)
            axes = tiles.axes_of(array) | tiles.axes_of(where)
            reached = np.where(where, array, 0)
            times = entered // max(int(np.count_nonzero(np.broadcast_to(where, reached.shape))), 1)
            del axes
            turns = int(reached.sum()) * times
            inside = self.reached(trips, reach)
            least, most = (
                int(inside.min(initial=0 if not inside.size else inside.max())),
                int(inside.max(initial=0)),
            )
        self.loops.append(
            Loop(
                self.module.place(operation),
                depth,
                scaled(reach.factor, entered),
                scaled(reach.factor, turns),
                least if entered else None,
                most if entered else None,
                step,
            )
        )

    def unknown_loop(
        self, operation: Operation, reach: Reach, depth: int, hidden: Sequence[tiles.Hidden]
    ) -> None:
        """Walk a loop of which nobody knows how often it runs."""
        if self.recording:
            self.note(hidden, "loop")
            entered = reach.executions()
            self.loops.append(
                Loop(
                    self.module.place(operation),
                    depth,
                    entered,
                    Amount(0, None) if entered.high != 0 else NOTHING,
                    None,
                    None,
                    None,
                )
            )
        roots = frozenset().union(*(one.source.roots for one in hidden))
        inner = replace(reach, factor=Amount(0, None))
        axes = {GRID_AXES + depth}
        for region in operation.regions:
            for argument in region.blocks[0].arguments:
                self.blur(argument, roots, axes, operation)
            self.region(region, inner, depth + 1)
        starts = operation.operands[3:] if operation.name == "scf.for" else operation.operands
        for place, result in enumerate(operation.results):
            if result in self.needed:
                init = self.value(starts[place]) if place < len(starts) else None
                self.env[result] = self.blurred(result, roots, axes, init)

    def blur(
        self, argument: Value, roots: Iterable[Any], axes: set[int], operation: Operation
    ) -> None:
        """Make what a loop of unknown length carries unknown."""
        if argument not in self.needed and argument.index:
            return
        starts = operation.operands[3:] if operation.name == "scf.for" else operation.operands
        place = argument.index - (operation.name == "scf.for")
        init = self.value(starts[place]) if 0 <= place < len(starts) else None
        self.env[argument] = self.blurred(argument, roots, axes, init)

    def blurred(
        self, key: Value, roots: Iterable[Any], axes: Iterable[int], init: Made | None
    ) -> Made:
        if init is None or type(init) is Mask:
            return self.evaluator.of_type(tiles.hidden(key, roots, [], axes), key.type)
        parts: list[Known] = []
        for place, one in enumerate(numbers_of(init)):
            unknown = tiles.hidden((key, place), roots, [], axes)
            if isinstance(one, Number):
                parts.append(tiles.add(one, Number(hidden=unknown), one.shape))
            else:
                parts.append(one)
        return with_numbers(init, parts)

    def carry(
        self,
        carried: Sequence[Value],
        inits: Mapping[Value, Made],
        loop: _Loop,
        turn: Any,
        single: Any,
    ) -> dict[Value, Made]:
        """Find what a loop carries in each iteration, and return what it is after the loop."""
        from occupancy_lab.work.recurrences import solve

        todo = [one for one in carried if one in self.needed]
        if not todo:
            return {}
        recording, self.recording = self.recording, False
        try:
            return solve(self, carried, todo, inits, loop, turn, single)
        finally:
            self.recording = recording

    def while_loop(  # noqa: PLR0915
        self, operation: Operation, reach: Reach, depth: int
    ) -> None:
        """Walk a while loop."""
        before, after = operation.regions
        carried = before.blocks[0].arguments
        passed = after.blocks[0].arguments
        inits = dict(zip(carried, map(self.value, operation.operands), strict=True))
        axis = GRID_AXES + depth
        size = FIRST_GUESS
        saved = self.sizes[axis]
        handed: list[Made] = []
        while True:
            condition = Mask()
            sizes = list(reach.sizes)
            sizes[axis] = size
            self.sizes[axis] = size
            inner = replace(reach, sizes=tuple(sizes))

            def turn(inner: Reach = inner) -> list[Made]:
                nonlocal condition, handed
                first, *handed = self.region(before, inner, depth + 1)
                condition = self.mask(first)
                self.env.update(zip(passed, handed, strict=True))
                return self.region(after, inner, depth + 1)

            loop = _Loop(axis, size, tiles.number(size))
            self.carry(carried, inits, loop, turn, None)
            recording, self.recording = self.recording, False
            turn()
            self.recording = recording
            if condition.hidden:
                self.sizes[axis] = saved
                self.unknown_loop(operation, reach, depth, condition.hidden)
                return
            going = self.together(Reach(condition.outer, ()))
            where = self.together(reach)
            tiles.fits(going, where)
            if going.shape[axis] == 1:
                ended = not (going & where).any()
                trips = tiles.number(0)
            else:
                stops = ~going
                ended = bool((stops.any(axis, keepdims=True) | ~where).all())
                trips = tiles.of_outer(stops.argmax(axis, keepdims=True))
            if ended:
                break
            size *= 8
            if size > 2**16:
                self.sizes[axis] = saved
                root = tiles.Root("a while loop's end", self.module.place(operation))
                self.unknown_loop(operation, reach, depth, tiles.hidden(operation, [root]))
                return
        self.record_loop(operation, reach, trips, depth, None)
        loop = _Loop(axis, size, trips)
        results = [self.at(one, axis, trips) for one in handed]
        if self.recording:
            again = _Loop(axis, size, tiles.add(trips, tiles.number(1), ()))
            _, *handed = self.region(before, self.within(reach, again), depth + 1)
            self.env.update(zip(passed, handed, strict=True))
            self.region(after, self.within(reach, loop), depth + 1)
        self.sizes[axis] = saved
        for result, made in zip(operation.results, results, strict=True):
            if result in self.needed:
                self.env[result] = made

    def at(self, value: Made, axis: int, place: Number) -> Made:
        """Return what a value is in an iteration of a loop."""
        from occupancy_lab.work.recurrences import taken

        return taken(value, axis, tiles.total(place, self.dimensions))

    # Accesses

    def access(self, operation: Operation, reach: Reach) -> None:
        """Count a load, a store, an atomic operation or an access through a descriptor."""
        how, reads, writes = ACCESSES[operation.name]
        pointer, mask, item, shape = self.addresses(operation)
        pointer = replace(pointer, offset=replace(pointer.offset, shape=shape))
        self.note(pointer.offset.hidden, "address")
        self.note(mask.hidden, "mask")
        touch = Touch(pointer.tensor, item, reads, writes, pointer.offset, mask, shape, reach)
        executions = reach.executions()
        elements = executions * int(np.prod(shape, dtype="int64"))
        active, sectors, lines = measure(touch)
        unique = distinct([touch], [active * item], self.storage.get(pointer.tensor or ""))
        self.touches.append(touch)
        self.accesses.append(
            Access(
                self.module.place(operation),
                how,
                pointer.tensor,
                item,
                reads,
                writes,
                executions,
                elements,
                active,
                sectors,
                lines,
                unique,
            )
        )

    def addresses(self, operation: Operation) -> tuple[Pointer, Mask, int, tuple[int, ...]]:
        """Return the addresses of an access, which are active, bytes of an element, its tile."""
        first, *others = operation.operands
        base = self.value(first)
        kind = first.type
        if isinstance(base, Block):
            inside = kind.pointee
            if inside is None:
                return base.base, Mask(), 1, ()
            count_ = len(inside.shape)
            if kind.element == "desc":
                offsets = [self.number(one) for one in others[:count_]]
                checked: Sequence[int] = range(count_)
            else:
                offsets, checked = list(base.offsets), operation.numbers("boundaryCheck")
            shape = inside.shape
            return (
                *self.evaluator.block_addresses(base, offsets, shape, inside.item_bytes, checked),
                inside.item_bytes,
                shape,
            )
        item = kind.pointee.item_bytes if kind.pointee else 1
        place = {"tt.load": 0, "tt.store": 1, "tt.atomic_rmw": 1}.get(operation.name, len(others))
        mask = Mask(shape=kind.shape)
        if place < len(others) and others[place].type.element == "i1":
            mask = replace(self.mask(self.value(others[place])), shape=kind.shape)
        if not isinstance(base, Pointer):
            base = Pointer(None, self.number(first))
        return base, mask, item, kind.shape


def _depth(region: Region) -> int:
    """Return how deep loops nest."""
    return max(
        (
            (one.name in {"scf.for", "scf.while"}) + max(map(_depth, one.regions), default=0)
            for block in region.blocks
            for one in block.operations
            if one.regions
        ),
        default=0,
    )


CONTROL = frozenset({"scf.for", "scf.while", "scf.if", "tt.call"})
ACCESSES = {
    "tt.load": ("load", True, False),
    "tt.store": ("store", False, True),
    "tt.atomic_rmw": ("atomic", True, True),
    "tt.atomic_cas": ("atomic", True, True),
    "tt.descriptor_load": ("descriptor load", True, False),
    "tt.descriptor_store": ("descriptor store", False, True),
    "tt.descriptor_reduce": ("descriptor reduce", True, True),
}
"""What each operation that moves anything is called, and whether it reads and writes."""
