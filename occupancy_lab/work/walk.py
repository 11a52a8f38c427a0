"""Counts what a launch does, from its kernel's TTIR, arguments and grid, for all programs at once.

Integers are followed through the kernel for all programs and all iterations of its loops together,
as far as an address, a mask, a loop or a branch depends on them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from occupancy_lab.arguments import Plain, flattened
from occupancy_lab.assumed import Assumption, assumption_words
from occupancy_lab.work import flops, loops, needed, tiles, tilewise
from occupancy_lab.work.accesses import Reach, Touch, active_of, measure
from occupancy_lab.work.accesses import count as count_cells
from occupancy_lab.work.counts import (
    IN_TURN,
    NOTHING,
    Access,
    Amount,
    Arithmetic,
    Branch,
    Counts,
    Footprint,
    Loop,
    Unknown,
)
from occupancy_lab.work.evaluate import (
    EITHER,
    Block,
    Evaluator,
    Made,
    Pointer,
    block_addresses,
    chosen,
    name_of,
    numbers_of,
)
from occupancy_lab.work.footprint import Accessed, accessed, distinct, footprints, pieces
from occupancy_lab.work.module import UNKNOWN_PLACE, Module, Operation, Region, Value, targets
from occupancy_lab.work.module import Block as Blocks
from occupancy_lab.work.samples import sampled
from occupancy_lab.work.tickets import Counters
from occupancy_lab.work.tiles import AXES, GRID_AXES, Mask, Number, Root, TooLargeError

MOST_STEPS, MOST_SECONDS = 200_000, 10.0
"""The most operations that a walk evaluates, and its limit of processor time: a softmax of 800,000
programs takes 3 s, and twice as long where all cores are busy."""
UNTIMED = 32
"""Operations between looks at the clock, one of which takes as long as many operations."""
MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a text raises that resembles TTIR but was not written by a compiler."""


def count(  # noqa: PLR0913 - the parts of a launch
    module: Module,
    arguments: Mapping[str, Plain],
    grid: tuple[int, ...],
    *,
    values: Mapping[str, Sequence[int]] | None = None,
    assume: Mapping[str, Assumption] | None = None,
    resident: int | None = None,
) -> Counts:
    """Return what a launch of the kernel of *module* does.

    *arguments* maps parameter names to values. *values* has the elements of tensors, and *assume* a
    number for all elements of a tensor or for an argument, both by the parameter's name. *resident*
    is the number of programs that run at once, where it is known.
    """
    width, height, layers = (*grid, 1, 1, 1)[:GRID_AXES]
    whole = (width, height, layers)

    def walk(programs: Sequence[Sequence[int]], at_once: int | None = None) -> Counts:
        one = Walk(module, arguments, whole, programs, values or {}, assume or {})
        return one.counts(at_once)

    def outline(programs: Sequence[Sequence[int]]) -> tuple[Counts, Counts] | None:
        for masks in (True, False):
            with contextlib.suppress(WorkError, TooLargeError, *MALFORMED):
                all_, some = (
                    Outline(module, arguments, whole, each, values or {}, assume or {}, masks=masks)
                    for each in ([range(one) for one in whole], programs)
                )
                return all_.counts(), some.counts()
        return None

    with contextlib.suppress(WorkError, *MALFORMED):
        try:
            return walk([range(one) for one in whole], resident)
        except TooLargeError:
            if (counts := sampled(walk, whole, outline)) is not None:
                return counts
    return _nothing(module, whole)


def _nothing(module: Module, grid: Sequence[int]) -> Counts:
    """Return the counts of a kernel that cannot be followed: it may do anything."""
    place, some = module.place(module.kernel.operation), Amount(0, None)
    return Counts(
        math.prod(grid),
        0,
        (Access(place, "load", None, 1, True, True, some, some, some, some, some, some),),  # noqa: FBT003 - it may be both
        (Footprint(None, some, some, some, some),),
        (Arithmetic(place, "call", "fp32", some, some),),
        not_counted={module.kernel.name: 1},
    )


class WorkError(Exception):
    """A kernel does what cannot be followed."""


