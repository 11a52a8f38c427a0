"""Fused softmax, one program a row: the same arithmetic as `softmax`, without its loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from occupancy_lab.kernel import Grid, Kernel
from occupancy_lab.kernels.softmax import ALIKE, constexprs, launch, memory_steps, reference
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import torch


@triton.jit
def softmax_row_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
):
    """Softmax of row `program_id`, in one block."""
    row = tl.program_id(0)
    offset = tl.cast(row, tl.int64) if INT64_OFFSETS else row
    row_ptr = input_ptr + offset * input_row_stride
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(row_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    output_row_ptr = output_ptr + offset * output_row_stride
    tl.store(output_row_ptr + cols, y.to(output_ptr.dtype.element_ty), mask=mask)


def softmax_row(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
    """Return a new matrix with the softmax of each row of *x*, a matrix on the current GPU.

    Rows may lie any distance apart; *x* is copied first if the elements of a row are not adjacent.
    As many programs as rows are launched, whatever *num_programs* says. Raises InputError if
    BLOCK_SIZE is less than a row.
    """
    return launch(KERNEL, config, x)


def passed(y: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor | int, ...]:
    """Return what `softmax_row` passes by position: output, input, row strides and n_cols."""
    return (y, x, x.stride(0), y.stride(0), x.shape[1])


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return 4 warps, 8 from a BLOCK_SIZE of 2048 and 16 from 4096, and no pipelining."""
    block_size = triton.next_power_of_2(problem.cols)
    if block_size >= 4096:
        num_warps = 16
    elif block_size >= 2048:
        num_warps = 8
    else:
        num_warps = 4
    return Config(block_size, num_warps, num_stages=1)


KERNEL = Kernel(
    name="softmax_row",
    title="Fused softmax, one program a row",
    grid=Grid.ROWS,
    function=softmax_row_kernel,
    constexprs=constexprs,
    default_config=default_config,
    memory_steps=memory_steps,
    run=softmax_row,
    passed=passed,
    reference=reference,
    compared_with="softmax_naive",
    alike=ALIKE,
)
