"""What operations compute of known floating-point numbers, which addresses can depend on.

A resized image is read at floor((y + 0.5) * scale - 0.5). A number is stored as its bits, taken as
an integer: those of 64-bit floating point where its type is that, else of 32-bit.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from occupancy_lab.work import integers, tiles, tilewise
from occupancy_lab.work.integers import elementwise
from occupancy_lab.work.module import Operation, Type
from occupancy_lab.work.tiles import Number

KNOWN = frozenset({"f64", "f32", "f16", "bf16"})
"""The types whose numbers are followed."""


def numbers(bits: Any, kind: Type) -> Any:
    """Return the floating-point numbers with these *bits*."""
    if kind.bits == 64:  # noqa: PLR2004
        return np.asarray(bits, "int64").view("float64")
    return np.asarray(bits).astype("int32").view("float32")


def bits_of(exact: Any, kind: Type) -> Any:
    """Return the bits of numbers rounded to their type."""
    if kind.bits == 64:  # noqa: PLR2004
        return np.asarray(exact, "float64", order="C").view("int64")
    found = np.asarray(exact, "float16" if kind.element == "f16" else "float32", order="C")
    bits = found.astype("float32").view("int32").astype("int64")
    if kind.element == "bf16":  # round to nearest, ties to even
        bits = bits + 0x7FFF + (bits >> 16 & 1) & ~0xFFFF
    return bits


def number(value: float, kind: Type) -> Number:
    """Return the stored form of a number."""
    return tiles.number(int(bits_of(value, kind)), kind.shape)


def _constant(operation: Operation, _: Any) -> Number | None:
    text, kind = operation.text, operation.results[0].type
    found = re.fullmatch(r"\s*(?:dense<)?(-?\d+\.\d+(?:[eE][-+]?\d+)?|0x[0-9a-fA-F]+)>?\s*", text)
    if found is None:
        return None
    if not found[1].startswith("0x"):
        return number(float(found[1]), kind)
    bits = int(found[1], 16)
    if kind.element == "bf16":
        bits, width = bits << 16, 32
    else:
        width = kind.bits
    return number(float(np.array(bits, f"uint{width}").view(f"float{width}")), kind)


def _made(function: Callable[..., Any]) -> Callable[..., Any]:
    def made(operation: Operation, operands: Any) -> Any:
        kind = operation.results[0].type
        kinds = [one.type for one in operation.operands]

        def of_bits(*several: Any) -> Any:
            with np.errstate(all="ignore"):
                values = [
                    numbers(each, one) if one.is_float else each
                    for each, one in zip(several, kinds, strict=True)
                ]
                found = function(*values)
                return bits_of(found, kind) if kind.is_float else found

        return elementwise(of_bits)(operation, operands)

    return made


def _whole(value: Any) -> Any:
    return np.clip(np.trunc(np.nan_to_num(value)), -(2.0**63), 2.0**63 - 1024).astype("int64")


def _compared(operation: Operation, operands: Any) -> Any:
    how = operation.text.split(",")[0].strip()
    function = COMPARISONS.get(how[1:])
    if function is None:
        return None

    def holds(one: Any, other: Any) -> Any:
        unordered = np.isnan(one) | np.isnan(other)
        return function(one, other) & ~unordered | (unordered if how[0] == "u" else False)

    return _made(holds)(operation, operands)


def _bitcast(operation: Operation, operands: Any) -> Any:
    before, after = operation.operands[0].type, operation.results[0].type
    return operands[0] if before.bits == after.bits in {32, 64} else None


def _library(operation: Operation, operands: Any) -> Any:
    found = re.search(r'symbol = "__nv_(\w+?)f?"', operation.text)
    function = LIBRARY.get(found[1]) if found else None
    return None if function is None else _made(function)(operation, operands)


COMPARISONS = {name.removeprefix("s"): one for name, one in tilewise.COMPARISONS.items()}
LIBRARY: dict[str, Callable[..., Any]] = {
    "nearbyint": np.rint,
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "rint", "sqrt", "fabs")},
    **{name: getattr(np, name) for name in ("fmax", "fmin", "fmod")},
}
MATHEMATICS = ("floor", "ceil", "sqrt", "exp", "exp2", "log", "log2", "sin", "cos")
CONVERSIONS = ("arith.extf", "arith.truncf", "tt.fp_to_fp", "arith.sitofp", "arith.uitofp")
OPERATIONS: dict[str, Callable[..., Any]] = {
    "arith.constant": _constant,
    "arith.select": integers.OPERATIONS["arith.select"],
    "arith.addf": _made(operator.add),
    "arith.subf": _made(operator.sub),
    "arith.mulf": _made(operator.mul),
    "arith.divf": _made(operator.truediv),
    "tt.precise_divf": _made(operator.truediv),
    "arith.remf": _made(np.fmod),
    "arith.negf": _made(operator.neg),
    "arith.maximumf": _made(np.maximum),
    "arith.minimumf": _made(np.minimum),
    "arith.maxnumf": _made(np.fmax),
    "arith.minnumf": _made(np.fmin),
    **{f"math.{name}": _made(getattr(np, name)) for name in MATHEMATICS},
    "math.absf": _made(np.abs),
    "tt.precise_sqrt": _made(np.sqrt),
    "math.rsqrt": _made(lambda one: 1 / np.sqrt(one)),
    "math.fma": _made(lambda one, other, third: np.float64(one) * other + third),
    "tt.clampf": _made(lambda one, low, high: np.minimum(np.maximum(one, low), high)),
    **dict.fromkeys(CONVERSIONS, _made(lambda one: one)),
    "arith.fptosi": _made(_whole),
    "arith.fptoui": _made(_whole),
    "arith.cmpf": _compared,
    "tt.bitcast": _bitcast,
    "tt.extern_elementwise": _library,
}
"""Evaluators like those of `integers`."""
