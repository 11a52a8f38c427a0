"""The floating-point operations (FLOPs) of TTIR operations."""

from __future__ import annotations

import math
import re

from occupancy_lab.work.accesses import Reach
from occupancy_lab.work.counts import Arithmetic
from occupancy_lab.work.module import Module, Operation, operations_of

ARITHMETIC = ("add", "sub", "mul", "div", "rem", "neg", "maximum", "minimum", "maxnum", "minnum")
MATHEMATICS = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "powf"),
    *("sin", "cos", "tan", "tanh", "sinh", "cosh", "asin", "acos", "atan", "atan2", "erf", "erfc"),
    *("absf", "floor", "ceil", "trunc", "round", "roundeven"),
)
ELEMENTWISE = {
    **{f"arith.{name}f": 1 for name in ARITHMETIC},
    **{f"math.{name}": 1 for name in MATHEMATICS},
    "tt.precise_sqrt": 1,
    "tt.precise_divf": 1,
    "tt.extern_elementwise": 1,
    "math.fma": 2,
    "tt.clampf": 2,
}
"""The FLOPs per element."""
DOTS = {"tt.dot", "tt.dot_scaled"}
PRECISION = re.compile(r"inputPrecision = (\w+)")
"""The ways to multiply FP32: ieee, tf32, tf32x3, bf16x3 or bf16x6."""
MINIFLOATS = {"e2m1": "fp4e2m1", "e4m3": "fp8e4nv", "e5m2": "fp8e5", "bf16": "bf16", "fp16": "fp16"}
"""Triton's names of the types that dot_scaled multiplies."""


def of(operation: Operation, module: Module, reach: Reach) -> Arithmetic | None:
    """Return the FLOPs of an operation; None where it has none."""
    name = operation.name
    kind = operation.results[0].type
    if name in DOTS:
        return _dot(operation, module, reach)
    dtype = kind.dtype
    if name in {"tt.reduce", "tt.scan"}:
        first, axis = operation.operands[0].type, operation.number("axis")
        length = first.shape[axis] if axis < len(first.shape) else 1
        others = math.prod(first.shape) // max(length, 1)
        bodies = (one for region in operation.regions for one in operations_of(region))
        combined = sum(ELEMENTWISE.get(one.name, 0) for one in bodies)
        flops, dtype = others * max(length - 1, 0) * combined, first.dtype
    else:
        flops = ELEMENTWISE.get(name, 0) * math.prod(kind.shape) if kind.is_float else 0
    if not flops:
        return None
    place, executions = module.place(operation), reach.executions()
    named = name.rpartition(".")[2]
    return Arithmetic(place, named, dtype, executions * flops, executions, kind.shape)


def _dot(operation: Operation, module: Module, reach: Reach) -> Arithmetic:
    shape = operation.results[0].type.shape
    one = operation.operands[0].type
    batch, (m, n) = math.prod(shape[:-2]), shape[-2:]
    k, dtype = one.shape[-1], one.dtype
    if operation.name == "tt.dot_scaled":
        named = operation.text.partition("lhs = ")[2].split()
        how = named[0].strip(",") if named else ""
        dtype = MINIFLOATS.get(how, dtype)
        if how == "e2m1" and one.element == "i8":
            k *= 2
    elif dtype == "fp32" and (precision := PRECISION.search(operation.text)) is not None:
        dtype = dtype if precision[1] == "ieee" else precision[1]
    executions = reach.executions()
    flops = executions * (2 * batch * m * n * k)
    return Arithmetic(module.place(operation), "dot", dtype, flops, executions, (m, n, k))
