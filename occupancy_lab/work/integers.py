"""What each operation on integers and masks gives, for all programs and iterations at once.

Each function takes the Evaluator, the operation and what is known of its operands.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.work import tiles, tilewise
from occupancy_lab.work.tiles import Known, Mask, Number

if TYPE_CHECKING:
    from occupancy_lab.work.module import Operation


# Constants and positions


def _constant(evaluator: Any, operation: Operation, _: Any) -> Any:
    kind = operation.results[0].type
    text = operation.text
    found = re.fullmatch(r"\s*(?:dense<)?(true|false|-?\d+)>?(?: \{.*\})?\s*", text)
    if found is None:
        listed = re.fullmatch(r"\s*dense<\[([-\d, ]+)\]>\s*", text)
        if listed is None:
            return evaluator.unknown(operation)
        row = np.array([int(one) for one in listed[1].split(",")]).reshape(1, *kind.shape)
        return tiles.of_table(row, None, kind.shape)
    number = {"true": 1, "false": 0}.get(found[1])
    number = int(found[1][:30]) if number is None else number
    if kind.element == "i1":
        return Mask(shape=kind.shape) if number else tiles.false(evaluator.dimensions, kind.shape)
    return tiles.number(number, kind.shape)


def _program(evaluator: Any, operation: Operation, _: Any) -> Any:
    axis = "xyz".index(operation.text.strip()[:1] or "x")
    shape = [1] * evaluator.dimensions
    shape[axis] = len(evaluator.programs[axis])
    return tiles.of_outer(np.array(evaluator.programs[axis], "int64").reshape(shape))


def _programs(evaluator: Any, operation: Operation, _: Any) -> Any:
    return tiles.number(evaluator.grid["xyz".index(operation.text.strip()[:1] or "x")])


def _range(_: Any, operation: Operation, __: Any) -> Any:
    start, end = operation.number("start"), operation.number("end")
    row = np.arange(start, min(end, start + tiles.MOST_CELLS)).reshape(1, -1)
    return tiles.of_table(row, None, operation.results[0].type.shape)


# Arithmetic


def _both_masks(operands: Sequence[Known]) -> bool:
    return all(isinstance(one, Mask) for one in operands)


def _add(evaluator: Any, operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        return elementwise(operator.xor)(evaluator, operation, operands)
    return tiles.add(operands[0], operands[1], operation.results[0].type.shape)


def _subtract(evaluator: Any, operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        return _add(evaluator, operation, operands)
    minus = tiles.scaled(operands[1], -1)
    return tiles.add(operands[0], minus, operation.results[0].type.shape)


def _multiply(evaluator: Any, operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        return _and(evaluator, operation, operands)
    one, other = operands
    if (one.hidden or other.hidden) and not (one.is_constant or other.is_constant):
        return evaluator.unknown(operation, operands)
    return tilewise.multiplied(one, other, operation.results[0].type.shape, evaluator.dimensions)


def elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the evaluator of an operation that applies *function* to each element."""

    def made(evaluator: Any, operation: Operation, operands: Any) -> Any:
        kind = operation.results[0].type
        truth = kind.element == "i1"
        return tilewise.elementwise(
            function, operands, kind.shape, evaluator.dimensions, truth=truth
        )

    return made


def _divided(rounded: Callable[..., Any], *, unsigned: bool = False) -> Callable[..., Any]:
    def made(evaluator: Any, operation: Operation, operands: Any) -> Any:
        shape = operation.results[0].type.shape
        one, other = operands
        if isinstance(one, Mask):
            return one
        if one.low >= 0 and other.is_constant and other.const > 0 and rounded is not _ceiling:
            return tilewise.floor_divided(one, other.const, shape, evaluator.dimensions)
        return elementwise(_unsigned(rounded, operation) if unsigned else rounded)(
            evaluator, operation, operands
        )

    return made


def _remainder(*, unsigned: bool = False) -> Callable[..., Any]:
    def made(evaluator: Any, operation: Operation, operands: Any) -> Any:
        shape = operation.results[0].type.shape
        one, other = operands
        if isinstance(one, Mask):
            return one
        if one.low >= 0 and other.is_constant and other.const > 0:
            divisor = other.const
            if one.high < divisor:
                return one
            quotient = tilewise.floor_divided(one, divisor, shape, evaluator.dimensions)
            return tiles.add(one, tiles.scaled(quotient, -divisor), shape)
        rest = _unsigned(_rest, operation) if unsigned else _rest
        return elementwise(rest)(evaluator, operation, operands)

    return made


def _safe(divisor: Any) -> Any:
    return np.where(divisor == 0, 1, divisor)


def _truncated(one: Any, other: Any) -> Any:
    other = _safe(other)
    quotient = np.abs(one) // np.abs(other)
    return np.where((one < 0) != (other < 0), -quotient, quotient)


