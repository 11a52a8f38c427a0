"""How often loops run and what they carry, for all iterations of all programs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from occupancy_lab.assumed import trips_at
from occupancy_lab.work import tiles, tilewise
from occupancy_lab.work.accesses import Reach, count, scaled
from occupancy_lab.work.counts import NO_WAIT, TRIPS_OF, VALUES_OF, Amount, Held, Loop, Unknown
from occupancy_lab.work.evaluate import Made, Pointer, chosen, numbers_of, of_type, with_numbers
from occupancy_lab.work.module import Operation, Value
from occupancy_lab.work.tickets import only_waits
from occupancy_lab.work.tiles import AXES, GRID_AXES, Known, Mask, Number, TooLargeError

FIRST_GUESS, LAST_GUESS = 64, 2**15
"""The first and the last guess of the iterations of a while loop."""


@dataclass(frozen=True, slots=True)
class _At:
    """A loop, and the programs and iterations that reach it."""

    walk: Any
    operation: Operation
    reach: Reach
    depth: int

    @property
    def axis(self) -> int:
        """The axis of the loop's iterations."""
        return GRID_AXES + self.depth


def for_loop(walk: Any, operation: Operation, reach: Reach, depth: int) -> None:
    """Walk a for loop."""
    at = _At(walk, operation, reach, depth)
    low, high, step = (walk.number(one) for one in operation.operands[:3])
    body = operation.regions[0]
    variable, *carried = body.blocks[0].arguments
    inits = dict(zip(carried, map(walk.value, operation.operands[3:]), strict=True))
    span = tiles.add(high, tiles.scaled(low, -1))
    grows = step.const if step.is_constant else None
    trips = _known_trips(at, span, step)
    if trips is None:
        _unknown_loop(at, [*span.hidden, *step.hidden], grows)
        return
    size = _most(trips, reach)
    if size > tiles.MOST_CELLS:
        raise TooLargeError
    if not size:
        for argument, result in zip(carried, operation.results, strict=True):
            walk.env[result] = inits[argument]
        return
    axis, inner = at.axis, _within(at, size, trips)

    def turn() -> list[Made]:
        index = tiles.of_outer(tiles.along(axis, size))
        walk.env[variable] = tiles.add(low, _offset(at, index, step))
        return walk.region(body, inner, depth + 1)  # type: ignore[no-any-return]

    def single(place: int) -> tuple[list[Made], Mask]:
        walk.env[variable] = tiles.add(low, _offset(at, tiles.number(place), step))
        going = tilewise.compared("sgt", trips, tiles.number(place))
        return walk.region(body, reach, depth + 1), going

    after = _carry(walk, Turns(carried, inits, axis, size, trips, turn, single))
    if walk.recording:
        turn()
    for argument, result in zip(carried, operation.results, strict=True):
        if argument in after:
            walk.env[result] = after[argument]


def _offset(at: _At, index: Number, step: Number) -> Number:
    """Return by how much the variable of a for loop has grown at an iteration."""
    if step.hidden:
        return Number(hidden=tiles.hidden((at.operation, "offset"), [], [index, step]))
    return tilewise.multiplied(index, step)


def _known_trips(at: _At, span: Number, step: Number) -> Number | None:
    """Return the trips of a for loop, known or assumed, and record the loop; None if unknown."""
    grows = step.const if step.is_constant else None
    if not span.hidden and not step.hidden:
        trips = tilewise.elementwise(_trips, [span, step])
        _record(at, trips, grows)
        return trips  # type: ignore[no-any-return]
    assumed = _assumed(at)
    if assumed is None:
        return None
    trips = tiles.number(assumed)
    _record(at, trips, grows, Amount(0, None), bound=_bound(span, step, assumed))
    return trips


def _assumed(at: _At) -> int | None:
    """Return the assumed trips of a loop, and record the assumption; None where there is none."""
    walk, place = at.walk, at.walk.module.place(at.operation)
    trips = walk.evaluator.assume.get(trips_at(place.line))
    if not isinstance(trips, int):
        return None
    if walk.recording and at.reach.executions().high != 0:
        words = f"{trips} {'trip' if trips == 1 else 'trips'}"
        walk.unknowns.setdefault((TRIPS_OF, place), Unknown(place, TRIPS_OF, "loop", words))
    return trips


