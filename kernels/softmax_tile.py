"""Fused softmax of short rows: a program takes several, side by side, each in equal pieces.

A program a row is a program for every few hundred bytes, and an H200 starts one in 0.6 ns: 131072 x
128 float32 takes 83 us in `softmax_row`, 38 us in the persistent `softmax`, and 36 us here, as long
as a copy (Triton 3.6, 2026-11-22).

The threads of a warp share its rows, and a piece is what they load of them at once. So a row is
padded to a piece and not to a power of two, all rows are reduced in one go, and the address of a
row is computed by its own threads: 100000 x 129 bfloat16 takes 292 instructions in the place of
583, and has 1.00 of a copy in the place of 0.90, 181642 x 67 float32 1.00 and 0.86, 279805 x 395
float16 0.96 and 0.78.

Rows that are no multiple of 16 bytes are read by 4 bytes, and of 16-bit ones the elements before
and after by themselves. In chunks of 16 bytes, as `softmax_pieces` reads them, Triton gave the up
to 7 elements beside them to every thread, and a row of 395 had as many of these as its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from occupancy_lab.errors import refuse
from occupancy_lab.kernel import Grid, Kernel
from occupancy_lab.kernels.softmax import ALIKE, launch, memory_steps, reference
from occupancy_lab.kernels.softmax_pieces import (
    chunk_of,
    chunks_of,
    edges_of,
    exact_sum,
    exponential,
    quotient,
    share,
)
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import torch


@triton.jit
def softmax_tile_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_cols,
    n_rows,
    ROWS: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE_SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
    WHOLE_CHUNKS: tl.constexpr,
):
    """Softmax of the rows from `program_id * ROWS` on."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    n_cols = tl.where(row < n_rows, n_cols, 0)
    dtype: tl.constexpr = input_ptr.dtype.element_ty
    start, shift, low, high = chunks_of(row, input_row_stride, n_cols, CHUNK, WHOLE_CHUNKS)
    row_ptr = input_ptr + start
    piece_cols = tl.arange(0, PIECE_SIZE)[None, :]
    pieces = ()
    # The lowest float32: an infinity, subtracted from another, would be NaN.
    largest = tl.full((ROWS, PIECE_SIZE), -3.4028234663852886e38, tl.float32)
    for i in tl.static_range(PIECES):
        cols = i * PIECE_SIZE + piece_cols
        mask = (cols >= low) & (cols < high)
        pieces += (tl.load(row_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32),)
    for i in tl.static_range(PIECES):
        largest = tl.maximum(largest, pieces[i])
    top = tl.max(largest, axis=1, keep_dims=True)
    if not WHOLE_CHUNKS:
        head_mask, tail_cols, tail_mask = edges_of(0, shift, low, high, n_cols)
        head = tl.load(row_ptr + shift, mask=head_mask, other=-float("inf"))
        tail = tl.load(row_ptr + shift + tail_cols, mask=tail_mask, other=-float("inf"))
        head = head.to(tl.float32)
        tail = tail.to(tl.float32)
        top = tl.maximum(top, tl.maximum(head, tail))
    numerators = ()
    totals = tl.zeros((ROWS, PIECE_SIZE), tl.float32)
    for i in tl.static_range(PIECES):
        numerators += (exponential(pieces[i], top, dtype),)
        totals += numerators[i]
    total = tl.sum(totals, axis=1, keep_dims=True)
    rest = 0.0
    if not WHOLE_CHUNKS:
        head = exponential(head, top, dtype)
        tail = exponential(tail, top, dtype)
        total, rest = exact_sum(total, head + tail)
    scale, rest = quotient(1.0, total, rest)
    output_row_ptr = output_ptr + row.to(tl.int64) * output_row_stride // CHUNK * CHUNK
    for i in tl.static_range(PIECES):
        cols = i * PIECE_SIZE + piece_cols
        mask = (cols >= low) & (cols < high)
        tl.store(
            output_row_ptr + cols, share(numerators[i], scale, rest, dtype).to(dtype), mask=mask
        )
    if not WHOLE_CHUNKS:
        head = share(head, scale, rest, dtype).to(dtype)
        tail = share(tail, scale, rest, dtype).to(dtype)
        tl.store(output_row_ptr + shift, head, mask=head_mask)
        tl.store(output_row_ptr + shift + tail_cols, tail, mask=tail_mask)


