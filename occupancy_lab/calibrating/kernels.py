"""Kernels that a calibration times beside the softmaxes: rows copied, and one that does nothing.

The copies come as one program per row, with and without a reduction over the row on the way, and as
a loop over rows. Their names end in the reductions and the elementwise steps that they do, as the
recorded launches have them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from occupancy_lab.arguments import Pointer
from occupancy_lab.kernel import OPTIONS, Grid, Kernel, MemoryStep
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


@triton.jit
def rows_kernel(
    output_ptr,
    input_ptr,
    row_stride,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    REDUCTIONS: tl.constexpr,
):
    """Copy row `program_id`, with a reduction as 2**(x - maximum)."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(input_ptr + row * row_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    if REDUCTIONS:
        x = tl.exp2(x - tl.max(x, axis=0))
    tl.store(output_ptr + row * row_stride + cols, x.to(output_ptr.dtype.element_ty), mask=mask)


@triton.jit
def loop_kernel(
    output_ptr,
    input_ptr,
    row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    num_stages: tl.constexpr,
):
    """Copy rows `program_id`, `program_id + num_programs`, ..."""
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=num_stages):
        x = tl.load(input_ptr + row * row_stride + cols, mask=mask, other=-float("inf"))
        y = x.to(tl.float32).to(output_ptr.dtype.element_ty)
        tl.store(output_ptr + row * row_stride + cols, y, mask=mask)


@triton.jit
def empty_kernel(output_ptr, BLOCK_SIZE: tl.constexpr):
    """Do nothing."""


def constexprs(reductions: Mapping[str, int], _problem: Problem, config: Config) -> dict[str, int]:
    """Return what a kernel takes by name, its *reductions* where it takes them."""
    return {"BLOCK_SIZE": config.block_size, "num_stages": config.num_stages, **reductions}


def run_empty(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
    """Launch one program that does nothing."""
    keywords = constexprs({}, Problem(*x.shape), config)
    empty_kernel[(1,)](x, num_warps=config.num_warps, **keywords, **OPTIONS)
    return x


def memory_steps(problem: Problem) -> tuple[MemoryStep, ...]:
    """Return the one pass over the matrix."""
    elements = problem.rows * problem.cols
    return (MemoryStep("copy", reads=elements, writes=elements),)


def copying(grid: Grid, **reductions: int) -> Kernel:
    """Return the kernel with *reductions*, as one program per row or as a loop."""
    loops = grid is Grid.PERSISTENT
    function = loop_kernel if loops else rows_kernel
    number = sum(reductions.values())

    def arguments(problem: Problem) -> tuple[Pointer | int, ...]:
        matrix = Pointer(problem.dtype, problem.matrix_bytes)
        sizes = (problem.rows, problem.cols) if loops else (problem.cols,)
        return (matrix, matrix, problem.cols, *sizes)

    def run(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
        import torch

        rows, y = x.shape[0], torch.empty_like(x)
        sizes = x.shape if loops else x.shape[1:]
        keywords = constexprs(reductions, Problem(*x.shape), config)
        function[(min(num_programs, rows) if loops else rows,)](
            *(y, x, x.stride(0), *sizes), num_warps=config.num_warps, **keywords, **OPTIONS
        )
        return y

    def reference(x: torch.Tensor) -> torch.Tensor:
        return (x - x.amax(dim=1, keepdim=True)).exp2() if number else x

    return Kernel(
        name=f"{'loop' if loops else 'rows'}-{number}-0",
        title=f"Rows copied, {number} reductions and 0 steps on the way",
        grid=grid,
        function=function,
        arguments=arguments,
        constexprs=partial(constexprs, reductions),
        memory_steps=memory_steps,
        run=run,
        reference=reference,
    )


EMPTY = Kernel(
    name="empty",
    title="A kernel that does nothing",
    function=empty_kernel,
    arguments=lambda problem: (Pointer(problem.dtype, problem.matrix_bytes),),
    constexprs=partial(constexprs, {}),
    memory_steps=lambda _problem: (),
    run=run_empty,
)
_COPIES = (copying(Grid.ROWS, REDUCTIONS=0), copying(Grid.ROWS, REDUCTIONS=1))
KERNELS = {kernel.name: kernel for kernel in (EMPTY, *_COPIES, copying(Grid.PERSISTENT))}
"""Every kernel that a calibration launches beside the lab's own."""