def _bound(span: Number, step: Number, trips: int) -> Held | None:
    """Return the number that a load gives where the *span* of a for loop has so many trips.

    None where the span is not a loaded number plus a constant.
    """
    if len(span.hidden) != 1 or span.outer or span.tiles or not step.is_constant:
        return None
    (one,) = span.hidden
    made = getattr(one.key, "operation", None)
    names = [root.name for root in one.roots if root.name.startswith(VALUES_OF)]
    if made is None or made.name != "tt.load" or len(names) != 1 or abs(one.scale) != 1:
        return None
    return Held(names[0].removeprefix(VALUES_OF), (trips * step.const - span.const) * one.scale)


def _trips(span: Any, step: Any) -> Any:
    return np.where(step > 0, np.maximum(-(-span // np.maximum(step, 1)), 0), 0)


def _within(at: _At, size: int, trips: Number) -> Reach:
    reach = at.reach
    sizes = list(reach.sizes)
    sizes[at.axis] = size
    where = reach.where
    if not (trips.is_constant and trips.const == size):
        turns, each = tiles.along(at.axis, size), tiles.total(trips)
        tiles.fits(turns, each)
        where = (*where, turns < each)
    return replace(reach, where=where, sizes=tuple(sizes), loops=(*reach.loops, at.operation))


def _reached(number: Number, reach: Reach) -> Any:
    array, where = tiles.total(number), reach.together()
    tiles.fits(array, where)
    array, where = np.broadcast_arrays(array, where)
    return array[where]


def _most(trips: Number, reach: Reach) -> int:
    if trips.is_constant:
        return trips.const if count(reach.where, reach.sizes) else 0
    return int(_reached(trips, reach).max(initial=0))


def _record(
    at: _At, trips: Number, step: int | None, allowed: Amount | None = None, **others: Any
) -> None:
    walk, reach = at.walk, at.reach
    entered = count(reach.where, reach.sizes) if walk.recording else 0
    if not entered:
        return
    each = _reached(trips, reach)
    walk.loops.append(
        Loop(
            walk.module.place(at.operation),
            at.depth,
            scaled(reach.factor, entered),
            scaled(reach.factor, int(each.sum()) * (entered // len(each))),
            int(each.min()),
            int(each.max()),
            step,
            allowed,
            **others,
        )
    )


def _unknown_loop(
    at: _At,
    hidden: Sequence[tiles.Hidden],
    step: int | None = None,
    allowed: Amount = Amount(0, None),  # noqa: B008 - it cannot change
) -> None:
    walk, operation, reach, depth = at.walk, at.operation, at.reach, at.depth
    entered = reach.executions()
    if walk.recording and entered.high != 0:
        walk.note(hidden, "loop")
        place, trips = walk.module.place(operation), _times(entered, allowed)
        least = None if allowed.high is None else allowed.low
        walk.loops.append(Loop(place, depth, entered, trips, least, allowed.high, step, allowed))
    roots = frozenset[tiles.Root]().union(*(one.roots for one in hidden))
    first, *others = operation.regions
    is_for = not others
    inner = replace(reach, factor=_times(reach.factor, allowed))
    asked = allowed if is_for else allowed + Amount(1, 1)
    asking = replace(reach, factor=_times(reach.factor, asked))
    variables, carried = first.blocks[0].arguments[:is_for], first.blocks[0].arguments[is_for:]
    inits = dict(zip(carried, map(walk.value, operation.operands[3 * is_for :]), strict=True))

    last: list[Made] = []

    def turn() -> list[Made]:
        handed = walk.region(first, asking, depth + 1)
        for region in others:
            last[:] = handed[1:]
            walk.env.update(zip(region.blocks[0].arguments, last, strict=True))
            handed = walk.region(region, inner, depth + 1)
        return handed  # type: ignore[no-any-return]

    for one in variables:
        walk.env[one] = of_type(tiles.hidden(one, roots, [], [at.axis]), one.type)
    needed = [one for one in carried if one in walk.needed]
    turns = Turns(carried, inits, at.axis, 1, tiles.number(1), turn)
    walk.env |= (blurred := _blurred(walk, needed, turns, roots))
    turn()
    after = [blurred.get(one, Number()) for one in carried] if is_for else last
    walk.env.update(zip(operation.results, after, strict=True))


def _times(one: Amount, other: Amount) -> Amount:
    high = None if one.high is None or other.high is None else one.high * other.high
    return Amount(one.low * other.low, high)


def _blurred(
    walk: Any, lost: Sequence[Value], turns: Turns, roots: Iterable[Any]
) -> dict[Value, Made]:
    """Return carried values of which only the initial value is known.

    All elements of a tile differ from it by the same amount where an iteration changes all of them
    by the same amount.
    """
    walk.env |= {one: _placeholder(one, turns.inits[one]) for one in lost}
    with walk.silently():
        made = dict(zip(turns.carried, turns.turn(), strict=False))
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


def _carry(walk: Any, turns: Turns) -> dict[Value, Made]:
    """Find what a loop carries in each iteration, and return the values after the loop."""
    if not any(one in walk.needed for one in turns.carried):
        return {}
    with walk.silently():
        after, lost = solve(walk, turns)
    if lost:
        roots = [tiles.Root("what a loop carries from iteration to iteration")]
        blurred = _blurred(walk, lost, turns, roots)
        walk.env |= blurred
        after |= blurred
    return after


@dataclass(slots=True)
class _While:
    """A while loop, walked as if it ran *size* times: its condition, and the values passed on."""

    at: _At
    size: int
    going: Mask = field(default_factory=Mask)
    handed: list[Made] = field(default_factory=list)

    def turn(self, along: int | None = None) -> list[Made]:
        """Walk the condition and the body for all iterations, or for *along* iterations."""
        walk, depth = self.at.walk, self.at.depth
        before, after = self.at.operation.regions
        sizes = list(self.at.reach.sizes)
        sizes[self.at.axis] = self.size if along is None else along
        inner = replace(self.at.reach, sizes=tuple(sizes))
        first, *self.handed = walk.region(before, inner, depth + 1)
        self.going = walk.mask(first)
        walk.env.update(zip(after.blocks[0].arguments, self.handed, strict=True))
        return walk.region(after, inner, depth + 1)  # type: ignore[no-any-return]

    def single(self, _: int) -> tuple[list[Made], Mask]:
        """Walk one iteration, and return its values and who executes it."""
        made = self.turn(1)
        return made, tilewise.both(Mask(self.at.reach.where), self.going)

    def solve(self) -> None:
        """Find the carried values and the condition."""
        walk, operation = self.at.walk, self.at.operation
        carried = operation.regions[0].blocks[0].arguments
        inits = dict(zip(carried, map(walk.value, operation.operands), strict=True))
        trips = tiles.number(self.size)
        _carry(walk, Turns(carried, inits, self.at.axis, self.size, trips, self.turn, self.single))
        with walk.silently():
            self.turn()


def while_loop(walk: Any, operation: Operation, reach: Reach, depth: int) -> None:
    """Walk a while loop, with ever more iterations until every program has ended."""
    at = _At(walk, operation, reach, depth)
    under_way, trips = _guessed(at, FIRST_GUESS)
    hidden = under_way.going.hidden
    size = under_way.size * 8
    while trips is None and size <= LAST_GUESS and (not hidden or _has_limit(at)):
        try:
            under_way, trips = _guessed(at, size)
        except TooLargeError:
            if not hidden:
                raise
            break
        size *= 8
    if hidden:
        _open_while(at, hidden, trips)
    elif trips is None:
        root = tiles.Root("when a while loop ends", walk.module.place(operation))
        _open_while(at, tiles.hidden(operation, [root]), None)
    else:
        _known_while(under_way, trips)


def _guessed(at: _At, size: int) -> tuple[_While, Number | None]:
    """Return a while loop solved for *size* iterations, and after how many each program ends.

    The latter is an upper limit where the condition is not known, and None where not all end.
    """
    under_way = _While(at, size)
    under_way.solve()
    return under_way, _ends(at, under_way.going)


def _has_limit(at: _At) -> bool:
    """Return whether a part of the condition is known that must hold for the loop to go on."""
    todo = [at.operation.regions[0].blocks[0].operations[-1].operands[0]]
    while todo:
        made = (value := todo.pop()).operation
        if made is not None and made.name == "arith.andi":
            todo += made.operands
        elif not at.walk.mask(at.walk.value(value)).hidden:
            return True
    return False


def _open_while(at: _At, hidden: Sequence[tiles.Hidden], limit: Number | None) -> None:
    """Walk a while loop whose condition is not known; no program makes more trips than *limit*."""
    if only_waits(at.operation):
        _waiting_loop(at, hidden)
        return
    assumed = _assumed(at)
    most = None if limit is None else _most(limit, at.reach)
    allowed = Amount(int(most != 0 and _begins(at)), most)
    if assumed is None:
        _unknown_loop(at, hidden, allowed=allowed)
        return
    under_way = _While(at, assumed + 1)
    under_way.solve()
    _known_while(under_way, tiles.number(assumed), allowed)


def _begins(at: _At) -> bool:
    """Return whether the condition of a while loop is known to hold in front of its first trip."""
    walk, before = at.walk, at.operation.regions[0]
    inits = map(walk.value, at.operation.operands)
    walk.env.update(zip(before.blocks[0].arguments, inits, strict=True))
    with walk.silently():
        first, *_ = walk.region(before, at.reach, at.depth + 1)
    going = walk.mask(first)
    goes, where = tilewise.outer_of(going), at.reach.together()
    tiles.fits(goes, where)
    return not going.hidden and bool((goes | ~where).all())


def _known_while(under_way: _While, trips: Number, allowed: Amount | None = None) -> None:
    """Walk a while loop that was solved for more iterations than *trips*."""
    at, size = under_way.at, under_way.size
    walk, operation, depth = at.walk, at.operation, at.depth
    _record(at, trips, None, allowed)
    times = tiles.total(trips)
    results = [taken(one, at.axis, times) for one in under_way.handed]
    if walk.recording:
        before, after = operation.regions
        once_more = tiles.add(trips, tiles.number(1))
        _, *handed = walk.region(before, _within(at, size, once_more), depth + 1)
        walk.env.update(zip(after.blocks[0].arguments, handed, strict=True))
        inner = _within(at, size, trips)
        if count(inner.where, inner.sizes):
            walk.region(after, inner, depth + 1)
    for result, made in zip(operation.results, results, strict=True):
        if result in walk.needed:
            walk.env[result] = made


def _waiting_loop(at: _At, hidden: Sequence[tiles.Hidden]) -> None:
    """Walk a loop that waits for other programs, assuming that its condition ends it at once."""
    walk, operation = at.walk, at.operation
    walk.note(hidden, "loop", NO_WAIT)
    _record(at, tiles.number(0), None, waits=True)
    before = operation.regions[0]
    walk.env.update(
        zip(before.blocks[0].arguments, map(walk.value, operation.operands), strict=True)
    )
    _, *handed = walk.region(before, at.reach, at.depth + 1)
    walk.env.update(zip(operation.results, handed, strict=True))


def _ends(at: _At, going: Mask) -> Number | None:
    """Return after how many iterations each program ends; None where not all do."""
    axis, goes, where = at.axis, tilewise.outer_of(going), at.reach.together()
    tiles.fits(goes, where)
    if goes.shape[axis] == 1:
        return None if (goes & where).any() else tiles.number(0)
    if not ((~goes).any(axis, keepdims=True) | ~where).all():
        return None
    return tiles.of_outer((~goes).argmax(axis, keepdims=True))


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
    turn: Callable[[], list[Made]]
    """Walks the body for all iterations at once, and returns what it passes to the next one."""
    single: Callable[[int], tuple[list[Made], Mask]] | None = None
    """Walks one iteration, and returns its values and who executes it; None where iterations cannot
    be walked one by one."""


def solve(walk: Any, turns: Turns) -> tuple[dict[Value, Made], list[Value]]:
    """Set the carried values of each iteration.

    Returns their values after the loop, and the values that could not be found.
    """
    after: dict[Value, Made] = {}
    todo = [one for one in turns.carried if one in walk.needed]
    while todo:
        for one in todo:
            walk.env[one] = _placeholder(one, turns.inits[one])
        made = dict(zip(turns.carried, turns.turn(), strict=False))
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
        if place == MOST_TURNS or not turns.single or not all(map(_is_scalar, state.values())):
            return None
        at = np.full((1,) * AXES, place)
        walk.env |= {one: taken(value, turns.axis, at) for one, value in solved.items()}
        for one in todo:
            history[one].append(tiles.total(tilewise.as_number(state[one])))
            walk.env[one] = state[one]
        walk.follows_turns = True
        try:
            handed, going = turns.single(place)
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
