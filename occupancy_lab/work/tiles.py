"""Integers and masks of all programs and iterations at once, stored as sums and products.

An index such as `pid * 128 + tl.arange(0, 128)` depends on the program and on the element, and a
launch has millions of both. It is stored as a sum of arrays over programs and iterations (outer
axes) and of tables over the elements of a tile. Where a number depends on both in another way (a
remainder, a mask), programs and iterations are grouped into classes with equal tiles: one array has
the class of each, and a table has a tile for each class.

The outer axes are the three dimensions of the grid, followed by one axis for each depth of loops.
An array has all AXES, and size 1 along those that it does not depend on.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

Part = TypeVar("Part")

GRID_AXES, AXES = 3, 12
"""The axes of the grid, and all outer axes; recorded kernels nest three loops at most."""
MOST_CELLS = 2**21
"""The most elements of one array; beyond it fewer programs are walked."""


class TooLargeError(Exception):
    """An array would have too many elements."""


@dataclass(frozen=True, slots=True)
class Root:
    """The origin of an unknown value."""

    name: str
    place: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """A part of a sum that only depends on programs and iterations."""

    array: Any
    low: int
    high: int


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A part that depends on elements: row `index[program, iteration]` of a table.

    The first axis of the table is the class, and the others are the dimensions of the tile. Without
    an index the table has one row.
    """

    index: Any
    table: Any
    low: int = 0
    high: int = 1

    def rows(self, codes: Any) -> Any:
        """Return the tiles of the classes *codes*; only one where all are equal."""
        return self.table if self.index is None else self.table[codes]


@dataclass(frozen=True, slots=True)
class Hidden:
    """An unknown part of a sum: *scale* times an unknown integer."""

    key: object
    """What makes the unknown integer."""
    roots: frozenset[Any]
    """What it is made of: each is a Root or, while a loop is being solved, a carried value."""
    scale: int
    dims: frozenset[int]
    """The dimensions of the tile along which it may vary."""
    axes: frozenset[int]
    """The outer axes along which it may vary."""