class Walk:
    """Walks a kernel and records what it does."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        module: Module,
        arguments: Mapping[str, Plain],
        grid: tuple[int, int, int],
        programs: Sequence[Sequence[int]],
        values: Mapping[str, Sequence[int]],
        assume: Mapping[str, Assumption],
    ) -> None:
        self.module, self.grid = module, grid
        self.walked = (len(programs[0]), len(programs[1]), len(programs[2]))
        if max(self.walked) > tiles.MOST_CELLS:
            raise TooLargeError
        kernel = module.kernel
        self.whole = Reach((), (*self.walked, *[1] * (AXES - GRID_AXES)))
        self.evaluator = Evaluator(module, grid, programs, values, assume)
        self.needed = needed.needed_values(module)
        self.counters = Counters(self.evaluator)
        self.recording = True
        self.follows_turns = False
        """Whether iterations are walked one by one, so that the current iteration is not known."""
        self.steps = 0
        self.deadline = time.process_time() + MOST_SECONDS
        passed = flattened([one.name for one in kernel.arguments], arguments)
        both = [*zip(kernel.arguments, passed, strict=True)]
        self.names = {value: name for value, (name, _) in both}
        self.env: dict[Value, Made] = {
            value: self.evaluator.argument(name, value.type, given) for value, (name, given) in both
        }
        self.storage = {
            name: size
            for name, value in passed
            if (size := getattr(getattr(value, "base", value), "storage_bytes", None)) is not None
        }
        self.touches: list[Accessed] = []
        self.accesses: list[Access] = []
        self.arithmetic: list[Any] = []
        self.loops: list[Loop] = []
        self.branches: list[Branch] = []
        self.unknowns: dict[Any, Unknown] = {}
        self.not_counted: dict[str, int] = {}

    def counts(self, resident: int | None = None) -> Counts:
        """Walk the kernel, and return its counts."""
        self.region(self.module.kernel.body, self.whole, 0)
        found = pieces([one.touch for one in self.touches])
        accesses = tuple(
            replace(one, piece_bytes=piece, adjoins=adjoins)
            for one, (piece, adjoins) in zip(self.accesses, found, strict=True)
        )
        for root, number in self.evaluator.assumed.items():
            self.assume(root, assumption_words(number))
        return Counts(
            math.prod(self.grid),
            math.prod(self.walked),
            accesses,
            _with_overlaps(footprints(self.touches, self.walked, resident, self.storage, accesses)),
            tuple(self.arithmetic),
            tuple(self.loops),
            tuple(self.branches),
            tuple(self.unknowns.values()),
            self.not_counted,
            needed.reduced_tensors(self.module, self.names),
            needed.reduced_lengths(self.module),
            needed.stores_each_pass(self.module),
            needed.divisors(self.module),
        )

    @contextlib.contextmanager
    def silently(self) -> Iterator[None]:
        """Record nothing of what is walked."""
        recording, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = recording

    # Regions

    def region(self, region: Region, reach: Reach, depth: int) -> list[Made]:
        """Walk a region, and return what its terminator passes on, as far as it is needed."""
        if len(region.blocks) == 1:
            return self.block(region.blocks[0].operations, reach, depth)
        return self.blocks(region, reach, depth)

    def block(self, operations: Sequence[Operation], reach: Reach, depth: int) -> list[Made]:
        """Walk operations in sequence, and return the operands of the last one."""
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
        for block in _forward(region):
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
            ways = self.ways(last, here) if last.name == "cf.cond_br" else [here]
            for place, (name, start, end) in enumerate(targets(last)):
                there = ways[place]
                if count_cells(there.where, there.sizes):
                    entries.setdefault(name, []).append((there, operands[start:end]))
        return self.joined(returned, reach)[1] if returned else []

    def joined(
        self, incoming: Sequence[tuple[Reach, list[Made]]], whole: Reach
    ) -> tuple[Reach, list[Made]]:
        """Return the union of the reaches that enter a block, and the values that they bring."""
        reach, values = incoming[0]
        if len(incoming) == 1:
            return reach, values
        factor = Amount(min(one.factor.low for one, _ in incoming), whole.factor.high)
        arrays = [one.together() for one, _ in incoming]
        tiles.fits(*arrays)
        either = functools.reduce(operator.or_, arrays)
        for (_, others), array in zip(incoming[1:], arrays[1:], strict=True):
            mask = tiles.mask_outer(array)
            values = [
                chosen(mask, other, one, ("joined", id(array), place))
                for place, (one, other) in enumerate(zip(values, others, strict=True))
            ]
        return Reach((either,), whole.sizes, factor, whole.loops), values

    def narrowed(self, reach: Reach, mask: Mask, *, truth: bool) -> Reach:
        """Return the part of *reach* for which *mask* equals *truth*."""
        if mask.hidden:
            return replace(reach, factor=Amount(0, reach.factor.high))
        if not truth:
            mask = tilewise.inverted(mask)
        return replace(reach, where=(*reach.where, *mask.outer))

    # Values

    def value(self, value: Value) -> Made:
        """Return what is known of a value, which is nothing where it is not needed."""
        found = self.env.get(value)
        return Number() if found is None else found

    def mask(self, value: Made) -> Mask:
        """Return a value as a mask."""
        if isinstance(value, Mask):
            return value
        (number,) = numbers_of(value)
        if number.hidden:
            return Mask(hidden=number.hidden, shape=number.shape)
        return tilewise.as_mask(number)

    def number(self, value: Value) -> Number:
        """Return a value as a number."""
        found = self.value(value)
        if isinstance(found, Mask) and not found.hidden:
            return tilewise.as_number(found)
        (number,) = numbers_of(found)[:1]
        return number if isinstance(number, Number) else Number(hidden=number.hidden)

    # Operations

    def operation(  # noqa: C901 - a case for each kind
        self, operation: Operation, reach: Reach, depth: int
    ) -> None:
        """Walk one operation."""
        self.steps += 1
        is_late = self.steps % UNTIMED == 0 and time.process_time() > self.deadline
        if self.steps > MOST_STEPS or is_late:
            raise WorkError
        match operation.name:
            case "scf.for":
                loops.for_loop(self, operation, reach, depth)
            case "scf.while":
                loops.while_loop(self, operation, reach, depth)
            case "scf.if":
                self.branch(operation, reach, depth)
            case "tt.call":
                self.call(operation, reach, depth)
            case name if name in needed.ACCESSES and self.recording:
                self.access(operation, reach)
            case name if name in BARRIERS:
                pass
            case name if name.startswith(UNCOUNTED) or needed.touched_unknown(operation):
                self.uncounted(operation, reach)
        if operation.results and operation.name not in CONTROL:
            if not self.needed.isdisjoint(operation.results):
                operands = [self.value(one) for one in operation.operands]
                ticket = self.ticket(operation, operands, reach, depth)
                made = [ticket] if ticket else self.evaluator.results(operation, operands)
                self.env.update(zip(operation.results, made, strict=True))
            if self.recording:
                found = flops.of(operation, self.module, reach)
                if found is not None:
                    self.arithmetic.append(found)

    def ticket(
        self, operation: Operation, operands: Sequence[Made], reach: Reach, depth: int
    ) -> Made | None:
        """Return what an addition to a shared counter returns, and record the assumption."""
        is_atomic = operation.name == "tt.atomic_rmw"
        if not is_atomic or self.follows_turns or (not depth and reach.where):
            return None
        turns = tiles.along(GRID_AXES, reach.sizes[GRID_AXES] if depth else 1)
        found = self.counters.ticket(operation, operands, turns, depth)
        if found is not None and self.recording:
            self.assume(Root(name_of(operation), self.module.place(operation)), IN_TURN)
        return found

    def assume(self, root: Root, words: str) -> None:
        """Record the assumption about a value that may affect anything."""
        place, steers = root.place or UNKNOWN_PLACE, "address, mask, loop or branch"
        self.unknowns.setdefault(root, Unknown(place, root.name, steers, words))

    def call(self, operation: Operation, reach: Reach, depth: int) -> None:
        """Walk a call of a function."""
        results: list[Made] = []
        if operation.regions:
            body = operation.regions[0]
            for inside, given in zip(body.blocks[0].arguments, operation.operands, strict=True):
                self.env[inside] = self.value(given)
            results = self.region(body, reach, depth)
        else:
            self.uncounted(operation, reach)
        for place, result in enumerate(operation.results):
            if result in self.needed:
                self.env[result] = (
                    results[place]
                    if place < len(results)
                    else self.evaluator.unknown(operation, [], place)
                )

    def branch(self, operation: Operation, reach: Reach, depth: int) -> None:
        """Walk an `if`."""
        condition = self.mask(self.value(operation.operands[0]))
        ways = self.ways(operation, reach)
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
                    self.env[result] = chosen(condition, there[0], there[1], result)

    def ways(self, operation: Operation, reach: Reach) -> list[Reach]:
        """Return the reaches that take and do not take a branch, and record their counts."""
        condition = self.mask(self.value(operation.operands[0]))
        ways = [self.narrowed(reach, condition, truth=truth) for truth in (True, False)]
        if condition.hidden:
            self.note(condition.hidden, "branch")
        if self.recording:
            reached, taken = reach.executions(), ways[0].executions()
            self.branches.append(Branch(self.module.place(operation), reached, taken))
        return ways

    def note(self, hidden: Iterable[tiles.Hidden], steers: str, assumed: str | None = None) -> None:
        """Record the unknown values that an address, a mask, a loop or a branch depends on."""
        if not self.recording:
            return
        roots = {root for one in hidden for root in one.roots}
        for root in sorted(roots, key=lambda one: (one.name, str(one.place))):
            place = root.place or UNKNOWN_PLACE
            self.unknowns.setdefault((root, steers), Unknown(place, root.name, steers, assumed))

    # Accesses

    def access(self, operation: Operation, reach: Reach) -> None:
        """Count a load, a store, an atomic operation or an access through a descriptor."""
        _, reads, writes = needed.ACCESSES[operation.name]
        pointer, mask, item, shape = self.addresses(operation)
        pointer = replace(pointer, offset=replace(pointer.offset, shape=shape))
        self.note(pointer.offset.hidden, "address")
        self.note(mask.hidden, "mask")
        where = (pointer.offset, mask, shape, reach)
        self.touch(operation, Touch(pointer.tensor, item, reads, writes, *where))

    def uncounted(self, operation: Operation, reach: Reach) -> None:
        """Record an unknown operation, which may touch anything in the tensors that it is given."""
        if not self.recording:
            return
        self.not_counted[operation.name] = self.not_counted.get(operation.name, 0) + 1
        addresses = needed.touched_unknown(operation)
        if not addresses:
            return
        root = Root(name_of(operation), self.module.place(operation))
        hidden = tiles.hidden(operation, [root])
        self.note(hidden, "address")
        often = replace(reach, factor=Amount(0, None))
        where = (Number(hidden=hidden), Mask(hidden=hidden), (), often)
        for one in addresses:
            made = self.value(one)
            pointer = made.base if isinstance(made, Block) else made
            tensor = pointer.tensor if isinstance(pointer, Pointer) else None
            touch = Touch(tensor, 1, True, True, *where)  # noqa: FBT003 - it may read and write
            self.touch(operation, touch)

    def touch(self, operation: Operation, touch: Touch) -> None:
        """Count what an operation touches."""
        how, _, _ = needed.ACCESSES.get(operation.name, (operation.name, True, True))
        executions = touch.reach.executions()
        elements = executions * math.prod(touch.shape)
        active, sectors, lines = measure(touch)
        found = accessed(touch, active * touch.item_bytes)
        name = touch.tensor or ""
        either = name.split(EITHER)
        if len(either) > 1 and self.storage.keys() >= {*either}:
            self.storage[name] = sum(self.storage[one] for one in either)
        unique = distinct([found], self.storage.get(name))
        self.touches.append(found)
        self.accesses.append(
            Access(
                self.module.place(operation),
                how,
                touch.tensor,
                touch.item_bytes,
                touch.reads,
                touch.writes,
                executions,
                elements,
                active,
                sectors,
                lines,
                unique,
                not touch.offset.hidden,
            )
        )

    def addresses(self, operation: Operation) -> tuple[Pointer, Mask, int, tuple[int, ...]]:
        """Return the addresses of an access, its mask, an element's bytes and the tile's shape."""
        first, *others = operation.operands
        base = self.value(first)
        kind = first.type
        if isinstance(base, Block):
            inside = kind.pointee
            if inside is None:
                return base.base, Mask(), 1, ()
            count_ = len(inside.shape)
            shape = inside.shape
            if kind.element == "desc":
                offsets = [self.number(one) for one in others[:count_]]
                checked: Sequence[int] = range(count_)
                if len(others[0].type.shape) == 1:  # a gather or a scatter
                    shape = (*others[0].type.shape, *shape[1:])
                    offsets[0] = _of_rows(offsets[0], shape[0])
            else:
                offsets, checked = list(base.offsets), operation.numbers("boundaryCheck")
            return (
                *block_addresses(base, offsets, shape, inside.item_bytes, checked),
                inside.item_bytes,
                shape,
            )
        item = kind.pointee.item_bytes if kind.pointee else 1
        if not isinstance(base, Pointer):
            base = Pointer(None, self.number(first))
        return base, self.mask_of(operation), item, kind.shape

    def mask_of(self, operation: Operation) -> Mask:
        """Return the mask of an access to addresses."""
        shape, given = operation.operands[0].type.shape, operation.operands
        place = needed.MASKS.get(operation.name, len(given))
        if place < len(given) and given[place].type.element == "i1":
            return replace(self.mask(self.value(given[place])), shape=shape)
        return Mask(shape=shape)


class Outline(Walk):
    """Walks a kernel without its addresses: how often all programs do what, at little expense."""

    def __init__(self, module: Module, *launch: Any, masks: bool) -> None:
        """Take a launch as `Walk` does; *masks* says whether masks are evaluated."""
        super().__init__(module, *launch)
        self.masks = masks
        self.needed = needed.outlining_values(module, masks=masks)

    def counts(self, _: int | None = None) -> Counts:
        """Walk the kernel, and return how often its operations are executed."""
        self.region(self.module.kernel.body, self.whole, 0)
        return Counts(
            math.prod(self.grid),
            math.prod(self.walked),
            accesses=tuple(self.accesses),
            arithmetic=tuple(self.arithmetic),
            loops=tuple(self.loops),
            branches=tuple(self.branches),
        )

    def access(self, operation: Operation, reach: Reach) -> None:
        """Record how often an access is executed, and for how many elements."""
        how, reads, writes = needed.ACCESSES[operation.name]
        often, shape = reach.executions(), operation.operands[0].type.shape
        mask = self.mask_of(operation) if self.masks else Mask(shape=shape)
        touch = Touch(None, 1, reads, writes, Number(shape=shape), mask, shape, reach)
        amounts = (often, often * math.prod(shape), active_of(touch), NOTHING, NOTHING, NOTHING)
        place = self.module.place(operation)
        self.accesses.append(Access(place, how, None, 1, reads, writes, *amounts))

    def uncounted(self, operation: Operation, reach: Reach) -> None:
        """Leave out what is not counted."""


def _of_rows(numbers: Number, count_: int) -> Number:
    """Return *numbers* minus the number of each row of a block."""
    column = tilewise.reshaped(numbers, (count_, 1), lambda table: table[..., None], frozenset)
    own = tiles.of_table(-np.arange(count_).reshape(1, -1, 1), None, (count_, 1))
    return tiles.add(column, own)  # type: ignore[arg-type] # a number stays one


def _with_overlaps(found: Sequence[Footprint]) -> tuple[Footprint, ...]:
    """Return the footprints, without lower limits where one may touch bytes of another.

    This is so for accesses to one of several tensors where one of these is accessed by itself as
    well.
    """
    names = {one.tensor for one in found if one.tensor is not None}

    def open_below(one: Footprint) -> Footprint:
        own = (one.tensor or "").split(EITHER)
        if len(own) == 1 or not names & {*own}:
            return one
        kinds = ("read", "written", "read_whole", "written_whole")
        amounts: dict[str, Any] = {name: Amount(0, getattr(one, name).high) for name in kinds}
        return replace(one, **amounts)

    return tuple(map(open_below, found))


def _forward(region: Region) -> list[Blocks]:
    """Return the blocks of a region in an order in which branches only go forward."""
    blocks = {one.name: one for one in region.blocks}
    before: dict[str, list[str]] = {name: [] for name in blocks}
    for name, block in blocks.items():
        for target, _, _ in targets(block.operations[-1]) if block.operations else ():
            before.setdefault(target, []).append(name)
    try:
        return [blocks[name] for name in TopologicalSorter(before).static_order()]
    except (CycleError, KeyError) as error:
        raise WorkError from error


BARRIERS = frozenset({"gpu.barrier", "ttg.local_barrier", "ttg.barrier"})
"""What Triton's versions call a barrier, which moves and computes nothing."""
UNCOUNTED = ("tt.elementwise_inline_asm", "tt.experimental_", "ttng.", "ttg.")
"""The prefixes of operations that are not counted, whatever their operands are."""
CONTROL = frozenset({"scf.for", "scf.while", "scf.if", "tt.call"})
