"""What instructions of AMD's GPUs compute of integers and lane masks, for many waves at once.

A number is a numpy array of 32-bit unsigned integers over programs and threads, and a lane mask one
of booleans. A mask occupies two scalar registers, and each of them holds the whole array. Where a
number is read as a mask, or a mask as a number, it is converted bit by bit.

The semantics are from AMD's instruction set guide of CDNA 3. Instructions that are not here, such
as most floating-point arithmetic, have unknown results.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any

WORD_BITS, HALF, LOW_24 = 32, np.uint32(0xFFFF), np.uint32(0xFFFFFF)
LINEAR, COMPARED, PLAIN = "move", "isetp", ""
"""The labels by which `skipping` knows how results grow from pass to pass."""
SAVE = "save "
"""The prefix of the name of a logical operation that saves exec and then sets it."""


@dataclass(frozen=True, slots=True)
class Form:
    """What an instruction reads, computes and writes.

    In `reads` and `writes` each letter is an operand: w a number of 32 bits, q one of 64, m a mask,
    and x either of them with as many bits as the operation. After the operands follow c, the scalar
    condition, and e, the lanes of exec.
    """

    reads: str
    writes: str
    compute: Callable[..., Any]
    name: str = PLAIN
    signed: bool = False


def signed(value: Array) -> Array:
    """Return unsigned numbers as signed numbers of the same width."""
    return value.astype(np.int64 if value.dtype == np.uint64 else np.int32)


def words(value: Array) -> Array:
    """Return the lowest 32 bits of numbers."""
    return value.astype(np.uint32)


def shift(value: Array, amount: Array, *, how: str = "lshl") -> Array:
    """Return numbers shifted by the low bits of *amount*: lshl, lshr or ashr (arithmetic)."""
    by = (amount & np.uint32(value.dtype.itemsize * 8 - 1)).astype(value.dtype)
    if how == "ashr":
        return (signed(value) >> signed(by)).view(value.dtype)
    return value << by if how == "lshl" else value >> by


def with_carry(first: Array, second: Array, carry: Array | int = 0) -> tuple[Array, Array]:
    """Return the sum of two numbers, and whether it exceeds 32 bits."""
    total = first.astype(np.uint64) + second.astype(np.uint64) + np.asarray(carry).astype(np.uint64)
    return words(total), total >> np.uint64(WORD_BITS) != 0


def with_borrow(first: Array, second: Array, borrow: Array | int = 0) -> tuple[Array, Array]:
    """Return the difference of two numbers, and whether it is negative."""
    total = first.astype(np.int64) - second.astype(np.int64) - np.asarray(borrow).astype(np.int64)
    return words(total), total < 0


def high(first: Array, second: Array, *, is_signed: bool = False) -> Array:
    """Return the upper 32 bits of a product."""
    if is_signed:
        return words(signed(first).astype(np.int64) * signed(second).astype(np.int64) >> 32)
    return words(first.astype(np.uint64) * second.astype(np.uint64) >> np.uint64(32))


def field(value: Array, packed: Array, *, is_signed: bool) -> Array:
    """Return a bit field; *packed* has its offset in the lowest bits, its width in bits 16 on."""
    return extracted(value, packed, packed >> np.uint32(16), is_signed=is_signed)


def extracted(value: Array, offset: Array, width: Array, *, is_signed: bool) -> Array:
    """Return *width* bits of numbers from *offset* on."""
    bits = value.dtype.itemsize * 8
    room = 64 - np.minimum(width & np.uint32(2 * bits - 1), 64).astype(np.uint64)
    moved = value.astype(np.uint64) >> (offset & np.uint32(bits - 1)).astype(np.uint64) << room
    found = moved.view(np.int64) >> room.astype(np.int64) if is_signed else moved >> room
    return found.astype(value.dtype)


def from_float(value: Array, *, is_signed: bool = False) -> Array:
    """Return FP32 numbers truncated to integers."""
    found = np.nan_to_num(value.view(np.float32).astype(np.float64), posinf=2.0**63)
    least, most = (-(2**31), 2**31 - 1) if is_signed else (0, 2**32 - 1)
    return words(np.clip(np.trunc(found), least, most).astype(np.int64))


def single(value: Array) -> Array:
    """Return the bits of FP32 numbers."""
    return np.ascontiguousarray(value, np.float32).view(np.uint32)


def floats(value: Array) -> Array:
    """Return bits as FP32 numbers."""
    return np.ascontiguousarray(value).view(np.float32)


def quiet(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return *compute* without numpy's warnings about NaN, infinity and division by 0."""

    def silent(*values: Array) -> Array:
        with np.errstate(all="ignore"):
            return compute(*values)

    return silent


