"""What a loop carries from iteration to iteration, found for all iterations at once.

What grows in each iteration by something that it does not itself steer is a sum; what an iteration
makes anew is the last one's; anything else is followed iteration by iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work import tiles
from occupancy_lab.work.evaluate import Made, Pointer, numbers_of, with_numbers
from occupancy_lab.work.tiles import Known, Mask, Number, Source, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from occupancy_lab.work.module import Value


@dataclass(frozen=True, slots=True)
class _Carried:
    """The key of what a value was when an iteration began."""

    value: Value
    part: int


MOST_TURNS = 512
"""Iterations that are followed one by one."""


def solve(  # noqa: PLR0913, PLR0917
    walk: Any,
    carried: Sequence[Value],
    todo: list[Value],
    inits: Mapping[Value, Made],
    loop: Any,
    turn: Callable[[], list[Made]],
    single: Callable[[int], list[Made]] | None,
) -> dict[Value, Made]:
    """Set what each of *todo* is in each iteration, and return what they are after the loop.

    *turn* walks the body for all iterations at once, *single* for one of them.
    """
    after: dict[Value, Made] = {}
    todo = list(todo)
    while todo:
        for one in todo:
            walk.env[one] = _placeholder(one, inits[one])
        made = dict(zip(carried, turn(), strict=False))
        found = {}
        for one in todo:
            solution = _solved(walk, one, inits[one], made[one], todo, loop)
            if solution is not None:
                found[one] = solution
        if not found:
            break
        for one, (during, then) in found.items():
            walk.env[one], after[one] = during, then
            todo.remove(one)
    if todo:
        after.update(_one_by_one(walk, carried, todo, inits, loop, turn, single))
    return after


def _placeholder(value: Value, init: Made) -> Made:
    parts: list[Known] = []
    for place, one in enumerate(numbers_of(init)):
        hidden = tiles.hidden(_Carried(value, place), [])
        parts.append(
            Mask(hidden=hidden, shape=one.shape)
            if isinstance(one, Mask)
            else Number(hidden=hidden, shape=one.shape)
        )
    return with_numbers(init, parts)


def _steered(value: Known, todo: Sequence[Value]) -> bool:
    return any(_carried_in(one.source, todo) for one in value.hidden)


def _carried_in(source: Source, todo: Sequence[Value]) -> bool:
    keys = [source.key, *source.roots]
    return any(isinstance(key, _Carried) and key.value in todo for key in keys)


def _solved(  # noqa: PLR0913, PLR0917
    walk: Any, value: Value, init: Made, made: Made, todo: Sequence[Value], loop: Any
) -> tuple[Made, Made] | None:
    if type(init) is not type(made) and not (
        isinstance(init, Number | Mask) and isinstance(made, Number | Mask)
    ):
        return None
    if isinstance(init, Pointer) and isinstance(made, Pointer) and init.tensor != made.tensor:
        return None
    pairs = []
    for place, (start, end) in enumerate(zip(numbers_of(init), numbers_of(made), strict=True)):
        pair = _part(walk, _Carried(value, place), start, end, todo, loop)
        if pair is None:
            return None
        pairs.append(pair)
    return (
        with_numbers(init, [one for one, _ in pairs]),
        with_numbers(init, [one for _, one in pairs]),
    )


def _part(  # noqa: PLR0913, PLR0917
    walk: Any, key: _Carried, start: Known, end: Known, todo: Sequence[Value], loop: Any
) -> tuple[Known, Known] | None:
    mine = [one for one in end.hidden if one.source.key == key]
    others = tuple(one for one in end.hidden if one.source.key != key)
    if any(_carried_in(one.source, todo) for one in others):
        return None
    if not mine:
        return _replaced(walk, start, end, loop)
    if isinstance(end, Mask) or isinstance(start, Mask):
        same = isinstance(end, Mask) and not end.outer and not end.tiles and not others
        return (start, start) if same else None
    if [one.scale for one in mine] != [1] or mine[0].dims:
        return None
    return _summed(walk, start, replace(end, hidden=others), loop)


def _summed(walk: Any, start: Number, step: Number, loop: Any) -> tuple[Known, Known] | None:
    """Return what grows by *step* in each iteration."""
    shape = start.shape
    turns = tiles.of_outer(walk.axis_array(loop.axis, loop.size))
    arrays = [one.array for one in step.outer] + [
        one.index for one in step.tiles if one.index is not None
    ]
    if step.hidden:
        hidden = tiles.hidden((start, step, "sum"), [], [step], [loop.axis])
        unknown = Number(hidden=hidden, shape=shape)
        return tiles.add(start, unknown, shape), tiles.add(start, unknown, shape)
    if all(one.shape[loop.axis] == 1 for one in arrays):
        during = tiles.multiplied(step, turns, shape, walk.dimensions)
        whole = tiles.multiplied(step, loop.trips, shape, walk.dimensions)
        return tiles.add(start, during, shape), tiles.add(start, whole, shape)
    if step.tiles:
        return None
    steps = tiles.total(step, walk.dimensions)
    if steps.shape[loop.axis] == 1:
        steps = np.repeat(steps, loop.size, loop.axis)
    turn = walk.axis_array(loop.axis, loop.size)
    trips = tiles.total(loop.trips, walk.dimensions)
    tiles.fits(steps, trips)
    steps = np.where(turn < trips, steps, 0)
    sums = np.cumsum(steps, axis=loop.axis)
    last = sums.take([loop.size - 1], axis=loop.axis)
    return (
        tiles.add(start, tiles.of_outer(sums - steps), shape),
        tiles.add(start, tiles.of_outer(last), shape),
    )


def _replaced(walk: Any, start: Known, end: Known, loop: Any) -> tuple[Known, Known] | None:
    """Return what is *end* of the iteration before, and *start* in the first."""
    trips = tiles.total(loop.trips, walk.dimensions)
    turns = walk.axis_array(loop.axis, loop.size)
    before = _taken(end, loop.axis, np.maximum(turns - 1, 0), "before")
    last = _taken(end, loop.axis, np.clip(trips - 1, 0, loop.size - 1), "last")
    key = (start, end)
    first = tiles.mask_outer(turns == 0)
    never = tiles.mask_outer(trips <= 0)
    choose = walk.evaluator.chosen
    return choose(first, start, before, (key, 0)), choose(never, start, last, (key, 1))


def taken(value: Made, axis: int, place: Any) -> Made:
    """Return what a value is in iteration *place* of a loop, an array over the outer axes."""
    return with_numbers(value, [_taken(one, axis, place, "then") for one in numbers_of(value)])


def _taken(value: Known, axis: int, place: Any, when: str) -> Known:
    def take(array: Any) -> Any:
        if array is None or array.shape[axis] == 1:
            return array
        shape = list(
            np.broadcast_shapes(array[(slice(None),) * axis + (slice(1),)].shape, place.shape)
        )
        shape[axis] = place.shape[axis]
        if int(np.prod(shape)) > tiles.MOST_CELLS:
            raise TooLargeError
        whole = list(shape)
        whole[axis] = array.shape[axis]
        index = np.clip(np.broadcast_to(place, shape), 0, array.shape[axis] - 1)
        return np.take_along_axis(np.broadcast_to(array, whole), index, axis)

    hidden = tuple(
        replace(one, source=Source((when, one.source.key), one.source.roots))
        if axis in one.axes
        else one
        for one in value.hidden
    )
    if isinstance(value, Mask):
        return replace(
            value,
            outer=tuple(map(take, value.outer)),
            tiles=tuple((take(index), table) for index, table in value.tiles),
            hidden=hidden,
        )
    return replace(
        value,
        outer=tuple(replace(one, array=take(one.array)) for one in value.outer),
        tiles=tuple(replace(one, index=take(one.index)) for one in value.tiles),
        hidden=hidden,
    )


def _one_by_one(  # noqa: PLR0913, PLR0917
    walk: Any,
    carried: Sequence[Value],
    todo: Sequence[Value],
    inits: Mapping[Value, Made],
    loop: Any,
    turn: Callable[[], list[Made]],
    single: Callable[[int], list[Made]] | None,
) -> dict[Value, Made]:
    """Follow what a loop carries iteration by iteration; unknown where that takes too long."""
    del turn
    scalar = all(
        isinstance(inits[one], Number | Mask) and not inits[one].tiles and not inits[one].hidden  # type: ignore[union-attr]
        for one in todo
    )
    found = None
    if scalar and single is not None and loop.size <= MOST_TURNS:
        found = _followed(walk, carried, todo, inits, loop, single)
    if found is not None:
        return found
    after: dict[Value, Made] = {}
    for one in todo:
        roots = [tiles.Root("what a loop carries", None)]
        walk.env[one] = walk.blurred(one, roots, [loop.axis], inits[one])
        after[one] = walk.env[one]
    return after


def _followed(  # noqa: PLR0913, PLR0917
    walk: Any,
    carried: Sequence[Value],
    todo: Sequence[Value],
    inits: Mapping[Value, Made],
    loop: Any,
    single: Callable[[int], list[Made]],
) -> dict[Value, Made] | None:
    solved = {one: walk.env[one] for one in carried if one in walk.needed and one not in todo}
    state: dict[Value, Any] = {one: inits[one] for one in todo}
    history: dict[Value, list[Any]] = {one: [] for one in todo}
    saved, walk.sizes[loop.axis] = walk.sizes[loop.axis], 1
    for place in range(loop.size):
        at = np.full((1,) * walk.dimensions, place)
        for one, value in solved.items():
            walk.env[one] = taken(value, loop.axis, at)
        for one in todo:
            known = tiles.as_number(state[one], (), walk.dimensions)
            history[one].append(tiles.total(known, walk.dimensions))
            walk.env[one] = state[one]
        made: dict[Value, Any] = dict(zip(carried, single(place), strict=False))
        going = tiles.compared("sgt", loop.trips, tiles.number(place), (), walk.dimensions)
        for one in todo:
            if not isinstance(made[one], Number | Mask) or made[one].tiles or made[one].hidden:
                walk.sizes[loop.axis] = saved
                return None
            state[one] = walk.evaluator.chosen(going, made[one], state[one], (one, place))
    walk.sizes[loop.axis] = saved
    for one, value in solved.items():
        walk.env[one] = value
    for one in todo:
        shape = np.broadcast_shapes(*(each.shape for each in history[one]))
        if int(np.prod(shape)) * loop.size > tiles.MOST_CELLS:
            raise TooLargeError
        stacked = np.concatenate([np.broadcast_to(x, shape) for x in history[one]], loop.axis)
        whole = tiles.of_outer(stacked)
        walk.env[one] = (
            tiles.as_mask(whole, (), walk.dimensions) if isinstance(inits[one], Mask) else whole
        )
    return dict(state)
