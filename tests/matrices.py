"""Matrices with special cases, and the results that kernels must give."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from occupancy_lab.values import Problem

MAX_SHARED = 232_448
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
INF = float("inf")
NAN = float("nan")


def to_gpu(value: Any) -> Any:
    """Return a tensor on the GPU in the layout it has here, and all else as it is.

    Tensor.cuda would make it dense.
    """
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    return storage.cuda().as_strided(value.size(), value.stride(), value.storage_offset())


def problem_of(x: Tensor) -> Problem:
    """Return the problem of *x*."""
    return Problem(max(x.shape[0], 1), x.shape[1], str(x.dtype).removeprefix("torch."))


def random_matrix(rows: int, cols: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normally distributed elements, always the same ones."""
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(rows + cols)).to(dtype)


def ends_of_float32(cols: int) -> Tensor:
    """Return rows of the lowest and highest numbers, of infinities and of one NaN."""
    x = torch.full((7, cols), torch.finfo(torch.float32).min)
    x[1, ::2] = 3e38
    x[1, 1::2] = -3e38
    x[2] = -INF
    x[3, 1:] = -INF
    x[4, -1] = NAN
    x[5] = torch.linspace(-200, 0, cols)
    x[6, -2:] = 3e38
    return x


def blocks_of_minus_infinity() -> Tensor:
    """Return rows of -inf except in one block or lane, and a last row of only -inf."""
    x = torch.full((4, 700), -INF)
    x[0, 650] = 3.0
    x[1, :128] = torch.linspace(-3, 3, 128)
    x[2, 5] = torch.finfo(torch.float32).min
    return x


MATRICES: dict[str, Callable[[], Tensor]] = {
    "40x781": lambda: random_matrix(40, 781),
    "7x257": lambda: random_matrix(7, 257),
    "16x1024": lambda: random_matrix(16, 1024),
    "one column": lambda: random_matrix(9, 1),
    "one row": lambda: random_matrix(1, 300),
    "one element": lambda: random_matrix(1, 1),
    "float16": lambda: random_matrix(33, 781, torch.float16),
    "bfloat16": lambda: random_matrix(33, 781, torch.bfloat16),
    "one column of float16": lambda: random_matrix(9, 1, torch.float16),
    "special values": lambda: torch.tensor(
        [
            [0.0, 1.0, -INF, 2.0, -1.0],
            [-INF, -INF, -INF, -INF, -INF],
            [-INF, -INF, 3.0, -INF, -INF],
            [0.0, INF, 1.0, 2.0, 3.0],
            [INF, INF, INF, INF, INF],
            [INF, -INF, 0.0, 1.0, 2.0],
            [0.0, 1.0, NAN, 2.0, 3.0],
            [NAN, -INF, -INF, -INF, -INF],
            [NAN, INF, -INF, 0.0, 1.0],
            [NAN, NAN, NAN, NAN, NAN],
            [4.0, 4.0, 4.0, 4.0, 4.0],
        ]
    ),
    "blocks of minus infinity": blocks_of_minus_infinity,
    "large values": lambda: (
        torch.tensor([[1e4], [-1e4], [1e8], [1e30], [-1e30]]) * random_matrix(5, 60)
    ),
    "large float16": lambda: torch.linspace(-65504, 65504, 41).to(torch.float16).expand(3, 41),
    "padded rows": lambda: random_matrix(12, 400)[:, :300],
    "sliced columns": lambda: random_matrix(12, 400)[:, 3:],
    "every second row": lambda: random_matrix(13, 257)[::2],
    "every second column": lambda: random_matrix(12, 400)[:, ::2],
    "transposed": lambda: random_matrix(300, 12).t(),
    "one row repeated": lambda: random_matrix(1, 257).expand(6, 257),
    "one element repeated": lambda: random_matrix(1, 1).expand(12, 300),
    "no rows": lambda: random_matrix(0, 5),
    "no columns": lambda: random_matrix(3, 0),
}
WIDE: dict[str, Callable[[], Tensor]] = {
    "rising": lambda: torch.linspace(-500, 500, 900).expand(2, 900),
    "falling": lambda: torch.linspace(500, -500, 900).expand(2, 900),
    "ends of float32": lambda: ends_of_float32(781),
    "short ends of float32": lambda: ends_of_float32(6),
}
"""Rows so far apart in value that the product of an fma counts, which Triton's interpreter rounds
and kernels count on not to be."""


def check_softmax(
    result: Tensor, x: Tensor, epsilons: float | None = None, *, dim: int = 1
) -> None:
    """Hold *result* to torch's float64 softmax of *x*, NaN for NaN.

    The relative error may be *epsilons* of the dtype; by default 16 for float32 arithmetic and 2
    for a 16-bit result, which only float32 arithmetic rounded once comes up to.
    """
    if epsilons is None:
        epsilons = 16 if x.dtype == torch.float32 else 2
    limits = torch.finfo(x.dtype)
    smallest = limits.tiny if x.dtype == torch.float32 else limits.tiny * limits.eps
    expected = torch.softmax(x.double(), dim)
    assert result.dtype == x.dtype
    torch.testing.assert_close(
        result.double(), expected, rtol=epsilons * limits.eps, atol=2 * smallest, equal_nan=True
    )


def check_gradient(dx: Tensor, y: Tensor, dy: Tensor) -> None:
    """Compare *dx* with torch's gradient in float64, within 16 epsilons of a row's largest term."""
    y64, dy64 = y.double(), dy.double()
    expected = torch._softmax_backward_data(dy64, y64, 1, torch.float64)
    assert (dx.dtype, dx.shape) == (y.dtype, y.shape)
    products = (y64 * dy64).abs()
    largest = products.amax(1, keepdim=True) if y.numel() else 0
    terms = largest + y64.abs() * products.sum(1, keepdim=True)
    allowed = (16 * torch.finfo(y.dtype).eps * terms + 1e-7).nan_to_num(0, 0)
    rounded = expected.to(y.dtype)
    near = (dx.double() - expected).abs() <= allowed
    assert bool((near | (dx == rounded) | (dx.isnan() & rounded.isnan())).all())


def check_sum(z: Tensor, x: Tensor, y: Tensor) -> None:
    """Compare *z* with torch's sum in float64, to the last bit."""
    expected = (x.double() + y.double()).to(x.dtype)
    torch.testing.assert_close(z, expected, rtol=0, atol=0, equal_nan=True)
