"""Kernels like a user's, for tests of launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    import torch


@triton.jit
def layer_norm(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    """Normalize each row, as Triton's layer norm tutorial does."""
    row = tl.program_id(0)
    total = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        total += tl.load(X + row * stride + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + row * stride + cols, mask=cols < N, other=0.0).to(tl.float32)
        centred = tl.where(cols < N, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + row * stride + cols, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Multiply two matrices, blocks in groups of rows, as Triton's matmul tutorial does."""
    pid = tl.program_id(0)
    rows_of_blocks = tl.cdiv(M, BLOCK_SIZE_M)
    in_group = GROUP_SIZE_M * tl.cdiv(N, BLOCK_SIZE_N)
    first = pid // in_group * GROUP_SIZE_M
    height = min(rows_of_blocks - first, GROUP_SIZE_M)
    pid_m = first + pid % in_group % height
    pid_n = pid % in_group // height
    rows = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    cols = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    inner = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + inner[None, :] * stride_ak
    b_ptrs = b_ptr + inner[:, None] * stride_bk + cols[None, :] * stride_bn
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_SIZE_K)):
        left = K - step * BLOCK_SIZE_K
        a = tl.load(a_ptrs, mask=inner[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < left, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        total = tl.where(total >= 0, total, 0.01 * total)
    row = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    col = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    mask = (row[:, None] < M) & (col[None, :] < N)
    c_ptrs = c_ptr + stride_cm * row[:, None] + stride_cn * col[None, :]
    tl.store(c_ptrs, total.to(tl.float16), mask=mask)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 256}, num_warps=4),
        triton.Config({"BLOCK": 1024}, num_warps=8),
    ],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def tuned_add(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Add x to y in place, unmasked where blocks divide n."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        total = tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets)
        tl.store(y_ptr + offsets, total)
    else:
        mask = offsets < n
        total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
        tl.store(y_ptr + offsets, total, mask=mask)


@triton.jit
def oddities(
    x_desc,
    pair,
    wide: tl.int64,
    half: tl.float16,
    num_stages: tl.constexpr,
    num_warps,
    flag=True,
    DTYPE: tl.constexpr = tl.float32,
):
    """Has unusual parameters, and does little with them."""
    block = x_desc.load([0, 0]).to(DTYPE) * half + pair[1] + wide + num_warps + num_stages
    if flag:
        x_desc.store([0, 0], block.to(tl.float16))


@triton.jit
def transpose(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    """Transpose a matrix, one square block per program: no loop, and a grid of two dimensions."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    block = tl.load(x_ptr + rows[:, None] * N + cols[None, :], mask=inside)
    tl.store(y_ptr + cols[None, :] * M + rows[:, None], block, mask=inside)


@triton.jit
def sum_in_parts(x_ptr, parts_ptr, n_rows, n_cols, rows_per_program, BLOCK: tl.constexpr):
    """Sum columns: each program sums its own rows into a row of partial sums."""
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(pid * rows_per_program, min((pid + 1) * rows_per_program, n_rows)):
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        total += x.to(tl.float32)
    tl.store(parts_ptr + pid * n_cols + cols, total, mask=cols < n_cols)


@triton.jit
def split_k(
    a_ptr,
    b_ptr,
    c_ptr,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    ADDS: tl.constexpr,
):
    """Add a part of K to a tile of a product; a part that is all of K is stored."""
    tiles = tl.cdiv(N, BLOCK_N)
    row = tl.program_id(0) // tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K * SPLIT_K)):
        a = tl.load(a_ptr + row[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + col[None, :], mask=k[:, None] < K, other=0.0)
        total = tl.dot(a, b, total)
        k += BLOCK_K * SPLIT_K
    at = c_ptr + row[:, None] * N + col[None, :]
    if ADDS or SPLIT_K > 1:
        tl.atomic_add(at, total.to(tl.float16), sem="relaxed")
    else:
        tl.store(at, total.to(tl.float16))


@triton.jit
def scale_in_turns(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    """Double rows; each program takes rows at a fixed distance."""
    cols = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        tl.store(y_ptr + row * n_cols + cols, 2 * x, mask=cols < n_cols)


@triton.jit
def center_groups(x_ptr, y_ptr, n_rows, n_cols, rows_per_group: tl.constexpr, BLOCK: tl.constexpr):
    """Subtract from rows the mean of their group, one group per program."""
    first = tl.program_id(0) * rows_per_group
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(first, first + rows_per_group):
        total += tl.load(x_ptr + row * n_cols + cols, mask=row < n_rows).to(tl.float32)
    mean = tl.sum(total) / (rows_per_group * n_cols)
    for row in range(first, first + rows_per_group):
        tl.store(y_ptr + row * n_cols + cols, tl.load(x_ptr + row * n_cols + cols) - mean)


@triton.jit
def center_rows_in_turns(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    """Subtract from each row its mean, block by block; programs take rows in turns."""
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            total += tl.load(x_ptr + row * n_cols + start + tl.arange(0, BLOCK)).to(tl.float32)
        mean = tl.sum(total) / n_cols
        for start in range(0, n_cols, BLOCK):
            at = row * n_cols + start + tl.arange(0, BLOCK)
            tl.store(y_ptr + at, tl.load(x_ptr + at) - mean)


@triton.jit
def sum_to_one(x_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    """Add the sum of a program's block to a total."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(sum_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)))


@triton.jit
def scale_a_row(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """Double one row per program."""
    start = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + start + cols, 2 * x, mask=cols < n_cols)


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    """Double n elements, one block per program."""
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def grid(meta: Mapping[str, int]) -> tuple[int]:
    """Return the grid of `double`."""
    return (triton.cdiv(meta["n"], meta["BLOCK_SIZE"]),)


def compiled_whole(kernel: Any) -> tuple[Callable[[torch.Tensor], torch.Tensor], list[str]]:
    """Return a program that launches *kernel*, a `double`, compiled by torch, and its graphs.

    They are there once it has run, and launch nothing.
    """
    import torch

    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append(str(graph.graph))
        return lambda *_: (inputs[0],)

    def doubled(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[grid](x, y, x.numel())
        return y

    return torch.compile(doubled, backend=backend, fullgraph=True), graphs


@triton.jit
def tiles(x_ptr, y_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Copy a tile of a matrix."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    at = rows[:, None] * N + cols[None, :]
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=mask), mask=mask)


@triton.jit
def fill(out, n, B: tl.constexpr):
    """Fill out with zeros."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.zeros([B], tl.float32), mask=at < n)


@triton.jit
def copy(x, out, n, B: tl.constexpr):
    """Copy x to out."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def read(x, out, n, B: tl.constexpr):
    """Sum each B numbers of x."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n)))


@triton.jit
def tile_elsewhere(x, SIZE: tl.constexpr, TIMES: tl.constexpr):
    """Return x and a tile, several times."""
    return x + tl.arange(0, SIZE) * TIMES


@triton.jit
def handing(
    x_ptr, n, FLAG: tl.constexpr, GROUP: tl.constexpr, TILE: tl.constexpr, OTHER: tl.constexpr
):
    """Let another function make a tile."""
    at = tile_elsewhere(x_ptr, TILE, TIMES=FLAG)
    total = tl.zeros([OTHER], dtype=tl.float32)
    tl.store(at, min(n, GROUP) + tl.sum(total))


@triton.jit
def sines(x, y, n, BLOCK: tl.constexpr):
    """Add the sine and the cosine of each number."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(y + at, tl.sin(value) + tl.cos(value), at < n)


@triton.jit
def divisions(x, y, n, BLOCK: tl.constexpr):
    """Divide each number by its square root, both rounded to the nearest number."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(y + at, tl.div_rn(value, tl.sqrt_rn(value)), at < n)


@triton.jit
def sum_up_chunks(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Replace each chunk of BLOCK numbers by its running sum."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.cumsum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0), mask=at < n)


@triton.jit
def sum_up_chunks_in_turns(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Do the same in programs that take several chunks in turn."""
    for chunk in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        at = chunk * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.cumsum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0), mask=at < n)


