"""Kernels with configurations, whose full autotunes reports/record_tunes.py records."""

import itertools
import sys
from pathlib import Path

import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from matmul import matmul


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
    """Compute attention of BLOCK_M rows of a head to all of its keys, BLOCK_N at a time."""
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


@triton.jit
def group_norm(X, Y, W, B, size, per_channel, channels, groups, eps, BLOCK: tl.constexpr):
    """Normalize a group of an image: *size* elements, *per_channel* of them from each channel."""
    group = tl.program_id(0)
    start = group.to(tl.int64) * size
    total = tl.zeros([BLOCK], dtype=tl.float32)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for at in range(0, size, BLOCK):
        here = at + tl.arange(0, BLOCK)
        x = tl.load(X + start + here, mask=here < size, other=0.0).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total, axis=0) / size
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / size - mean * mean + eps)
    first = group % groups * (channels // groups)
    for at in range(0, size, BLOCK):
        here = at + tl.arange(0, BLOCK)
        mask = here < size
        x = tl.load(X + start + here, mask=mask, other=0.0).to(tl.float32)
        channel = first + here // per_channel
        w = tl.load(W + channel, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(B + channel, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + start + here, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def cross_entropy(Logits, Labels, Loss, words, BLOCK: tl.constexpr):
    """Write the loss of row program_id; one pass finds its largest logit and its sum."""
    row = tl.program_id(0)
    logits = Logits + row.to(tl.int64) * words
    highest = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for at in range(0, words, BLOCK):
        here = at + tl.arange(0, BLOCK)
        x = tl.load(logits + here, mask=here < words, other=-1e30).to(tl.float32)
        now = tl.maximum(highest, x)
        total = total * tl.exp(highest - now) + tl.exp(x - now)
        highest = now
    largest = tl.max(highest, axis=0)
    whole = tl.sum(total * tl.exp(highest - largest), axis=0)
    own = tl.load(logits + tl.load(Labels + row)).to(tl.float32)
    tl.store(Loss + row, tl.log(whole) + largest - own)


@triton.jit
def row_softmax(X, Y, cols, BLOCK: tl.constexpr):
    """Write the softmax of row program_id, which fits into one block."""
    start = tl.program_id(0).to(tl.int64) * cols
    here = tl.arange(0, BLOCK)
    x = tl.load(X + start + here, mask=here < cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(Y + start + here, (e / tl.sum(e, axis=0)).to(Y.dtype.element_ty), mask=here < cols)


def _configs(**values):
    """Return every combination of *values* of constexprs, num_warps and num_stages."""
    found = []
    for one in itertools.product(*values.values()):
        named = dict(zip(values, one, strict=True))
        options = {name: named.pop(name) for name in ("num_warps", "num_stages") if name in named}
        found.append(triton.Config(named, **options))
    return found


# The configurations of Triton's tutorial 03 for CUDA, including those for 8-bit floats.
_TUTORIAL = (
    *((128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4)),
    *((64, 128, 32, 4, 4), (128, 32, 32, 4, 4), (64, 32, 32, 5, 2), (32, 64, 32, 5, 2)),
    *((128, 256, 128, 3, 8), (256, 128, 128, 3, 8), (256, 64, 128, 4, 4), (64, 256, 128, 4, 4)),
    *((128, 128, 128, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 32, 64, 4, 4)),
    *((128, 128, 64, 3, 8), (128, 128, 64, 4, 4), (256, 128, 64, 3, 8), (64, 64, 64, 4, 4)),
)
tuned_matmul = triton.autotune(
    [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=s, num_warps=w
        )
        for m, n, k, s, w in _TUTORIAL
    ],
    key=["M", "N", "K"],
)(matmul)
tuned_attention = triton.autotune(
    _configs(BLOCK_M=(64, 128), BLOCK_N=(32, 64, 128), num_warps=(4, 8), num_stages=(2, 3)),
    key=["N_CTX", "HEAD_DIM"],
)(attention)
_BLOCKS = _configs(BLOCK=(512, 1024, 2048, 4096, 8192), num_warps=(1, 4, 8, 16))
tuned_layer_norm = triton.autotune(
    _configs(BLOCK_SIZE=(512, 1024, 2048, 4096, 8192), num_warps=(1, 4, 8, 16)), key=["N"]
)(layer_norm_in_blocks)
tuned_group_norm = triton.autotune(_BLOCKS, key=["size"])(group_norm)
tuned_cross_entropy = triton.autotune(_BLOCKS, key=["words"])(cross_entropy)
tuned_softmax = triton.autotune(_configs(num_warps=(1, 2, 4, 8, 16, 32)), key=["cols"])(row_softmax)
