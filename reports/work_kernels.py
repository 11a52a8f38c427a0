"""Small Triton kernels as users write them, and calls of each, for record_work.py.

They cover what the tutorials and libraries in foreign_kernels.py do not: transposes, gathers,
stencils, scans, sorts, loops whose bounds are in memory, atomics, narrow loads, split reductions,
int8.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

SMS = 132
"""Programs of the persistent kernels: the multiprocessors of an H100."""


@triton.jit
def nothing_kernel():
    """Do nothing: the time of the launch itself."""


@triton.jit
def transpose_kernel(x, y, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Write the transpose of a matrix, a tile a program."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (row[:, None] < rows) & (col[None, :] < cols)
    tile = tl.load(x + row[:, None] * cols + col[None, :], mask)
    tl.store(y + col[:, None] * rows + row[None, :], tl.trans(tile), tl.trans(mask))


@triton.jit
def embedding_kernel(indices, table, y, cols, BLOCK: tl.constexpr):
    """Copy the rows of a table that a list of indices selects."""
    row = tl.program_id(0)
    index = tl.load(indices + row).to(tl.int64)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        value = tl.load(table + index * cols + col, col < cols)
        tl.store(y + row.to(tl.int64) * cols + col, value, col < cols)


@triton.jit
def gather_kernel(indices, x, y, size, BLOCK: tl.constexpr):
    """Read single elements of a vector by indices from memory."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + place, place < size, other=0)
    tl.store(y + place, tl.load(x + index, place < size), place < size)


@triton.jit
def scatter_add_kernel(indices, x, table, cols, BLOCK: tl.constexpr):
    """Add rows to indexed rows of a table, like the backward pass of an embedding."""
    row = tl.program_id(0)
    index = tl.load(indices + row).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row.to(tl.int64) * cols + col, col < cols).to(tl.float32)
    tl.atomic_add(table + index * cols + col, value, col < cols, sem="relaxed")


