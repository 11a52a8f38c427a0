"""What instructions compute of floating-point numbers, against their disassembly by nvdisasm."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.work import float_arithmetic
from occupancy_lab.work.operations import PREDICATES, UNIFORM, Constant, Decoder

F = np.float32
NAN = F(math.nan)


class Read(NamedTuple):
    """The contents of R7, R0, R5 and UR6."""

    a: Any
    b: Any
    c: Any
    u: Any


INSTRUCTIONS: dict[str, tuple[int, int, Callable[[Read], Any]]] = {
    "FADD R19, R7, R0": (0x104FE20000000000, 0x7137221, lambda r: r.a + r.b),
    "FADD R17, R7, -R0": (0x8FE40000000000, 0x8000000007117221, lambda r: r.a - r.b),
    "FADD R15, -R7, -R0": (0x2FC60000000100, 0x80000000070F7221, lambda r: -r.a - r.b),
    "FADD R9, |R7|, |R0|": (0x4FC60000000200, 0x4000000007097221, lambda r: abs(r.a) + abs(r.b)),
    "FADD R10, R7, UR6": (0x40FE20008000000, 0x6070A7E21, lambda r: r.a + r.u),
    "FADD R16, -R7, 0.5": (0x40FE20000000100, 0x3F00000007107421, lambda r: F(0.5) - r.a),
    "FMUL R11, R7, R0": (0x10FC60000400000, 0x70B7220, lambda r: r.a * r.b),
    "FMUL R13, R7, -R0": (0x41FE40000400000, 0x80000000070D7220, lambda r: r.a * -r.b),
    "FMUL R18, |R7|, UR6": (0x40FE20008400200, 0x607127C20, lambda r: abs(r.a) * r.u),
    "FMUL R6, R7, 0.25": (0x42FE40000400000, 0x3E80000007067820, lambda r: r.a * F(0.25)),
    "FFMA R9, R7, R0, R5": (0x8FC60000000005, 0x7097223, lambda r: fma(r.a, r.b, r.c)),
    "FFMA R11, R7, R0, -R5": (0x1E0FE20000000805, 0x70B7223, lambda r: fma(r.a, r.b, -r.c)),
    "FFMA R13, R7, -R0, R5": (
        0x1C2FE40000000005,
        0x80000000070D7223,
        lambda r: fma(r.a, -r.b, r.c),
    ),
    "FFMA R7, R7, UR6, R5": (0x4FE20008000005, 0x607077C23, lambda r: fma(r.a, r.u, r.c)),
    "FFMA R21, R7, R0, UR6": (0x1FC40008000000, 0x607157E23, lambda r: fma(r.a, r.b, r.u)),
    "FFMA R17, R7, 3, -R0": (0x10FC60000000800, 0x4040000007117823, lambda r: fma(r.a, F(3), -r.b)),
    "FFMA R23, R7, R0, -0.5": (
        0xC2FE20000000000,
        0xBF00000007177423,
        lambda r: fma(r.a, r.b, F(-0.5)),
    ),
    "FFMA R19, -R7, R0, 3": (0xC8FE20000000100, 0x4040000007137423, lambda r: fma(-r.a, r.b, F(3))),
    "FMNMX R11, R7, R0, PT": (0x8FC60003800000, 0x70B7209, lambda r: min(r.a, r.b)),
    "FMNMX R9, R7, R0, !PT": (0xC8FE20007800000, 0x7097209, lambda r: max(r.a, r.b)),
    "FMNMX R21, R7, -R0, !PT": (0x2FC40007800000, 0x8000000007157209, lambda r: max(r.a, -r.b)),
    "FMNMX R24, R7, 3, PT": (0x1FC40003800000, 0x4040000007187809, lambda r: min(r.a, F(3))),
    "FRND R27, R7": (0xFE40000201000, 0x7001B7307, lambda r: np.rint(r.a)),
    "FRND.FLOOR R8, R7": (0x4E620000205000, 0x700087307, lambda r: np.floor(r.a)),
    "FRND.CEIL R6, R7": (0xE620000209000, 0x700067307, lambda r: np.ceil(r.a)),
    "FRND.TRUNC R29, R7": (0x522000020D000, 0x7001D7307, lambda r: np.trunc(r.a)),
    "F2I.FLOOR.NTZ R25, R7": (0xEA20000207100, 0x700197305, lambda r: math.floor(r.a)),
    "F2I.CEIL.NTZ R21, R7": (0xE22000020B100, 0x700157305, lambda r: math.ceil(r.a)),
    "F2I.NTZ R23, R7": (0xF620000203100, 0x700177305, lambda r: round(r.a)),
    "F2I.TRUNC.NTZ R15, -R7": (0xE62000020F100, 0x80000007000F7305, lambda r: int(-r.a)),
    "F2I.U32.TRUNC.NTZ R17, R7": (0xEE2000020F000, 0x700117305, lambda r: max(int(r.a), 0)),
    "FSEL R15, R7, R0, !P2": (0xC1FE20005000000, 0x70F7208, lambda r: r.b),
    "FSETP.GT.AND P0, PT, R7, UR6, PT": (0x40FE2000BF04000, 0x607007C0B, lambda r: r.a > r.u),
    "FSETP.GEU.AND P2, PT, R7, R0, PT": (0x40FE20003F4E000, 0x700720B, lambda r: not r.a < r.b),
    "FSETP.NEU.AND P1, PT, R7, R0, PT": (0xC0FE20003F2D000, 0x700720B, lambda r: r.a != r.b),
    "FSETP.NAN.AND P2, PT, R7, R0, PT": (
        0xC0FE20003F48000,
        0x700720B,
        lambda r: math.isnan(r.a) or math.isnan(r.b),
    ),
    "FSETP.GEU.AND P3, PT, |R0|, 1.175494350822287508e-38, PT": (
        0x48FE20003F6E200,
        0x8000000000780B,
        lambda r: not abs(r.b) < F(1.1754943508222875e-38),
    ),
    "MUFU.RCP R13, R7": (0xE220000001000, 0x7000D7308, lambda r: F(1) / r.a),
    "MUFU.SQRT R9, R7": (0xEE20000002000, 0x700097308, lambda r: np.sqrt(r.a)),
}
"""The text, the upper and lower half of the word, and the result for R7, R0, R5 and UR6."""
numbers = st.one_of(
    st.floats(-1000, 1000, width=32), st.integers(-9, 9).map(lambda one: one / 2)
).map(np.float32)


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once."""
    return F(float(a) * float(b) + float(c))


