"""Which pipe of a multiprocessor each instruction of a warp keeps busy, and for how many cycles.

A multiprocessor has four schedulers, each with pipes of its own: fma (two halves that do FP32, one
of which, fmaheavy, does integer multiply-adds and BF16 alone), alu (integers, comparisons, logic),
xu (special functions, conversions), fp64, uniform and tensor. All share lsu, which moves what
threads load, store and exchange. The names are Nsight Compute's; the cycles follow from the results
a cycle of the CUDA C++ Programming Guide ("Throughput of Native Arithmetic Instructions").
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from occupancy_lab.work import operations
from occupancy_lab.work.operations import access_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.gpus import CudaArchitecture

ISSUE, FMA, FMA_HEAVY, ALU, XU, FP64, UNIFORM, TENSOR, LSU = (
    *("issue", "fma", "fmaheavy", "alu", "xu", "fp64", "uniform", "tensor", "lsu"),
)
"""The schedulers, and the pipes behind them."""
SCHEDULERS = 4
WAVEFRONT, SECTORS_OF_WAVEFRONT = 128, 4
"""Bytes that lsu moves a cycle: 32 banks of 4 bytes (Programming Guide, "Shared Memory"), or 4
sectors."""
LANES = 32
PRODUCTS = operations.HGMMA | {0x03C, 0x037, 0x03F}
"""Products of matrices: of a warp HMMA, IMMA and DMMA."""

OTHER_CYCLES, WIDE_CYCLES, XU_CYCLES = 2.0, 4.0, 8.0
"""A warp's 32 results at 16, 8 and 4 a cycle and scheduler; wide are products of integers of
which the upper half is wanted, by Nsight Compute's sm__pipe_fmaheavy_cycles_active of 75 launches
on an H200: 4.1 and 3.9 cycles for IMAD.WIDE and IMAD.HI, 2.1 for IMAD and 1.9 for HADD2 and HMUL2.
"""
_LSU = (
    {operations.LDS, operations.STS, operations.LDSM, operations.STSM}
    | {operations.LDG, operations.LD, operations.STG, operations.ST, operations.LDGSTS}
    | {operations.LDL, operations.STL, operations.SHFL, operations.ATOMS, *operations.ATOMICS}
)
_FIXED: Mapping[int, tuple[str | None, float]] = MappingProxyType(
    {
        **dict.fromkeys((0x024, 0x030, 0x032), (FMA_HEAVY, OTHER_CYCLES)),
        **dict.fromkeys((0x025, 0x027), (FMA_HEAVY, WIDE_CYCLES)),
        **dict.fromkeys((0x0BD, 0x0BF, 0x100, 0x104, 0x105, 0x106, 0x108, 0x109), (XU, XU_CYCLES)),
        **dict.fromkeys(range(0x110, 0x114), (XU, XU_CYCLES)),
        **dict.fromkeys((0x02F, 0x118, 0x11A, 0x11D, *range(0x140, 0x15F)), (None, 0.0)),
        **dict.fromkeys((0x192, 0x1AF, 0x1C5, 0x1C6), (None, 0.0)),
    }
)
"""The pipes of what always takes equally long; jumps, barriers and waits need none."""
_FP32 = frozenset({0x020, 0x021, 0x023, 0x031, 0x033, 0x034, 0x035})
_FP64 = range(0x028, 0x02C)
_UNIFORM = range(0x080, 0x0C0)

HMMA_SIZE, GROUP_ROWS, GROUP_DEPTH = 16 * 8 * 16, 64, 16
"""Multiply-adds of an HMMA.16816 of FP16, or what takes as long; and of a warp group's product its
rows and how deep it is in FP16: of other types as many bytes."""
LEAST_GROUP_CYCLES = 16.0


def pipe_of(word: int, architecture: CudaArchitecture) -> tuple[str | None, float]:
    """Return the pipe of an instruction and the cycles for which a warp keeps it busy.

    Those of lsu are the multiprocessor's, without bank conflicts; those of others a scheduler's.
    None where the instruction needs no pipe.
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
    """Return the cycles of the fma pipe for what *either* half does, and for what fmaheavy does.

    There is one half alone where 16 FP32 results are all that a scheduler has a cycle.
    """
    halves = architecture.fp32_results / (LANES // 2 * SCHEDULERS)
    return max(either + heavy / halves, heavy)


def wavefronts(word: int) -> float:
    """Return the cycles of lsu that an access of a warp takes without bank conflicts."""
    opcode = word & 0x1FF
    if opcode in {operations.LDSM, operations.STSM}:
        return float(1 << (word >> 72 & 3))
    if opcode == operations.SHFL:
        return 1.0
    return max(access_bytes(word) * LANES / WAVEFRONT, 1.0)


def tensor_cycles(word: int, architecture: CudaArchitecture) -> float:
    """Return the cycles that a tensor core works on a warp's part of a product of matrices.

    0 where the rate of the tensor cores is not known.
    """
    rate, size = architecture.tensor_multiply_adds, float(HMMA_SIZE)
    if word & 0x1FF in operations.HGMMA:
        rate = architecture.warpgroup_multiply_adds
        size = GROUP_ROWS * GROUP_DEPTH * operations.warpgroup_registers(word) * 2 / SCHEDULERS
        return 0.0 if rate is None else max(size * SCHEDULERS / rate, LEAST_GROUP_CYCLES)
    return 0.0 if rate is None else size * SCHEDULERS / rate