LEAST_PIECE_BYTES = 32
"""The bytes of a row that are read at once, a sector of the caches: 181642 x 67 float32 takes 57 us
with 16 bytes, and 30 us with 32."""
MOST_COLS = 2048
"""The longest row: a longer one is enough work for a program."""


def softmax_tile(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
    """Return a new matrix with the softmax of each row of *x*, a matrix on the current GPU.

    *x* is copied first if its rows are not aligned to 16 bytes as those of the new matrix are. As
    many programs as tiles are launched, whatever *num_programs* says. Raises InputError if
    BLOCK_SIZE cannot hold a row.
    """
    return launch(KERNEL, config, x)


def passed(y: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor | int, ...]:
    """Return what `softmax_tile` passes by position: output, input, row strides and the shape."""
    return (y, x, x.stride(0), y.stride(0), x.shape[1], x.shape[0])


def row_size(problem: Problem) -> int:
    """Return the smallest power of two that holds a row and at least a chunk."""
    chunk = chunk_of(problem)
    return max(1 << (problem.cols - 1).bit_length(), chunk)


def work(problem: Problem, config: Config) -> int:
    """Return the tiles of a matrix."""
    return -(-problem.rows // max(config.block_size // row_size(problem), 1))


def constexprs(problem: Problem, config: Config) -> dict[str, int]:
    """Return what `softmax_tile` passes by name; InputError where BLOCK_SIZE is no tile."""
    size, chunk = row_size(problem), chunk_of(problem)
    if config.block_size < size or config.block_size.bit_count() != 1:
        refuse(
            f"BLOCK_SIZE is {config.block_size}; softmax_tile takes a power of two that holds rows"
            f" of {problem.cols} elements, such as {4 * size}"
        )
    rows = config.block_size // size
    if problem.cols % chunk:
        chunk = 4 // problem.item_bytes
    piece_size = min(max(32 * config.num_warps // rows, 1) * chunk, size)
    return {
        "ROWS": rows,
        "PIECES": triton.cdiv(problem.cols, piece_size),
        "PIECE_SIZE": piece_size,
        "CHUNK": chunk,
        "WHOLE_CHUNKS": problem.cols % chunk == 0,
    }


def is_worth_it(problem: Problem, config: Config) -> bool:
    """Return whether a thread holds 8 to 48 elements, and a sector or more is read at once."""
    found = constexprs(problem, config)
    elements = found["PIECES"] * found["PIECE_SIZE"] * found["ROWS"] // (32 * config.num_warps)
    piece_bytes = found["PIECE_SIZE"] * problem.item_bytes
    return 8 <= elements <= 48 and piece_bytes >= LEAST_PIECE_BYTES


def configs(problem: Problem) -> tuple[Config, ...]:
    """Return tiles of 1 to 32 rows with 8 to 48 elements a thread; none for long rows."""
    if problem.cols > MOST_COLS:
        return ()
    return tuple(
        one
        for rows in (1, 2, 4, 8, 16, 32)
        for num_warps in (1, 2, 4)
        if is_worth_it(problem, one := Config(rows * row_size(problem), num_warps, 1))
    ) or (default_config(problem, 0),)


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return 2048 elements, or one row, and a warp for every 512 of them."""
    block_size = max(row_size(problem), 2048)
    return Config(block_size, num_warps=min(block_size // 512, 32), num_stages=1)


KERNEL = Kernel(
    name="softmax_tile",
    title="Fused softmax, several short rows a program",
    grid=Grid.ROWS,
    function=softmax_tile_kernel,
    constexprs=constexprs,
    default_config=default_config,
    memory_steps=memory_steps,
    run=softmax_tile,
    passed=passed,
    reference=reference,
    compared_with="softmax_naive",
    alike=ALIKE,
    configs=configs,
    work=work,
    rows_alike=True,
)
