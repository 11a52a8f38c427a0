"""Fused softmax, persistent: a program takes a row, then the row `num_programs` further on.

Triton's tutorial 02, made safe for more than 2**31 elements and for 16-bit dtypes; where neither is
needed it compiles to the tutorial's own binary:
https://triton-lang.org/main/getting-started/tutorials/02-fused-softmax.html
What the other softmaxes share with it, `launch` and what follows, is here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from occupancy_lab.errors import refuse
from occupancy_lab.kernel import OPTIONS, Grid, Kernel, MemoryStep
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import torch


@triton.jit
def softmax_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    INT64_OFFSETS: tl.constexpr,
    num_stages: tl.constexpr,
):
    """Softmax of rows `program_id`, `program_id + num_programs`, ... each in one block."""
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=num_stages):
        # Under Triton 3.6 the cast costs 8 registers and 2 of 8 programs at 781 columns on sm_90.
        offset = tl.cast(row, tl.int64) if INT64_OFFSETS else row
        row_ptr = input_ptr + offset * input_row_stride
        cols = tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(row_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(x - tl.max(x, axis=0))
        y = numerator / tl.sum(numerator, axis=0)
        output_row_ptr = output_ptr + offset * output_row_stride
        tl.store(output_row_ptr + cols, y.to(output_ptr.dtype.element_ty), mask=mask)


def softmax(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
    """Return a new matrix with the softmax of each row of *x*, a matrix on the current GPU.

    Rows may lie any distance apart; *x* is copied first if the elements of a row are not adjacent.
    At most one program per row is launched. Raises InputError if BLOCK_SIZE is less than a row, or
    *num_programs* less than 1.
    """
    if num_programs < 1:
        refuse(f"num_programs is {num_programs}; a launch needs 1 or more.")
    return launch(KERNEL, config, x, programs=min(num_programs, len(x)))


def launch(
    kernel: Kernel, config: Config, *tensors: torch.Tensor, programs: int | None = None
) -> torch.Tensor:
    """Return what *kernel* makes of matrices, which are copied first where their layout needs it.

    Without *programs* one is launched for each row or each piece of its work. Raises InputError if
    BLOCK_SIZE is less than a row that a program must hold.
    """
    import torch

    cols, holds_row = tensors[0].shape[1], kernel.passes is None and kernel.configs is None
    if holds_row and config.block_size < cols:
        refuse(
            f"BLOCK_SIZE {config.block_size} cannot hold a row of {cols} elements; "
            f"use {triton.next_power_of_2(cols)} or more."
        )
    if kernel.rows_alike:
        tensors = tuple(map(rows_alike, tensors))
    tensors = tuple(one if one.stride(1) == 1 else one.contiguous() for one in tensors)
    y = torch.empty(tensors[0].shape, dtype=tensors[0].dtype, device=tensors[0].device)
    if y.numel() > 0:
        problem = Problem(*y.shape, str(y.dtype).removeprefix("torch."))
        named = {"num_warps": config.num_warps, "num_stages": config.num_stages, **OPTIONS}
        named |= kernel.constexprs(problem, config)
        if "INT64_OFFSETS" in named:
            reach = max(cols, *(one.stride(0) for one in tensors))
            named["INT64_OFFSETS"] = Problem(len(y), reach).needs_int64_offsets
        grid = (programs or kernel.pieces(problem, config),)
        kernel.function[grid](*kernel.passed(y, *tensors), **named)
    return y


def rows_alike(x: torch.Tensor) -> torch.Tensor:
    """Return *x*, or a copy if its rows are not aligned to 16 bytes as a dense matrix' rows are."""
    import torch

    chunk = 16 // x.element_size()
    alike = x.stride(1) == 1 and (x.stride(0) - x.shape[1]) % chunk == 0
    return x if alike and x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)


def passed(y: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor | int, ...]:
    """Return what `softmax` passes by position: output, input, their row strides, and the shape."""
    return (y, x, x.stride(0), y.stride(0), *x.shape)


def constexprs(problem: Problem, config: Config) -> dict[str, int]:
    """Return what is passed by name; num_stages is both a constexpr and a compiler option."""
    return {
        "BLOCK_SIZE": config.block_size,
        "INT64_OFFSETS": problem.needs_int64_offsets,
        "num_stages": config.num_stages,
    }


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return the tutorial's choice: 8 warps, and 4 stages where a program may have 200 kB."""
    return Config(
        block_size=triton.next_power_of_2(problem.cols),
        num_warps=8,
        num_stages=4 if max_shared > 200_000 else 2,
    )


def stage_bytes(problem: Problem, config: Config) -> int:
    """Return the shared memory of a row that is copied ahead, or 0 if Triton does not copy it so.

    A copy moves 4 bytes or more per thread: two 16-bit elements that are adjacent and aligned.
    """
    pairs = problem.cols % 16 == 0 and config.block_size >= 2 * 32 * config.num_warps
    if problem.item_bytes < 4 and not pairs:
        return 0
    return config.block_size * problem.item_bytes


def memory_steps(problem: Problem) -> tuple[MemoryStep, ...]:
    """Return the one pass over the matrix, which reads and writes every element once."""
    elements = problem.rows * problem.cols
    return (MemoryStep("softmax", reads=elements, writes=elements),)


def reference(x: torch.Tensor) -> torch.Tensor:
    """Return PyTorch's softmax of each row."""
    return x.softmax(dim=1)


ALIKE = (
    "softmax",
    "softmax_row",
    "softmax_pieces",
    "softmax_tile",
    "softmax_cooperative",
    "softmax_loop",
)
"""The softmaxes that are launched by a matrix."""

KERNEL = Kernel(
    name="softmax",
    title="Fused softmax, persistent programs",
    grid=Grid.PERSISTENT,
    function=softmax_kernel,
    constexprs=constexprs,
    default_config=default_config,
    memory_steps=memory_steps,
    run=softmax,
    passed=passed,
    reference=reference,
    compared_with="softmax_naive",
    alike=ALIKE,
    by_rows="softmax_row",
    stage_bytes=stage_bytes,
)
