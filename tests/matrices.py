"""Matrices for tests of the softmaxes, and what they are to a kernel."""

from __future__ import annotations

import torch

from occupancy_lab.values import Problem

MAX_SHARED = 232_448
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
INF = float("inf")


def problem_of(x: torch.Tensor) -> Problem:
    """Return the problem that *x* is."""
    return Problem(max(x.shape[0], 1), x.shape[1], str(x.dtype).removeprefix("torch."))


def ends_of_float32(cols: int) -> torch.Tensor:
    """Return rows of the lowest and the highest numbers, of infinities and of one NaN."""
    x = torch.full((7, cols), torch.finfo(torch.float32).min)
    x[1, ::2] = 3e38
    x[1, 1::2] = -3e38
    x[2] = -INF
    x[3, 1:] = -INF
    x[4, -1] = float("nan")
    x[5] = torch.linspace(-200, 0, cols)
    x[6, -2:] = 3e38
    return x
