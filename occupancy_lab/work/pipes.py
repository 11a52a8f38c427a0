"""Which pipe of a multiprocessor each instruction of a warp keeps busy, and for how many cycles.

A multiprocessor has four schedulers, each with its own pipes: fma (two halves for FP32, of which
only fmaheavy does integer multiply-adds and BF16), alu (integers, comparisons, logic), xu (special
functions, conversions), fp64, uniform and tensor. They share lsu, which moves what threads load,
store and exchange. The names are Nsight Compute's. The cycles follow from the results per cycle in
the CUDA C++ Programming Guide ("Throughput of Native Arithmetic Instructions").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from occupancy_lab.work import operations
from occupancy_lab.work.operations import LDC, S2R, S2UR, ULDC, access_bytes

if TYPE_CHECKING:
    from occupancy_lab.gpus import CudaArchitecture

ISSUE, FMA, FMA_HEAVY, ALU, XU, FP64, UNIFORM, TENSOR, LSU = (
    *("issue", "fma", "fmaheavy", "alu", "xu", "fp64", "uniform", "tensor", "lsu"),
)
"""The schedulers, and the pipes behind them."""
SCHEDULERS = 4
WAVEFRONT, SECTORS_OF_WAVEFRONT = 128, 4
"""What lsu moves per cycle: 128 bytes, which are 32 banks of 4 bytes (Programming Guide, "Shared
Memory"), or 4 sectors."""
LANES = 32
PRODUCTS = operations.HGMMA | {0x03C, 0x037, 0x03F}
"""Products of matrices: those of warp groups, and HMMA, IMMA and DMMA of a warp."""

OTHER_CYCLES, WIDE_CYCLES, XU_CYCLES = 2.0, 4.0, 8.0
"""Cycles of a warp's 32 results at 16, 8 and 4 per cycle and scheduler. Wide instructions are
integer products whose upper half is wanted. Nsight Compute's sm__pipe_fmaheavy_cycles_active of 75
launches on an H200 gives 4.1 cycles for IMAD.WIDE, 3.9 for IMAD.HI, 2.1 for IMAD, and 1.9 for HADD2
and HMUL2."""
_LSU = (
    {operations.LDS, operations.STS, operations.LDSM, operations.STSM}
    | {operations.LDG, operations.LD, operations.STG, operations.ST, operations.LDGSTS}
    | {operations.LDL, operations.STL, operations.SHFL, operations.ATOMS, *operations.ATOMICS}
)
_FIXED: Mapping[int, tuple[str | None, float]] = {
    **dict.fromkeys((0x024, 0x030, 0x032, 0x036), (FMA_HEAVY, OTHER_CYCLES)),
    **dict.fromkeys((0x025, 0x027), (FMA_HEAVY, WIDE_CYCLES)),
    **dict.fromkeys((0x0BD, 0x0BF, 0x100, 0x104, 0x105, 0x106, 0x108, 0x109), (XU, XU_CYCLES)),
    **dict.fromkeys(range(0x110, 0x114), (XU, XU_CYCLES)),
    **dict.fromkeys((0x02F, 0x118, 0x11A, 0x11D, *range(0x140, 0x15F)), (None, 0.0)),
    **dict.fromkeys((0x192, 0x1AF, *range(0x1B1, 0x1BB), 0x1C5, 0x1C6), (None, 0.0)),
    **dict.fromkeys((S2R, S2UR, LDC, ULDC, 0x1C4, 0x035, 0x082, 0x086), (None, 0.0)),
}
"""The pipes and cycles of instructions that always take equally long. 0x036 is VIADD. Jumps,
barriers, waits, bulk copies, loads of constants and of special registers, HFMA2.MMA, UMOV and VOTEU
need no pipe. Nsight Compute's counts of 630 launches by pipe are those of this table, within 0.4%
of their instructions."""
_FP32 = frozenset({0x020, 0x021, 0x023, 0x031, 0x033})
_FP64 = range(0x028, 0x02C)
_UNIFORM = range(0x080, 0x0C0)

HMMA_SIZE, GROUP_ROWS, GROUP_DEPTH = 16 * 8 * 16, 64, 16
"""Multiply-adds of an HMMA.16816 of FP16, and of others that take as long; the rows of a warp
group's product, and its depth in FP16, which for other types is as many bytes."""
LEAST_GROUP_CYCLES = 16.0


def pipe_of(word: int, architecture: CudaArchitecture) -> tuple[str | None, float]:
    """Return the pipe of an instruction and the cycles for which a warp keeps it busy.

    Cycles of lsu are the multiprocessor's, without bank conflicts; those of other pipes are a
    scheduler's. The pipe is None where the instruction needs none.
    """
    opcode = word & 0x1FF
    if opcode in _LSU:
        return LSU, wavefronts(word)
    if opcode in PRODUCTS:
        return TENSOR, tensor_cycles(word, architecture)
    if opcode in _UNIFORM and opcode not in _FIXED:
        return UNIFORM, OTHER_CYCLES
    if opcode in _FP32:
        return FMA, LANES * SCHEDULERS / architecture.fp32_results
    if opcode in _FP64:
        return FP64, LANES * SCHEDULERS / architecture.fp64_results
    return _FIXED.get(opcode, (ALU, OTHER_CYCLES))


def fma_cycles(either: float, heavy: float, architecture: CudaArchitecture) -> float:
    """Return the fma pipe's cycles for work that *either* half can do and for that of fmaheavy.

    Where a scheduler has only 16 FP32 results per cycle, there is only one half.
    """
    halves = architecture.fp32_results / (LANES // 2 * SCHEDULERS)
    return max(either + heavy / halves, heavy)


def wavefronts(word: int) -> float:
    """Return the lsu cycles of a warp's access without bank conflicts."""
    opcode = word & 0x1FF
    if opcode in {operations.LDSM, operations.STSM}:
        return float(1 << (word >> 72 & 3))
    if opcode == operations.SHFL:
        return 1.0
    return max(access_bytes(word) * LANES / WAVEFRONT, 1.0)


def tensor_cycles(word: int, architecture: CudaArchitecture) -> float:
    """Return the cycles that a tensor core takes for a warp's part of a product of matrices.

    0 where the rate of the tensor cores is not known.
    """
    rate, size = architecture.tensor_multiply_adds, float(HMMA_SIZE)
    if word & 0x1FF in operations.HGMMA:
        rate = architecture.warpgroup_multiply_adds
        size = GROUP_ROWS * GROUP_DEPTH * operations.warpgroup_registers(word) * 2 / SCHEDULERS
        return 0.0 if rate is None else max(size * SCHEDULERS / rate, LEAST_GROUP_CYCLES)
    return 0.0 if rate is None else size * SCHEDULERS / rate
