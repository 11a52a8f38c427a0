"""How many instructions one warp issues of a kernel in a cubin, read from its code (SASS).

NVIDIA documents none of the encoding. Instructions are 16 bytes from sm_70 on (Jia, Maggioni,
Staiger and Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018);
the opcodes and fields are those with which the text of nvdisasm agrees in the tests.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import TYPE_CHECKING

from occupancy_lab.compiling.flow import Issued, Jump, count_issued

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES = 16
ARCHITECTURES = range(70, 122)
"""The compute capabilities with these opcodes: sm_70 to sm_121."""
SPLIT_TARGET_FROM = 90

BRA, BRA_UNIFORM, CALL, EXIT = 0x947, 0x547, 0x944, 0x94D
JUMPS = frozenset({BRA, BRA_UNIFORM, CALL, EXIT})
UNKNOWN_TARGETS = frozenset({0x950, 0x949, 0x94A, 0x94C, 0x54A, 0xB4A, 0x958, 0x959})
"""RET, BRX, JMP, JMX, JMP with a uniform predicate, JMP to a constant, BRXU and JMXU."""
LOCAL = frozenset({0x983, 0x387, 0x987})
"""LDL, and STL without and with a uniform register in its address."""
KINDS: Mapping[int, str] = MappingProxyType(
    {
        0x189: "shuffles",  # SHFL
        0x1C4: "shuffles",  # REDUX
        0x11D: "barrier_waits",  # BAR
        0x184: "shared_accesses",  # LDS
        0x188: "shared_accesses",  # STS
        0x181: "global_accesses",  # LDG
        0x186: "global_accesses",  # STG
        0x1AE: "async_copies",  # LDGSTS
        0x108: "special_functions",  # MUFU
        0x183: "local_loads",  # LDL
        0x187: "local_stores",  # STL
    }
    | dict.fromkeys(
        # P2R, SEL, FSEL, FMNMX, FSETP, ISETP, IADD3, LEA, LOP3, PRMT, SHF, SGXT, PLOP3, IMAD, IMAD
        # of another form, IADD, VIADD, F2FP, FMNMX3
        bytes.fromhex("0307 0809 0B0C 1011 1216 191A 1C24 2535 363E 76"),
        "half_rate",
    )
)
"""What is counted by itself, by the lowest 9 bits of the opcode; 3 more say where operands are.

Rates: CUDA Programming Guide, "Throughput of Native Arithmetic Instructions", 8.x to 12.x.
"""
LOCAL_BYTES = (1, 1, 2, 2, 4, 8, 16, 0)
"""Bytes a thread of LDL and STL, by their size field (bits 73 to 75); 7 is no size."""
NO_PREDICATE = 7
"""PT, the predicate that is always true, not negated."""


def read_sass(code: memoryview, arch: int) -> Issued:
    """Return what a warp issues of the kernel whose instructions are *code*, for sm_*arch*.

    *code* is without the compiler's own subroutines: whether a warp issues one, such as the slow
    path of a division, depends on the data, and it is not counted. A CALL within *code* is how
    ptxas jumps far. The branch to itself behind the kernel and the padding are never reached.
    Nothing is known of another architecture, or of code that jumps to an address in a register,
    as a function that is not inlined does to return.
    """
    if arch not in ARCHITECTURES or len(code) % BYTES:
        return Issued()
    decoded = decode(code, arch)
    return count_issued(len(code) // BYTES, *decoded) if decoded else Issued()


def decode(
    code: memoryview, arch: int
) -> tuple[dict[int, Jump], dict[int, int], dict[int, str]] | None:
    """Return the jumps in *code*, the bytes of each access to local memory, and the KINDS.

    None where it is not known where a jump leads.
    """
    words = struct.unpack(f"<{len(code) // 8}Q", code)
    jumps: dict[int, Jump] = {}
    local: dict[int, int] = {}
    kinds: dict[int, str] = {}
    for number, low in enumerate(words[::2]):
        opcode = low & 0xFFF
        if opcode & 0x1FF in KINDS:
            kinds[number] = KINDS[opcode & 0x1FF]
        if opcode in LOCAL:
            local[number] = LOCAL_BYTES[words[2 * number + 1] >> 9 & 7]
        elif opcode in JUMPS:
            jump = read_jump(number, low, words[2 * number + 1], arch)
            if opcode != CALL or jump.target in range(len(words) // 2):
                jumps[number] = jump
        elif opcode in UNKNOWN_TARGETS:
            return None
    return jumps, local, kinds


def read_jump(number: int, low: int, high: int, arch: int) -> Jump:
    """Return where instruction *number* leads, from its two 64-bit words.

    Its guard is in bits 12 to 15, another condition in bits 87 to 90 (of BRA.U in 24 to 27). The
    distance from the next instruction is signed, in 4 bytes, from bit 34 on; from sm_90 on its
    lowest 8 bits are in bits 16 to 23.
    """
    opcode = low & 0xFFF
    always = low >> 12 & 15 == high >> 23 & 15 == NO_PREDICATE and opcode != BRA_UNIFORM
    if opcode == EXIT:
        return Jump(None, always)
    distance = (low >> 34) - (low >> 63 << 30)
    if arch >= SPLIT_TARGET_FROM:
        distance = distance << 8 | low >> 16 & 0xFF
    target, rest = divmod(BYTES * (number + 1) + 4 * distance, BYTES)
    return Jump(-1 if rest else target, always)
