"""What instructions compute of integers, against Python's integers.

The encodings are those of Mesa's NAK compiler (sm70_encode.rs).
"""

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work import arithmetic, float_arithmetic

WORD = 1 << 32
FALSE, TRUE = False, True
NO_PREDICATES = 7 << 81 | 7 << 84 | 7 << 87
NO_CARRIES = NO_PREDICATES | 7 << 77
numbers = st.one_of(st.integers(0, WORD - 1), st.integers(0, 40), st.integers(WORD - 40, WORD - 1))
bits = st.integers(0, 1)


def arrays(*values: int | bool) -> list[Any]:
    """Return values as arrays of one."""
    kinds = (bool if isinstance(one, bool) else np.uint32 for one in values)
    return [np.full((1, 1), one, kind) for one, kind in zip(values, kinds, strict=True)]


def first(results: Any) -> int:
    """Return the first result as a number."""
    return int(results[0].ravel()[0])


def signed(number: int) -> int:
    """Return a 32-bit number as a signed one."""
    return number - WORD if number >> 31 else number


@given(numbers, numbers, numbers, st.integers(0, 2))
def test_additions_carry(a: int, b: int, c: int, minus: int) -> None:
    """Two additions with a carry make a 64-bit sum or difference."""
    minus_a, minus_b = minus == 1, minus == 2
    low = 0x010 | 1 << 9 | 7 << 84 | 7 << 87 | 7 << 77 | minus_a << 72 | minus_b << 63
    total, over, _ = arithmetic.iadd3(low, arrays(a, b, 0, FALSE, FALSE))
    high = low | 1 << 74
    upper = arithmetic.iadd3(high, [*arrays(c, a, 0), over, *arrays(FALSE)])
    expected = (-1 if minus_a else 1) * (a + (c << 32)) + (-1 if minus_b else 1) * (b + (a << 32))
    assert int(total.ravel()[0]) | first(upper) << 32 == expected % (1 << 64)
    plain = arithmetic.iadd3(0x010 | 1 << 9 | NO_CARRIES, arrays(a, b, c, FALSE, FALSE))
    assert first(plain) == (a + b + c) % WORD


@given(numbers, numbers, numbers, numbers, bits)
def test_products(a: int, b: int, c: int, d: int, is_signed: int) -> None:
    """A product's lower half, its upper half and the whole product have the third source added."""
    left, right = (signed(a), signed(b)) if is_signed else (a, b)
    word = 1 << 9 | NO_PREDICATES | is_signed << 73
    assert first(arithmetic.imad(word, arrays(a, b, c, FALSE))) == (a * b + c) % WORD
    wide = (left * right + (c | d << 32)) % (1 << 64)
    low, high, _ = arithmetic.imad_wide(word, arrays(a, b, c, d, FALSE))
    assert first([low]) | first([high]) << 32 == wide
    assert first(arithmetic.imad_high(word, arrays(a, b, c, d, FALSE))) == wide >> 32


@given(numbers, numbers, numbers, st.integers(0, 255))
def test_tables_of_three_inputs(a: int, b: int, c: int, table: int) -> None:
    """Each bit of the result is the table's bit that the three input bits select."""
    expected = 0
    for place in range(32):
        number = (a >> place & 1) << 2 | (b >> place & 1) << 1 | c >> place & 1
        expected |= (table >> number & 1) << place
    assert first(arithmetic.lop3(table << 72 | NO_PREDICATES, arrays(a, b, c, FALSE))) == expected


@given(numbers, numbers, st.integers(0, 31), st.integers(0, 3), bits)
def test_shifts_of_pairs(low: int, high: int, amount: int, kind: int, takes_high: int) -> None:
    """A pair is shifted right as one 64-bit number, and its upper half alone."""
    word = 1 << 9 | 1 << 76 | kind << 73 | takes_high << 80
    is_signed = not kind & 1
    both = low | high << 32
    if takes_high:
        expected = (signed(high) if is_signed else high) >> amount
    else:
        expected = (both - (1 << 64) if is_signed and both >> 63 else both) >> amount
    assert first(arithmetic.shf(word, arrays(low, amount, high))) == expected % WORD


@given(numbers, numbers, st.integers(0, 7), bits)
def test_comparisons(a: int, b: int, how: int, is_signed: int) -> None:
    """Comparisons are signed or unsigned, and the second result is the opposite of the first."""
    left, right = (signed(a), signed(b)) if is_signed else (a, b)
    below, equal = left < right, left == right
    expected = (False, below, equal, below or equal, left > right, not equal, not below, True)[how]
    word = how << 76 | is_signed << 73
    holds, other = arithmetic.isetp(word, arrays(a, b, TRUE, TRUE))
    assert (bool(np.all(holds)), bool(np.all(other))) == (expected, not expected)


@given(numbers, numbers, numbers, bits, st.tuples(bits, bits))
def test_the_lesser_and_the_greater(a: int, b: int, c: int, is_signed: int, how: Any) -> None:
    """Minimum and maximum are signed or unsigned, and may take a sum or a difference."""
    is_least, minus = how
    read = signed if is_signed else int
    choose = min if is_least else max
    found = arithmetic.minmax(is_signed << 73, arrays(a, b, bool(is_least)))
    assert first(found) == choose(a, b, key=read)
    found = arithmetic.vector_minmax(is_signed << 72, arrays(a, b, bool(is_least)))
    assert first(found) == choose(a, b, key=read)
    word = 1 << 9 | is_signed << 72 | minus << 63
    found = arithmetic.add_minmax(word, arrays(a, b, c, bool(is_least)))
    total = (a - b if minus else a + b) % WORD
    assert first(found) == choose(total, c, key=read)


@given(numbers, numbers)
def test_divisions_by_reciprocals(a: int, b: int) -> None:
    """Conversions round in the given direction, to the nearest number on that side."""
    up = float_arithmetic.i2f(2 << 75 | 2 << 84 | 2 << 78, arrays(a))
    found = Fraction(float(up[0].view(np.float32).ravel()[0]))
    assert found >= a
    below = np.nextafter(np.float32(float(found)), np.float32(-np.inf))
    assert a == 0 or Fraction(float(below)) < a
    down = float_arithmetic.f2i(
        2 << 75 | 2 << 84 | 3 << 78, [np.full((1, 1), b / 7, np.float32).view(np.uint32)]
    )
    assert first(down) == min(int(np.float32(b / 7)), WORD - 1)


@given(numbers)
def test_single_bits(a: int) -> None:
    """Population count, highest set bit and absolute value are Python's."""
    assert first(arithmetic.popc(0, arrays(a))) == a.bit_count()
    assert first(arithmetic.flo(0, arrays(a))) == (a.bit_length() - 1) % WORD
    assert first(arithmetic.iabs(0, arrays(a))) == abs(signed(a))
