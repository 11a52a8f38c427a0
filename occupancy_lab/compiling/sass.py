"""Counts the instructions that one warp issues of a kernel, from the SASS in a cubin.

NVIDIA does not document the encoding. Instructions are 16 bytes from sm_70 on (Jia, Maggioni,
Staiger and Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018).
The tests compare the opcodes and fields with the text of nvdisasm, on the architectures of the
table of GPUs.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping

from occupancy_lab.compiling.flow import Issued, Jump, count_issued
from occupancy_lab.gpus import architectures

BYTES = 16
SPLIT_TARGET_FROM = 90

BRA, BRA_UNIFORM, CALL, EXIT = 0x947, 0x547, 0x944, 0x94D
JUMPS = frozenset({BRA, BRA_UNIFORM, CALL, EXIT})
UNKNOWN_TARGETS = frozenset({0x950, 0x949, 0x94A, 0x94C, 0x54A, 0xB4A, 0x958, 0x959})
"""RET, BRX, JMP, JMX, JMP with a uniform predicate, JMP to a constant, BRXU and JMXU."""
LOCAL = frozenset({0x983, 0x387, 0x987})
"""LDL, and STL without and with a uniform register in its address."""
OPCODES: Mapping[str, Mapping[str, int]] = {
    "shuffles": {"SHFL": 0x189, "REDUX": 0x1C4, "CREDUX": 0x0CC},
    "barrier_waits": {"BAR": 0x11D},
    "shared_accesses": {"LDS": 0x184, "STS": 0x188, "LDSM": 0x03B, "STSM": 0x044},
    "global_accesses": {"LDG": 0x181, "STG": 0x186},
    "async_copies": {"LDGSTS": 0x1AE},
    "special_functions": {"MUFU": 0x108},
    "tensor_instructions": {
        "IMMA": 0x037,
        "HMMA": 0x03C,
        "DMMA": 0x03F,
        "QMMA": 0x07A,
        "UTCHMMA": 0x1EA,
        "HGMMA": 0x1F0,
        "IGMMA": 0x1F1,
        "QGMMA": 0x1F3,
    },
    "local_loads": {"LDL": 0x183},
    "local_stores": {"STL": 0x187},
}
"""The operations with a counter of their own, by counter, each with the lowest 9 bits of its
opcode; 3 more bits say where the operands are. CREDUX is a REDUX with a uniform result, and
replaces SHFLs in a maximum; LDSM and STSM move matrices from and to shared memory.
"""
KINDS_BY_OPCODE: Mapping[int, str] = {
    opcode: kind for kind, operations in OPCODES.items() for opcode in operations.values()
}
"""The counter of an instruction, by the lowest 9 bits of its opcode."""
LOCAL_BYTES = (1, 1, 2, 2, 4, 8, 16, 0)
"""Bytes per thread of LDL and STL, by their size field (bits 73 to 75); 7 is no size."""
NO_PREDICATE = 7
"""PT, the predicate that is always true, not negated."""


def read_sass(code: memoryview, arch: int) -> Issued:
    """Return the instructions that a warp issues of the kernel with the instructions *code*.

    *code* is for sm_*arch* and is without the compiler's own subroutines: whether a warp issues a
    subroutine, such as the slow path of a division, depends on the data, so none is counted. A CALL
    within *code* is how ptxas jumps far. The branch to itself behind the kernel and the padding are
    never reached. Nothing is known of an architecture that the table of GPUs lacks, or of code that
    jumps to an address in a register, as the return of a function that is not inlined does.
    """
    if f"sm_{arch}" not in architectures() or len(code) % BYTES:
        return Issued()
    decoded = decode(code, arch)
    return count_issued(len(code) // BYTES, *decoded, stalls(code)) if decoded else Issued()


BULK_COPIES = frozenset({0x1B4, 0x1BA})
"""UTMALDG and UBLKCP: the TMA unit copies whole blocks of a tensor or of memory."""
STALL_BYTE = 13
"""The byte of an instruction with bits 105 to 108, which are bits 1 to 4 of the byte."""


def stalls(code: memoryview) -> list[int]:
    """Return the cycles that a warp waits from each instruction of *code* to its next.

    The compiler sets them in bits 105 to 108 of each instruction, by when a result of fixed latency
    is needed (Jia et al. 2018, 2.1). They do not include waits for memory or for other results of
    unknown latency.
    """
    return [byte >> 1 & 15 for byte in code[STALL_BYTE::BYTES]]


def count_kinds(code: memoryview, arch: int) -> Counter[str] | None:
    """Return how many instructions of each kind *code* has; None if the encoding is not known.

    Each instruction counts once, wherever it is: this takes a hundredth of the time of `read_sass`,
    which finds the loop.
    """
    if f"sm_{arch}" not in architectures() or len(code) % BYTES:
        return None
    found: Counter[str] = Counter()
    for low, number in Counter(code.cast("H")[:: BYTES // 2].tolist()).items():
        if (kind := KINDS_BY_OPCODE.get(low & 0x1FF)) is not None:
            found[kind] += number
    return found


def decode(
    code: memoryview, arch: int
) -> tuple[dict[int, Jump], dict[int, int], dict[int, str]] | None:
    """Return the jumps in *code*, the bytes of each access to local memory, and the kinds.

    Return None if the target of a jump is not known.
    """
    words = struct.unpack(f"<{len(code) // 8}Q", code)
    jumps: dict[int, Jump] = {}
    local: dict[int, int] = {}
    kinds: dict[int, str] = {}
    for number, low in enumerate(words[::2]):
        opcode = low & 0xFFF
        if opcode & 0x1FF in KINDS_BY_OPCODE:
            kinds[number] = KINDS_BY_OPCODE[opcode & 0x1FF]
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

    Its guard is in bits 12 to 15, a second condition in bits 87 to 90 (for BRA.U in 24 to 27).
    """
    opcode = low & 0xFFF
    always = low >> 12 & 15 == high >> 23 & 15 == NO_PREDICATE and opcode != BRA_UNIFORM
    if opcode == EXIT:
        return Jump(None, always)
    target, rest = divmod(jump_offset(number, low, arch), BYTES)
    return Jump(-1 if rest else target, always)


def jump_offset(number: int, low: int, arch: int) -> int:
    """Return the byte that instruction *number* jumps to, from the lower of its 64-bit words.

    The distance from the next instruction is signed, in 4-byte units, from bit 34 on; from sm_90 on
    its lowest 8 bits are in bits 16 to 23.
    """
    distance = (low >> 34) - (low >> 63 << 30)
    if arch >= SPLIT_TARGET_FROM:
        distance = distance << 8 | low >> 16 & 0xFF
    return BYTES * (number + 1) + 4 * distance