def executed(high: int, low: int, **registers: Any) -> Any:
    """Return the first result of an instruction for the given registers."""
    word, decoder = high << 64 | low, Decoder(90)
    form = decoder.form(word)
    assert form is not None
    places = {
        (UNIFORM if name[0] == "U" else 0) + int(name.strip("UR")): value
        for name, value in registers.items()
    }
    values = []
    for source in decoder.sources(word, form):
        if isinstance(source, Constant):
            values.append(np.full((1, 1), source.number, np.uint32))
        elif source >= PREDICATES:
            values.append(np.ones((1, 1), bool))
        else:
            values.append(np.full((1, 1), places[source], F).view(np.uint32))
    (found, *_) = getattr(float_arithmetic, form.compute)(word, values)
    return None if found is None else found


@pytest.mark.parametrize("text", INSTRUCTIONS)
@settings(max_examples=25)
@given(numbers, numbers, numbers, numbers)
def test_instructions_do_what_their_text_says(text: str, a: Any, b: Any, c: Any, u: Any) -> None:
    """Sources, signs and results are those of the disassembly."""
    high, low, function = INSTRUCTIONS[text]
    found = executed(high, low, R7=a, R0=b, R5=c, UR6=u)
    with np.errstate(all="ignore"):
        expected = function(Read(a, b, c, u))
    if text.startswith("FSETP"):
        assert bool(found[0, 0]) == bool(expected)
    elif text.startswith("F2I"):
        assert int(found.view(np.int32)[0, 0]) == int(expected)
    else:
        np.testing.assert_equal(found.view(F)[0, 0], F(expected))


def test_comparisons_with_nan() -> None:
    """Comparisons with NaN hold if their name ends with U, and a maximum ignores NaN."""
    assert executed(*INSTRUCTIONS["FSETP.NEU.AND P1, PT, R7, R0, PT"][:2], R7=NAN, R0=F(1)).all()
    assert not executed(
        *INSTRUCTIONS["FSETP.GT.AND P0, PT, R7, UR6, PT"][:2], R7=NAN, UR6=F(1)
    ).any()
    assert executed(*INSTRUCTIONS["FMNMX R9, R7, R0, !PT"][:2], R7=NAN, R0=F(1)).view(F) == 1
    of_both = executed(0x0C1FE40007820000, 0x00000000070D7209, R7=NAN, R0=F(1))  # FMNMX.NAN
    assert np.isnan(of_both.view(F)).all()


def test_saturation_is_not_computed() -> None:
    """FADD.SAT is not computed, FADD.FTZ is."""
    assert executed(0x001FC60000002000, 0x0000000007177221, R7=F(1), R0=F(1)) is None
    assert executed(0x002FC60000010000, 0x00000000071B7221, R7=F(1), R0=F(1)).view(F) == 2
