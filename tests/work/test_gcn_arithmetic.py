"""What AMD's instructions compute of integers, against Python's integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work.gcn_arithmetic import FORMS, number_of, selected

words = st.integers(0, 2**32 - 1)
wide = st.integers(0, 2**64 - 1)


def signed(value: int, bits: int = 32) -> int:
    """Return a number of *bits* bits as a signed one."""
    return (value & (1 << bits) - 1 ^ 1 << bits - 1) - (1 << bits - 1)


def array(value: int, bits: int = 32) -> np.ndarray:
    """Return a number as an array."""
    return np.full((1, 1), value, f"u{bits // 8}")


def made(name: str, *values: np.ndarray) -> int:
    """Return the first result of an instruction."""
    found = FORMS[name].compute(*values)
    return int((found[0] if isinstance(found, tuple) else found)[0, 0])


@given(words, words, words)
def test_words_are_added_multiplied_and_joined(a: int, b: int, c: int) -> None:
    """Results are the lowest 32 bits, or the upper 32 bits for high products."""
    x, y, z = array(a), array(b), array(c)
    assert made("s_add_i32", x, y) == (a + b) % 2**32
    assert made("s_mul_hi_u32", x, y) == a * b >> 32
    assert made("s_mul_hi_i32", x, y) == (signed(a) * signed(b) >> 32) % 2**32
    assert made("v_mul_lo_u32", x, y) == a * b % 2**32
    assert made("v_lshl_add_u32", x, y, z) == ((a << b % 32) + c) % 2**32
    assert made("v_bfi_b32", x, y, z) == a & b | ~a & c & 2**32 - 1
    assert made("v_bfrev_b32", x) == int(f"{a:032b}"[::-1], 2)
    assert made("v_mad_i32_i24", x, y, z) == (signed(a, 24) * signed(b, 24) + c) % 2**32
    assert made("s_min_i32", x, y) == min(signed(a), signed(b)) % 2**32


@given(words, words, st.integers(0, 1))
def test_carries_and_borrows_come_out(a: int, b: int, carry: int) -> None:
    """Carries and borrows are in the scalar condition or in a lane's bit."""
    total, over = FORMS["s_addc_u32"].compute(array(a), array(b), np.array([[bool(carry)]]))
    assert (int(total[0, 0]), bool(over[0, 0])) == ((a + b + carry) % 2**32, a + b + carry >= 2**32)
    rest, under = FORMS["v_subbrev_co_u32"].compute(array(a), array(b), np.array([[bool(carry)]]))
    assert (int(rest[0, 0]), bool(under[0, 0])) == ((b - a - carry) % 2**32, b - a - carry < 0)


@given(wide, st.integers(0, 200), wide)
def test_numbers_of_64_bits_are_shifted_and_added(a: int, by: int, b: int) -> None:
    """64-bit numbers are shifted by the lowest 6 bits of an amount, added and compared."""
    x, amount = array(a, 64), array(by)
    assert made("s_lshl_b64", x, amount) == (a << by % 64) % 2**64
    assert made("v_lshrrev_b64", amount, x) == a >> by % 64
    assert made("s_ashr_i64", x, amount) == (signed(a, 64) >> by % 64) % 2**64
    assert made("v_lshl_add_u64", x, amount, array(b, 64)) == ((a << by % 64) + b) % 2**64
    assert made("v_cmp_lt_i64", x, array(b, 64)) == (signed(a, 64) < signed(b, 64))
    assert made("s_cmp_lg_u64", x, array(b, 64)) == (a != b)


@given(words, st.integers(0, 31), st.integers(0, 32))
def test_fields_of_bits_are_taken_out(a: int, first: int, count: int) -> None:
    """A bit field is extracted, sign-extended where it is signed."""
    plain = a >> first & (1 << count) - 1
    assert made("s_bfe_u32", array(a), array(count << 16 | first)) == plain
    if count > 0 and first + count <= 32:
        found = made("v_bfe_i32", array(a), array(first), array(count % 32)) if count < 32 else None
        assert found in {None, signed(plain, count) % 2**32}


@given(words, words)
def test_comparisons_know_signs(a: int, b: int) -> None:
    """Comparisons are signed or unsigned, and 16-bit ones ignore the upper half."""
    x, y = array(a), array(b)
    assert made("v_cmp_gt_u32", x, y) == (a > b)
    assert made("s_cmp_gt_i32", x, y) == (signed(a) > signed(b))
    assert made("v_cmp_ne_u16", x, y) == (a % 2**16 != b % 2**16)


@given(st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1))
def test_a_division_by_a_float_ends_on_the_right_number(a: int, b: int) -> None:
    """The compiler's division by a reciprocal with two corrections is exact."""
    guess = made(
        "v_mul_f32",
        array(0x4F7FFFFE),
        array(made("v_rcp_iflag_f32", array(made("v_cvt_f32_u32", array(b))))),
    )
    inverse = made("v_cvt_u32_f32", array(guess))
    inverse = (inverse + (inverse * ((-b * inverse) % 2**32) >> 32)) % 2**32
    quotient = a * inverse >> 32
    rest = a - quotient * b
    for _ in range(2):
        if rest >= b:
            quotient, rest = quotient + 1, rest - b
    assert (quotient, rest) == divmod(a, b)


@pytest.mark.parametrize(
    ("text", "name", "number"),
    [
        ("0x3e8", "s_movk_i32", 1000),
        ("0xffc0", "s_movk_i32", -64),
        ("0xffc0", "s_cmpk_lt_u32", 0xFFC0),
        ("-1", "s_mov_b64", -1),
        ("1.0", "v_mul_f32", 0x3F800000),
        ("v1", "v_mov_b32", None),
    ],
)
def test_operands_are_read_as_numbers(text: str, name: str, number: int | None) -> None:
    """Short immediates are sign-extended where the instruction is signed; floats are their bits."""
    assert number_of(text, name) == number


def test_parts_of_a_register_are_selected() -> None:
    """SDWA selects a byte or a half, sign-extended or not."""
    value = array(0x80FF7F01)
    assert int(selected(value, "BYTE_1", is_signed=False)[0, 0]) == 0x7F
    assert int(selected(value, "WORD_1", is_signed=True)[0, 0]) == 0xFFFF80FF
    assert int(selected(value, "DWORD", is_signed=True)[0, 0]) == 0x80FF7F01
