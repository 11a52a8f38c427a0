"""What each operation on integers and masks gives, for all programs and iterations at once.

Each function takes the operation and what is known of its operands. It returns None where the
result is not known.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from occupancy_lab.work import tiles, tilewise
from occupancy_lab.work.module import Operation
from occupancy_lab.work.tiles import Known, Mask, Number, Tile

# Constants


def _constant(operation: Operation, _: Any) -> Any:
    kind = operation.results[0].type
    text = operation.text
    found = re.fullmatch(r"\s*(?:dense<)?(true|false|-?\d+)>?(?: \{.*\})?\s*", text)
    if found is None:
        listed = re.fullmatch(r"\s*dense<\[([-\d, ]+)\]>\s*", text)
        if listed is None:
            return None
        row = np.array([int(one) for one in listed[1].split(",")]).reshape(1, *kind.shape)
        return tiles.of_table(row, None, kind.shape)
    number = {"true": 1, "false": 0}.get(found[1])
    number = int(found[1][:30]) if number is None else number
    if kind.element == "i1":
        return Mask(shape=kind.shape) if number else tiles.false(kind.shape)
    return tiles.number(number, kind.shape)


def _range(operation: Operation, _: Any) -> Any:
    start, end = operation.number("start"), operation.number("end")
    row = np.arange(start, min(end, start + tiles.MOST_CELLS)).reshape(1, -1)
    return tiles.of_table(row, None, operation.results[0].type.shape)


# Arithmetic


def _both_masks(operands: Sequence[Known]) -> bool:
    return all(isinstance(one, Mask) for one in operands)


def _add(operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        return elementwise(operator.xor)(operation, operands)
    return tiles.add(*operands)


def _subtract(operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        return _add(operation, operands)
    return tiles.add(operands[0], tiles.scaled(operands[1], -1))


def _multiply(operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        return _and(operation, operands)
    one, other = operands
    if (one.hidden or other.hidden) and not (one.is_constant or other.is_constant):
        return None
    return tilewise.multiplied(one, other)


def elementwise(function: Callable[..., Any], *, unsigned: bool = False) -> Callable[..., Any]:
    """Return the evaluator of an operation that applies *function* to each element."""

    def made(operation: Operation, operands: Any) -> Any:
        truth = operation.results[0].type.element == "i1"
        own = _unsigned(function, operation) if unsigned else function
        return tilewise.elementwise(own, operands, truth=truth)

    return made


def _divided(rounded: Callable[..., Any], *, unsigned: bool = False) -> Callable[..., Any]:
    def made(operation: Operation, operands: Any) -> Any:
        one, other = operands
        if isinstance(one, Mask):
            return one
        if one.low >= 0 and other.is_constant and other.const > 0 and rounded is not _ceiling:
            return tilewise.floor_divided(one, other.const)
        return elementwise(rounded, unsigned=unsigned)(operation, operands)

    return made


def _remainder(*, unsigned: bool = False) -> Callable[..., Any]:
    def made(operation: Operation, operands: Any) -> Any:
        one, other = operands
        if isinstance(one, Mask):
            return one
        if one.low >= 0 and other.is_constant and other.const > 0:
            divisor = other.const
            if one.high < divisor:
                return one
            quotient = tilewise.floor_divided(one, divisor)
            return tiles.add(one, tiles.scaled(quotient, -divisor))
        return elementwise(_rest, unsigned=unsigned)(operation, operands)

    return made


def _safe(divisor: Any) -> Any:
    return np.where(divisor == 0, 1, divisor)


def _truncated(one: Any, other: Any) -> Any:
    other = _safe(other)
    quotient = np.abs(one) // np.abs(other)
    return np.where((one < 0) != (other < 0), -quotient, quotient)


def _ceiling(one: Any, other: Any) -> Any:
    other = _safe(other)
    return one // other + (one % other != 0)


def _rest(one: Any, other: Any) -> Any:
    return one - _truncated(one, other) * _safe(other)


def _unsigned(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    """Return *function* applied to unsigned numbers."""
    limit = np.uint64((1 << operation.operands[0].type.bits) - 1)

    def made(*several: Any) -> Any:
        found = function(*(one.astype("uint64") & limit for one in several))
        return found if found.dtype == bool else found.astype("int64")

    return made


def _least(sign: int, *, unsigned: bool = False) -> Callable[..., Any]:
    def made(operation: Operation, operands: Any) -> Any:
        if _both_masks(operands):
            return elementwise(operator.and_ if sign > 0 else operator.or_)(operation, operands)
        if unsigned and any(one.low < 0 for one in operands):
            function = np.minimum if sign > 0 else np.maximum
            return elementwise(function, unsigned=True)(operation, operands)
        one, other = (tiles.scaled(each, sign) for each in operands)
        return tiles.scaled(tilewise.least(one, other), sign)

    return made


def _and(operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        return tilewise.both(*operands)
    if any(one.hidden for one in operands):
        return None
    return elementwise(operator.and_)(operation, operands)


def _or(operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        return tilewise.either(*operands)
    return elementwise(operator.or_)(operation, operands)


def _xor(operation: Operation, operands: Any) -> Any:
    one, other = operands
    if isinstance(one, Mask) and isinstance(other, Mask) and other.constant is not None:
        return tilewise.inverted(one) if other.constant else one
    return elementwise(operator.xor)(operation, operands)


def _shifted_left(operation: Operation, operands: Any) -> Any:
    one, by = operands
    if isinstance(by, Number) and by.is_constant and 0 <= by.const < 64:  # noqa: PLR2004
        return tiles.scaled(one, 1 << by.const)
    if one.hidden or by.hidden:
        return None
    return elementwise(lambda x, y: x << np.clip(y, 0, 63))(operation, operands)


def _shifted_right(*, unsigned: bool) -> Callable[..., Any]:
    def made(operation: Operation, operands: Any) -> Any:
        one, by = operands
        if one.low >= 0 and by.is_constant and 0 <= by.const < 63:  # noqa: PLR2004
            return tilewise.floor_divided(one, 1 << by.const)
        return elementwise(operator.rshift, unsigned=unsigned)(operation, operands)

    return made


def _compare(operation: Operation, operands: Any) -> Any:
    how = operation.text.split(",")[0].strip()
    one, other = map(tilewise.as_number, operands)
    signed = f"s{how[1:]}" if how.startswith("u") else how
    if signed != how and (one.low < 0 or other.low < 0) and operation.operands[0].type.bits > 1:
        return elementwise(tilewise.COMPARISONS[signed], unsigned=True)(operation, [one, other])
    return tilewise.compared(signed, one, other)


def _select(operation: Operation, operands: Any) -> Any:
    condition, one, other = operands
    return tilewise.chosen(condition, one, other, operation.results[0])


def _cast(*, signed: bool) -> Callable[..., Any]:
    def made(operation: Operation, operands: Any) -> Any:
        (one,) = operands
        kind = operation.results[0].type
        if isinstance(one, Mask):
            if kind.element == "i1" or one.hidden:
                return one if kind.element == "i1" else None
            return tiles.scaled(tilewise.as_number(one), -1 if signed else 1)
        if kind.element == "i1":
            return None if one.hidden else tilewise.as_mask(one)
        if signed or one.low >= 0:
            return one
        bits = operation.operands[0].type.bits
        if one.hidden or bits >= 64:  # noqa: PLR2004
            return None
        return elementwise(lambda x: x & ((1 << bits) - 1))(operation, operands)

    return made


def _high_half(operation: Operation, operands: Any) -> Any:
    if operation.operands[0].type.bits > 32:  # noqa: PLR2004
        return None
    high = elementwise(lambda x, y: x * y >> np.uint64(32), unsigned=True)
    return high(operation, operands)


# Along dimensions

_REDUCTIONS = {
    "arith.addi": (np.sum, np.cumsum),
    "arith.maxsi": (np.max, np.maximum.accumulate),
    "arith.minsi": (np.min, np.minimum.accumulate),
    "arith.andi": (np.bitwise_and.reduce, np.bitwise_and.accumulate),
    "arith.ori": (np.bitwise_or.reduce, np.bitwise_or.accumulate),
    "arith.xori": (np.bitwise_xor.reduce, np.bitwise_xor.accumulate),
    "arith.muli": (np.prod, np.cumprod),
}


def _along(scan: int) -> Callable[..., Any]:
    def made(operation: Operation, operands: Any) -> Any:
        body = operation.regions[0].blocks[0].operations if operation.regions else []
        functions: Any = _REDUCTIONS.get(body[0].name) if len(body) == 2 else None  # noqa: PLR2004
        shape = operation.operands[0].type.shape
        kind = operation.results[0].type
        if functions is None or len(operation.operands) > 1 or "reverse = true" in operation.text:
            return None

        def change(table: Any, _: Any) -> Any:
            whole = np.broadcast_to(table.astype("int64"), (len(table), *shape))
            tiles.fits(whole)
            return functions[scan](whole, axis=operation.number("axis") + 1)

        flat = Number(tiles=(Tile(None, np.zeros((1, *shape), "int64")),), shape=shape)
        found = tilewise.elementwise(change, [*operands, flat])
        found = replace(found, shape=kind.shape)
        return tilewise.as_mask(found) if kind.element == "i1" else tilewise.settled(found)

    return made


def _join(operation: Operation, operands: Any) -> Any:
    shape = operation.results[0].type.shape
    last = np.array([True, False]).reshape(1, *(1,) * (len(shape) - 1), 2)
    one, other = (
        tilewise.reshaped(each, shape, lambda table: table[..., None], lambda dims: dims)
        for each in operands
    )
    which = tiles.mask_table(last, None, shape)
    return tilewise.chosen(which, one, other, operation.results[0])


# Shapes: how tables change, and the dimensions along which a value is unknown


def _same(_: Operation) -> Any:
    return (lambda table: table), (lambda dims: dims)


def _expand(operation: Operation) -> Any:
    axis = operation.number("axis")
    return (
        lambda table: np.expand_dims(table, axis + 1),
        lambda dims: frozenset(d + (d >= axis) for d in dims),
    )


def _transpose(operation: Operation) -> Any:
    order = operation.numbers("order")
    return (
        lambda table: table.transpose(0, *(d + 1 for d in order)),
        lambda dims: frozenset(place for place, d in enumerate(order) if d in dims),
    )


def _reshape(operation: Operation) -> Any:
    before, after = operation.operands[0].type.shape, operation.results[0].type.shape

    def change(table: Any) -> Any:
        return np.broadcast_to(table, (table.shape[0], *before)).reshape(table.shape[0], *after)

    every = frozenset(place for place, size in enumerate(after) if size > 1)
    return change, (lambda dims: every if dims else dims)


def _unsplat(_: Operation) -> Any:
    return (lambda table: table.reshape(table.shape[0])), (lambda _: frozenset())


SHAPES: dict[str, Callable[..., Any]] = {
    "tt.splat": _same,
    "tt.broadcast": _same,
    "tt.unsplat": _unsplat,
    "tt.expand_dims": _expand,
    "tt.trans": _transpose,
    "tt.reshape": _reshape,
}
OPERATIONS: dict[str, Callable[..., Any]] = {
    "arith.constant": _constant,
    "tt.make_range": _range,
    "arith.addi": _add,
    "arith.subi": _subtract,
    "arith.muli": _multiply,
    "arith.divsi": _divided(_truncated),
    "arith.divui": _divided(_truncated, unsigned=True),
    "arith.floordivsi": _divided(lambda one, other: one // _safe(other)),
    "arith.ceildivsi": _divided(_ceiling),
    "arith.ceildivui": _divided(_ceiling, unsigned=True),
    "arith.remsi": _remainder(),
    "arith.remui": _remainder(unsigned=True),
    "arith.minsi": _least(1),
    "arith.maxsi": _least(-1),
    "arith.minui": _least(1, unsigned=True),
    "arith.maxui": _least(-1, unsigned=True),
    "arith.andi": _and,
    "arith.ori": _or,
    "arith.xori": _xor,
    "arith.shli": _shifted_left,
    "arith.shrsi": _shifted_right(unsigned=False),
    "arith.shrui": _shifted_right(unsigned=True),
    "arith.cmpi": _compare,
    "arith.select": _select,
    "arith.extsi": _cast(signed=True),
    "arith.extui": _cast(signed=False),
    "arith.trunci": _cast(signed=True),
    "arith.index_cast": _cast(signed=True),
    "arith.index_castui": _cast(signed=False),
    "tt.bitcast": _cast(signed=True),
    "math.absi": elementwise(np.abs),
    "tt.mulhiui": _high_half,
    "tt.reduce": _along(0),
    "tt.scan": _along(1),
    "tt.join": _join,
}
LINEAR = frozenset(
    {"arith.constant", "arith.addi", "arith.subi", "arith.muli", "arith.andi", "arith.shli"}
    | {"arith.select", "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"}
    | {"arith.index_castui", "tt.bitcast", "tt.join"}
)
"""Operations that handle unknown operands themselves."""
EXACT = frozenset({"tt.make_range", "arith.extsi", "arith.select", "tt.join"})
"""Operations whose results never wrap around."""
