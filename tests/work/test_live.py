"""Which registers are live at each instruction of a kernel, against nvdisasm."""

import csv
import dataclasses
import lzma
import math
import re
from collections import Counter
from pathlib import Path

import pytest
from disassembled import instructions, numbers
from hand_made import executed, place
from recorded_work import recorded_launches

from occupancy_lab.compiling.cubin import EM_CUDA, kernel_text, read_elf
from occupancy_lab.work.gcn import read_gcn
from occupancy_lab.work.live import (
    TENSOR,
    live_registers,
    live_vectors,
    product_flops,
    registers_read,
)
from occupancy_lab.work.operations import ZERO, Decoder, places_of
from occupancy_lab.work.slices import read_code

DATA = Path(__file__).parent / "data" / "live.csv.xz"
"""Live registers of recorded kernels according to nvdisasm of CUDA 12.8, one byte each."""
WHOLE = ("HGMMA", "IGMMA", "QGMMA", "R2P", "BMSK")
"""Instructions whose text does not give all registers that they read."""


@pytest.mark.slow
def test_live_registers_are_those_of_nvdisasm() -> None:
    """For 207 recorded kernels the maximum agrees, and 99% of all instructions."""
    cubins = {
        (gpu, one.binary): (one.kernel, one.cubin)
        for gpu in ("h100", "h200")
        for one in recorded_launches(gpu)
    }
    kernels = same = counted = 0
    with lzma.open(DATA, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name, cubin = cubins[row["gpu"], row["binary"]]
            elf = read_elf(cubin, EM_CUDA, "a cubin")
            found = live_registers(read_code(kernel_text(elf, name).content, 90))
            expected = bytes.fromhex(row["live"])
            assert max(found) == max(expected), name
            assert len(found) - len(expected) in range(16)  # padding at the end is left out
            same += sum(one == other for one, other in zip(found, expected, strict=False))
            counted += len(expected)
            kernels += 1
    assert kernels == 207
    assert same / counted > 0.993


def test_registers_read_are_the_operands() -> None:
    """An instruction reads the registers in its text that it does not write, in whole vectors."""
    seen = Counter()
    for listed in instructions():
        decoder = Decoder(listed.arch)
        found = set(places_of(registers_read(listed.word, decoder)))
        written = decoder.writes(listed.word)
        named = {one for one in numbers(listed.operands) if one < ZERO}
        kind = listed.operation.partition(".")[0]
        if kind in WHOLE:
            continue
        assert {one for one in named if not written >> one & 1} <= found, listed
        first = {one for one in found if one - 1 not in found}
        assert first <= named, listed
        seen[kind] += 1
    assert len(seen) > 60


def test_the_fullest_line_is_that_with_most_live_registers() -> None:
    """Of several lines with the most live registers the slowest is the fullest; none if unknown."""
    run = executed([place(3), place(20), place(21)], 8)
    assert run.fullest is None
    lives = zip(run.lines, (40, 96, 96), (900, 5, 70), strict=True)
    lines = [dataclasses.replace(one, live=live, cycles=cycles) for one, live, cycles in lives]
    found = dataclasses.replace(run, lines=tuple(lines)).fullest
    assert found is lines[2]


ASSEMBLY = """
kernel:
	v_mov_b32_e32 v1, 0
	global_load_dwordx4 v[4:7], v0, s[0:1]
	s_waitcnt vmcnt(0)
	v_accvgpr_write_b32 a255, v7
	v_add_f32_e32 v1, v4, v5
	v_mov_b32_dpp v1, v6 row_shr:1 row_mask:0xf bank_mask:0xf
	v_accvgpr_read_b32 v255, a255
	global_store_dwordx2 v0, v[1:2], s[0:1]
	s_endpgm
.Lfunc_end0:
"""


def test_live_vectors_are_those_still_read() -> None:
    """A value lives until its last read; a move to some lanes keeps the other lanes."""
    code = read_gcn(ASSEMBLY, "kernel")
    assert live_vectors(code, is_unified=True) == [3, 6, 6, 7, 7, 5, 5, 3, 0]
    assert live_vectors(code, is_unified=False) == [3, 6, 6, 6, 6, 4, 4, 3, 0]


SHAPE = re.compile(r"[HIQ]G?MMA\.(\d+)(?:x(\d+)x(\d+))?\b")
WARPS = 4
"""Warps that execute a warp group's product together."""


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
    """FLOPs follow from the shape in the name of each product, and are 0 for other instructions."""
    shapes = set()
    for one in instructions():
        if one.word & 0x1FF not in TENSOR:
            assert product_flops(one.word) == 0
        elif (expected := flops(one.operation)) is not None:
            assert product_flops(one.word) == expected, one.operation
            shapes.add(one.operation.partition(".")[0])
    assert "HGMMA" in shapes


def test_products_without_a_shape_are_not_decoded() -> None:
    """Products of doubles, and of Blackwell's tensor memory, are not decoded."""
    assert (product_flops(0x23F), product_flops(0x1EA)) == (None, None)