@dataclass(frozen=True, slots=True)
class Number:
    """An integer or a tile of integers: the sum of its parts."""

    const: int = 0
    outer: tuple[Outer, ...] = ()
    tiles: tuple[Tile, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def low(self) -> int:
        """A lower limit of the sum of the known parts."""
        return self.const + sum(one.low for one in self.outer) + sum(one.low for one in self.tiles)

    @property
    def high(self) -> int:
        """An upper limit of the sum of the known parts."""
        return (
            self.const + sum(one.high for one in self.outer) + sum(one.high for one in self.tiles)
        )

    @property
    def is_constant(self) -> bool:
        """Whether it is one known number everywhere."""
        return not (self.outer or self.tiles or self.hidden)


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """Truth values: the conjunction of all factors and of the unknown parts.

    Where there are unknown parts (`hidden`), the known factors only say where the mask may be true.
    """

    outer: tuple[Any, ...] = ()
    tiles: tuple[Tile, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def constant(self) -> bool | None:
        """The mask's value where it is the same everywhere; otherwise None."""
        if self.tiles or self.hidden:
            return None
        if not self.outer:
            return True
        if len(self.outer) == 1 and self.outer[0].size == 1:
            return bool(self.outer[0].flat[0])
        return None


Known = Number | Mask


def fits(*arrays: Any) -> None:
    """Raise TooLargeError where *arrays* have too many elements when broadcast together."""
    shape = np.broadcast_shapes(*(one.shape for one in arrays))
    if math.prod(shape) > MOST_CELLS:
        raise TooLargeError


def axes_of(array: Any) -> frozenset[int]:
    """Return the axes that *array* depends on."""
    return frozenset(axis for axis, size in enumerate(array.shape) if size > 1)


def shape_of(*values: Known) -> tuple[int, ...]:
    """Return the shape of what is made of *values* element by element; a number fits any shape."""
    return next((one.shape for one in values if one.shape), ())


def along(axis: int, size: int) -> Any:
    """Return 0, 1, 2 ... along an outer axis."""
    return np.arange(size).reshape([size if one == axis else 1 for one in range(AXES)])


def number(value: int, shape: tuple[int, ...] = ()) -> Number:
    """Return a constant."""
    return Number(int(value), shape=shape)


def of_outer(array: Any, shape: tuple[int, ...] = ()) -> Number:
    """Return the number that is *array* over programs and iterations."""
    if array.size == 1:
        return Number(int(array.flat[0]), shape=shape)
    low, high = int(array.min()), int(array.max())
    if low == high:
        return Number(low, shape=shape)
    return Number(0, (Outer(array, low, high),), shape=shape)


def of_table(table: Any, index: Any, shape: tuple[int, ...]) -> Number:
    """Return the number that is row *index* of *table*."""
    if not shape or table[0].size == 1:  # equal for all elements
        flat = table.reshape(-1)
        return of_outer(flat[:1] if index is None else flat[index], shape)
    low, high = int(table.min()), int(table.max())
    if low == high:
        return Number(low, shape=shape)
    return Number(0, (), (Tile(index, table, low, high),), shape=shape)


def hidden(
    key: object, roots: Iterable[Any], values: Iterable[Known] = (), axes: Iterable[int] = ()
) -> tuple[Hidden, ...]:
    """Return the unknown number that *key* makes of *values*; it varies where these do."""
    values = list(values)
    all_roots = frozenset(roots).union(*(one.roots for v in values for one in v.hidden))
    dims, along = frozenset[int](), frozenset(axes)
    for value in values:
        tables = (axes_of(one.table[0]) for one in value.tiles)
        dims = dims.union(*tables, *(one.dims for one in value.hidden))
        arrays = [part.array if isinstance(part, Outer) else part for part in value.outer]
        arrays += [one.index for one in value.tiles if one.index is not None]
        along = along.union(*map(axes_of, arrays), *(one.axes for one in value.hidden))
    return (Hidden(key, all_roots, 1, dims, along),)


def with_outer(value: Known, change: Callable[[Any], Any]) -> Any:
    """Return *value* with *change* applied to its arrays over programs and iterations."""
    tiles = tuple(
        one if one.index is None else replace(one, index=change(one.index)) for one in value.tiles
    )
    if isinstance(value, Mask):
        return replace(value, outer=tuple(map(change, value.outer)), tiles=tiles)
    outer = tuple(replace(one, array=change(one.array)) for one in value.outer)
    return replace(value, outer=outer, tiles=tiles)


def mask_outer(array: Any, shape: tuple[int, ...] = ()) -> Mask:
    """Return the mask that is *array* over programs and iterations."""
    if array.all():
        return Mask(shape=shape)
    if array.size > 1 and not array.any():
        array = array[(slice(0, 1),) * array.ndim]
    return Mask((array,), shape=shape)


def mask_table(table: Any, index: Any, shape: tuple[int, ...]) -> Mask:
    """Return the mask that is row *index* of *table*."""
    if not shape or table[0].size == 1:
        flat = table.reshape(-1)
        if index is not None:
            return mask_outer(flat[index], shape)
        return Mask(shape=shape) if flat[0] else false(shape)
    if table.all():
        return Mask(shape=shape)
    return Mask((), (Tile(index, table),), shape=shape)


def false(shape: tuple[int, ...] = ()) -> Mask:
    """Return a mask that is false everywhere."""
    return Mask((np.zeros((1,) * AXES, bool),), shape=shape)


def total(value: Number) -> Any:
    """Return the sum of the constant and the outer parts as one array."""
    if not value.outer:
        return np.full((1,) * AXES, value.const, "int64")
    fits(*(one.array for one in value.outer))
    found = functools.reduce(operator.add, (one.array for one in value.outer))
    return found + value.const if value.const else found


def add(one: Number, other: Number) -> Number:
    """Return the sum."""
    shape = shape_of(one, other)
    if one.is_constant and not one.const:
        return replace(other, shape=shape)
    if other.is_constant and not other.const:
        return replace(one, shape=shape)
    return Number(
        one.const + other.const,
        _merged(one.outer, other.outer, _outer_sum),
        _merged(one.tiles, other.tiles, _tile_sum),
        tuple(part for part in _merged(one.hidden, other.hidden, _hidden_sum) if part.scale),
        shape,
    )


def _merged(
    one: Sequence[Part], other: Sequence[Part], summed: Callable[[Part, Part], Part | None]
) -> tuple[Part, ...]:
    """Return the parts of a sum; each of *other* is *summed* with the first part that allows it."""
    parts = list(one)
    for part in other:
        for place, old in enumerate(parts):
            if (found := summed(old, part)) is not None:
                parts[place] = found
                break
        else:
            parts.append(part)
    return tuple(parts)


def _outer_sum(old: Outer, part: Outer) -> Outer | None:
    there, axes = axes_of(old.array), axes_of(part.array)
    if not (axes <= there or there <= axes):
        return None
    found = old.array + part.array
    return Outer(found, int(found.min()), int(found.max()))


def _tile_sum(old: Tile, part: Tile) -> Tile | None:
    there, dims = axes_of(old.table[0]), axes_of(part.table[0])
    if old.index is not part.index or not (dims <= there or there <= dims):
        return None
    found = old.table + part.table
    return Tile(old.index, found, int(found.min()), int(found.max()))


def _hidden_sum(old: Hidden, part: Hidden) -> Hidden | None:
    is_same = replace(old, scale=part.scale) == part
    return replace(old, scale=old.scale + part.scale) if is_same else None


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
