"""Operations on tiles: products, quotients, comparisons, choices, for all programs at once.

A value that depends on programs and elements jointly is computed for each class of programs and
iterations with equal tiles, and gives a table with a tile for each class.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from occupancy_lab.work.tiles import (
    AXES,
    Known,
    Mask,
    Number,
    add,
    false,
    fits,
    hidden,
    mask_outer,
    mask_table,
    number,
    of_outer,
    of_table,
    scaled,
    shape_of,
    total,
)


def multiplied(one: Number, other: Number) -> Number:
    """Return the product of two numbers."""
    shape = shape_of(one, other)
    if one.is_constant:
        return replace(scaled(other, one.const), shape=shape)
    if other.is_constant:
        return replace(scaled(one, other.const), shape=shape)
    if not one.tiles and not other.tiles:
        parts = [Number(one.const * other.const, shape=shape)]
        parts += [scaled(of_outer(each.array), other.const) for each in one.outer]
        parts += [scaled(of_outer(each.array), one.const) for each in other.outer]
        for left in one.outer:
            for right in other.outer:
                fits(left.array, right.array)
                parts.append(of_outer(left.array * right.array))
        return functools.reduce(add, parts)
    if not one.tiles:
        one, other = other, one
    if not other.tiles:  # a tile times a number per program
        outer = multiplied(replace(one, tiles=()), other)
        mixed: Number = elementwise(operator.mul, [_only_tiles(one), other])
        return add(outer, mixed)
    return elementwise(operator.mul, [one, other])  # type: ignore[no-any-return]


def _only_tiles(value: Number) -> Number:
    """Return the parts of a number that depend on elements."""
    return replace(value, const=0, outer=())


def classes(codes: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return the class of each cell, and the codes of each class: equal *codes* are one class.

    *codes* are integer arrays over the outer axes.
    """
    arrays = [one for one in codes if one.size > 1]
    if not arrays:
        return None, [one.reshape(-1) for one in codes]
    combined, sizes = numbered(arrays[0])
    kept = [sizes]
    for one in arrays[1:]:
        fits(combined, one)
        other, values = numbered(one)
        combined, pairs = numbered(combined * len(values) + other)
        kept = [each[pairs // len(values)] for each in kept] + [values[pairs % len(values)]]
    rows = iter(kept)
    count = len(kept[0])
    found = [
        next(rows) if one.size > 1 else np.broadcast_to(one.reshape(-1), (count,)) for one in codes
    ]
    return (combined if count > 1 else None), found


def numbered(array: Any) -> tuple[Any, Any]:
    """Return *array* with its values replaced by their indices, and the sorted values."""
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
    values, _, places = np.unique(array, return_index=True, return_inverse=True)
    return places.reshape(array.shape), values


def elementwise(
    function: Callable[..., Any], values: Sequence[Known], *, truth: bool = False
) -> Any:
    """Return *function* of the known *values* as a Number or, with *truth*, as a Mask.

    *function* gets arrays whose first axis is the class, followed by those of the tile.
    """
    shape = shape_of(*values)
    if all(not one.tiles for one in values):
        arrays = [outer_of(one) for one in values]
        fits(*arrays)
        found = function(*arrays)
        return mask_outer(found, shape) if truth else of_outer(found, shape)
    codes: list[Any] = []
    for one in values:
        codes.append(outer_of(one))
        codes += [each.index for each in one.tiles if each.index is not None]
    index, rows = classes(codes)
    following = iter(rows)
    tables = [_table(one, following, len(shape)) for one in values]
    fits(*tables)
    found = function(*tables)
    return mask_table(found, index, shape) if truth else of_table(found, index, shape)


def outer_of(value: Known) -> Any:
    """Return the outer part of *value* as one array."""
    if isinstance(value, Number):
        return total(value)
    if not value.outer:
        return np.ones((1,) * AXES, bool)
    fits(*value.outer)
    return functools.reduce(operator.and_, value.outer)


def _table(value: Known, rows: Any, rank: int) -> Any:
    """Return the tile of each class, where *rows* yields the codes of its parts."""
    outer = next(rows)
    found = outer.reshape(-1, *(1,) * rank)
    for part in value.tiles:
        row = part.table if part.index is None else part.table[next(rows)]
        fits(found, row)
        found = found & row if isinstance(value, Mask) else found + row
    return found.astype(bool) if isinstance(value, Mask) else found


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}


def compared(name: str, one: Number, other: Number) -> Mask:
    """Return the mask of a comparison by its name in COMPARISONS."""
    difference, function = add(one, scaled(other, -1)), COMPARISONS[name]
    if not difference.tiles:
        least, most = function(difference.low, 0), function(difference.high, 0)
        if name not in {"eq", "ne"} and least == most:
            return Mask(shape=difference.shape) if least else false(difference.shape)
        return mask_outer(function(total(difference), 0), difference.shape)
    low, high = _limits(difference)
    clipped = np.clip(total(difference), -high - 1, 1 - low)
    return elementwise(  # type: ignore[no-any-return]
        lambda outer, table: function(outer + table, 0),
        [of_outer(clipped), _only_tiles(difference)],
        truth=True,
    )


def _limits(value: Number) -> tuple[int, int]:
    """Return the limits of the sum of the parts that depend on elements."""
    return sum(part.low for part in value.tiles), sum(part.high for part in value.tiles)


def least(one: Number, other: Number) -> Number:
    """Return the minimum of two numbers."""
    difference = add(one, scaled(other, -1))
    if difference.high <= 0:
        return replace(one, shape=difference.shape)
    if difference.low >= 0:
        return replace(other, shape=difference.shape)
    if not difference.tiles:
        return add(other, of_outer(np.minimum(total(difference), 0)))
    # other + min(outer + tile, 0): where all of the tile is below 0, outer leaves the minimum.
    low, high = _limits(difference)
    outer = total(difference)
    mixed = elementwise(
        lambda left, table: np.minimum(left + table, 0),
        [of_outer(np.clip(outer, -high, -low)), _only_tiles(difference)],
    )
    below = of_outer(np.minimum(outer + high, 0))
    return add(add(other, below), mixed)


def floor_divided(value: Number, divisor: int) -> Number:
    """Return *value*, which is fully known, divided by a positive *divisor* and rounded down."""
    if not value.tiles:
        if value.low // divisor == value.high // divisor:
            return Number(value.low // divisor, shape=value.shape)
        return of_outer(total(value) // divisor, value.shape)
    low, high = _limits(value)
    outer = total(value) + low  # so that tiles are non-negative below
    quotient, rest = np.divmod(outer, divisor)
    wraps = rest + (high - low) >= divisor
    mixed = elementwise(
        lambda left, table: (left + table - low) // divisor,
        [of_outer(np.where(wraps, rest, 0)), _only_tiles(value)],
    )
    return add(of_outer(quotient), mixed)


def wrapped(value: Number, bits: int) -> Number:
    """Return *value* wrapped to a signed number of *bits* bits."""
    limit = 1 << (bits - 1)
    if -limit <= value.low and value.high < limit:
        return value
    if not value.hidden and len(value.outer) > 1:
        value = add(of_outer(total(value)), _only_tiles(value))
        if -limit <= value.low and value.high < limit:
            return value
    known = replace(value, hidden=())
    if bits < 64:  # noqa: PLR2004
        known = elementwise(lambda array: ((array + limit) & (2 * limit - 1)) - limit, [known])
    elif not known.tiles and not known.outer:
        known = replace(known, const=(known.const + limit) % (2 * limit) - limit)
    return replace(known, hidden=value.hidden)


def chosen(condition: Mask, one: Known, other: Known, key: object) -> Known:
    """Return *one* where *condition* is true, else *other*; *key* makes what is not known."""
    shape = shape_of(one, other, condition)
    if one is other:
        return one
    if condition.constant is not None:
        return replace(one if condition.constant else other, shape=shape)
    if isinstance(one, Mask) and isinstance(other, Mask):
        if condition.hidden or one.hidden or other.hidden:
            return Mask(hidden=hidden(key, [], [condition, one, other]), shape=shape)
        return elementwise(np.where, [condition, one, other], truth=True)  # type: ignore[no-any-return]
    one, other = as_number(one), as_number(other)
    if condition.hidden or {*one.hidden} != {*other.hidden}:
        return Number(hidden=hidden(key, [], [condition, one, other]), shape=shape)
    known = _chosen(condition, replace(one, hidden=()), replace(other, hidden=()))
    return replace(known, hidden=one.hidden, shape=shape)


def _chosen(condition: Mask, one: Number, other: Number) -> Number:
    if one == other:
        return one
    if not (condition.tiles or one.tiles or other.tiles):
        return elementwise(np.where, [condition, one, other])  # type: ignore[no-any-return]
    truth = _kinds(condition)
    first, second = total(one), total(other)
    fits(truth, first, second)
    base = np.where(truth == 1, first, second)
    apart = np.where(truth == 2, first - second, 0)  # noqa: PLR2004
    mixed = elementwise(
        lambda when, difference, kind, left, right: np.where(
            when, np.where(kind > 1, difference, 0) + left, right
        ),
        [condition, of_outer(apart), of_outer(truth), _only_tiles(one), _only_tiles(other)],
    )
    return add(of_outer(base), mixed)


def _kinds(condition: Mask) -> Any:
    """Return 0 where no element of *condition* is true, 1 where all are, otherwise 2."""

    def kind(array: Any) -> Any:
        dims = tuple(range(1, array.ndim))
        return np.where(array.all(dims), 1, np.where(array.any(dims), 2, 0)).reshape(
            -1, *(1,) * (array.ndim - 1)
        )

    if not condition.tiles:
        return outer_of(condition).astype("int64")
    return total(elementwise(kind, [condition]))


def both(one: Mask, other: Mask) -> Mask:
    """Return the conjunction of two masks."""
    return Mask(
        (*one.outer, *(each for each in other.outer if not any(each is old for old in one.outer))),
        (*one.tiles, *(each for each in other.tiles if each not in one.tiles)),
        (*one.hidden, *(each for each in other.hidden if each not in one.hidden)),
        shape_of(one, other),
    )


def either(one: Mask, other: Mask) -> Mask:
    """Return the disjunction of two masks."""
    for first, second in ((one, other), (other, one)):
        if first.constant is not None:
            return replace(first if first.constant else second, shape=shape_of(one, other))
    return elementwise(operator.or_, [one, other], truth=True)  # type: ignore[no-any-return]


def inverted(one: Mask) -> Mask:
    """Return the negation of a mask."""
    if one.constant is not None:
        return false(one.shape) if one.constant else Mask(shape=one.shape)
    return elementwise(operator.invert, [one], truth=True)  # type: ignore[no-any-return]


def as_number(value: Known) -> Number:
    """Return a mask as a number, 0 or 1."""
    if isinstance(value, Number):
        return value
    if value.constant is not None:
        return number(value.constant, value.shape)
    return elementwise(lambda one: one.astype("int64"), [value])  # type: ignore[no-any-return]


def as_mask(value: Known) -> Mask:
    """Return a number as a mask of its lowest bit."""
    if isinstance(value, Mask):
        return value
    return elementwise(lambda one: one & 1 == 1, [value], truth=True)  # type: ignore[no-any-return]


def reshaped(
    value: Known,
    shape: tuple[int, ...],
    change: Callable[[Any], Any],
    dims: Callable[[frozenset[int]], frozenset[int]],
) -> Known:
    """Return *value* with *change* applied to its tables and *dims* to its unknown dimensions."""
    unknown = tuple(replace(one, dims=dims(one.dims)) for one in value.hidden)
    tables = tuple(replace(one, table=change(one.table)) for one in value.tiles)
    return replace(value, tiles=tables, hidden=unknown, shape=shape)


def settled(value: Known) -> Any:
    """Return *value* with tables that are equal for all elements turned into outer arrays."""
    together: Any = both if isinstance(value, Mask) else add
    of: Any = mask_table if isinstance(value, Mask) else of_table
    found: Any = replace(value, tiles=())
    for one in value.tiles:
        found = together(found, of(one.table, one.index, value.shape))
    return found