def _ceiling(one: Any, other: Any) -> Any:
    return -(-one // _safe(other))


def _rest(one: Any, other: Any) -> Any:
    return one - _truncated(one, other) * _safe(other)


def _unsigned(function: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
    """Return *function* applied to unsigned numbers; 64-bit numbers are taken as they are."""
    bits = operation.operands[0].type.bits
    if bits >= 64:  # noqa: PLR2004
        return function
    limit = (1 << bits) - 1
    return lambda *several: function(*(one & limit for one in several))


def _least(sign: int) -> Callable[..., Any]:
    def made(evaluator: Any, operation: Operation, operands: Any) -> Any:
        if _both_masks(operands):
            return elementwise(operator.and_ if sign > 0 else operator.or_)(
                evaluator, operation, operands
            )
        shape = operation.results[0].type.shape
        one, other = (tiles.scaled(each, sign) for each in operands)
        return tiles.scaled(tilewise.least(one, other, shape, evaluator.dimensions), sign)

    return made


def _least_unsigned(sign: int) -> Callable[..., Any]:
    def made(evaluator: Any, operation: Operation, operands: Any) -> Any:
        if _both_masks(operands) or all(one.low >= 0 for one in operands):
            return _least(sign)(evaluator, operation, operands)
        function = np.minimum if sign > 0 else np.maximum
        return elementwise(_unsigned(function, operation))(evaluator, operation, operands)

    return made


def _and(evaluator: Any, operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        return tilewise.both(operands[0], operands[1], operation.results[0].type.shape)
    if any(one.hidden for one in operands):
        return evaluator.unknown(operation, operands)
    return elementwise(operator.and_)(evaluator, operation, operands)


def _or(evaluator: Any, operation: Operation, operands: Any) -> Any:
    if _both_masks(operands):
        shape = operation.results[0].type.shape
        return tilewise.either(operands[0], operands[1], shape, evaluator.dimensions)
    return elementwise(operator.or_)(evaluator, operation, operands)


def _xor(evaluator: Any, operation: Operation, operands: Any) -> Any:
    one, other = operands
    if isinstance(one, Mask) and isinstance(other, Mask) and other.constant is not None:
        return tilewise.inverted(one, evaluator.dimensions) if other.constant else one
    return elementwise(operator.xor)(evaluator, operation, operands)


def _shifted_left(evaluator: Any, operation: Operation, operands: Any) -> Any:
    one, by = operands
    if isinstance(by, Number) and by.is_constant and 0 <= by.const < 64:  # noqa: PLR2004
        return tiles.scaled(one, 1 << by.const)
    if one.hidden or by.hidden:
        return evaluator.unknown(operation, operands)
    return elementwise(lambda x, y: x << np.clip(y, 0, 63))(evaluator, operation, operands)


def _shifted_right(*, unsigned: bool) -> Callable[..., Any]:
    def made(evaluator: Any, operation: Operation, operands: Any) -> Any:
        one, by = operands
        shape = operation.results[0].type.shape
        if one.low >= 0 and by.is_constant and 0 <= by.const < 63:  # noqa: PLR2004
            return tilewise.floor_divided(one, 1 << by.const, shape, evaluator.dimensions)
        bits = operation.operands[0].type.bits
        if unsigned and bits >= 64:  # noqa: PLR2004
            return elementwise(
                lambda x, y: (x.astype("uint64") >> np.clip(y, 0, 63).astype("uint64")).astype(
                    "int64"
                )
            )(evaluator, operation, operands)
        function = _unsigned(operator.rshift, operation) if unsigned else operator.rshift
        return elementwise(function)(evaluator, operation, operands)

    return made


_UNSIGNED = {"ult": "slt", "ule": "sle", "ugt": "sgt", "uge": "sge"}


def _compare(evaluator: Any, operation: Operation, operands: Any) -> Any:
    how = operation.text.split(",")[0].strip()
    kind = operation.operands[0].type
    one, other = (tilewise.as_number(each, kind.shape, evaluator.dimensions) for each in operands)
    if how in _UNSIGNED:
        how = _UNSIGNED[how]
        if (one.low < 0 or other.low < 0) and kind.bits > 1:
            function = _unsigned(tilewise.COMPARISONS[how], operation)
            if kind.bits >= 64:  # noqa: PLR2004
                signed = tilewise.COMPARISONS[how]
                function = lambda x, y: signed(x.astype("uint64"), y.astype("uint64"))  # noqa: E731
            return tilewise.elementwise(
                function, [one, other], kind.shape, evaluator.dimensions, truth=True
            )
    return tilewise.compared(how, one, other, kind.shape, evaluator.dimensions)


def _select(evaluator: Any, operation: Operation, operands: Any) -> Any:
    condition, one, other = operands
    shape = operation.results[0].type.shape
    if condition.shape != shape:
        condition = replace(condition, shape=shape)
    return evaluator.chosen(condition, one, other, operation.results[0])


def _cast(*, signed: bool) -> Callable[..., Any]:
    def made(  # noqa: PLR0911 - a return for each kind
        evaluator: Any, operation: Operation, operands: Any
    ) -> Any:
        (one,) = operands
        kind = operation.results[0].type
        if isinstance(one, Mask):
            if kind.element == "i1":
                return one
            if one.hidden:
                return evaluator.unknown(operation, operands)
            found = tilewise.as_number(one, kind.shape, evaluator.dimensions)
            return tiles.scaled(found, -1) if signed else found
        if kind.element == "i1":
            if one.hidden:
                return evaluator.unknown(operation, operands)
            return tilewise.as_mask(one, kind.shape, evaluator.dimensions)
        if signed or one.low >= 0:
            return one
        bits = operation.operands[0].type.bits
        if one.hidden or bits >= 64:  # noqa: PLR2004
            return evaluator.unknown(operation, operands)
        return elementwise(lambda x: x & ((1 << bits) - 1))(evaluator, operation, operands)

    return made


def _high_half(evaluator: Any, operation: Operation, operands: Any) -> Any:
    if operation.operands[0].type.bits > 32:  # noqa: PLR2004
        return evaluator.unknown(operation, operands)
    return elementwise(
        _unsigned(
            lambda x, y: ((x.astype("uint64") * y.astype("uint64")) >> np.uint64(32)).astype(
                "int64"
            ),
            operation,
        )
    )(evaluator, operation, operands)


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


def _scanned(evaluator: Any, operation: Operation, value: Any, how: str) -> Any:
    """Return the scan of a tile of equal numbers."""
    shape, axis = operation.results[0].type.shape, operation.number("axis")
    if how in {"arith.maxsi", "arith.minsi", "arith.andi", "arith.ori"}:
        return value
    if how != "arith.addi" or isinstance(value, Mask):
        return evaluator.unknown(operation, [value])
    sizes = [size if dim == axis else 1 for dim, size in enumerate(shape)]
    times = tiles.of_table(np.arange(1, shape[axis] + 1).reshape(1, *sizes), None, shape)
    return tilewise.multiplied(times, value, shape, evaluator.dimensions)


def _along(scan: int) -> Callable[..., Any]:
    def made(evaluator: Any, operation: Operation, operands: Any) -> Any:
        body = operation.regions[0].blocks[0].operations if operation.regions else []
        functions: Any = _REDUCTIONS.get(body[0].name) if len(body) == 2 else None  # noqa: PLR2004
        shape = operation.operands[0].type.shape
        kind = operation.results[0].type
        if functions is None or len(operation.operands) > 1 or "reverse = true" in operation.text:
            return evaluator.unknown(operation, operands)
        axis = operation.number("axis")
        is_uniform = not operands[0].tiles
        if is_uniform and scan:
            return _scanned(evaluator, operation, operands[0], body[0].name)

        def change(table: Any) -> Any:
            if is_uniform:  # an array over programs and iterations, equal for all elements
                whole = np.broadcast_to(table[..., None], (*table.shape, shape[axis]))
            else:
                whole = np.broadcast_to(table, (table.shape[0], *shape))
            tiles.fits(whole)
            return functions[scan](whole, axis=-1 if is_uniform else axis + 1)

        found = tilewise.elementwise(
            lambda table: change(table.astype("int64")), operands, (*shape,), evaluator.dimensions
        )
        if kind.element == "i1":
            return tilewise.as_mask(
                replace(found, shape=kind.shape), kind.shape, evaluator.dimensions
            )
        return evaluator.settled(replace(found, shape=kind.shape))

    return made


def _join(evaluator: Any, operation: Operation, operands: Any) -> Any:
    shape = operation.results[0].type.shape
    last = np.array([True, False]).reshape(1, *(1,) * (len(shape) - 1), 2)
    one, other = (
        tilewise.reshaped(each, shape, lambda table: table[..., None], lambda dims: dims)
        for each in operands
    )
    which = tiles.mask_table(last, None, shape)
    return evaluator.chosen(which, one, other, operation.results[0])


# Shapes: how tables change, and the dimensions along which a value is unknown


def _same(_: Any, __: Operation) -> Any:
    return (lambda table: table), (lambda dims: dims)


def _expand(_: Any, operation: Operation) -> Any:
    axis = operation.number("axis")
    return (
        lambda table: np.expand_dims(table, axis + 1),
        lambda dims: frozenset(d + (d >= axis) for d in dims),
    )


def _transpose(_: Any, operation: Operation) -> Any:
    order = operation.numbers("order")
    return (
        lambda table: table.transpose(0, *(d + 1 for d in order)),
        lambda dims: frozenset(place for place, d in enumerate(order) if d in dims),
    )


def _reshape(_: Any, operation: Operation) -> Any:
    before, after = operation.operands[0].type.shape, operation.results[0].type.shape

    def change(table: Any) -> Any:
        return np.broadcast_to(table, (table.shape[0], *before)).reshape(table.shape[0], *after)

    every = frozenset(place for place, size in enumerate(after) if size > 1)
    return change, (lambda dims: every if dims else dims)


def _unsplat(_: Any, __: Operation) -> Any:
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
    "tt.get_program_id": _program,
    "tt.get_num_programs": _programs,
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
    "arith.minui": _least_unsigned(1),
    "arith.maxui": _least_unsigned(-1),
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
EXACT = frozenset(
    {"tt.get_program_id", "tt.get_num_programs", "tt.make_range"}
    | {"arith.extsi", "arith.select", "tt.join"}
)
"""Operations whose results never wrap around."""
