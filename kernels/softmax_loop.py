"""Fused softmax of rows of any length: one program a row, which it reads twice, block by block.

The first time each lane keeps the maximum and the sum of its own columns; the second time the row
is written, last block first, as the caches still hold the end of what was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from occupancy_lab.kernel import Grid, Kernel, MemoryStep
from occupancy_lab.kernels.softmax import ALIKE, constexprs, launch, reference
from occupancy_lab.kernels.softmax_pieces import exponential, quotient, share
from occupancy_lab.kernels.softmax_row import passed
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import torch


@triton.jit
def softmax_loop_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    num_stages: tl.constexpr,
):
    """Softmax of row `program_id`, in blocks."""
    row = tl.program_id(0)
    offset = tl.cast(row, tl.int64) if INT64_OFFSETS else row
    row_ptr = input_ptr + offset * input_row_stride
    output_row_ptr = output_ptr + offset * output_row_stride
    lanes = tl.arange(0, BLOCK_SIZE)
    # A finite start: the difference of two infinities would be NaN in a lane without a number.
    maxima = tl.full((BLOCK_SIZE,), -3.4028234663852886e38, tl.float32)
    sums = tl.zeros((BLOCK_SIZE,), tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE, num_stages=num_stages):
        cols = start + lanes
        x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        scale = exponential(-tl.abs(x - maxima), 0.0, tl.float32)
        sums = tl.where(x > maxima, sums * scale + 1, sums + scale)
        maxima = tl.maximum(maxima, x)
    row_max = tl.max(maxima, axis=0)
    row_sum = tl.sum(sums * exponential(maxima, row_max, tl.float32), axis=0)
    scale, rest = quotient(1.0, row_sum, 0.0)
    last = tl.cdiv(n_cols, BLOCK_SIZE) * BLOCK_SIZE - BLOCK_SIZE
    for done in tl.range(0, n_cols, BLOCK_SIZE, num_stages=num_stages):
        cols = last - done + lanes
        mask = cols < n_cols
        x = tl.load(row_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = share(exponential(x, row_max, tl.float32), scale, rest, tl.float32)
        tl.store(output_row_ptr + cols, y.to(output_ptr.dtype.element_ty), mask=mask)


def softmax_loop(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
    """Return a new matrix with the softmax of each row of *x*, a matrix on the current GPU.

    Rows may have any length and lie any distance apart; *x* is copied first if the elements of a
    row are not adjacent. As many programs as rows are launched, whatever *num_programs* says.
    """
    return launch(KERNEL, config, x)


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return blocks of at most 4096 elements and 8 warps: 16 elements per thread, 3 values of each.

    A short row takes the smallest block that holds it and a warp for each 512 elements.
    """
    block_size = min(triton.next_power_of_2(problem.cols), 4096)
    return Config(block_size, num_warps=max(block_size // 512, 1), num_stages=1)


def passes(problem: Problem, config: Config) -> int:
    """Return twice the blocks of a row, as each is read twice."""
    return 2 * triton.cdiv(problem.cols, config.block_size)


def memory_steps(problem: Problem) -> tuple[MemoryStep, ...]:
    """Return the two passes over a row: both read it, and the second writes it."""
    elements = problem.rows * problem.cols
    return (
        MemoryStep("max and sum", reads=elements, writes=0),
        MemoryStep("softmax", reads=elements, writes=elements),
    )


KERNEL = Kernel(
    name="softmax_loop",
    title="Fused softmax, one program a row of any length",
    grid=Grid.ROWS,
    function=softmax_loop_kernel,
    constexprs=constexprs,
    default_config=default_config,
    memory_steps=memory_steps,
    run=softmax_loop,
    passed=passed,
    reference=reference,
    compared_with="softmax_naive",
    alike=ALIKE,
    passes=passes,
)
