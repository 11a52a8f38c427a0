"""How often loops run, and what they carry: all iterations of all programs at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work import tiles, tilewise
from occupancy_lab.work.accesses import Reach, count, scaled
from occupancy_lab.work.counts import NO_WAIT, Amount, Loop
from occupancy_lab.work.evaluate import Made, numbers_of, with_numbers
from occupancy_lab.work.recurrences import Turns, solve, taken
from occupancy_lab.work.tickets import only_waits
from occupancy_lab.work.tiles import Mask, Number, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from occupancy_lab.work.module import Operation, Value

GRID_AXES = 3
FIRST_GUESS, LAST_GUESS = 64, 2**15
"""Iterations of a while loop that are tried first, and last."""


def for_loop(walk: Any, operation: Operation, reach: Reach, depth: int) -> None:
    """Walk a for loop."""
    low, high, step = (walk.number(one) for one in operation.operands[:3])
    body = operation.regions[0]
    variable, *carried = body.blocks[0].arguments
    inits = dict(zip(carried, map(walk.value, operation.operands[3:]), strict=True))
    span = tiles.add(high, tiles.scaled(low, -1), ())
    if span.hidden or step.hidden:
        unknown_loop(walk, operation, reach, depth, [*span.hidden, *step.hidden])
        return
    trips = tilewise.elementwise(_trips, [span, step], (), walk.dimensions)
    size = _most(walk, trips, reach)
    record(walk, operation, reach, trips, depth, step.const if step.is_constant else None)
    if size > tiles.MOST_CELLS:
        raise TooLargeError
    if not size:
        for argument, result in zip(carried, operation.results, strict=True):
            walk.env[result] = inits[argument]
        return
    axis = GRID_AXES + depth
    inner = _within(walk, operation, reach, axis, size, trips)

    def turn() -> list[Made]:
        index = tiles.of_outer(walk.axis_array(axis, size))
        at = tilewise.multiplied(index, step, (), walk.dimensions)
        walk.env[variable] = tiles.add(low, at, ())
        return walk.region(body, inner, depth + 1)  # type: ignore[no-any-return]

    def single(place: int) -> tuple[list[Made], Mask]:
        at = tilewise.multiplied(tiles.number(place), step, (), walk.dimensions)
        walk.env[variable] = tiles.add(low, at, ())
        going = tilewise.compared("sgt", trips, tiles.number(place), (), walk.dimensions)
        return walk.region(body, reach, depth + 1), going

    after = _carry(walk, Turns(carried, inits, axis, size, trips, turn, single))
    if walk.recording:
        turn()
    for argument, result in zip(carried, operation.results, strict=True):
        if argument in after:
            walk.env[result] = after[argument]


def _trips(span: Any, step: Any) -> Any:
    return np.where(step > 0, np.maximum(-(-span // np.maximum(step, 1)), 0), 0)


def _within(  # noqa: PLR0913, PLR0917
    walk: Any, loop: Operation, reach: Reach, axis: int, size: int, trips: Number
) -> Reach:
    sizes = list(reach.sizes)
    sizes[axis] = size
    where = reach.where
    if not (trips.is_constant and trips.const == size):
        turns, each = walk.axis_array(axis, size), tiles.total(trips, walk.dimensions)
        tiles.fits(turns, each)
        where = (*where, turns < each)
    return replace(reach, where=where, sizes=tuple(sizes), loops=(*reach.loops, loop))


def _reached(walk: Any, number: Number, reach: Reach) -> Any:
    array, where = tiles.total(number, walk.dimensions), walk.together(reach)
    tiles.fits(array, where)
    array, where = np.broadcast_arrays(array, where)
    return array[where]


def _most(walk: Any, trips: Number, reach: Reach) -> int:
    if trips.is_constant:
        return trips.const if count(reach.where, reach.sizes) else 0
    return int(_reached(walk, trips, reach).max(initial=0))


def record(  # noqa: PLR0913, PLR0917
    walk: Any, operation: Operation, reach: Reach, trips: Number, depth: int, step: int | None
) -> None:
    """Note how often a loop runs, if anything comes to it."""
    entered = count(reach.where, reach.sizes) if walk.recording else 0
    if not entered:
        return
    each = _reached(walk, trips, reach)
    walk.loops.append(
        Loop(
            walk.module.place(operation),
            depth,
            scaled(reach.factor, entered),
            scaled(reach.factor, int(each.sum()) * (entered // len(each))),
            int(each.min()),
            int(each.max()),
            step,
        )
    )


def unknown_loop(
    walk: Any, operation: Operation, reach: Reach, depth: int, hidden: Sequence[tiles.Hidden]
) -> None:
    """Walk a loop of which nobody knows how often it runs."""
    entered = reach.executions()
    if walk.recording and entered.high != 0:
        walk.note(hidden, "loop")
        trips = Amount(0, None)
        place = walk.module.place(operation)
        walk.loops.append(Loop(place, depth, entered, trips, None, None, None))
    roots = frozenset[tiles.Root]().union(*(one.source.roots for one in hidden))
    inner = replace(reach, factor=Amount(0, None))
    axes = [GRID_AXES + depth]
    first = operation.name == "scf.for"
    starts = operation.operands[3:] if first else operation.operands
    for region in operation.regions:
        for argument in region.blocks[0].arguments:
            place_ = argument.index - first
            init = walk.value(starts[place_]) if 0 <= place_ < len(starts) else None
            if argument in walk.needed or place_ < 0:
                walk.env[argument] = blurred(walk, argument, roots, axes, init)
        walk.region(region, inner, depth + 1)
    for place_, result in enumerate(operation.results):
        if result in walk.needed:
            init = walk.value(starts[place_]) if place_ < len(starts) else None
            walk.env[result] = blurred(walk, result, roots, axes, init)


def blurred(
    walk: Any, key: Value, roots: Iterable[Any], axes: Iterable[int], init: Made | None
) -> Made:
    """Return what a loop carries of which nothing is known but where it starts."""
    if init is None or isinstance(init, Mask):
        return walk.evaluator.of_type(tiles.hidden(key, roots, [], axes), key.type)  # type: ignore[no-any-return]
    parts: list[tiles.Known] = []
    for place, one in enumerate(numbers_of(init)):
        unknown = tiles.hidden((key, place), roots, [], axes)
        known = tilewise.as_number(one, one.shape, walk.dimensions)
        parts.append(tiles.add(known, Number(hidden=unknown), one.shape))
    return with_numbers(init, parts)


def _carry(walk: Any, turns: Turns) -> dict[Value, Made]:
    """Find what a loop carries in each iteration, and return what it is after the loop."""
    if not any(one in walk.needed for one in turns.carried):
        return {}
    recording, walk.recording = walk.recording, False
    try:
        after, lost = solve(walk, turns)
    finally:
        walk.recording = recording
    for one in lost:
        roots = [tiles.Root("what a loop carries from iteration to iteration")]
        walk.env[one] = after[one] = blurred(walk, one, roots, [turns.axis], turns.inits[one])
    return after


@dataclass(slots=True)
class _While:
    """A while loop under way: who goes on, and what the condition hands on."""

    going: Mask
    handed: list[Made]


def while_loop(walk: Any, operation: Operation, reach: Reach, depth: int) -> None:
    """Walk a while loop, for more and more iterations until every program has ended."""
    size = FIRST_GUESS
    while size <= LAST_GUESS:
        under_way = _While(Mask(), [])
        turn = _turn(walk, operation, reach, depth, size, under_way)
        _try(walk, operation, reach, depth, size, turn, under_way)
        if under_way.going.hidden:
            hidden = under_way.going.hidden
            if only_waits(operation):
                _waiting_loop(walk, operation, reach, depth, hidden)
            else:
                unknown_loop(walk, operation, reach, depth, hidden)
            return
        trips = _ends(walk, reach, GRID_AXES + depth, under_way.going)
        if trips is not None:
            break
        size *= 8
    else:
        root = tiles.Root("when a while loop ends", walk.module.place(operation))
        unknown_loop(walk, operation, reach, depth, tiles.hidden(operation, [root]))
        return
    record(walk, operation, reach, trips, depth, None)
    axis = GRID_AXES + depth
    results = [taken(one, axis, tiles.total(trips, walk.dimensions)) for one in under_way.handed]
    if walk.recording:
        before, after = operation.regions
        once_more = tiles.add(trips, tiles.number(1), ())
        _, *handed = walk.region(
            before, _within(walk, operation, reach, axis, size, once_more), depth + 1
        )
        walk.env.update(zip(after.blocks[0].arguments, handed, strict=True))
        inner = _within(walk, operation, reach, axis, size, trips)
        if count(inner.where, inner.sizes):
            walk.region(after, inner, depth + 1)
    for result, made in zip(operation.results, results, strict=True):
        if result in walk.needed:
            walk.env[result] = made


def _waiting_loop(
    walk: Any, operation: Operation, reach: Reach, depth: int, hidden: Sequence[tiles.Hidden]
) -> None:
    """Walk a loop in which programs wait for others: what they look for is there at once."""
    walk.note(hidden, "loop", NO_WAIT)
    record(walk, operation, reach, tiles.number(0), depth, None)
    before = operation.regions[0]
    walk.env.update(
        zip(before.blocks[0].arguments, map(walk.value, operation.operands), strict=True)
    )
    _, *handed = walk.region(before, reach, depth + 1)
    walk.env.update(zip(operation.results, handed, strict=True))


def _turn(  # noqa: PLR0913, PLR0917
    walk: Any, operation: Operation, reach: Reach, depth: int, size: int, under_way: _While
) -> Any:
    before, after = operation.regions
    sizes = list(reach.sizes)

    def turn(along: int = size) -> list[Made]:
        sizes[GRID_AXES + depth] = along
        inner = replace(reach, sizes=tuple(sizes))
        first, *under_way.handed = walk.region(before, inner, depth + 1)
        under_way.going = walk.mask(first)
        walk.env.update(zip(after.blocks[0].arguments, under_way.handed, strict=True))
        return walk.region(after, inner, depth + 1)  # type: ignore[no-any-return]

    return turn


def _try(  # noqa: PLR0913, PLR0917
    walk: Any,
    operation: Operation,
    reach: Reach,
    depth: int,
    size: int,
    turn: Any,
    under_way: _While,
) -> None:
    """Find what a while loop carries, and who goes on, as if it ran *size* times."""

    def single(_: int) -> tuple[list[Made], Mask]:
        made = turn(1)
        where = Mask(reach.where)
        return made, tilewise.both(where, under_way.going, ())

    carried = operation.regions[0].blocks[0].arguments
    inits = dict(zip(carried, map(walk.value, operation.operands), strict=True))
    trips = tiles.number(size)
    _carry(walk, Turns(carried, inits, GRID_AXES + depth, size, trips, turn, single))
    recording, walk.recording = walk.recording, False
    turn()
    walk.recording = recording


def _ends(walk: Any, reach: Reach, axis: int, going: Mask) -> Number | None:
    """Return after how many iterations each program ends; None where not all do."""
    goes, where = walk.together(Reach(going.outer, ())), walk.together(reach)
    tiles.fits(goes, where)
    if goes.shape[axis] == 1:
        return None if (goes & where).any() else tiles.number(0)
    if not ((~goes).any(axis, keepdims=True) | ~where).all():
        return None
    return tiles.of_outer((~goes).argmax(axis, keepdims=True))
