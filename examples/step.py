"""A program that launches kernels, step after step: `python examples/step.py STEPS`."""

import sys

import torch
from layer_norm import layer_norm
from matmul import multiply


def step(x, weight, bias, matrix):
    """Normalize the rows of x and multiply it by the matrix."""
    rows, cols = x.shape
    y = torch.empty_like(x)
    mean, rstd = torch.empty((2, rows), device=x.device)
    layer_norm[(rows,)](
        *(x, y, weight, bias, mean, rstd, x.stride(0), cols, 1e-5), BLOCK_SIZE=cols, num_warps=8
    )
    return multiply(y, matrix)


def main(steps=1):
    """Make so many steps."""
    half = {"device": "cuda", "dtype": torch.float16}
    x, matrix = torch.randn((4096, 2048), **half), torch.randn((2048, 2048), **half)
    weight, bias = torch.ones(2048, **half), torch.zeros(2048, **half)
    for _ in range(steps):
        step(x, weight, bias, matrix)


if __name__ == "__main__":
    main(int(sys.argv[1]))
