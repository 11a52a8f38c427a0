"""How often loops run, for all iterations of all programs at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from occupancy_lab.assumed import trips_at
from occupancy_lab.work import tiles, tilewise
from occupancy_lab.work.accesses import Reach, count, scaled
from occupancy_lab.work.carried import Turns, blurred, carry, taken
from occupancy_lab.work.counts import NO_WAIT, TRIPS_OF, VALUES_OF, Amount, Held, Loop, Unknown
from occupancy_lab.work.evaluate import Made, of_type
from occupancy_lab.work.module import Operation
from occupancy_lab.work.tickets import only_waits
from occupancy_lab.work.tiles import GRID_AXES, Mask, Number, TooLargeError

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

    def given(self) -> list[Made]:
        """Return what a while loop is given at its beginning."""
        return [self.walk.value(one) for one in self.operation.operands]

    def region(self, number: int, given: Iterable[Made], reach: Reach) -> list[Made]:
        """Walk a region of the loop with the values that it is *given*."""
        region = self.operation.regions[number]
        self.walk.env.update(zip(region.blocks[0].arguments, given, strict=True))
        return self.walk.region(region, reach, self.depth + 1)  # type: ignore[no-any-return]


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
    inner = _within(at, size, trips)

    def turn(place: int | None) -> list[Made]:
        every = tiles.of_outer(tiles.along(at.axis, size))
        index, executing = (every, inner) if place is None else (tiles.number(place), reach)
        walk.env[variable] = tiles.add(low, _offset(at, index, step))
        return walk.region(body, executing, depth + 1)  # type: ignore[no-any-return]

    def going(place: int) -> Mask:
        return tilewise.compared("sgt", trips, tiles.number(place))

    after = carry(walk, Turns(carried, inits, at.axis, size, trips, turn, going))
    if walk.recording:
        turn(None)
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
    first = operation.regions[0]
    is_for = len(operation.regions) == 1
    inner = replace(reach, factor=_times(reach.factor, allowed))
    asked = allowed if is_for else allowed + Amount(1, 1)
    asking = replace(reach, factor=_times(reach.factor, asked))
    variables, carried = first.blocks[0].arguments[:is_for], first.blocks[0].arguments[is_for:]
    inits = dict(zip(carried, map(walk.value, operation.operands[3 * is_for :]), strict=True))

    last: list[Made] = []

    def turn(_: int | None = None) -> list[Made]:
        handed = walk.region(first, asking, depth + 1)
        if is_for:
            return handed  # type: ignore[no-any-return]
        last[:] = handed[1:]
        return at.region(1, last, inner)

    for one in variables:
        walk.env[one] = of_type(tiles.hidden(one, roots, [], [at.axis]), one.type)
    needed = [one for one in carried if one in walk.needed]
    turns = Turns(carried, inits, at.axis, 1, tiles.number(1), turn)
    walk.env |= (values := blurred(walk, needed, turns, roots))
    turn()
    after = [values.get(one, Number()) for one in carried] if is_for else last
    walk.env.update(zip(operation.results, after, strict=True))


def _times(one: Amount, other: Amount) -> Amount:
    high = None if one.high is None or other.high is None else one.high * other.high
    return Amount(one.low * other.low, high)


@dataclass(slots=True)
class _While:
    """A while loop, walked as if it ran *size* times: its condition, and the values passed on."""

    at: _At
    size: int
    going: Mask = field(default_factory=Mask)
    handed: list[Made] = field(default_factory=list)

    def turn(self, place: int | None = None) -> list[Made]:
        """Walk the condition and the body for all iterations, or for the one at *place*."""
        at = self.at
        sizes = list(at.reach.sizes)
        sizes[at.axis] = self.size if place is None else 1
        inner = replace(at.reach, sizes=tuple(sizes))
        first, *self.handed = at.walk.region(at.operation.regions[0], inner, at.depth + 1)
        self.going = at.walk.mask(first)
        return at.region(1, self.handed, inner)

    def goes(self, _: int) -> Mask:
        """Return who executes the iteration that was walked last."""
        return tilewise.both(Mask(self.at.reach.where), self.going)

    def solve(self) -> None:
        """Find the carried values and the condition."""
        walk, operation = self.at.walk, self.at.operation
        carried = operation.regions[0].blocks[0].arguments
        inits = dict(zip(carried, self.at.given(), strict=True))
        trips = tiles.number(self.size)
        carry(walk, Turns(carried, inits, self.at.axis, self.size, trips, self.turn, self.goes))
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
    with at.walk.silently():
        first, *_ = at.region(0, at.given(), at.reach)
    going = at.walk.mask(first)
    goes, where = tilewise.outer_of(going), at.reach.together()
    tiles.fits(goes, where)
    return not going.hidden and bool((goes | ~where).all())


def _known_while(under_way: _While, trips: Number, allowed: Amount | None = None) -> None:
    """Walk a while loop that was solved for more iterations than *trips*."""
    at, size = under_way.at, under_way.size
    walk, operation = at.walk, at.operation
    _record(at, trips, None, allowed)
    times = tiles.total(trips)
    results = [taken(one, at.axis, times) for one in under_way.handed]
    if walk.recording:
        once_more = _within(at, size, tiles.add(trips, tiles.number(1)))
        _, *handed = walk.region(operation.regions[0], once_more, at.depth + 1)
        inner = _within(at, size, trips)
        if count(inner.where, inner.sizes):
            at.region(1, handed, inner)
    for result, made in zip(operation.results, results, strict=True):
        if result in walk.needed:
            walk.env[result] = made


def _waiting_loop(at: _At, hidden: Sequence[tiles.Hidden]) -> None:
    """Walk a loop that waits for other programs, assuming that its condition ends it at once."""
    at.walk.note(hidden, "loop", NO_WAIT)
    _record(at, tiles.number(0), None, waits=True)
    _, *handed = at.region(0, at.given(), at.reach)
    at.walk.env.update(zip(at.operation.results, handed, strict=True))


def _ends(at: _At, going: Mask) -> Number | None:
    """Return after how many iterations each program ends; None where not all do."""
    axis, goes, where = at.axis, tilewise.outer_of(going), at.reach.together()
    tiles.fits(goes, where)
    if goes.shape[axis] == 1:
        return None if (goes & where).any() else tiles.number(0)
    if not ((~goes).any(axis, keepdims=True) | ~where).all():
        return None
    return tiles.of_outer((~goes).argmax(axis, keepdims=True))