def leading(value: Array, *, right: bool) -> Array:
    """Return the position of the first set bit from either end; -1 where none is set."""
    wide = value.astype(np.int64)
    wide = wide & -wide if right else wide
    place = np.frexp(wide.astype(np.float64))[1].astype(np.int64) - 1
    return words(np.where(value == 0, -1, place if right else WORD_BITS - 1 - place))


COMPARISONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "lg": np.not_equal,
    "ne": np.not_equal,
    "ge": np.greater_equal,
}
LOGIC: Mapping[str, Callable[[Array, Array], Array]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "andn1": lambda a, b: ~a & b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}


def _shifts() -> dict[str, Form]:
    forms = {}
    for name, kind in (("lshl", "b"), ("lshr", "b"), ("ashr", "i")):
        linear = LINEAR if name == "lshl" else PLAIN
        compute = functools.partial(shift, how=name)
        for bits, letter in (("32", "w"), ("64", "q")):
            forms[f"s_{name}_{kind}{bits}"] = Form(f"{letter}w", f"{letter}c", compute, linear)
            forms[f"v_{name}rev_{kind}{bits}"] = Form(
                f"w{letter}", letter, lambda a, b, compute=compute: compute(b, a), linear
            )
    return forms


def _comparisons() -> dict[str, Form]:
    forms = {}
    for name, compare in COMPARISONS.items():
        for kind in ("i32", "u32", "i64", "u64", "i16", "u16"):
            compute = functools.partial(_compared, compare, kind)
            letters = "qq" if kind.endswith("64") else "ww"
            label = COMPARED if kind.endswith("32") else PLAIN
            form = Form(letters, "c", compute, label, signed=kind[0] == "i")
            forms[f"s_cmp_{name}_{kind}"] = forms[f"s_cmpk_{name}_{kind}"] = form
            forms[f"v_cmp_{name}_{kind}"] = replace(form, reads=f"{letters}e", writes="m")
    return forms


def _compared(compare: Callable[[Array, Array], Array], kind: str, *sides: Array) -> Array:
    if kind.endswith("16"):
        sides = tuple(one.astype(np.uint16) for one in sides)
    if kind[0] == "i":
        sides = tuple(one.view(f"i{one.dtype.itemsize}") for one in sides)
    return compare(*sides)


def _logic() -> dict[str, Form]:
    forms = {}
    for name, compute in LOGIC.items():
        for bits in ("32", "64"):
            forms[f"s_{name}_b{bits}"] = Form("xx", "xc", compute, name)
            forms[f"s_{name}_saveexec_b{bits}"] = Form("xe", "xec", compute, f"{SAVE}{name}")
        forms[f"v_{name}_b32"] = Form("ww", "w", compute)
    return forms


def reversed_bits(value: Array) -> Array:
    """Return numbers with their bits reversed."""
    for by, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        value = value >> np.uint32(by) & np.uint32(mask) | (value & np.uint32(mask)) << np.uint32(
            by
        )
    return value >> np.uint32(16) | value << np.uint32(16)


def _signed24(value: Array) -> Array:
    return words(
        (value & LOW_24).astype(np.int64) - ((value & np.uint32(0x800000)).astype(np.int64) << 1)
    )


