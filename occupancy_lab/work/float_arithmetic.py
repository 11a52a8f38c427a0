"""What SASS instructions compute of FP32 numbers, as `arithmetic` does for integers.

Addresses can depend on them, as in resizing an image, and integers are divided with reciprocals.
The encodings are from nvdisasm (CUDA 12.8) for each form that ptxas writes for sm_90.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from occupancy_lab.work import arithmetic
from occupancy_lab.work.arithmetic import WORD, Array, Results
from occupancy_lab.work.operations import NUMBERED

NEGATED, ABSOLUTE = 72, 73
"""Bits of the first source; those of a source in bits 32 on are 63 and 62, unless it is
immediate."""
THIRD_NEGATED = 75
"""A bit of FFMA."""
MODE_BIT, FLUSH_BIT, NAN_BIT = 78, 80, 81
"""Bits: the two of a rounding mode; flushing of denormals, which changes no address; and whether a
maximum with NaN is NaN."""
SINGLE = 2
"""The code of the 32-bit type in bits 75 and 84 of a conversion."""
UNSCALED = 4
"""The code of an FMUL that does not scale its product."""
FUNCTIONS: dict[int, Callable[[Array], Array]] = {
    0: lambda x: np.cos(x * np.float32(2 * np.pi)),
    1: lambda x: np.sin(x * np.float32(2 * np.pi)),
    2: np.exp2,
    3: np.log2,
    4: lambda x: np.float32(1) / x,
    5: lambda x: np.float32(1) / np.sqrt(x),
    8: np.sqrt,
}
"""The function of each MUFU code: COS and SIN of turns, EX2, LG2, RCP, RSQ and SQRT."""


def _first(word: int, value: Array) -> Array:
    found = value.view(np.float32)
    found = np.abs(found) if arithmetic.bit(word, ABSOLUTE) else found
    return -found if arithmetic.bit(word, NEGATED) else found


def _other(word: int, value: Array) -> Array:
    """Return the source in bits 32 on."""
    found = value.view(np.float32)
    if word >> 9 & 7 in NUMBERED:
        return found
    found = np.abs(found) if arithmetic.bit(word, 62) else found
    return -found if arithmetic.bit(word, 63) else found


def _is_plain(word: int, *besides: int) -> bool:
    """Tell whether no modifiers in bits 72 to 83 are set other than *besides* and FTZ."""
    known = sum(1 << place for place in (FLUSH_BIT, *besides))
    return not word & 0xFFF << 72 & ~known


def fadd(word: int, values: Sequence[Array]) -> Results:
    """Return a + b."""
    if not _is_plain(word, NEGATED, ABSOLUTE):
        return [None]
    with np.errstate(all="ignore"):
        return [(_first(word, values[0]) + _other(word, values[1])).view(np.uint32)]


def fmul(word: int, values: Sequence[Array]) -> Results:
    """Return a * b; unknown where the product is scaled or saturated."""
    if not _is_plain(word, NEGATED, ABSOLUTE) or word >> 84 & 7 != UNSCALED:
        return [None]
    with np.errstate(all="ignore"):
        return [(_first(word, values[0]) * _other(word, values[1])).view(np.uint32)]


def ffma(word: int, values: Sequence[Array]) -> Results:
    """Return a * b + c, rounded once."""
    if not _is_plain(word, NEGATED, THIRD_NEGATED):
        return [None]
    first, second, third = (one.view(np.float32) for one in values)
    negations = (bool(arithmetic.bit(word, NEGATED)), *arithmetic.slots(word))
    first, second, third = (
        -one if negative else one
        for one, negative in zip((first, second, third), negations, strict=True)
    )
    with np.errstate(all="ignore"):
        return [(first.astype(np.float64) * second + third).astype(np.float32).view(np.uint32)]


def fminmax(word: int, values: Sequence[Array]) -> Results:
    """Return the minimum of a and b where the predicate holds, else the maximum."""
    if not _is_plain(word, NEGATED, ABSOLUTE, NAN_BIT):
        return [None]
    first, second = _first(word, values[0]), _other(word, values[1])
    least, most = (np.minimum, np.maximum) if arithmetic.bit(word, NAN_BIT) else (np.fmin, np.fmax)
    holds = arithmetic.condition(word, values[2], 87)
    chosen: Array = np.where(holds, least(first, second), most(first, second))
    return [chosen.astype(np.float32).view(np.uint32)]


def fselect(word: int, values: Sequence[Array]) -> Results:
    """Return a where the predicate holds, else b."""
    first, second = _first(word, values[0]), _other(word, values[1])
    chosen: Array = np.where(arithmetic.condition(word, values[2], 87), first, second)
    return [chosen.view(np.uint32)]


def fsetp(word: int, values: Sequence[Array]) -> Results:
    """Return the comparison of a and b, combined with another predicate."""
    first, second = _first(word, values[0]), _other(word, values[1])
    how = word >> 76 & 15
    unordered = np.isnan(first) | np.isnan(second)
    holds = np.zeros((1, 1), bool)
    for place, compare in enumerate((np.less, np.equal, np.greater)):
        if how >> place & 1:
            holds = holds | compare(first, second)
    holds = holds & ~unordered | (unordered if how >> 3 else False)
    other = arithmetic.condition(word, values[2], 87)
    return [arithmetic.combined(word, holds, other), arithmetic.combined(word, ~holds, other)]


def _is_of_singles(word: int) -> bool:
    """Tell whether both types of a conversion have 32 bits."""
    return word >> 75 & 3 == word >> 84 & 3 == SINGLE


def fround(word: int, values: Sequence[Array]) -> Results:
    """Return b rounded to an integer by the instruction's mode."""
    if not _is_of_singles(word):
        return [None]
    return [_whole(word, values[0]).astype(np.float32).view(np.uint32)]


