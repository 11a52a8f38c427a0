"""Empties the L2 cache before a timed launch, so that the launch reads from device memory.

Writing as much as the cache holds is not enough: lines that were loaded with evict_last stay, and
later launches that read them are faster. torch.compile uses evict_last in reductions of more than
1024 columns. An H200 copied 512 x 4096 float32 in 8.3 us alone, in 7.1 us in turns with such a
launch, and in 8.6 us in turns when its lines were demoted (2026-11-22).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

FLUSH_BYTES = 256 * 1024**2
"""Bytes written between launches: twice the largest L2 cache in gpus/data, a GB200's, and as much
as the Infinity Cache of an MI300X."""
LINE_BYTES = 128
"""Bytes whose eviction priority one instruction sets (PTX ISA, "applypriority")."""
DEMOTES_FROM = (8, 0)
"""The least compute capability that has the instruction."""
LINES = 1024
"""Lines that one program demotes."""


@triton.jit
def demote_kernel(start: tl.int64, lines, LINES: tl.constexpr, LINE_BYTES: tl.constexpr):
    """Set the lines from address `start` on to normal eviction priority in the L2 cache."""
    line = tl.minimum(tl.program_id(0) * LINES + tl.arange(0, LINES), lines - 1)
    tl.inline_asm_elementwise(
        "applypriority.global.L2::evict_normal [$1], 128; mov.u32 $0, 0;",
        "=r,l",
        [start + line.to(tl.int64) * LINE_BYTES],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


class Flush:
    """Empties the L2 cache of the current device."""

    def __init__(self) -> None:
        self._written = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        nvidia = torch.version.cuda is not None
        self._demotes = nvidia and torch.cuda.get_device_capability() >= DEMOTES_FROM

    def __call__(self, kept: Sequence[torch.Tensor]) -> None:
        """Queue what empties the cache, also of *kept*, which a launch may have asked to keep."""
        if self._demotes:
            for tensor in kept:
                self._demote(tensor)
        self._written.zero_()

    @staticmethod
    def _demote(tensor: torch.Tensor) -> None:
        start = tensor.data_ptr() // LINE_BYTES * LINE_BYTES
        lines = triton.cdiv(tensor.data_ptr() + tensor.nbytes - start, LINE_BYTES)
        if lines:
            demote_kernel[(triton.cdiv(lines, LINES),)](start, lines, LINES, LINE_BYTES)
