"""An autotuned kernel: occupancy-lab drops and ranks configurations before Triton times them."""

import logging

import torch
import triton
import triton.language as tl

import occupancy_lab


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_SIZE": size}, num_warps=num_warps, num_stages=num_stages)
        for size in (1024, 2048, 8192)
        for num_warps in (4, 16)
        for num_stages in (1, 3, 9)
    ],
    key=["n_cols"],
    prune_configs_by={
        "early_config_prune": occupancy_lab.early_config_prune,
        "perf_model": occupancy_lab.perf_model,
        "top_k": 3,
    },
)
@triton.jit
def rms_norm(x_ptr, w_ptr, y_ptr, n_cols, eps, BLOCK_SIZE: tl.constexpr, num_stages: tl.constexpr):
    """Scale row program_id to a root mean square of 1, in blocks."""
    row = tl.program_id(0) * n_cols
    squares = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE, num_stages=num_stages):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for start in tl.range(0, n_cols, BLOCK_SIZE, num_stages=num_stages):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + row + cols, x * scale * w, mask=mask)


def main():
    """Normalize a matrix, and say what was dropped."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    x = torch.randn((4096, 8192), device="cuda")
    w = torch.randn(8192, device="cuda")
    y = torch.empty_like(x)
    rms_norm[(4096,)](x, w, y, 8192, 1e-6)
    print("chosen:", rms_norm.best_config)


if __name__ == "__main__":
    main()
