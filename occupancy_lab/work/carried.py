"""What loops carry from iteration to iteration, for all iterations of all programs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from occupancy_lab.work import tiles, tilewise
from occupancy_lab.work.evaluate import Made, Pointer, chosen, numbers_of, with_numbers
from occupancy_lab.work.module import Value
from occupancy_lab.work.tiles import AXES, Known, Mask, Number, TooLargeError


@dataclass(frozen=True, slots=True)
class _Carried:
    """The key of a carried value at the beginning of an iteration."""

    value: Value
    part: int


MOST_TURNS = 512
"""The most iterations that are followed one by one."""


@dataclass(frozen=True, slots=True)
class Turns:
    """A loop: what it carries, and how to walk it."""

    carried: Sequence[Value]
    inits: Mapping[Value, Made]
    axis: int
    size: int
    trips: Number
    turn: Callable[[int | None], list[Made]]
    """Walks the body for one iteration, or for all at once (None), and returns what it passes on to
    the next one."""
    going: Callable[[int], Mask] | None = None
    """Returns who executes an iteration, which was just walked; None where iterations cannot be
    walked one by one."""


def blurred(
    walk: Any, lost: Sequence[Value], turns: Turns, roots: Iterable[Any]
) -> dict[Value, Made]:
    """Return carried values of which only the initial value is known.

    All elements of a tile differ from it by the same amount where an iteration changes all of them
    by the same amount.
    """
    walk.env |= {one: _placeholder(one, turns.inits[one]) for one in lost}
    with walk.silently():
        made = dict(zip(turns.carried, turns.turn(None), strict=False))
    found: dict[Value, Made] = {}
    for one in lost:
        init = turns.inits[one]
        parts: list[Known] = []
        ends = numbers_of(made[one])
        for place, start in enumerate(numbers_of(init)):
            end = ends[place] if type(init) is type(made[one]) else Number()
            (unknown,) = tiles.hidden((one, place), roots, [], [turns.axis])
            unknown = replace(unknown, dims=_changed(_Carried(one, place), start, end, lost))
            if isinstance(start, Mask):
                parts.append(Mask(hidden=(unknown,), shape=start.shape))
            else:
                start = replace(start, tiles=()) if unknown.dims else start  # noqa: PLW2901
                parts.append(tiles.add(start, Number(hidden=(unknown,))))
        found[one] = with_numbers(init, parts)
    return found


def _changed(key: _Carried, start: Known, end: Known, lost: Sequence[Value]) -> frozenset[int]:
    """Return the dimensions of a tile along which the change in an iteration differs."""
    others = tuple(one for one in end.hidden if one.key != key)
    keys = [each for one in others for each in (one.key, *one.roots)]
    if [one.scale for one in end.hidden if one not in others] != [1] or any(
        isinstance(one, _Carried) and one.value in lost for one in keys
    ):
        return frozenset(place for place, size in enumerate(start.shape) if size > 1)
    (added,) = tiles.hidden(key, (), [replace(end, hidden=others)])
    return added.dims


def carry(walk: Any, turns: Turns) -> dict[Value, Made]:
    """Find what a loop carries in each iteration, and return the values after the loop."""
    if not any(one in walk.needed for one in turns.carried):
        return {}
    with walk.silently():
        after, lost = solve(walk, turns)
    if lost:
        roots = [tiles.Root("what a loop carries from iteration to iteration")]
        unknown = blurred(walk, lost, turns, roots)
        walk.env |= unknown
        after |= unknown
    return after


def solve(walk: Any, turns: Turns) -> tuple[dict[Value, Made], list[Value]]:
    """Set the carried values of each iteration.

    Returns their values after the loop, and the values that could not be found.
    """
    after: dict[Value, Made] = {}
    todo = [one for one in turns.carried if one in walk.needed]
    while todo:
        for one in todo:
            walk.env[one] = _placeholder(one, turns.inits[one])
        made = dict(zip(turns.carried, turns.turn(None), strict=False))
        found = {}
        for one in todo:
            solution = _solved(one, made[one], todo, turns)
            if solution is not None:
                found[one] = solution
        if not found:
            break
        for one, (during, then) in found.items():
            walk.env[one], after[one] = during, then
            todo.remove(one)
    if not todo:
        return after, []
    solved = {one: walk.env[one] for one in after}
    followed = _followed(walk, todo, turns, solved)
    walk.env |= solved
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
    value: Value, made: Made, todo: Sequence[Value], turns: Turns
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
        pair = _part(_Carried(value, place), start, end, todo, turns)
        if pair is None:
            return None
        pairs.append(pair)
    return (
        with_numbers(init, [one for one, _ in pairs]),
        with_numbers(init, [one for _, one in pairs]),
    )


def _part(
    key: _Carried, start: Known, end: Known, todo: Sequence[Value], turns: Turns
) -> tuple[Known, Known] | None:
    mine = [one for one in end.hidden if one.key == key]
    others = tuple(one for one in end.hidden if one.key != key)
    keys = [key for one in others for key in (one.key, *one.roots)]
    if any(isinstance(key, _Carried) and key.value in todo for key in keys):
        return None
    if not mine:
        return _replaced(start, end, turns)
    if isinstance(end, Mask) or isinstance(start, Mask):
        same = isinstance(end, Mask) and not end.outer and not end.tiles and not others
        return (start, start) if same else None
    if [one.scale for one in mine] != [1] or mine[0].dims:
        return None
    return _summed(start, replace(end, hidden=others), turns)


def _summed(start: Number, step: Number, turns: Turns) -> tuple[Known, Known] | None:
    index = tiles.along(turns.axis, turns.size)
    arrays = [one.array for one in step.outer] + [
        one.index for one in step.tiles if one.index is not None
    ]
    if step.hidden:
        hidden = tiles.hidden((start, step, "sum"), [], [step], [turns.axis])
        unknown = tiles.add(start, Number(hidden=hidden))
        return unknown, unknown
    if all(one.shape[turns.axis] == 1 for one in arrays):
        during = tilewise.multiplied(step, tiles.of_outer(index))
        whole = tilewise.multiplied(step, turns.trips)
        return tiles.add(start, during), tiles.add(start, whole)
    if step.tiles:
        return None
    steps, trips = tiles.total(step), tiles.total(turns.trips)
    tiles.fits(steps, trips, index)
    steps = np.where(index < trips, steps, 0)
    sums = np.cumsum(steps, axis=turns.axis)
    last = sums.take([turns.size - 1], axis=turns.axis)
    return tiles.add(start, tiles.of_outer(sums - steps)), tiles.add(start, tiles.of_outer(last))


def _replaced(start: Known, end: Known, turns: Turns) -> tuple[Known, Known] | None:
    """Return *end* of the previous iteration, and *start* in the first one."""
    trips, index = tiles.total(turns.trips), tiles.along(turns.axis, turns.size)
    before = _taken(end, turns.axis, np.maximum(index - 1, 0), "before")
    last = _taken(end, turns.axis, np.clip(trips - 1, 0, turns.size - 1), "last")
    key = (start, end)
    first = tiles.mask_outer(index == 0)
    never = tiles.mask_outer(trips <= 0)
    return (
        tilewise.chosen(first, start, before, (key, 0)),
        tilewise.chosen(never, start, last, (key, 1)),
    )


def taken(value: Made, axis: int, place: Any) -> Made:
    """Return a value in iteration *place* of a loop, an array over the outer axes."""
    return with_numbers(value, [_taken(one, axis, place, "then") for one in numbers_of(value)])


def _taken(value: Known, axis: int, place: Any, when: str) -> Known:
    def take(array: Any) -> Any:
        if array.shape[axis] == 1:
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
        replace(one, key=(when, one.key)) if axis in one.axes else one for one in value.hidden
    )
    return tiles.with_outer(replace(value, hidden=hidden), take)  # type: ignore[no-any-return]


def _followed(
    walk: Any, todo: Sequence[Value], turns: Turns, solved: Mapping[Value, Made]
) -> dict[Value, Made] | None:
    """Follow carried values iteration by iteration; None where that takes too long.

    This is not done for tiles, nor for values that become unknown on the way.
    """
    state: dict[Value, Any] = {one: turns.inits[one] for one in todo}
    history: dict[Value, list[Any]] = {one: [] for one in todo}
    for place in range(turns.size):
        if place == MOST_TURNS or turns.going is None or not all(map(_is_scalar, state.values())):
            return None
        at = np.full((1,) * AXES, place)
        walk.env |= {one: taken(value, turns.axis, at) for one, value in solved.items()}
        for one in todo:
            history[one].append(tiles.total(tilewise.as_number(state[one])))
            walk.env[one] = state[one]
        walk.follows_turns = True
        try:
            handed, going = turns.turn(place), turns.going(place)
        finally:
            walk.follows_turns = False
        if going.hidden:
            return None
        made: dict[Value, Any] = dict(zip(turns.carried, handed, strict=False))
        for one in todo:
            state[one] = chosen(going, made[one], state[one], (one, place))
    for one in todo:
        shape = np.broadcast_shapes(*(each.shape for each in history[one]))
        if int(np.prod(shape)) * turns.size > tiles.MOST_CELLS:
            raise TooLargeError
        whole = tiles.of_outer(
            np.concatenate([np.broadcast_to(x, shape) for x in history[one]], turns.axis)
        )
        is_mask = isinstance(turns.inits[one], Mask)
        walk.env[one] = tilewise.as_mask(whole) if is_mask else whole
    return dict(state)


def _is_scalar(value: Made) -> bool:
    return isinstance(value, Number | Mask) and not value.tiles and not value.hidden