_FORMS: Mapping[str, Form] = {
    "s_mov_b32 s_mov_b64": Form("x", "x", lambda a: a, LINEAR),
    "s_movk_i32 v_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32": (
        Form("w", "w", lambda a: a, LINEAR)
    ),
    "v_mov_b64": Form("q", "q", lambda a: a, LINEAR),
    "s_not_b32 s_not_b64": Form("x", "xc", lambda a: ~a),
    "v_not_b32": Form("w", "w", lambda a: ~a),
    "s_add_i32 s_addk_i32 v_add_u32": Form("ww", "w", lambda a, b: a + b, LINEAR),
    "s_sub_i32 v_sub_u32": Form("ww", "w", lambda a, b: a - b, LINEAR),
    "v_subrev_u32": Form("ww", "w", lambda a, b: b - a, LINEAR),
    "v_add3_u32": Form("www", "w", lambda a, b, c: a + b + c, LINEAR),
    "s_add_u32": Form("ww", "wc", with_carry),
    "s_addc_u32": Form("wwc", "wc", with_carry),
    "s_sub_u32": Form("ww", "wc", with_borrow),
    "s_subb_u32": Form("wwc", "wc", with_borrow),
    "v_add_co_u32": Form("ww", "wm", with_carry),
    "v_addc_co_u32": Form("wwm", "wm", with_carry),
    "v_sub_co_u32": Form("ww", "wm", with_borrow),
    "v_subrev_co_u32": Form("ww", "wm", lambda a, b: with_borrow(b, a)),
    "v_subb_co_u32": Form("wwm", "wm", with_borrow),
    "v_subbrev_co_u32": Form("wwm", "wm", lambda a, b, c: with_borrow(b, a, c)),
    "s_lshl1_add_u32": Form("ww", "wc", lambda a, b: with_carry(a << np.uint32(1), b)),
    "s_lshl2_add_u32": Form("ww", "wc", lambda a, b: with_carry(a << np.uint32(2), b)),
    "s_lshl3_add_u32": Form("ww", "wc", lambda a, b: with_carry(a << np.uint32(3), b)),
    "s_lshl4_add_u32": Form("ww", "wc", lambda a, b: with_carry(a << np.uint32(4), b)),
    "s_mul_i32 s_mulk_i32 v_mul_lo_u32": Form("ww", "w", lambda a, b: a * b),
    "s_mul_hi_u32 v_mul_hi_u32": Form("ww", "w", high),
    "s_mul_hi_i32 v_mul_hi_i32": Form("ww", "w", lambda a, b: high(a, b, is_signed=True)),
    "v_mul_u32_u24": Form("ww", "w", lambda a, b: (a & LOW_24) * (b & LOW_24)),
    "v_mul_i32_i24": Form("ww", "w", lambda a, b: _signed24(a) * _signed24(b)),
    "v_mad_u32_u24": Form("www", "w", lambda a, b, c: (a & LOW_24) * (b & LOW_24) + c),
    "v_mad_i32_i24": Form("www", "w", lambda a, b, c: _signed24(a) * _signed24(b) + c),
    "v_mad_u64_u32": Form("wwq", "q", lambda a, b, c: a.astype(np.uint64) * b + c),
    "v_mad_i64_i32": Form(
        "wwq", "q", lambda a, b, c: (signed(a).astype(np.int64) * signed(b)).view(np.uint64) + c
    ),
    "s_min_u32 v_min_u32": Form("ww", "w", np.minimum),
    "s_max_u32 v_max_u32": Form("ww", "w", np.maximum),
    "s_min_i32 v_min_i32": Form("ww", "w", lambda a, b: words(np.minimum(signed(a), signed(b)))),
    "s_max_i32 v_max_i32": Form("ww", "w", lambda a, b: words(np.maximum(signed(a), signed(b)))),
    "s_abs_i32": Form("w", "wc", lambda a: words(np.abs(signed(a).astype(np.int64)))),
    "s_cselect_b32 s_cselect_b64": Form("xxc", "x", lambda a, b, c: np.where(c, a, b)),
    "v_cndmask_b32": Form("wwm", "w", lambda a, b, c: np.where(c, b, a)),
    "s_brev_b32 v_bfrev_b32": Form("w", "w", reversed_bits),
    "s_flbit_i32_b32": Form("w", "w", lambda a: leading(a, right=False)),
    "s_ff1_i32_b32": Form("w", "w", lambda a: leading(a, right=True)),
    "s_bfe_u32": Form("ww", "wc", lambda a, b: field(a, b, is_signed=False)),
    "s_bfe_i32": Form("ww", "wc", lambda a, b: field(a, b, is_signed=True)),
    "s_bfe_u64": Form("qw", "qc", lambda a, b: field(a, b, is_signed=False)),
    "s_bfe_i64": Form("qw", "qc", lambda a, b: field(a, b, is_signed=True)),
    "v_bfe_u32": Form("www", "w", lambda a, b, c: extracted(a, b, c, is_signed=False)),
    "v_bfe_i32": Form("www", "w", lambda a, b, c: extracted(a, b, c, is_signed=True)),
    "s_bitcmp0_b32": Form("ww", "c", lambda a, b: shift(a, b, how="lshr") & np.uint32(1) == 0),
    "s_bitcmp1_b32": Form("ww", "c", lambda a, b: shift(a, b, how="lshr") & np.uint32(1) == 1),
    "s_sext_i32_i16": Form("w", "w", lambda a: words(a.astype(np.int16))),
    "s_sext_i32_i8": Form("w", "w", lambda a: words(a.astype(np.int8))),
    "v_lshlrev_b16": Form("ww", "w", lambda a, b: b << (a & np.uint32(15)) & HALF),
    "v_lshrrev_b16": Form("ww", "w", lambda a, b: (b & HALF) >> (a & np.uint32(15))),
    "v_ashrrev_i16": Form(
        "ww",
        "w",
        lambda a, b: words(b.astype(np.int16) >> (a & np.uint32(15)).astype(np.int16)) & HALF,
    ),
    "v_add_u16": Form("ww", "w", lambda a, b: a + b & HALF),
    "v_sub_u16": Form("ww", "w", lambda a, b: a - b & HALF),
    "v_mul_lo_u16": Form("ww", "w", lambda a, b: a * b & HALF),
    "v_xad_u32": Form("www", "w", lambda a, b, c: (a ^ b) + c),
    "v_lshl_add_u32": Form("www", "w", lambda a, b, c: shift(a, b) + c),
    "v_lshl_add_u64": Form("qwq", "q", lambda a, b, c: shift(a, b) + c),
    "v_add_lshl_u32": Form("www", "w", lambda a, b, c: shift(a + b, c)),
    "v_lshl_or_b32": Form("www", "w", lambda a, b, c: shift(a, b) | c),
    "v_and_or_b32": Form("www", "w", lambda a, b, c: a & b | c),
    "v_or3_b32": Form("www", "w", lambda a, b, c: a | b | c),
    "v_bfi_b32": Form("www", "w", lambda a, b, c: a & b | ~a & c),
    "v_cvt_f32_u32": Form("w", "w", lambda a: single(a.astype(np.float32))),
    "v_cvt_f32_i32": Form("w", "w", lambda a: single(signed(a).astype(np.float32))),
    "v_cvt_u32_f32": Form("w", "w", quiet(from_float)),
    "v_cvt_i32_f32": Form("w", "w", quiet(lambda a: from_float(a, is_signed=True))),
    "v_rcp_iflag_f32 v_rcp_f32": (
        Form("w", "w", quiet(lambda a: single(np.float32(1) / floats(a))))
    ),
    "v_mul_f32": Form("ww", "w", quiet(lambda a, b: single(floats(a) * floats(b)))),
    "v_trunc_f32": Form("w", "w", quiet(lambda a: single(np.trunc(floats(a))))),
}
FORMS: Mapping[str, Form] = {
    **_shifts(),
    **_comparisons(),
    **_logic(),
    **{name: form for names, form in _FORMS.items() for name in names.split()},
}
"""What each instruction reads, computes and writes, by its name."""


def selected(value: Array, part: str, *, is_signed: bool) -> Array:
    """Return a part of numbers by its SDWA name: DWORD, WORD_1 or BYTE_3."""
    kind, _, place = part.partition("_")
    if kind == "DWORD":
        return value
    width = 16 if kind == "WORD" else 8
    return extracted(value, np.uint32(int(place) * width), np.uint32(width), is_signed=is_signed)


def number_of(text: str, name: str) -> int | None:
    """Return the number that an operand of instruction *name* is; None where it is not one."""
    if re.fullmatch(r"-?(?:0x[0-9a-f]+|\d+)", text):
        number = int(text, 0)
        if re.match(r"s_(?:cmpk_\w+_i32|movk|addk|mulk)", name):
            number = ((number & 0xFFFF) ^ 0x8000) - 0x8000
        return number
    if re.fullmatch(r"-?\d+\.\d+", text):
        (bits,) = struct.unpack("<I", struct.pack("<f", float(text)))
        return int(bits)
    return None