@triton.jit
def store_pages(x, slots, cache, HEAD: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Store rows to the slots of a cache whose pages have PAGE slots, elements first."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + row)[:, None]
    at = tl.arange(0, HEAD)[None, :]
    page = cache + (slot // PAGE) * PAGE * HEAD
    tl.store(page + at * PAGE + slot % PAGE, tl.load(x + row[:, None] * HEAD + at))


@triton.jit
def sum_columns(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    """Sum BLOCK columns in each program, row by row."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(n_rows):
        total += tl.load(x_ptr + row * n_cols + cols).to(tl.float32)
    tl.store(out_ptr + cols, total)


@triton.jit
def quantize(x_ptr, y_ptr, scale_ptr, n, n_scales, BLOCK: tl.constexpr):
    """Scale each block by its largest element, and store that: 4 blocks a program."""
    first = tl.program_id(0) * 4
    offsets = first * BLOCK + tl.arange(0, 4 * BLOCK)
    x = tl.reshape(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), (4, BLOCK))
    scale = tl.max(tl.abs(x), axis=1)
    blocks = first + tl.arange(0, 4)
    tl.store(scale_ptr + blocks, scale, mask=blocks < n_scales)
    y = tl.reshape(x / scale[:, None], (4 * BLOCK,))
    tl.store(y_ptr + offsets, y, mask=offsets < n)


@triton.jit
def sum_a_row(x_ptr, sums_ptr, n_cols, BLOCK: tl.constexpr):
    """Store the sum of one row per program."""
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(sums_ptr + row, tl.sum(x))
