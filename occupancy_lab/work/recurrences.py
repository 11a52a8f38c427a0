"""What a loop carries from iteration to iteration, found for all iterations at once.

What grows in each iteration by something that it does not itself steer is a sum; what an iteration
makes anew is the last one's; anything else is followed iteration by iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work import tiles, tilewise
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


@dataclass(frozen=True, slots=True)
class Turns:
    """A loop: what it carries, and how to walk it."""

    carried: Sequence[Value]
    inits: Mapping[Value, Made]
    axis: int
    size: int
    trips: Number
    turn: Callable[[], list[Made]]
    """Walks the body for all iterations at once, and returns what it hands to the next."""
    single: Callable[[int], tuple[list[Made], Mask]]
    """Walks one iteration, and returns that and who does it."""


def solve(walk: Any, turns: Turns) -> tuple[dict[Value, Made], list[Value]]:
    """Set what a loop carries in each iteration, and return what that is after the loop.

    The second part is what could not be found.
    """
    after: dict[Value, Made] = {}
    todo = [one for one in turns.carried if one in walk.needed]
    while todo:
        for one in todo:
            walk.env[one] = _placeholder(one, turns.inits[one])
        made = dict(zip(turns.carried, turns.turn(), strict=False))
        found = {}
        for one in todo:
            solution = _solved(walk, one, made[one], todo, turns)
            if solution is not None:
                found[one] = solution
        if not found:
            break
        for one, (during, then) in found.items():
            walk.env[one], after[one] = during, then
            todo.remove(one)
    if not todo:
        return after, []
    followed = _followed(walk, todo, turns)
    if followed is None:
        return after, todo
    return after | followed, []


def _placeholder(value: Value, init: Made) -> Made:
    parts: list[Known] = []
    for place, one in enumerate(numbers_of(init)):
        key = _Carried(value, place)
        hidden = tiles.hidden(key, [key])
        parts.append(
            Mask(hidden=hidden, shape=one.shape)
            if isinstance(one, Mask)
            else Number(hidden=hidden, shape=one.shape)
        )
    return with_numbers(init, parts)


def _solved(
    walk: Any, value: Value, made: Made, todo: Sequence[Value], turns: Turns
) -> tuple[Made, Made] | None:
    init = turns.inits[value]
    numbers = (Number, Mask)
    if type(init) is not type(made) and not (
        isinstance(init, numbers) and isinstance(made, numbers)
    ):
        return None
    if isinstance(init, Pointer) and isinstance(made, Pointer) and init.tensor != made.tensor:
        return None
    pairs = []
    for place, (start, end) in enumerate(zip(numbers_of(init), numbers_of(made), strict=True)):
        pair = _part(walk, _Carried(value, place), start, end, todo, turns)
        if pair is None:
            return None
        pairs.append(pair)
    return (
        with_numbers(init, [one for one, _ in pairs]),
        with_numbers(init, [one for _, one in pairs]),
    )


def _part(  # noqa: PLR0913, PLR0917
    walk: Any, key: _Carried, start: Known, end: Known, todo: Sequence[Value], turns: Turns
) -> tuple[Known, Known] | None:
    mine = [one for one in end.hidden if one.source.key == key]
    others = tuple(one for one in end.hidden if one.source.key != key)
    keys = [key for one in others for key in (one.source.key, *one.source.roots)]
    if any(isinstance(key, _Carried) and key.value in todo for key in keys):
        return None
    if not mine:
        return _replaced(walk, start, end, turns)
    if isinstance(end, Mask) or isinstance(start, Mask):
        same = isinstance(end, Mask) and not end.outer and not end.tiles and not others
        return (start, start) if same else None
    if [one.scale for one in mine] != [1] or mine[0].dims:
        return None
    return _summed(walk, start, replace(end, hidden=others), turns)


def _summed(walk: Any, start: Number, step: Number, turns: Turns) -> tuple[Known, Known] | None:
    shape = start.shape
    index = tiles.of_outer(walk.axis_array(turns.axis, turns.size))
    arrays = [one.array for one in step.outer] + [
        one.index for one in step.tiles if one.index is not None
    ]
    if step.hidden:
        hidden = tiles.hidden((start, step, "sum"), [], [step], [turns.axis])
        unknown = Number(hidden=hidden, shape=shape)
        return tiles.add(start, unknown, shape), tiles.add(start, unknown, shape)
    if all(one.shape[turns.axis] == 1 for one in arrays):
        during = tilewise.multiplied(step, index, shape, walk.dimensions)
        whole = tilewise.multiplied(step, turns.trips, shape, walk.dimensions)
        return tiles.add(start, during, shape), tiles.add(start, whole, shape)
    if step.tiles:
        return None
    steps = tiles.total(step, walk.dimensions)
    if steps.shape[turns.axis] == 1:
        steps = np.repeat(steps, turns.size, turns.axis)
    turn = walk.axis_array(turns.axis, turns.size)
    trips = tiles.total(turns.trips, walk.dimensions)
    tiles.fits(steps, trips)
    steps = np.where(turn < trips, steps, 0)
    sums = np.cumsum(steps, axis=turns.axis)
    last = sums.take([turns.size - 1], axis=turns.axis)
    return (
        tiles.add(start, tiles.of_outer(sums - steps), shape),
        tiles.add(start, tiles.of_outer(last), shape),
    )


def _replaced(walk: Any, start: Known, end: Known, turns: Turns) -> tuple[Known, Known] | None:
    """Return what is *end* of the iteration before, and *start* in the first."""
    trips = tiles.total(turns.trips, walk.dimensions)
    index = walk.axis_array(turns.axis, turns.size)
    before = _taken(end, turns.axis, np.maximum(index - 1, 0), "before")
    last = _taken(end, turns.axis, np.clip(trips - 1, 0, turns.size - 1), "last")
    key = (start, end)
    first = tiles.mask_outer(index == 0)
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


def _followed(walk: Any, todo: Sequence[Value], turns: Turns) -> dict[Value, Made] | None:
    """Follow what a loop carries iteration by iteration; None where that takes too long.

    Tiles are not followed, nor what becomes unknown on the way.
    """
    state: dict[Value, Any] = {one: turns.inits[one] for one in todo}
    solved = {one: walk.env[one] for one in turns.carried if one in walk.needed and one not in todo}
    history: dict[Value, list[Any]] = {one: [] for one in todo}
    for place in range(turns.size):
        if place == MOST_TURNS or not all(map(_is_scalar, state.values())):
            return None
        at = np.full((1,) * walk.dimensions, place)
        walk.env |= {one: taken(value, turns.axis, at) for one, value in solved.items()}
        for one in todo:
            known = tilewise.as_number(state[one], (), walk.dimensions)
            history[one].append(tiles.total(known, walk.dimensions))
            walk.env[one] = state[one]
        walk.follows_turns = True
        handed, going = turns.single(place)
        walk.follows_turns = False
        if going.hidden:
            return None
        made: dict[Value, Any] = dict(zip(turns.carried, handed, strict=False))
        for one in todo:
            state[one] = walk.evaluator.chosen(going, made[one], state[one], (one, place))
    walk.env |= solved
    for one in todo:
        shape = np.broadcast_shapes(*(each.shape for each in history[one]))
        if int(np.prod(shape)) * turns.size > tiles.MOST_CELLS:
            raise TooLargeError
        whole = tiles.of_outer(
            np.concatenate([np.broadcast_to(x, shape) for x in history[one]], turns.axis)
        )
        is_mask = isinstance(turns.inits[one], Mask)
        walk.env[one] = tilewise.as_mask(whole, (), walk.dimensions) if is_mask else whole
    return dict(state)


def _is_scalar(value: Made) -> bool:
    return isinstance(value, Number | Mask) and not value.tiles and not value.hidden
