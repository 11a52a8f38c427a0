"""Whole numbers and masks of all programs and iterations at once, kept as sums and products.

An index such as `pid * 128 + tl.arange(0, 128)` depends on the program and on the element, and a
launch has millions of both. It is kept as a sum: of arrays over programs and iterations (outer
axes), and of tables over the elements of a tile. Where a number depends on both in another way
(a remainder, a mask), programs and iterations are sorted into classes that have equal tiles: one
array has the class of each, and a table a tile for each class.

Outer axes are the three dimensions of the grid and then a loop each, by depth; an array has size 1
along those on which it does not depend.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable  # noqa: TC003 - aliases read it
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Array = Any
MOST_CELLS = 2**21
"""Elements of one array: of more, fewer programs are walked."""


class TooLargeError(Exception):
    """An array would have more cells than there is time for."""


@dataclass(frozen=True, slots=True)
class Root:
    """Where an unknown value comes from."""

    name: str
    place: Any = None


@dataclass(frozen=True, slots=True)
class Source:
    """An unknown value: what makes it, and the values that nobody knows from which it is made."""

    key: object
    roots: frozenset[Any]
    """Each a Root, or while a loop is looked at, what it carries."""


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """A part of a sum that depends on programs and iterations alone."""

    array: Any
    low: int
    high: int


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A part that depends on elements: row `index[program, iteration]` of a table, or its only one.

    The table has a row for each class, and then the dimensions of the tile.
    """

    index: Any
    table: Any
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Hidden:
    """A part of a sum that is unknown: *scale* times a whole number that nobody knows."""

    source: Source
    scale: int
    dims: frozenset[int]
    """The dimensions of the tile along which it may differ."""
    axes: frozenset[int]
    """The outer axes along which it may differ."""


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number, or a tile of them: the sum of its parts."""

    const: int = 0
    outer: tuple[Outer, ...] = ()
    tiles: tuple[Tile, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def low(self) -> int:
        """No known part of it is less."""
        return self.const + sum(one.low for one in self.outer) + sum(one.low for one in self.tiles)

    @property
    def high(self) -> int:
        """No known part of it is more."""
        return (
            self.const + sum(one.high for one in self.outer) + sum(one.high for one in self.tiles)
        )

    @property
    def is_constant(self) -> bool:
        """Whether it is one known number everywhere."""
        return not (self.outer or self.tiles or self.hidden)

    @property
    def is_scalar(self) -> bool:
        """Whether it is known and equal for all elements of a tile."""
        return not (self.tiles or self.hidden)


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """Truth values: all of its factors, and what is unknown, have to be true.

    `hidden` is what may make it false besides; where that is the case, the factors alone say where
    it may be true.
    """

    outer: tuple[Any, ...] = ()
    tiles: tuple[tuple[Any, Any], ...] = ()
    """An index and a table each, as of a Tile."""
    hidden: tuple[Hidden, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def is_scalar(self) -> bool:
        """Whether it is known and equal for all elements of a tile."""
        return not (self.tiles or self.hidden)

    @property
    def constant(self) -> bool | None:
        """What it is where it is the same everywhere."""
        if self.tiles or self.hidden:
            return None
        if not self.outer:
            return True
        if len(self.outer) == 1 and self.outer[0].size == 1:
            return bool(self.outer[0].flat[0])
        return None


Known = Number | Mask


def sized(array: Any) -> Any:
    """Return *array*, or raise TooLargeError for one with too many cells."""
    if array.size > MOST_CELLS:
        raise TooLargeError
    return array


def fits(*arrays: Any) -> None:
    """Raise TooLargeError where *arrays* together have too many cells when broadcast."""
    shape = np.broadcast_shapes(*(one.shape for one in arrays))
    if math.prod(shape) > MOST_CELLS:
        raise TooLargeError


def axes_of(array: Any) -> frozenset[int]:
    """Return the axes on which *array* depends."""
    return frozenset(axis for axis, size in enumerate(array.shape) if size > 1)


def number(value: int, shape: tuple[int, ...] = ()) -> Number:
    """Return a constant."""
    return Number(int(value), shape=shape)


def of_outer(array: Any, shape: tuple[int, ...] = ()) -> Number:
    """Return the number that *array* has for each program and iteration."""
    if array.size == 1:
        return Number(int(array.flat[0]), shape=shape)
    low, high = int(array.min()), int(array.max())
    if low == high:
        return Number(low, shape=shape)
    return Number(0, (Outer(array, low, high),), shape=shape)


def of_table(table: Any, index: Any, shape: tuple[int, ...]) -> Number:
    """Return the number that row *index* of *table* is."""
    if not shape:
        flat = table.reshape(-1)
        return of_outer(flat[index] if index is not None else flat[:1])
    low, high = int(table.min()), int(table.max())
    if low == high:
        return Number(low, shape=shape)
    if table[0].size == 1:  # the same for all elements
        flat = table.reshape(-1)
        return replace(of_outer(flat[index]), shape=shape)
    return Number(0, (), (Tile(index, table, low, high),), shape=shape)


def hidden(
    key: object, roots: Iterable[Any], values: Iterable[Known] = (), axes: Iterable[int] = ()
) -> tuple[Hidden, ...]:
    """Return an unknown number that *key* makes of *values*, which may differ where they do."""
    values = list(values)
    all_roots = frozenset(roots).union(*(one.source.roots for v in values for one in v.hidden))
    dims, along = frozenset[int](), frozenset(axes)
    for value in values:
        tables = [*_tables(value)]
        dims = dims.union(*(axes_of(one[0]) for one in tables), *(h.dims for h in value.hidden))
        arrays = [part.array if isinstance(part, Outer) else part for part in value.outer]
        arrays += [one for one in _indexes(value) if one is not None]
        along = along.union(*map(axes_of, arrays), *(one.axes for one in value.hidden))
    return (Hidden(Source(key, all_roots), 1, dims, along),)


def _tables(value: Known) -> list[Any]:
    return [part.table if isinstance(part, Tile) else part[1] for part in value.tiles]


TRUE = Mask()


def mask_outer(array: Any, shape: tuple[int, ...] = ()) -> Mask:
    """Return the truth value that *array* has for each program and iteration."""
    if array.all():
        return Mask(shape=shape)
    if array.size > 1 and not array.any():
        array = array[(slice(0, 1),) * array.ndim]
    return Mask((array,), shape=shape)


def mask_table(table: Any, index: Any, shape: tuple[int, ...]) -> Mask:
    """Return the truth values that row *index* of *table* is."""
    if not shape or table[0].size == 1:
        flat = table.reshape(-1)
        if index is not None:
            return mask_outer(flat[index], shape)
        return Mask(shape=shape) if flat[0] else false(1, shape)
    if table.all():
        return Mask(shape=shape)
    return Mask((), ((index, table),), shape=shape)


def false(dimensions: int, shape: tuple[int, ...] = ()) -> Mask:
    """Return what is false everywhere; *dimensions* is the number of outer axes."""
    return Mask((np.zeros((1,) * dimensions, bool),), shape=shape)


def total(value: Number, dimensions: int) -> Any:
    """Return the sum of its outer parts and constant as one array."""
    if not value.outer:
        return np.full((1,) * dimensions, value.const, "int64")
    fits(*(one.array for one in value.outer))
    found = functools.reduce(operator.add, (one.array for one in value.outer))
    return found + value.const if value.const else found


def add(one: Number, other: Number, shape: tuple[int, ...]) -> Number:
    """Return the sum."""
    if one.is_constant and not one.const:
        return replace(other, shape=shape)
    if other.is_constant and not other.const:
        return replace(one, shape=shape)
    return Number(
        one.const + other.const,
        _merged_outer(one.outer, other.outer),
        _merged_tiles(one.tiles, other.tiles),
        _merged_hidden(one.hidden, other.hidden),
        shape,
    )


def _merged_outer(one: tuple[Outer, ...], other: tuple[Outer, ...]) -> tuple[Outer, ...]:
    parts = list(one)
    for part in other:
        axes = axes_of(part.array)
        for place, old in enumerate(parts):
            there = axes_of(old.array)
            if axes <= there or there <= axes:
                found = old.array + part.array
                low, high = int(found.min()), int(found.max())
                parts[place] = Outer(found, low, high)
                break
        else:
            parts.append(part)
    return tuple(parts)


def _merged_tiles(one: tuple[Tile, ...], other: tuple[Tile, ...]) -> tuple[Tile, ...]:
    parts = list(one)
    for part in other:
        dims = axes_of(part.table[0])
        for place, old in enumerate(parts):
            there = axes_of(old.table[0])
            if old.index is part.index and (dims <= there or there <= dims):
                found = old.table + part.table
                parts[place] = Tile(old.index, found, int(found.min()), int(found.max()))
                break
        else:
            parts.append(part)
    return tuple(parts)


def _merged_hidden(one: tuple[Hidden, ...], other: tuple[Hidden, ...]) -> tuple[Hidden, ...]:
    parts = list(one)
    for part in other:
        for place, old in enumerate(parts):
            if (old.source, old.dims, old.axes) == (part.source, part.dims, part.axes):
                parts[place] = replace(old, scale=old.scale + part.scale)
                break
        else:
            parts.append(part)
    return tuple(part for part in parts if part.scale)


def scaled(value: Number, factor: int) -> Number:
    """Return *factor* times *value*."""
    if factor == 1:
        return value
    if factor == 0:
        return Number(0, shape=value.shape)

    def limits(part: Outer | Tile) -> tuple[int, int]:
        ends = (part.low * factor, part.high * factor)
        return min(ends), max(ends)

    return Number(
        value.const * factor,
        tuple(Outer(one.array * factor, *limits(one)) for one in value.outer),
        tuple(Tile(one.index, one.table * factor, *limits(one)) for one in value.tiles),
        tuple(replace(one, scale=one.scale * factor) for one in value.hidden),
        value.shape,
    )


def multiplied(one: Number, other: Number, shape: tuple[int, ...], dimensions: int) -> Number:
    """Return the product."""
    if one.is_constant:
        return replace(scaled(other, one.const), shape=shape)
    if other.is_constant:
        return replace(scaled(one, other.const), shape=shape)
    if not one.tiles and not other.tiles:
        parts = [Number(one.const * other.const, shape=shape)]
        parts += [scaled(of_outer(each.array, shape), other.const) for each in one.outer]
        parts += [scaled(of_outer(each.array, shape), one.const) for each in other.outer]
        for left in one.outer:
            for right in other.outer:
                fits(left.array, right.array)
                parts.append(of_outer(left.array * right.array, shape))
        return functools.reduce(lambda left, right: add(left, right, shape), parts)
    if not one.outer and not other.outer and not _classed(one) and not _classed(other):
        left, right = _only_table(one), _only_table(other)
        return of_table(sized(left * right), None, shape)
    if other.tiles and not one.tiles:
        one, other = other, one
    if not other.tiles:  # a tile times a number of each program
        outer = multiplied(replace(one, tiles=()), other, shape, dimensions)
        tiles = replace(one, const=0, outer=())
        mixed: Number = elementwise(operator.mul, [tiles, other], shape, dimensions)
        return add(outer, mixed, shape)
    return elementwise(operator.mul, [one, other], shape, dimensions)  # type: ignore[no-any-return]


def _classed(value: Number) -> bool:
    return any(part.index is not None for part in value.tiles)


def _only_table(value: Number) -> Any:
    table = functools.reduce(operator.add, (part.table for part in value.tiles))
    return table + value.const


def classes(codes: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return the class of each cell, so that those of equal *codes* share one, and their codes.

    *codes* are arrays of whole numbers over the outer axes.
    """
    arrays = [one for one in codes if one.size > 1]
    if not arrays:
        return None, [one.reshape(-1) for one in codes]
    combined, sizes = _small(arrays[0])
    kept = [sizes]
    for one in arrays[1:]:
        fits(combined, one)
        other, values = _small(one)
        combined, pairs = _small(combined * len(values) + other)
        kept = [each[pairs // len(values)] for each in kept] + [values[pairs % len(values)]]
    rows = iter(kept)
    count = len(kept[0])
    found = [
        next(rows) if one.size > 1 else np.broadcast_to(one.reshape(-1), (count,)) for one in codes
    ]
    return (combined if count > 1 else None), found


def _small(array: Any) -> tuple[Any, Any]:
    """Return *array* with its values numbered from 0, and the values."""
    low, high = int(array.min()), int(array.max())
    span = high - low + 1
    if span <= 4 * array.size + 1024:
        there = np.zeros(span, bool)
        there[(array - low).reshape(-1)] = True
        values = np.flatnonzero(there)
        if len(values) == span:
            return array - low, values + low
        places = np.cumsum(there) - 1
        return places[array - low], values + low
    values, places = np.unique(array, return_inverse=True)
    return places.reshape(array.shape), values


def elementwise(
    function: Callable[..., Any],
    values: Sequence[Known],
    shape: tuple[int, ...],
    dimensions: int,
    *,
    truth: bool = False,
) -> Any:
    """Return *function* of the *values*, a Number or, where *truth* is asked for, a Mask.

    *function* gets arrays of which the first axis is the class and the others are the tile's.
    Nothing in *values* is unknown.
    """
    if all(not one.tiles for one in values):
        arrays = [outer_of(one, dimensions) for one in values]
        fits(*arrays)
        found = function(*arrays)
        return mask_outer(found, shape) if truth else of_outer(found, shape)
    codes: list[Any] = []
    for one in values:
        codes.append(outer_of(one, dimensions))
        codes += [each for each in _indexes(one) if each is not None]
    index, rows = classes(codes)
    following = iter(rows)
    tables = [_table(one, following, len(shape)) for one in values]
    fits(*tables)
    found = function(*tables)
    return mask_table(found, index, shape) if truth else of_table(found, index, shape)


def outer_of(value: Known, dimensions: int) -> Any:
    """Return the outer part of *value* as one array."""
    if isinstance(value, Number):
        return total(value, dimensions)
    if not value.outer:
        return np.ones((1,) * dimensions, bool)
    fits(*value.outer)
    return functools.reduce(operator.and_, value.outer)


def _indexes(value: Known) -> list[Any]:
    return [part.index if isinstance(part, Tile) else part[0] for part in value.tiles]


def _table(value: Known, rows: Any, rank: int) -> Any:
    """Return the tile of each class, of which *rows* yields the codes of its parts."""
    outer = next(rows)
    found = outer.reshape(-1, *(1,) * rank)
    for part in value.tiles:
        index, table = (part.index, part.table) if isinstance(part, Tile) else part
        row = table if index is None else table[next(rows)]
        fits(found, row)
        found = found & row if isinstance(value, Mask) else found + row
    return found.astype(bool) if isinstance(value, Mask) else found


def compared(
    name: str, one: Number, other: Number, shape: tuple[int, ...], dimensions: int
) -> Mask:
    """Return the mask of a comparison: eq, ne, slt, sle, sgt or sge."""
    difference = add(one, scaled(other, -1), shape)
    function = COMPARISONS[name]
    if not difference.tiles:
        low, high = difference.low, difference.high
        for found in (function(low, 0), function(high, 0)):
            if name in {"slt", "sle", "sgt", "sge"} and function(low, 0) == function(high, 0):
                return Mask(shape=shape) if found else false(dimensions, shape)
        return mask_outer(function(total(difference, dimensions), 0), shape)
    low = sum(part.low for part in difference.tiles)
    high = sum(part.high for part in difference.tiles)
    clipped = np.clip(total(difference, dimensions), -high - 1, 1 - low)
    tiles = replace(difference, const=0, outer=())
    return elementwise(  # type: ignore[no-any-return]
        lambda outer, table: function(outer + table, 0),
        [of_outer(clipped), tiles],
        shape,
        dimensions,
        truth=True,
    )


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}


def least(one: Number, other: Number, shape: tuple[int, ...], dimensions: int) -> Number:
    """Return the smaller of both."""
    difference = add(one, scaled(other, -1), shape)
    if difference.high <= 0:
        return replace(one, shape=shape)
    if difference.low >= 0:
        return replace(other, shape=shape)
    if not difference.tiles:
        low = np.minimum(total(difference, dimensions), 0)
        return add(other, of_outer(low), shape)
    # other + min(outer + tile, 0): where all of the tile is below, outer leaves the minimum.
    low = sum(part.low for part in difference.tiles)
    high = sum(part.high for part in difference.tiles)
    outer = total(difference, dimensions)
    inner = np.clip(outer, -high, -low)
    tiles = elementwise(
        lambda left, table: np.minimum(left + table, 0),
        [of_outer(inner), replace(difference, const=0, outer=())],
        shape,
        dimensions,
    )
    below = of_outer(np.minimum(outer + high, 0))
    return add(add(other, below, shape), tiles, shape)


def floor_divided(value: Number, divisor: int, shape: tuple[int, ...], dimensions: int) -> Number:
    """Return *value* divided by a *divisor* above 0, rounded down; nothing in it is unknown."""
    if not value.tiles:
        if value.low // divisor == value.high // divisor:
            return Number(value.low // divisor, shape=shape)
        return of_outer(total(value, dimensions) // divisor, shape)
    low = sum(part.low for part in value.tiles)
    high = sum(part.high for part in value.tiles)
    outer = total(value, dimensions) + low  # tiles are 0 or more from here
    quotient, rest = np.divmod(outer, divisor)
    wraps = rest + (high - low) >= divisor
    tiles = elementwise(
        lambda left, table: (left + table - low) // divisor,
        [of_outer(np.where(wraps, rest, 0)), replace(value, const=0, outer=())],
        shape,
        dimensions,
    )
    return add(of_outer(quotient), tiles, shape)


def wrapped(value: Number, bits: int, dimensions: int) -> Number:
    """Return *value* as a signed number of *bits* bits has it."""
    limit = 1 << (bits - 1)
    if -limit <= value.low and value.high < limit:
        return value
    if not value.hidden and len(value.outer) > 1:
        value = add(
            of_outer(total(value, dimensions)), replace(value, const=0, outer=()), value.shape
        )
        if -limit <= value.low and value.high < limit:
            return value
    known = replace(value, hidden=())
    if bits < 64:  # noqa: PLR2004
        known = elementwise(
            lambda array: ((array + limit) & (2 * limit - 1)) - limit,
            [known],
            value.shape,
            dimensions,
        )
    elif not known.tiles and not known.outer:
        known = replace(known, const=(known.const + limit) % (2 * limit) - limit)
    return replace(known, hidden=value.hidden)


def chosen(
    condition: Mask, one: Number, other: Number, shape: tuple[int, ...], dimensions: int
) -> Number:
    """Return *one* where *condition* is true, else *other*."""
    certain = condition.constant
    if certain is not None:
        return replace(one if certain else other, shape=shape)
    if one == other:
        return replace(one, shape=shape)
    if not (condition.tiles or one.tiles or other.tiles):
        return elementwise(np.where, [condition, one, other], shape, dimensions)  # type: ignore[no-any-return]
    truth = _kinds(condition, shape, dimensions)
    first, second = total(one, dimensions), total(other, dimensions)
    mixed = truth == 2  # noqa: PLR2004
    fits(truth, first, second)
    base = np.where(truth == 1, first, second)
    apart = np.where(mixed, first - second, 0)
    tiles = elementwise(
        lambda when, difference, kind, left, right: np.where(
            when,
            np.where(kind > 1, difference, 0) + left,
            right,
        ),
        [
            condition,
            of_outer(apart),
            of_outer(truth),
            replace(one, const=0, outer=()),
            replace(other, const=0, outer=()),
        ],
        shape,
        dimensions,
    )
    return add(of_outer(base), tiles, shape)


def _kinds(condition: Mask, shape: tuple[int, ...], dimensions: int) -> Any:
    """Return 0 where no element of *condition* is true, 1 where all are, else 2."""

    def kind(array: Any) -> Any:
        dims = tuple(range(1, array.ndim))
        return np.where(array.all(dims), 1, np.where(array.any(dims), 2, 0)).reshape(
            -1, *(1,) * (array.ndim - 1)
        )

    if not condition.tiles:
        return outer_of(condition, dimensions).astype("int64")
    found = elementwise(kind, [condition], (*shape,), dimensions)
    return total(found, dimensions)


def both(one: Mask, other: Mask, shape: tuple[int, ...]) -> Mask:
    """Return the mask of what is true in *one* and *other*."""
    return Mask(
        (*one.outer, *(each for each in other.outer if not any(each is old for old in one.outer))),
        (*one.tiles, *(each for each in other.tiles if not any(each is old for old in one.tiles))),
        _merged_sources(one.hidden, other.hidden),
        shape,
    )


def _merged_sources(one: tuple[Hidden, ...], other: tuple[Hidden, ...]) -> tuple[Hidden, ...]:
    return (*one, *(each for each in other if each not in one))


def either(one: Mask, other: Mask, shape: tuple[int, ...], dimensions: int) -> Mask:
    """Return the mask of what is true in *one* or *other*."""
    for first, second in ((one, other), (other, one)):
        if first.constant is not None:
            return replace(first if first.constant else second, shape=shape)
    return elementwise(operator.or_, [one, other], shape, dimensions, truth=True)  # type: ignore[no-any-return]


def inverted(one: Mask, dimensions: int) -> Mask:
    """Return the mask of what is false in *one*."""
    if one.constant is not None:
        return false(dimensions, one.shape) if one.constant else Mask(shape=one.shape)
    return elementwise(operator.invert, [one], one.shape, dimensions, truth=True)  # type: ignore[no-any-return]


def as_number(value: Known, shape: tuple[int, ...], dimensions: int) -> Number:
    """Return a mask as 0 and 1."""
    if isinstance(value, Number):
        return value
    if value.constant is not None:
        return number(value.constant, shape)
    return elementwise(lambda one: one.astype("int64"), [value], shape, dimensions)  # type: ignore[no-any-return]


def as_mask(value: Known, shape: tuple[int, ...], dimensions: int) -> Mask:
    """Return the mask of where the lowest bit of a number is set."""
    if isinstance(value, Mask):
        return value
    return elementwise(lambda one: one & 1 == 1, [value], shape, dimensions, truth=True)  # type: ignore[no-any-return]


def reshaped(
    value: Known,
    shape: tuple[int, ...],
    change: Callable[[Any], Any],
    dims: Callable[[frozenset[int]], frozenset[int]],
) -> Known:
    """Return *value* with *change* made to its tables, and *dims* to its dimensions."""
    unknown = tuple(replace(one, dims=dims(one.dims)) for one in value.hidden)
    if isinstance(value, Mask):
        tiles = tuple((index, change(table)) for index, table in value.tiles)
        return replace(value, tiles=tiles, hidden=unknown, shape=shape)
    parts = tuple(replace(one, table=change(one.table)) for one in value.tiles)
    return replace(value, tiles=parts, hidden=unknown, shape=shape)
