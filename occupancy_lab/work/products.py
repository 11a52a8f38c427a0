"""How many floating-point operations a warp does by one instruction of the tensor cores."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from occupancy_lab.compiling.sass import OPCODES
from occupancy_lab.work.operations import HGMMA, warpgroup_registers

if TYPE_CHECKING:
    from collections.abc import Mapping

TENSOR = frozenset(OPCODES["tensor_instructions"].values())
HMMA, IMMA, QMMA, HGMMA_FLOAT = 0x03C, 0x037, 0x07A, 0x1F0
HMMA_DEPTHS: Mapping[int, int] = MappingProxyType({0: 8, 1: 16, 2: 4})
"""k of an HMMA of 16 x 8 results, by bits 75 and 78."""
IMMA_DEPTHS: Mapping[int, int] = MappingProxyType({4: 16, 5: 32, 6: 64})
"""k of an IMMA of 16 x 8 results, by bits 75, 85 and 86; others have 8 x 8 of them."""
QMMA_DEPTH = 32
WARPGROUP_DEPTHS: Mapping[int, int] = MappingProxyType({0: 16, 1: 16, 2: 8})
"""k of an HGMMA, by bits 76 and 77: of fp16, bf16 and tf32. All are rows of 32 bytes."""
WARPGROUP_BYTES = 32
"""k of the warp groups' products of one byte."""


def product_flops(word: int) -> int | None:
    """Return 2 m n k of an instruction, of a product of a warp group a warp's quarter of it.

    It is 0 of what is no product, and None of one whose shape is not known: those of Blackwell's
    tensor memory have theirs in a register. Sources of the fields: the encoder of Mesa's NAK
    compiler (sm70_encode.rs) and, for those of warp groups, the text of nvdisasm.
    """
    opcode = word & 0x1FF
    if opcode not in TENSOR:
        return 0
    if opcode in HGMMA:
        depth = WARPGROUP_DEPTHS.get(word >> 76 & 3) if opcode == HGMMA_FLOAT else WARPGROUP_BYTES
        # 64 x n results are n / 2 registers of each thread, and 16 rows are a warp's.
        return None if depth is None else 2 * 16 * (2 * warpgroup_registers(word)) * depth
    depth = QMMA_DEPTH if opcode == QMMA else None
    if opcode == HMMA:
        depth = HMMA_DEPTHS.get(word >> 75 & 1 | (word >> 78 & 1) << 1)
    elif opcode == IMMA:
        depth = IMMA_DEPTHS.get(word >> 75 & 1 | (word >> 85 & 3) << 1)
    return None if depth is None else 2 * 16 * 8 * depth
