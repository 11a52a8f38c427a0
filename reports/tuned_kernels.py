"""Kernels that reports/record_autotunes.py tunes beside those of the lab and of the tutorials."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_in_blocks(X, Y, W, B, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    """Normalize row program_id of X in blocks, as tutorial 05 does: three loops over the row."""
    row = tl.program_id(0)
    x_row, y_row = X + row * stride, Y + row * stride
    total = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        total += tl.load(x_row + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_row + cols, mask=cols < N, other=0.0).to(tl.float32)
        centred = tl.where(cols < N, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        x = tl.load(x_row + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(W + cols, mask=mask).to(tl.float32)
        b = tl.load(B + cols, mask=mask).to(tl.float32)
        tl.store(y_row + cols, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def attention(
    Q,
    K,
    V,
    Out,
    scale,
    N_CTX,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Attend from BLOCK_M rows of one head to all of its keys, BLOCK_N at a time."""
    head = tl.program_id(1) * N_CTX * HEAD_DIM
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    keys, dims = tl.arange(0, BLOCK_N), tl.arange(0, HEAD_DIM)
    q = tl.load(Q + head + rows[:, None] * HEAD_DIM + dims[None, :])
    k_ptrs = K + head + dims[:, None] + keys[None, :] * HEAD_DIM
    v_ptrs = V + head + keys[:, None] * HEAD_DIM + dims[None, :]
    highest = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    weight = tl.zeros([BLOCK_M], dtype=tl.float32)
    total = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    for _ in range(0, N_CTX, BLOCK_N):
        scores = tl.dot(q, tl.load(k_ptrs)) * (scale * 1.44269504)
        now = tl.maximum(highest, tl.max(scores, axis=1))
        p = tl.exp2(scores - now[:, None])
        shrink = tl.exp2(highest - now)
        weight = weight * shrink + tl.sum(p, axis=1)
        total = tl.dot(p.to(V.dtype.element_ty), tl.load(v_ptrs), total * shrink[:, None])
        highest = now
        k_ptrs += BLOCK_N * HEAD_DIM
        v_ptrs += BLOCK_N * HEAD_DIM
    out_ptrs = Out + head + rows[:, None] * HEAD_DIM + dims[None, :]
    tl.store(out_ptrs, (total / weight[:, None]).to(Out.dtype.element_ty))
