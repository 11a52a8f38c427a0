"""What SASS instructions compute of integers and predicates, for many threads at once.

A number is a numpy array of 32-bit unsigned integers, and a predicate one of booleans; both
broadcast over programs and threads. A function here takes an instruction's 128-bit word, which
contains its modifiers, and the values of its sources, all of them known. It returns the values of
its results, or None for one that is not known. Sources are ordered as in `operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from occupancy_lab.work.operations import NUMBERED, OTHER_LAST

Array: TypeAlias = Any
Results: TypeAlias = "Sequence[Array | None]"

WORD = 0xFFFFFFFF
RIGHT_BIT, WRAP_BIT, HIGH_BIT = 76, 75, 80
EXTENDED_BIT, SIGNED_BIT = 74, 73
VECTOR_SIGNED_BIT, HALVES_BIT, RELU_BIT = 72, 73, 76
"""Bits of VIMNMX and VIADDMNMX, according to nvdisasm."""


def bit(word: int, place: int) -> int:
    """Return one bit of an instruction."""
    return word >> place & 1


def condition(word: int, value: Array, place: int) -> Array:
    """Return a predicate, negated where the bit after its number at *place* says so."""
    return ~value if bit(word, place + 3) else value


def slots(word: int) -> tuple[bool, bool]:
    """Return whether the second and the third source are negated.

    The bit belongs to a source's position: bit 63 to the source in bits 32 on, and bit 75 to the
    one in bits 64 on.
    """
    here, behind = bool(bit(word, 63)), bool(bit(word, 75))
    form = word >> 9 & 7
    if form in NUMBERED:
        here = False  # bit 63 belongs to the immediate
    return (behind, here) if form in OTHER_LAST else (here, behind)


def wide(value: Array) -> Array:
    """Return a number widened to 64 bits."""
    return value.astype(np.int64)


def signed(value: Array) -> Array:
    """Return a number as a signed one."""
    return value.view(np.int32) if value.flags.c_contiguous else value.astype(np.int32)


def narrow(value: Array) -> Array:
    """Return the lowest 32 bits of a number."""
    return value.astype(np.uint32)


def halves(value: Array) -> tuple[Array, Array]:
    """Return the two registers of a 64-bit number."""
    return narrow(value), narrow(value >> 32)


def joined(low: Array, high: Array) -> Array:
    """Return the 64-bit number in two registers."""
    return wide(low) | wide(high) << 32


def move(_: int, values: Sequence[Array]) -> Results:
    """Return a, which is one register or, for .64, two."""
    return [*values]


def iadd3(word: int, values: Sequence[Array]) -> Results:
    """Return a + b + c, with carries in (for .X) and out."""
    first, second, third, carry, other_carry = values
    extended = bit(word, EXTENDED_BIT)
    negations = (bool(bit(word, 72)), *slots(word))
    needs_carry = (word >> 81 & 7, word >> 84 & 7) != (7, 7)
    if not needs_carry and not extended:
        total = -first if negations[0] else first
        total = total - second if negations[1] else total + second
        return [total - third if negations[2] else total + third, None, None]
    whole = WORD if extended else WORD + 1
    terms = [
        whole - wide(value) if negative else wide(value)
        for value, negative in zip((first, second, third), negations, strict=True)
    ]
    if extended:
        terms += [condition(word, carry, 87), condition(word, other_carry, 77)]
    total = sum(sorted(terms, key=np.size), np.int64(0))  # few sums are as large as the largest
    over = total >> 32
    carries = ((1, 81), (2, 84))
    return [
        narrow(total),
        *(over >= least if word >> place & 7 != 7 else None for least, place in carries),
    ]


def add64(word: int, values: Sequence[Array]) -> Results:
    """Return a + b + c of pairs of registers (.64)."""
    total = joined(values[0], values[1])
    total = -total if bit(word, 72) else total
    for place, negative in zip((2, 4), slots(word), strict=False):
        if place < len(values):
            value = joined(values[place], values[place + 1])
            total = total - value if negative else total + value
    return halves(total)


def viadd(word: int, values: Sequence[Array]) -> Results:
    """Return a + b."""
    first, second = values
    first = -first if bit(word, 72) else first
    return [first - second if slots(word)[0] else first + second]


def imad(word: int, values: Sequence[Array]) -> Results:
    """Return the lower 32 bits of a * b + c."""
    first, second, third, carry = values
    negative, third_negative = slots(word)
    product = first * second
    product = -product if negative else product
    if bit(word, EXTENDED_BIT):
        third = ~third if third_negative else third
        return [product + third + condition(word, carry, 87).astype(np.uint32), None]
    return [product - third if third_negative else product + third, None]


def imad_wide(word: int, values: Sequence[Array]) -> Results:
    """Return a * b + c and its carry, where c and the result are pairs of registers."""
    first, second, low, high, carry = values
    negative, third_negative = slots(word)
    product = multiplied(word, first, second)
    product = -product if negative else product
    third = joined(low, high)
    if bit(word, EXTENDED_BIT):
        product = product + (~third if third_negative else third) + condition(word, carry, 87)
        return [*halves(product), None]
    total = product - third if third_negative else product + third
    over = total.view(np.uint64) < product.view(np.uint64) if word >> 81 & 7 != 7 else None
    return [*halves(total), over]


def multiplied(word: int, first: Array, second: Array) -> Array:
    """Return the product of two 32-bit numbers in 64 bits."""
    if bit(word, SIGNED_BIT):
        return wide(signed(first)) * wide(signed(second))
    return (first.astype(np.uint64) * second.astype(np.uint64)).view(np.int64)


def imad_high(word: int, values: Sequence[Array]) -> Results:
    """Return the upper 32 bits of a * b + c, where c is a pair of registers (.HI)."""
    _, high, _ = imad_wide(word, values)
    return [high, None]


def lea(word: int, values: Sequence[Array]) -> Results:
    """Return (a << shift) + b, or for .HI its upper half with c above a, with carries."""
    first, second, third, carry = values
    shift, extended = word >> 75 & 31, bit(word, EXTENDED_BIT)
    whole = WORD if extended else WORD + 1
    if bit(word, HIGH_BIT):
        both = first.astype(np.uint64) | third.astype(np.uint64) << np.uint64(32)
        shifted = wide((both >> np.uint64(32 - shift)).astype(np.uint32))
        if bit(word, 72):
            shifted = (~shifted if extended else -shifted) & WORD
    else:
        shifted = wide(first << np.uint32(shift))
        if bit(word, 72):
            shifted = whole - shifted
    total = shifted + (whole - wide(second) if slots(word)[0] else wide(second))
    if extended:
        total = total + condition(word, carry, 87)
    return [narrow(total), total > WORD if word >> 81 & 7 != 7 else None]


def lop3(word: int, values: Sequence[Array]) -> Results:
    """Return a bitwise table of three inputs; the predicate says whether any bit is set."""
    first, second, third, accumulated = values
    result = looked_up(word >> 72 & 255, first, second, third)
    place = word >> 81 & 7
    if place == 7:
        return [result, None]
    holds = result != 0
    other = condition(word, accumulated, 87)
    return [result, holds & other if bit(word, HIGH_BIT) else holds | other]


SIMPLE_TABLES: dict[int, Callable[[Array, Array, Array], Array]] = {
    0xC0: lambda a, b, _: a & b,
    0xFC: lambda a, b, _: a | b,
    0x3C: lambda a, b, _: a ^ b,
    0xF8: lambda a, b, c: a | b & c,
    0xFE: lambda a, b, c: a | b | c,
    0x96: lambda a, b, c: a ^ b ^ c,
    0x80: lambda a, b, c: a & b & c,
    0xEA: lambda a, b, c: a & b | c,
    0x33: lambda _a, b, _c: ~b,
}


def looked_up(table: int, first: Array, second: Array, third: Array) -> Array:
    """Return for each bit the bit of *table* that the three input bits select."""
    simple = SIMPLE_TABLES.get(table)
    if simple is not None:
        return simple(first, second, third)
    result = np.zeros((1, 1), first.dtype)
    for number in range(8):
        if table >> number & 1:
            term = first if number & 4 else ~first
            term = term & (second if number & 2 else ~second)
            result = result | term & (third if number & 1 else ~third)
    return result


def plop3(word: int, values: Sequence[Array]) -> Results:
    """Return two tables of three predicates."""
    inputs = [
        condition(word, value, place) for value, place in zip(values, (87, 77, 68), strict=True)
    ]
    first = (word >> 72 & 31) << 3 | word >> 64 & 7
    return [looked_up(first, *inputs), looked_up(word >> 16 & 255, *inputs)]


def shf(word: int, values: Sequence[Array]) -> Results:
    """Return the lower or upper half of a shifted pair of registers (low, high)."""
    low, amount, high = values
    kind, right = word >> 73 & 3, bit(word, RIGHT_BIT)
    is_64, is_signed = kind < 2, not kind & 1
    most = 64 if is_64 else 32
    amount = amount & np.uint32(most - 1) if bit(word, WRAP_BIT) else np.minimum(amount, most)
    amount = amount.astype(np.uint64)
    whole = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    if not right:
        moved = shifted_left(whole, amount)
        return [(moved >> np.uint64(32) if bit(word, HIGH_BIT) else moved).astype(np.uint32)]
    if bit(word, HIGH_BIT):
        whole = wide(signed(high)).view(np.uint64) if is_signed else high.astype(np.uint64)
    if is_signed:
        moved = (whole.view(np.int64) >> np.minimum(amount, 63).astype(np.int64)).view(np.uint64)
    else:
        moved = np.where(amount > 63, np.uint64(0), whole >> np.minimum(amount, np.uint64(63)))
    return [moved.astype(np.uint32)]


def shifted_left(value: Array, amount: Array) -> Array:
    """Return a 64-bit number shifted left; it is 0 for amounts of 64 or more."""
    return np.where(amount > 63, np.uint64(0), value << np.minimum(amount, np.uint64(63)))


def isetp(word: int, values: Sequence[Array]) -> Results:
    """Return the comparison of a and b, combined with another predicate."""
    first, second, accumulated, lower = values
    if bit(word, SIGNED_BIT):
        first, second = signed(first), signed(second)
    how = word >> 76 & 7
    holds = compared(how, first, second)
    if bit(word, 72):
        lower = condition(word, lower, 68)
        equal = first == second
        if how in {1, 3}:
            holds = (first < second) | equal & lower
        elif how in {4, 6}:
            holds = (first > second) | equal & lower
        elif how == 2:
            holds = equal & lower
        elif how == 5:
            holds = ~equal | lower
    other = condition(word, accumulated, 87)
    return [combined(word, holds, other), combined(word, ~holds, other)]


def compared(how: int, first: Array, second: Array) -> Array:
    """Return a comparison by its code: F, LT, EQ, LE, GT, NE, GE, T."""
    if how in {0, 7}:
        return np.full((1, 1), how == 7)
    return (np.less, np.equal, np.less_equal, np.greater, np.not_equal, np.greater_equal)[how - 1](
        first, second
    )


def combined(word: int, holds: Array, other: Array) -> Array:
    """Return two predicates combined by AND, OR or XOR."""
    how = word >> 74 & 3
    return holds & other if how == 0 else holds | other if how == 1 else holds ^ other


def select(word: int, values: Sequence[Array]) -> Results:
    """Return a where the predicate holds, else b."""
    first, second, chooses = values
    return [np.where(condition(word, chooses, 87), first, second)]


def minmax(word: int, values: Sequence[Array]) -> Results:
    """Return the minimum of a and b where the predicate holds, else the maximum."""
    return _least_or_most(word, values, SIGNED_BIT)


def vector_minmax(word: int, values: Sequence[Array]) -> Results:
    """Return the minimum or maximum of a and b; unknown for halves (.16x2) and .RELU."""
    if bit(word, HALVES_BIT) or bit(word, RELU_BIT):
        return [None]
    return _least_or_most(word, values, VECTOR_SIGNED_BIT)


def _least_or_most(word: int, values: Sequence[Array], signed_bit: int) -> Results:
    first, second, least = values
    if bit(word, signed_bit):
        first, second = signed(first), signed(second)
    least = condition(word, least, 87)
    chosen: Array = np.where(least, np.minimum(first, second), np.maximum(first, second))
    return [chosen.astype(np.uint32)]


def add_minmax(word: int, values: Sequence[Array]) -> Results:
    """Return the minimum or maximum of a + b and c; unknown for halves (.16x2) and .RELU."""
    first, second, third, least = values
    return vector_minmax(word, (first - second if slots(word)[0] else first + second, third, least))


def iabs(_: int, values: Sequence[Array]) -> Results:
    """Return the absolute value of a signed number."""
    return [np.absolute(wide(signed(values[0]))).astype(np.uint32)]


def prmt(word: int, values: Sequence[Array]) -> Results:
    """Return four bytes selected from two registers; only known for the index mode."""
    first, selector, second = values
    if word >> 72 & 7:
        return [None]
    both = first.astype(np.uint64) | second.astype(np.uint64) << np.uint64(32)
    result = np.zeros((1, 1), np.uint32)
    for place in range(4):
        chosen = selector >> np.uint32(4 * place) & np.uint32(15)
        byte = both >> (chosen & np.uint32(7)).astype(np.uint64) * np.uint64(8) & np.uint64(255)
        byte = byte.astype(np.uint32)
        sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
        byte = np.where(chosen & np.uint32(8), sign, byte)
        result = result | byte << np.uint32(8 * place)
    return [result]


def sgxt(word: int, values: Sequence[Array]) -> Results:
    """Return the lowest b bits of a, sign-extended where it is signed."""
    value, width = values
    width = width & np.uint32(31) if bit(word, WRAP_BIT) else np.minimum(width, 32)
    amount = (np.uint32(32) - width).astype(np.uint64)
    moved = shifted_left(value.astype(np.uint64), amount).astype(np.uint32)
    if bit(word, SIGNED_BIT):
        return [(signed(moved) >> np.minimum(amount, 31).astype(np.int32)).astype(np.uint32)]
    return [(moved.astype(np.uint64) >> amount).astype(np.uint32)]


def popc(word: int, values: Sequence[Array]) -> Results:
    """Return the number of bits that are set."""
    value = ~values[0] if bit(word, 63) else values[0]
    return [np.bitwise_count(value).astype(np.uint32)]


def flo(word: int, values: Sequence[Array]) -> Results:
    """Return the place of the highest bit that is set; from a signed number that differs."""
    if bit(word, SIGNED_BIT):
        return [None, None]
    value = ~values[0] if bit(word, 63) else values[0]
    place = np.floor(np.log2(np.maximum(value, 1).astype(np.float64))).astype(np.uint32)
    place = np.uint32(31) - place if bit(word, 74) else place
    return [np.where(value == 0, np.uint32(WORD), place), value != 0]
