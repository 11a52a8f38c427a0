"""How many floating-point operations an instruction of the tensor cores does."""

from __future__ import annotations

import math
import re
from itertools import starmap

import pytest
from disassembled import instructions

from occupancy_lab.work.live import TENSOR, product_flops

SHAPE = re.compile(r"[HIQ]G?MMA\.(\d+)(?:x(\d+)x(\d+))?\b")
WARPS = 4
"""Warps that execute a product of a warp group together."""


def flops(operation: str) -> int | None:
    """Return 2 m n k of an instruction by the shape in its name: 16816, or 64x128x16."""
    found = SHAPE.match(operation)
    if found is None:
        return None
    if found[2]:
        return 2 * math.prod(map(int, found.groups())) // WARPS
    return 2 * 16 * 8 * int(found[1][3:])


@pytest.mark.slow
def test_shapes_are_those_of_nvdisasm() -> None:
    """Of every product whose name has a shape the FLOPs follow from it; others do none."""
    shapes = set()
    for one in instructions():
        if one.word & 0x1FF not in TENSOR:
            assert product_flops(one.word) == 0
        elif (expected := flops(one.operation)) is not None:
            assert product_flops(one.word) == expected, one.operation
            shapes.add(one.operation.partition(".")[0])
    assert "HGMMA" in shapes


@pytest.mark.parametrize(
    ("operation", "low", "high"),
    [
        ("HMMA.16816.F32", 0x23C, 0x1800),
        ("HMMA.1688.F32.TF32", 0x23C, 0x81000),
        ("IMMA.16832.S8.S8.SAT", 0x237, 0x445C00),
        ("QMMA.16832.F32.E5M2.E5M2", 0x27A, 0xEC00),
        ("HGMMA.64x32x16.F32", 0x9F0 | 3 << 53, 0xC700800),
        ("HGMMA.64x32x8.F32.TF32", 0x9F0 | 3 << 53, 0xC702800),
        ("QGMMA.64x32x32.F32.E5M2.E5M2", 0x9F3 | 3 << 53, 0xC703800),
    ],
)
def test_every_kind_of_product(operation: str, low: int, high: int) -> None:
    """Words as ptxas 13 writes them, with their names as nvdisasm has them."""
    assert product_flops(high << 64 | low) == flops(operation)


def test_what_has_no_shape_is_not_known() -> None:
    """The products of doubles, and of Blackwell's tensor memory, are not decoded."""
    assert list(starmap(product_flops, [(0x23F,), (0x1EA,)])) == [None, None]
