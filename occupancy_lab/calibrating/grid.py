"""The launches that a calibration times: what each constant shows in, from tiny to full."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from occupancy_lab.inputs import next_power_of_two
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

COLS = (128, 500, 1024, 2045, 4096, 8192, 16384, 32768)
NUM_WARPS = (1, 2, 4, 8, 16, 32)
MATRIX_BYTES = (2**14, 2**18, 3 * 2**20, 9 * 2**20, 20 * 2**20, 50 * 2**20, 160 * 2**20)
KERNEL_STAGES = {
    "rows-0-0": (1,),
    "rows-1-0": (1,),
    "rows-2-1": (1,),
    "loop-0-0": (1, 4),
    "loop-2-1": (1, 3),
    "softmax_row": (1,),
    "softmax": (1, 2, 3, 4),
}
"""The kernels and their num_stages: the lab's own, and those that copy rows with reductions and
elementwise steps on the way, as many as the name says."""
ELEMENTS_A_THREAD = range(1, 129)
SPILLING = {
    ("rows-2-1", 1): ((8192, 1), (16384, 1), (16384, 2), (32768, 2), (32768, 4)),
    ("loop-2-1", 1): ((16384, 1), (32768, 4)),
    ("loop-2-1", 2): ((16384, 1), (32768, 2)),
    ("softmax_row", 1): ((8192, 1), (16384, 1), (16384, 2), (32768, 2), (32768, 4), (65536, 4)),
    ("softmax", 1): ((8192, 1), (16384, 1), (16384, 2), (32768, 2), (32768, 4), (65536, 8)),
    ("softmax", 2): ((8192, 1), (16384, 1), (16384, 2), (32768, 1), (32768, 2), (32768, 4)),
    ("softmax", 3): ((8192, 1), (16384, 1), (16384, 2), (32768, 4)),
}
"""Blocks that no registers hold, which show what local memory costs; they compile slowly."""


def launches() -> Iterator[tuple[str, Problem, Config]]:
    """Return the kernel's name, the problem and the configuration of each launch."""
    yield "empty", Problem(16, 16), Config(16, 1, 1)
    for (kernel, stages), cols, num_warps in itertools.product(
        KERNEL_STAGES.items(), COLS, NUM_WARPS
    ):
        block_size = next_power_of_two(cols)
        # Without a barrier the parts of a 32-byte sector are written at different times, which
        # costs an unaligned copy up to 15 % of the bandwidth and no kernel with a reduction.
        apart = kernel.endswith("-0-0") and cols != block_size
        if block_size // (32 * num_warps) in ELEMENTS_A_THREAD and not apart:
            for num_stages in stages:
                yield from _sizes(kernel, cols, Config(block_size, num_warps, num_stages))
    for (kernel, num_stages), blocks in SPILLING.items():
        for block_size, num_warps in blocks:
            yield from _sizes(kernel, block_size, Config(block_size, num_warps, num_stages))


def _sizes(kernel: str, cols: int, config: Config) -> Iterator[tuple[str, Problem, Config]]:
    # Both sizes of elements meet every width and every number of warps.
    wide = (cols.bit_length() + NUM_WARPS.index(config.num_warps)) % 2 == 0
    for matrix_bytes in MATRIX_BYTES:
        rows = matrix_bytes // (cols * (4 if wide else 2)) // 16 * 16
        if rows:
            yield kernel, Problem(rows, cols, "float32" if wide else "float16"), config
