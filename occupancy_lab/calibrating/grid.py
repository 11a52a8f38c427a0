"""The launches that a calibration times: what each constant shows in, from tiny to full."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from occupancy_lab.checking import next_power_of_two
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

COLS = (128, 500, 1024, 2045, 4096, 16384, 32768)
NUM_WARPS = (1, 2, 4, 8, 16, 32)
MATRIX_BYTES = (2**14, 2**18, 3 * 2**20, 20 * 2**20, 160 * 2**20)
KERNEL_STAGES = {
    "rows-0-0": (1,),
    "rows-1-0": (1,),
    "rows-2-1": (1,),
    "rows-4-2": (1,),
    "loop-0-0": (1, 4),
    "loop-2-1": (1, 2, 3, 4),
    "loop-4-2": (1, 3),
}
"""The kernels, by what they do to a row (reductions, elementwise steps), and their num_stages."""
ELEMENTS_A_THREAD = range(1, 129)
SPILLING = (
    ("rows-2-1", Config(16384, 1, 1)),
    ("rows-2-1", Config(16384, 2, 1)),
    ("rows-2-1", Config(32768, 4, 1)),
    ("rows-2-1", Config(32768, 2, 1)),
    ("loop-2-1", Config(16384, 1, 1)),
    ("loop-2-1", Config(16384, 2, 1)),
    ("loop-2-1", Config(16384, 1, 2)),
    ("loop-2-1", Config(16384, 2, 3)),
    ("loop-2-1", Config(16384, 1, 3)),
    ("loop-2-1", Config(32768, 4, 2)),
    ("loop-2-1", Config(32768, 2, 1)),
    ("rows-4-2", Config(16384, 1, 1)),
    ("rows-4-2", Config(16384, 2, 1)),
    ("loop-4-2", Config(16384, 1, 2)),
    ("loop-4-2", Config(16384, 2, 2)),
)
"""Blocks that no registers hold, which show what local memory costs; they compile slowly."""


def launches() -> Iterator[tuple[str, Problem, Config]]:
    """Give the kernel's name, the problem and the configuration of each launch."""
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
    for kernel, config in SPILLING:
        yield from _sizes(kernel, config.block_size, config)


def _sizes(kernel: str, cols: int, config: Config) -> Iterator[tuple[str, Problem, Config]]:
    # Both sizes of elements meet every width and every number of warps.
    wide = (COLS.index(cols) + NUM_WARPS.index(config.num_warps)) % 2 == 0
    for matrix_bytes in MATRIX_BYTES:
        rows = matrix_bytes // (cols * (4 if wide else 2)) // 16 * 16
        if rows:
            yield kernel, Problem(rows, cols, "float32" if wide else "float16"), config
