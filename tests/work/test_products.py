"""How many floating-point operations an instruction of the tensor cores does."""

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


def test_what_has_no_shape_is_not_known() -> None:
    """The products of doubles, and of Blackwell's tensor memory, are not decoded."""
    assert list(starmap(product_flops, [(0x23F,), (0x1EA,)])) == [None, None]
