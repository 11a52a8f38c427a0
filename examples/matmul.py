"""Matrix multiplication in blocks: a kernel, the same one tuned, and a script that launches it."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_bk,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Compute a block of C = A @ B; programs go down GROUP_M blocks before they go right."""
    pid = tl.program_id(0)
    down, right = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * right)
    height = min(down - group * GROUP_M, GROUP_M)
    rows = (group * GROUP_M + pid % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (pid % (GROUP_M * right) // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows % M)[:, None] * stride_am + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * stride_bk + (cols % N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=inner[None, :] < K - start, other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < K - start, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :], total.to(tl.float16), mask=mask)


tuned_matmul = triton.autotune(
    configs=[
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8},
            num_warps=num_warps,
            num_stages=num_stages,
        )
        for m, n, k, num_warps, num_stages in (
            (128, 256, 64, 8, 3),
            (128, 128, 64, 8, 4),
            (128, 64, 32, 4, 4),
            (64, 64, 64, 4, 5),
        )
    ],
    key=["M", "N", "K"],
)(matmul)


def multiply(a, b):
    """Return a @ b as the tuned kernel computes it."""
    (m, k), (_, n) = a.shape, b.shape
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    tuned_matmul[grid](a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0))
    return c


def main():
    """Multiply two matrices, as a benchmark would."""
    a = torch.randn((4096, 4096), device="cuda", dtype=torch.float16)
    multiply(a, a)


def shapes():
    """Multiply matrices of three shapes."""
    for m, n, k in ((4096, 4096, 4096), (1024, 1024, 1024), (16, 4096, 4096)):
        a = torch.randn((m, k), device="cuda", dtype=torch.float16)
        multiply(a, torch.randn((k, n), device="cuda", dtype=torch.float16))
