"""Kernels that a calibration times beside the softmaxes: rows copied, with work on the way.

Each comes as one program per row and as a loop over rows. The work is a chosen number of reductions
over the row and of elementwise steps.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from occupancy_lab.kernel import OPTIONS, Grid, Kernel, MemoryStep
from occupancy_lab.launch import Pointer
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import torch


@triton.jit
def work(x, REDUCTIONS: tl.constexpr, STEPS: tl.constexpr):
    """Return *x* after REDUCTIONS, then STEPS of 2**(x / 2).

    The first reduction is 2**(x - maximum), which turns the -inf that fill a block up into zeros;
    the others scale by the squares and by the maximum in turns, and leave zeros zeros.
    """
    for number in tl.static_range(REDUCTIONS):
        if number == 0:
            x = tl.exp2(x - tl.max(x, axis=0))
        elif number % 2 == 0:
            x = x / (1.0 + tl.max(x, axis=0))
        else:
            x = x / (1.0 + tl.sum(x * x, axis=0))
    for _ in tl.static_range(STEPS):
        x = tl.exp2(x * 0.5)
    return x


@triton.jit
def rows_kernel(
    output_ptr,
    input_ptr,
    row_stride,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    REDUCTIONS: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Do the work on row `program_id`."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(input_ptr + row * row_stride + cols, mask=mask, other=-float("inf"))
    y = work(x.to(tl.float32), REDUCTIONS, STEPS)
    tl.store(output_ptr + row * row_stride + cols, y.to(output_ptr.dtype.element_ty), mask=mask)


@triton.jit
def loop_kernel(
    output_ptr,
    input_ptr,
    row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    REDUCTIONS: tl.constexpr,
    STEPS: tl.constexpr,
    num_stages: tl.constexpr,
):
    """Do the work on rows `program_id`, `program_id + num_programs`, ..."""
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=num_stages):
        x = tl.load(input_ptr + row * row_stride + cols, mask=mask, other=-float("inf"))
        y = work(x.to(tl.float32), REDUCTIONS, STEPS)
        output_ptrs = output_ptr + row * row_stride + cols
        tl.store(output_ptrs, y.to(output_ptr.dtype.element_ty), mask=mask)


@triton.jit
def empty_kernel(output_ptr, BLOCK_SIZE: tl.constexpr):
    """Do nothing."""


def run_empty(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
    """Launch one program that does nothing."""
    keywords = empty_constexprs(Problem(*x.shape), config)
    empty_kernel[(1,)](x, num_warps=config.num_warps, **keywords, **OPTIONS)
    return x


def work_arguments(grid: Grid, problem: Problem) -> tuple[Pointer | int, ...]:
    """Return what `rows_kernel` or, for a persistent *grid*, `loop_kernel` takes by position."""
    matrix = Pointer(problem.dtype, problem.matrix_bytes)
    sizes = (problem.rows, problem.cols) if grid is Grid.PERSISTENT else (problem.cols,)
    return (matrix, matrix, problem.cols, *sizes)


def memory_steps(problem: Problem) -> tuple[MemoryStep, ...]:
    """Return the one pass over the matrix."""
    elements = problem.rows * problem.cols
    return (MemoryStep("copy", reads=elements, writes=elements),)


def reference(x: torch.Tensor, reductions: int, steps: int) -> torch.Tensor:
    """Return the work on each row as PyTorch computes it."""
    for number in range(reductions):
        highest = x.amax(dim=1, keepdim=True)
        if number == 0:
            x = (x - highest).exp2()
        elif number % 2 == 0:
            x = x / (1.0 + highest)
        else:
            x = x / (1.0 + x.square().sum(dim=1, keepdim=True))
    for _ in range(steps):
        x = (x * 0.5).exp2()
    return x


def run_work(
    grid: Grid, reductions: int, steps: int, x: torch.Tensor, config: Config, num_programs: int
) -> torch.Tensor:
    """Launch one program per row, or, for a persistent *grid*, *num_programs* at most."""
    import torch

    rows, y = x.shape[0], torch.empty_like(x)
    loops = grid is Grid.PERSISTENT
    function = loop_kernel if loops else rows_kernel
    function[(min(num_programs, rows) if loops else rows,)](
        y,
        x,
        x.stride(0),
        *(x.shape if loops else x.shape[1:]),
        num_warps=config.num_warps,
        **work_constexprs(reductions, steps, Problem(*x.shape), config),
        **OPTIONS,
    )
    return y


def work_constexprs(
    reductions: int, steps: int, problem: Problem, config: Config
) -> dict[str, int]:
    """Return what `rows_kernel` and `loop_kernel` take by name."""
    return empty_constexprs(problem, config) | {"REDUCTIONS": reductions, "STEPS": steps}


def empty_constexprs(problem: Problem, config: Config) -> dict[str, int]:
    """Return what `empty_kernel` takes by name."""
    return {"BLOCK_SIZE": config.block_size, "num_stages": config.num_stages}


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return 4 warps and no stages."""
    return Config(triton.next_power_of_2(problem.cols), num_warps=4, num_stages=1)


def work_kernel(grid: Grid, reductions: int, steps: int) -> Kernel:
    """Return the kernel with *reductions* and *steps*, as one program per row or as a loop."""
    loops = grid is Grid.PERSISTENT
    return Kernel(
        name=f"{'loop' if loops else 'rows'}-{reductions}-{steps}",
        title=f"Rows copied, {reductions} reductions and {steps} steps on the way",
        grid=grid,
        function=loop_kernel if loops else rows_kernel,
        arguments=partial(work_arguments, grid),
        constexprs=partial(work_constexprs, reductions, steps),
        default_config=default_config,
        memory_steps=memory_steps,
        run=partial(run_work, grid, reductions, steps),
        reference=partial(reference, reductions=reductions, steps=steps),
    )


EMPTY = Kernel(
    name="empty",
    title="A kernel that does nothing",
    grid=Grid.ROWS,
    function=empty_kernel,
    arguments=lambda problem: (Pointer(problem.dtype, problem.matrix_bytes),),
    constexprs=empty_constexprs,
    default_config=default_config,
    memory_steps=lambda _problem: (),
    run=run_empty,
)
KERNELS = {EMPTY.name: EMPTY} | {
    kernel.name: kernel
    for grid in (Grid.ROWS, Grid.PERSISTENT)
    for reductions, steps in ((0, 0), (1, 0), (2, 1))
    for kernel in (work_kernel(grid, reductions, steps),)
}
"""Every kernel that a calibration launches beside the lab's own."""