def _whole(word: int, value: Array) -> Array:
    rounded_to = (np.rint, np.floor, np.ceil, np.trunc)[word >> MODE_BIT & 3]
    return rounded_to(_other(word, value))


def i2f(word: int, values: Sequence[Array]) -> Results:
    """Return an integer as an FP32 number, rounded by the instruction's mode."""
    if not _is_of_singles(word):
        return [None]
    value = arithmetic.signed(values[0]) if arithmetic.bit(word, 74) else values[0]
    return [rounded(value.astype(np.float64), word >> MODE_BIT & 3).view(np.uint32)]


def rounded(exact: Array, how: int) -> Array:
    """Return the nearest FP32 number, or that below (1), above (2), or towards zero (3)."""
    near = exact.astype(np.float32)
    if how == 0:
        return near
    below = np.where(near > exact, np.nextafter(near, np.float32(-np.inf)), near)
    above = np.where(near < exact, np.nextafter(near, np.float32(np.inf)), near)
    return (below, above, np.where(exact < 0, above, below))[how - 1]


def f2i(word: int, values: Sequence[Array]) -> Results:
    """Return an FP32 number as an integer, rounded by the instruction's mode."""
    if not _is_of_singles(word):
        return [None]
    exact = np.nan_to_num(_whole(word, values[0]).astype(np.float64))
    limits = (-(2**31), 2**31 - 1) if arithmetic.bit(word, 72) else (0, WORD)
    return [np.clip(exact, *limits).astype(np.int64).astype(np.uint32)]


def mufu(word: int, values: Sequence[Array]) -> Results:
    """Return a special function; its reciprocal is used for dividing integers.

    A GPU's result differs in the last bit. Sines and cosines take turns.
    """
    function = FUNCTIONS.get(word >> 74 & 15)
    if function is None:
        return [None]
    with np.errstate(all="ignore"):
        return [function(_other(word, values[0])).astype(np.float32).view(np.uint32)]
