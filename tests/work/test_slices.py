"""Control flow and slices of kernels, against nvdisasm's labels and a model of dependences."""

import functools
import re
import struct

import pytest
from disassembled import INSTRUCTION, nvdisasm
from hypothesis import given
from hypothesis import strategies as st
from recorded_binaries import BINARIES, ORACLES
from recorded_work import recorded_launches

from occupancy_lab.compiling.cubin import EM_CUDA, compute_capability, kernel_text, read_elf
from occupancy_lab.work.slices import read_code, slice_of

ALWAYS = 7 << 12
UNCONDITIONAL = 7 << 81 | 7 << 84 | 7 << 87
SEVERAL = ("sm_75.cubin", "sm_120.cubin")
JUMPING = ("_dyt_bwd_kernel", "matmul_kernel_descriptor_persistent")
LABELLED = re.compile(r"^(\.L_\w+):|" + INSTRUCTION.pattern, re.MULTILINE)


@functools.cache
def kernels() -> dict[str, tuple[str, bytes]]:
    """Return cubins for several GPUs, with the names of their kernels."""
    old = {name: (next(iter(ORACLES[name])), BINARIES[name]) for name in SEVERAL}
    jumping = (one for one in recorded_launches() if one.kernel in JUMPING)
    return old | {one.kernel: (one.kernel, one.cubin) for one in jumping}


@pytest.mark.slow
def test_jumps_lead_to_the_labels() -> None:
    """Each jump leads to the label that nvdisasm prints, and ends a block."""
    jumps = 0
    for name, cubin in kernels().values():
        elf = read_elf(cubin, EM_CUDA, "a cubin")
        code = read_code(kernel_text(elf, name).content, compute_capability(elf))
        ends = {block.stop - 1: block for block in code.blocks.values()}
        labels: dict[str, int] = {}
        named: dict[int, str] = {}
        waiting: list[str] = []
        text = nvdisasm(cubin, "--print-instruction-encoding").partition(f".text.{name}:")[2]
        for found in LABELLED.finditer(text):
            if found[1]:
                waiting.append(found[1])
                continue
            number = int(found[2], 16) // 16
            labels |= dict.fromkeys(waiting, number)
            waiting = []
            if target := re.match(r"(?:@!?\w+\s+)?BRA(?:\.U)?\s.*`\((\.L_\w+)\)", found[3]):
                named[number] = target[1]
        for number, label in named.items():
            jump = ends[number].jump
            assert jump is not None
            assert jump.target == labels[label]
            assert labels[label] in ends[number].successors
            assert labels[label] in code.blocks
        jumps += len(named)
    assert jumps > 50


Sum = tuple[int, int, int, bool]
"""Registers of the result and of both sources, and whether the sum is guarded by P1."""
sums = st.tuples(*(st.integers(0, 5),) * 3, st.booleans())


def encoded(words: list[int]) -> bytes:
    """Return instructions as machine code."""
    return b"".join(struct.pack("<QQ", one & (1 << 64) - 1, one >> 64) for one in words)


@given(st.lists(sums, max_size=12), st.integers(0, 5), st.sampled_from(("loop", "end")))
def test_a_slice_has_what_conditions_depend_on(made: list[Sum], asked: int, jump: str) -> None:
    """The slice has a sum if and only if a jump's condition depends on it.

    In loops it may have more.
    """
    words = [
        0x210 | (1 if guarded else 7) << 12 | d << 16 | a << 24 | b << 32 | 255 << 64
        | UNCONDITIONAL | 7 << 77
        for d, a, b, guarded in made
    ]  # fmt: skip
    words.append(0x20C | ALWAYS | asked << 24 | 255 << 32 | 7 << 84 | 7 << 87 | 7 << 68)
    back = -4 * (len(words) + 1) & (1 << 30) - 1
    words.append(0x947 | 7 << 87 | back << 34 if jump == "loop" else 0x94D | 7 << 87)
    words.append(0x94D | ALWAYS | 7 << 87)
    code = read_code(encoded(words), 80)
    found = {one for numbers in slice_of(code, frozenset()).needed.values() for one in numbers}

    expected = {len(made)}
    for holds in (False, True):
        inside: list[set[int]] = [set() for _ in range(6)]
        for _ in range(len(made) + 1 if jump == "loop" else 1):
            for number, (d, a, b, guarded) in enumerate(made):
                if holds or not guarded:
                    inside[d] = {number} | inside[a] | inside[b]
            expected |= inside[asked]
    assert found >= expected if jump == "loop" else found == expected
