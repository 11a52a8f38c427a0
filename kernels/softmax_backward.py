"""The gradient of softmax, dx = y * (dy - sum(dy * y)) of each row: one program a row.

A row that fits BLOCK_SIZE is read once and stays in registers. A longer one is read twice, block by
block, the second time last block first, as the caches still hold the end of what was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from occupancy_lab.kernel import Grid, Kernel, MemoryStep
from occupancy_lab.kernels.softmax import launch
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import torch

MOST_HELD = 16_384
"""The longest row that the default keeps in registers: y and dy, 32 values a thread of 32 warps."""


@triton.jit
def softmax_backward_kernel(
    dx_ptr,
    y_ptr,
    dy_ptr,
    y_row_stride,
    dy_row_stride,
    dx_row_stride,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    WHOLE_ROW: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    num_stages: tl.constexpr,
):
    """Gradient of row `program_id`, in one block or in several."""
    row = tl.program_id(0)
    offset = tl.cast(row, tl.int64) if INT64_OFFSETS else row
    y_row = y_ptr + offset * y_row_stride
    dy_row = dy_ptr + offset * dy_row_stride
    dx_row = dx_ptr + offset * dx_row_stride
    lanes = tl.arange(0, BLOCK_SIZE)
    if WHOLE_ROW:
        mask = lanes < n_cols
        y = tl.load(y_row + lanes, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + lanes, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    else:
        sums = tl.zeros((BLOCK_SIZE,), tl.float32)
        for start in tl.range(0, n_cols, BLOCK_SIZE, num_stages=num_stages):
            cols = start + lanes
            mask = cols < n_cols
            y = tl.load(y_row + cols, mask=mask, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + cols, mask=mask, other=0.0).to(tl.float32)
            sums += dy * y
        row_sum = tl.sum(sums, axis=0)
        last = tl.cdiv(n_cols, BLOCK_SIZE) * BLOCK_SIZE - BLOCK_SIZE
        for done in tl.range(0, n_cols, BLOCK_SIZE, num_stages=num_stages):
            cols = last - done + lanes
            mask = cols < n_cols
            y = tl.load(y_row + cols, mask=mask, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + cols, mask=mask, other=0.0).to(tl.float32)
            dx = y * (dy - row_sum)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_backward(
    y: torch.Tensor, config: Config, num_programs: int, dy: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the gradient of x, where *y* is the softmax of its rows and *dy* the gradient of *y*.

    Both are matrices of one shape and dtype on the current GPU; without *dy*, *y* takes its place.
    Rows may have any length and lie any distance apart; a matrix is copied first if the elements of
    a row are not adjacent. As many programs as rows are launched, whatever *num_programs* says.
    """
    return launch(KERNEL, config, y, y if dy is None else dy)


def passed(dx: torch.Tensor, y: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor | int, ...]:
    """Return what `softmax_backward` passes by position: dx, y, dy, row strides and n_cols."""
    return (dx, y, dy, y.stride(0), dy.stride(0), dx.stride(0), y.shape[1])


def constexprs(problem: Problem, config: Config) -> dict[str, int]:
    """Return what `softmax_backward` passes by name."""
    return {
        "BLOCK_SIZE": config.block_size,
        "WHOLE_ROW": config.block_size >= problem.cols,
        "INT64_OFFSETS": problem.needs_int64_offsets,
        "num_stages": config.num_stages,
    }


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return a block that holds a row of up to 16,384 elements, or blocks of 4096.

    A thread has 16 elements of each matrix, and a program 4 to 32 warps.
    """
    held = problem.cols <= MOST_HELD
    block_size = triton.next_power_of_2(problem.cols) if held else 4096
    return Config(block_size, num_warps=min(max(block_size // 512, 4), 32), num_stages=1)


def passes(problem: Problem, config: Config) -> int:
    """Return 1 for a row in one block, otherwise twice its blocks, as each is read twice."""
    blocks = triton.cdiv(problem.cols, config.block_size)
    return 1 if blocks == 1 else 2 * blocks


def memory_steps(problem: Problem) -> tuple[MemoryStep, ...]:
    """Return the pass over y and dy that writes dx, after that of the sum for a long row.

    These are the passes of the default configuration.
    """
    elements = problem.rows * problem.cols
    write = MemoryStep("gradient", reads=2 * elements, writes=elements)
    if problem.cols <= MOST_HELD:
        return (write,)
    return (MemoryStep("sum", reads=2 * elements, writes=0), write)


def reference(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """Return the gradient in four PyTorch operations."""
    return y * (dy - (dy * y).sum(dim=1, keepdim=True))


KERNEL = Kernel(
    name="softmax_backward",
    title="Gradient of softmax, one program a row",
    grid=Grid.ROWS,
    function=softmax_backward_kernel,
    constexprs=constexprs,
    default_config=default_config,
    memory_steps=memory_steps,
    run=softmax_backward,
    passed=passed,
    reference=reference,
    operands=2,
    passes=passes,
)