@triton.jit
def stencil_kernel(x, y, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Average each inner point of a grid with its four neighbours."""
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    col = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    inner = (row > 0) & (row < rows - 1) & (col > 0) & (col < cols - 1)
    here = x + row * cols + col
    around = tl.load(here - 1, inner) + tl.load(here + 1, inner)
    around += tl.load(here - cols, inner) + tl.load(here + cols, inner)
    tl.store(y + row * cols + col, 0.5 * tl.load(here, inner) + 0.125 * around, inner)


@triton.jit
def causal_convolution_kernel(x, w, y, tokens, width, K: tl.constexpr, BLOCK: tl.constexpr):
    """Convolve each channel with its own K weights over the preceding tokens."""
    token = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < width
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(K):
        before = token - (K - 1) + k
        value = tl.load(x + before * width + channel, mask & (before >= 0), other=0.0)
        total += value * tl.load(w + channel * K + k, mask, other=0.0)
    tl.store(y + token * width + channel, total / (1 + tl.exp(-total)), mask)


@triton.jit
def scan_kernel(x, y, cols, BLOCK: tl.constexpr):
    """Write the running sums of each row, block after block."""
    row = tl.program_id(0).to(tl.int64)
    before = 0.0
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * cols + col, col < cols, other=0.0).to(tl.float32)
        tl.store(y + row * cols + col, before + tl.cumsum(value, 0), col < cols)
        before += tl.sum(value, 0)


@triton.jit
def linear_step(a0, b0, a1, b1):
    """Compose two steps of a linear recurrence."""
    return a0 * a1, b0 * a1 + b1


@triton.jit
def recurrence_kernel(a, b, y, cols, BLOCK: tl.constexpr):
    """Write y[t] = a[t] y[t-1] + b[t] of each row by an associative scan."""
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    decay = tl.load(a + row * cols + col, col < cols, other=1.0)
    value = tl.load(b + row * cols + col, col < cols, other=0.0)
    _, result = tl.associative_scan((decay, value), 0, linear_step)
    tl.store(y + row * cols + col, result, col < cols)


@triton.jit
def split_k_kernel(
    a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
):  # fmt: skip
    """Add a part of K to each tile of a matrix product."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.program_id(2) * BLOCK_K + tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K * SPLIT_K)):
        left = tl.load(a + row[:, None] * K + k[None, :], (row[:, None] < M) & (k[None, :] < K), 0)
        right = tl.load(b + k[:, None] * N + col[None, :], (k[:, None] < K) & (col[None, :] < N), 0)
        total = tl.dot(left, right, total)
        k += BLOCK_K * SPLIT_K
    mask = (row[:, None] < M) & (col[None, :] < N)
    tl.atomic_add(c + row[:, None] * N + col[None, :], total, mask, sem="relaxed")


@triton.jit
def int8_matmul_kernel(
    a, b, scale, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Multiply int8 matrices, the second by its rows, and scale each column."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for start in range(0, K, BLOCK_K):
        left = tl.load(a + row[:, None] * K + start + k[None, :], row[:, None] < M, 0)
        right = tl.load(b + col[None, :] * K + start + k[:, None], col[None, :] < N, 0)
        total = tl.dot(left, right, total, out_dtype=tl.int32)
    scaled = total.to(tl.float32) * tl.load(scale + col, col < N)[None, :]
    mask = (row[:, None] < M) & (col[None, :] < N)
    tl.store(c + row[:, None] * N + col[None, :], scaled.to(tl.float16), mask)


@triton.jit
def descriptor_matmul_kernel(
    a, b, c, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Multiply matrices that tensor descriptors (TMA) load, the second by its rows."""
    row, col = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        total = tl.dot(a.load([row, k]), b.load([col, k]).T, total)
    c.store([row, col], total.to(tl.float16))


@triton.jit
def group_norm_kernel(
    x, w, b, y, channels, pixels, GROUP: tl.constexpr, BLOCK: tl.constexpr, EPS: tl.constexpr
):
    """Normalize each group of channels of an image in two passes over it."""
    image, group = tl.program_id(0), tl.program_id(1)
    size = GROUP * pixels
    start = (image * channels + group * GROUP).to(tl.int64) * pixels
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, size, BLOCK):
        place = first + tl.arange(0, BLOCK)
        value = tl.load(x + start + place, place < size, other=0.0).to(tl.float32)
        total += value
        squares += value * value
    mean = tl.sum(total, 0) / size
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / size - mean * mean + EPS)
    for first in range(0, size, BLOCK):
        place = first + tl.arange(0, BLOCK)
        channel = group * GROUP + place // pixels
        value = tl.load(x + start + place, place < size, other=0.0).to(tl.float32)
        weight = tl.load(w + channel, place < size, other=0.0)
        bias = tl.load(b + channel, place < size, other=0.0)
        tl.store(y + start + place, (value - mean) * scale * weight + bias, place < size)


@triton.jit
def rms_norm_kernel(x, w, y, cols, eps, BLOCK: tl.constexpr):
    """Normalize a row by its root mean square."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + col, col < cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / cols + eps)
    tl.store(y + row * cols + col, value * scale * tl.load(w + col, col < cols), col < cols)


@triton.jit
def rope_kernel(x, cos, sin, y, tokens, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    """Rotate the halves of a head, with an angle per token."""
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    half = tl.arange(0, HEAD // 2)[None, :]
    first = (tl.program_id(1) * tokens + token) * HEAD + half
    angle = token * (HEAD // 2) + half
    mask = token < tokens
    left, right = tl.load(x + first, mask), tl.load(x + first + HEAD // 2, mask)
    c, s = tl.load(cos + angle, mask), tl.load(sin + angle, mask)
    tl.store(y + first, left * c - right * s, mask)
    tl.store(y + first + HEAD // 2, right * c + left * s, mask)


@triton.jit
def swiglu_kernel(x, y, width, BLOCK: tl.constexpr):
    """Multiply one half of each row by the SiLU of the other."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + row * 2 * width + col, col < width, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + col, col < width, other=0.0)
    tl.store(y + row * width + col, gate * tl.sigmoid(gate) * up, col < width)


@triton.jit
def cross_entropy_kernel(logits, labels, losses, classes, BLOCK: tl.constexpr):
    """Write the loss of each row, with a running sum of exponentials."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    most, total = -float("inf"), 0.0
    for start in range(0, classes, BLOCK):
        col = start + tl.arange(0, BLOCK)
        value = tl.load(logits + row * classes + col, col < classes, other=-float("inf"))
        value = value.to(tl.float32)
        larger = tl.maximum(most, tl.max(value, 0))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(value - larger), 0)
        most = larger
    chosen = tl.load(logits + row * classes + label).to(tl.float32)
    tl.store(losses + row, most + tl.log(total) - chosen)


@triton.jit
def dropout_kernel(x, y, size, p, seed, BLOCK: tl.constexpr):
    """Drop elements, each by its own random number."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, place) > p
    value = tl.load(x + place, place < size)
    tl.store(y + place, tl.where(keep, value / (1 - p), 0.0), place < size)


@triton.jit
def histogram_kernel(x, bins, size, BLOCK: tl.constexpr):
    """Count values, with an atomic for each."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, place < size, other=0)
    tl.atomic_add(bins + value, tl.full((BLOCK,), 1, tl.int32), place < size, sem="relaxed")


@triton.jit
def block_histogram_kernel(x, bins, size, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Count the values of a block, then add its counts to the total counts."""
    counts = tl.zeros((BINS,), tl.int32)
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, size, step):
        place = start + tl.arange(0, BLOCK)
        counts += tl.histogram(tl.load(x + place, place < size, other=0), BINS)
    tl.atomic_add(bins + tl.arange(0, BINS), counts, sem="relaxed")


@triton.jit
def search_kernel(edges, x, y, count, size, BLOCK: tl.constexpr):
    """Find where each value belongs in a sorted list, by bisection in a while loop."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, place < size, other=0.0)
    low = tl.zeros((BLOCK,), tl.int32)
    high = tl.zeros((BLOCK,), tl.int32) + count
    while tl.max(high - low, 0) > 0:
        middle = (low + high) // 2
        open_ = low < high
        less = tl.load(edges + middle, open_, other=0.0) < value
        low = tl.where(open_ & less, middle + 1, low)
        high = tl.where(open_ & ~less, middle, high)
    tl.store(y + place, low, place < size)


@triton.jit
def sparse_row_kernel(starts, columns, values, x, y, BLOCK: tl.constexpr):
    """Multiply a row of a sparse matrix (CSR) with a vector: the row's ends are in memory."""
    row = tl.program_id(0)
    first, last = tl.load(starts + row), tl.load(starts + row + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(first, last, BLOCK):
        place = start + tl.arange(0, BLOCK)
        column = tl.load(columns + place, place < last, other=0)
        total += tl.load(values + place, place < last, other=0.0) * tl.load(x + column)
    tl.store(y + row, tl.sum(total, 0))


@triton.jit
def sort_kernel(x, y, cols, BLOCK: tl.constexpr):
    """Sort each row."""
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + col, col < cols, other=float("inf"))
    tl.store(y + row * cols + col, tl.sort(value), col < cols)


@triton.jit
def persistent_gelu_kernel(x, y, size, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Apply GELU with as many programs as the GPU has multiprocessors."""
    step = tl.num_programs(0) * BLOCK
    for start in tl.range(tl.program_id(0) * BLOCK, size, step, num_stages=STAGES):
        place = start + tl.arange(0, BLOCK)
        value = tl.load(x + place, place < size, other=0.0).to(tl.float32)
        tl.store(y + place, 0.5 * value * (1 + tl.erf(value * 0.7071067811865476)), place < size)


@triton.jit
def column_sum_kernel(x, y, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Add the rows of a matrix, a strip of columns a program."""
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, rows, BLOCK_M):
        row = start + tl.arange(0, BLOCK_M)[:, None]
        total += tl.load(x + row * cols + col, (row < rows) & (col < cols), other=0.0)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(y + column, tl.sum(total, 0), column < cols)


@triton.jit
def matrix_vector_kernel(a, x, y, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Multiply a matrix with a vector."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, cols, BLOCK_N):
        col = start + tl.arange(0, BLOCK_N)
        mask = (row[:, None] < rows) & (col[None, :] < cols)
        tile = tl.load(a + row[:, None] * cols + col[None, :], mask, other=0.0)
        total += tile * tl.load(x + col, col < cols, other=0.0)[None, :]
    tl.store(y + row, tl.sum(total, 1), row < rows)


@triton.jit
def quantize_kernel(x, y, scales, cols, BLOCK: tl.constexpr):
    """Quantize each row to int8 by its largest value."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + col, col < cols, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(value), 0) / 127
    tl.store(y + row * cols + col, (value / scale).to(tl.int8), col < cols)
    tl.store(scales + row, scale)


@triton.jit
def shifted_kernel(x, y, size, shift, BLOCK: tl.constexpr):
    """Add to each value the one `shift` places later: 2-byte loads, as nothing is aligned."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + place, place < size) + tl.load(x + place + shift, place + shift < size, 0.0)
    tl.store(y + place, total, place < size)


@triton.jit
def interleaved_kernel(x, y, size, BLOCK: tl.constexpr):
    """Multiply interleaved complex numbers by i: loads of every other element."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = tl.load(x + 2 * place, place < size)
    imaginary = tl.load(x + 2 * place + 1, place < size)
    tl.store(y + 2 * place, -imaginary, place < size)
    tl.store(y + 2 * place + 1, real, place < size)


@triton.jit
def decode_kernel(
    q, k, v, part, largest, sums, tokens, scale, HEAD: tl.constexpr, BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Attend from one query to a part of the keys, as flash-decoding does."""
    head, piece = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, HEAD)
    query = tl.load(q + head * HEAD + d).to(tl.float32) * scale
    length = tl.cdiv(tokens, SPLIT)
    most, total = -float("inf"), 0.0
    result = tl.zeros((HEAD,), tl.float32)
    for start in range(piece * length, tl.minimum((piece + 1) * length, tokens), BLOCK):
        token = start + tl.arange(0, BLOCK)
        mask = token < tl.minimum((piece + 1) * length, tokens)
        place = (head * tokens + token[:, None]) * HEAD + d[None, :]
        keys = tl.load(k + place, mask[:, None], other=0.0)
        score = tl.where(mask, tl.sum(keys * query[None, :], 1), -float("inf"))
        larger = tl.maximum(most, tl.max(score, 0))
        weight = tl.exp(score - larger)
        shrink = tl.exp(most - larger)
        values = tl.load(v + place, mask[:, None], other=0.0)
        result = result * shrink + tl.sum(values * weight[:, None], 0)
        total = total * shrink + tl.sum(weight, 0)
        most = larger
    tl.store(part + (head * SPLIT + piece) * HEAD + d, result)
    tl.store(largest + head * SPLIT + piece, most)
    tl.store(sums + head * SPLIT + piece, total)


@triton.jit
def combine_kernel(part, largest, sums, y, HEAD: tl.constexpr, SPLIT: tl.constexpr):
    """Combine the parts of decode_kernel."""
    head, d, piece = tl.program_id(0), tl.arange(0, HEAD), tl.arange(0, SPLIT)
    most = tl.load(largest + head * SPLIT + piece)
    weight = tl.exp(most - tl.max(most, 0))
    total = tl.sum(tl.load(sums + head * SPLIT + piece) * weight, 0)
    parts = tl.load(part + (head * SPLIT + piece[:, None]) * HEAD + d[None, :])
    tl.store(y + head * HEAD + d, tl.sum(parts * weight[:, None], 0) / total)


def _like(x: Any, *shape: int, dtype: Any = None) -> Any:
    return torch.empty(shape or x.shape, device=x.device, dtype=dtype or x.dtype)


def transpose(x: Any, block: tuple[int, int] = (64, 64), **options: Any) -> Any:
    """Return the transpose of a matrix."""
    (rows, cols), (m, n) = x.shape, block
    y = _like(x, cols, rows)
    grid = (triton.cdiv(rows, m), triton.cdiv(cols, n))
    transpose_kernel[grid](x, y, rows, cols, BLOCK_M=m, BLOCK_N=n, **options)
    return y


def embedding(indices: Any, table: Any, block: int = 1024) -> Any:
    """Return the rows of *table* by *indices*."""
    y = _like(table, len(indices), table.shape[1])
    embedding_kernel[(len(indices),)](indices, table, y, table.shape[1], BLOCK=block)
    return y


def gather(indices: Any, x: Any, block: int = 1024) -> Any:
    """Return the elements of *x* by *indices*."""
    y = _like(x, len(indices))
    gather_kernel[(triton.cdiv(len(indices), block),)](indices, x, y, len(indices), BLOCK=block)
    return y


def scatter_add(indices: Any, x: Any, rows: int, block: int = 512) -> Any:
    """Return the sums of the rows of *x* that have the same index."""
    table = torch.zeros(rows, x.shape[1], device=x.device)
    grid = (len(indices), triton.cdiv(x.shape[1], block))
    scatter_add_kernel[grid](indices, x, table, x.shape[1], BLOCK=block)
    return table


def stencil(x: Any, block: tuple[int, int] = (16, 128)) -> Any:
    """Return a step of diffusion; the border is 0."""
    (rows, cols), (m, n) = x.shape, block
    y = torch.zeros_like(x)
    grid = (triton.cdiv(rows, m), triton.cdiv(cols, n))
    stencil_kernel[grid](x, y, rows, cols, BLOCK_M=m, BLOCK_N=n)
    return y


def causal_convolution(x: Any, w: Any, block: int = 512) -> Any:
    """Return the SiLU of a depthwise causal convolution of tokens x channels."""
    (tokens, width), y = x.shape, _like(x)
    grid = (tokens, triton.cdiv(width, block))
    causal_convolution_kernel[grid](x, w, y, tokens, width, K=w.shape[1], BLOCK=block)
    return y


def scan(x: Any, block: int = 1024, **options: Any) -> Any:
    """Return the running sums of each row."""
    y = _like(x)
    scan_kernel[(len(x),)](x, y, x.shape[1], BLOCK=block, **options)
    return y


def recurrence(a: Any, b: Any) -> Any:
    """Return the linear recurrence of each row."""
    y = _like(a)
    block = triton.next_power_of_2(a.shape[1])
    recurrence_kernel[(len(a),)](a, b, y, a.shape[1], BLOCK=block)
    return y


def split_k(a: Any, b: Any, block: tuple[int, int, int] = (64, 64, 64), split: int = 4) -> Any:
    """Return a matrix product in float32, K split between programs."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.zeros(m, n, device=a.device)
    grid = (triton.cdiv(m, block[0]), triton.cdiv(n, block[1]), split)
    split_k_kernel[grid](
        a, b, c, m, n, k, BLOCK_M=block[0], BLOCK_N=block[1], BLOCK_K=block[2], SPLIT_K=split
    )
    return c


def int8_matmul(
    a: Any, b: Any, scale: Any, block: tuple[int, int, int] = (128, 128, 64), **options: Any
) -> Any:
    """Return a times b transposed, columns scaled, in float16; K is a multiple of the block."""
    (m, k), n = a.shape, len(b)
    c = _like(a, m, n, dtype=torch.float16)
    grid = (triton.cdiv(m, block[0]), triton.cdiv(n, block[1]))
    blocks = {"BLOCK_M": block[0], "BLOCK_N": block[1], "BLOCK_K": block[2]}
    int8_matmul_kernel[grid](a, b, scale, c, m, n, k, **blocks, **options)
    return c


def descriptor_matmul(
    a: Any, b: Any, block: tuple[int, int, int] = (128, 128, 64), **options: Any
) -> Any:
    """Return a times b transposed, both loaded by tensor descriptors."""
    c = _like(a, len(a), len(b), dtype=torch.float16)
    m, n, k = block
    given = (
        TensorDescriptor.from_tensor(a, [m, k]),
        TensorDescriptor.from_tensor(b, [n, k]),
        TensorDescriptor.from_tensor(c, [m, n]),
    )
    grid = (triton.cdiv(len(a), m), triton.cdiv(len(b), n))
    descriptor_matmul_kernel[grid](*given, a.shape[1], BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, **options)
    return c


def group_norm(x: Any, w: Any, b: Any, groups: int, block: int = 1024) -> Any:
    """Return the group norm of images x channels x pixels."""
    (images, channels, pixels), y = x.shape, _like(x)
    group_norm_kernel[(images, groups)](
        x, w, b, y, channels, pixels, GROUP=channels // groups, BLOCK=block, EPS=1e-5
    )
    return y


def rms_norm(x: Any, w: Any, **options: Any) -> Any:
    """Return the rows of *x* over their root mean square, times *w*."""
    y, block = _like(x), triton.next_power_of_2(x.shape[1])
    rms_norm_kernel[(len(x),)](x, w, y, x.shape[1], 1e-6, BLOCK=block, **options)
    return y


def rope(x: Any, cos: Any, sin: Any, block: int = 32) -> Any:
    """Return heads x tokens x head rotated by token."""
    (heads, tokens, head), y = x.shape, _like(x)
    rope_kernel[(triton.cdiv(tokens, block), heads)](x, cos, sin, y, tokens, HEAD=head, BLOCK=block)
    return y


def swiglu(x: Any, block: int = 1024) -> Any:
    """Return the second half of each row times the SiLU of the first."""
    width = x.shape[1] // 2
    y = _like(x, len(x), width)
    swiglu_kernel[(len(x), triton.cdiv(width, block))](x, y, width, BLOCK=block)
    return y


def cross_entropy(logits: Any, labels: Any, block: int = 4096) -> Any:
    """Return the loss of each row."""
    losses = _like(logits, len(logits), dtype=torch.float32)
    cross_entropy_kernel[(len(logits),)](logits, labels, losses, logits.shape[1], BLOCK=block)
    return losses


def dropout(x: Any, p: float, seed: int, block: int = 1024) -> Any:
    """Return *x* with a share *p* of its elements dropped."""
    y = _like(x)
    dropout_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), p, seed, BLOCK=block)
    return y


def histogram(x: Any, bins: int, block: int = 1024) -> Any:
    """Return how often each number below *bins* occurs."""
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    histogram_kernel[(triton.cdiv(x.numel(), block),)](x, counts, x.numel(), BLOCK=block)
    return counts


def block_histogram(x: Any, bins: int, block: int = 1024, programs: int = 4 * SMS) -> Any:
    """Return how often each number below *bins* occurs; *x* consists of whole blocks."""
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    block_histogram_kernel[(programs,)](x, counts, x.numel(), BINS=bins, BLOCK=block)
    return counts


def search(edges: Any, x: Any, block: int = 512) -> Any:
    """Return how many of the sorted *edges* are less than each of *x*."""
    y = _like(x, dtype=torch.int32)
    search_kernel[(triton.cdiv(len(x), block),)](edges, x, y, len(edges), len(x), BLOCK=block)
    return y


def sparse_rows(matrix: Any, x: Any, block: int = 128) -> Any:
    """Return the product of a sparse matrix (CSR) with a vector."""
    starts, columns = matrix.crow_indices().int(), matrix.col_indices().int()
    y = _like(x, matrix.shape[0])
    sparse_row_kernel[(len(y),)](starts, columns, matrix.values(), x, y, BLOCK=block)
    return y


def sort(x: Any, **options: Any) -> Any:
    """Return the rows sorted."""
    y = _like(x)
    sort_kernel[(len(x),)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), **options)
    return y


def persistent_gelu(x: Any, block: int = 2048, stages: int = 3, programs: int = SMS) -> Any:
    """Return the GELU of *x*."""
    y = _like(x)
    persistent_gelu_kernel[(programs,)](x, y, x.numel(), BLOCK=block, STAGES=stages)
    return y


def column_sum(x: Any, block: tuple[int, int] = (32, 64)) -> Any:
    """Return the sums of the columns."""
    (rows, cols), (m, n) = x.shape, block
    y = _like(x, cols, dtype=torch.float32)
    column_sum_kernel[(triton.cdiv(cols, n),)](x, y, rows, cols, BLOCK_M=m, BLOCK_N=n)
    return y


def matrix_vector(a: Any, x: Any, block: tuple[int, int] = (16, 256)) -> Any:
    """Return a matrix times a vector."""
    (rows, cols), (m, n) = a.shape, block
    y = _like(a, rows, dtype=torch.float32)
    matrix_vector_kernel[(triton.cdiv(rows, m),)](a, x, y, rows, cols, BLOCK_M=m, BLOCK_N=n)
    return y


def quantize(x: Any) -> tuple[Any, Any]:
    """Return the rows as int8, and the factor of each row."""
    y, scales = _like(x, dtype=torch.int8), _like(x, len(x), dtype=torch.float32)
    quantize_kernel[(len(x),)](x, y, scales, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y, scales


def shifted(x: Any, shift: int, block: int = 1024) -> Any:
    """Return each value plus the one *shift* places later."""
    y = _like(x)
    shifted_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), shift, BLOCK=block)
    return y


def interleaved(x: Any, block: int = 1024) -> Any:
    """Return interleaved complex numbers times i."""
    y, size = _like(x), x.numel() // 2
    interleaved_kernel[(triton.cdiv(size, block),)](x, y, size, BLOCK=block)
    return y


def decode(q: Any, k: Any, v: Any, split: int = 8, block: int = 64) -> Any:
    """Return the attention of one query per head to all tokens of heads x tokens x head."""
    heads, tokens, head = k.shape
    part = torch.empty(heads, split, head, device=q.device)
    largest, sums = (torch.empty(heads, split, device=q.device) for _ in range(2))
    decode_kernel[(heads, split)](
        q, k, v, part, largest, sums, tokens, head**-0.5, HEAD=head, BLOCK=block, SPLIT=split
    )
    y = _like(q)
    combine_kernel[(heads,)](part, largest, sums, y, HEAD=head, SPLIT=split)
    return y
