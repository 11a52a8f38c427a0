"""The softmax of one program a row gives torch's softmax, whatever the matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from occupancy_lab.errors import InputError
from occupancy_lab.kernel import OPTIONS, Grid, MemoryStep
from occupancy_lab.kernels.softmax_row import KERNEL
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

MAX_SHARED = 232_448


def default_config(x: Tensor) -> Config:
    """Return the kernel's own configuration for *x* on a GPU like the H100."""
    return KERNEL.default_config(Problem(*x.shape), MAX_SHARED)


def test_equals_torch(
    launch: Callable[..., Tensor], matrix: Tensor, assert_softmax: Callable[..., None]
) -> None:
    """Every shape, dtype, layout and special value gives torch's softmax, in a dense matrix."""
    result = launch(KERNEL.run, matrix, default_config(matrix), 7)
    assert_softmax(result, matrix)
    assert result.is_contiguous()


@pytest.mark.parametrize(
    "config", [Config(1024, 1, 1), Config(1024, 32, 4), Config(2048, 8, 2), Config(16384, 16, 3)]
)
def test_any_config_gives_the_same_softmax(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    config: Config,
) -> None:
    """A larger BLOCK_SIZE, other warps and other stages change no result."""
    x = random_matrix(20, 781)
    assert_softmax(launch(KERNEL.run, x, config, 6), x)


@pytest.mark.parametrize("num_programs", [1, 1000])
def test_launch_is_as_described(
    record: Callable[..., object], random_matrix: Callable[..., Tensor], num_programs: int
) -> None:
    """`run` passes what `arguments` and `constexprs` say, to one program a row."""
    launched = record(
        KERNEL, random_matrix(13, 257, torch.float16), Config(512, 4, 1), num_programs
    )
    assert launched.arguments == KERNEL.arguments(Problem(13, 257, "float16"))
    assert launched.keywords == {
        "num_warps": 4,
        **KERNEL.constexprs(Problem(13, 257), Config(512, 4, 1)),
        **OPTIONS,
    }
    assert launched.grid == (13,)
    assert KERNEL.grid is Grid.ROWS


@pytest.mark.parametrize(
    ("cols", "config"),
    [
        (1, Config(1, 4, 1)),
        (1024, Config(1024, 4, 1)),
        (1025, Config(2048, 8, 1)),
        (2049, Config(4096, 16, 1)),
        (10_000, Config(16384, 16, 1)),
    ],
)
def test_default_config_gives_long_rows_more_warps(cols: int, config: Config) -> None:
    """4 warps, 8 from a BLOCK_SIZE of 2048 and 16 from 4096."""
    assert KERNEL.default_config(Problem(3, cols), MAX_SHARED) == config


def test_block_size_below_a_row_is_refused(random_matrix: Callable[..., Tensor]) -> None:
    """A BLOCK_SIZE that would leave a row's end out is refused, with the one that would do."""
    with pytest.raises(InputError, match="use 1024 or more"):
        KERNEL.run(random_matrix(2, 781), Config(512, 4, 1), 2)


@pytest.mark.gpu
def test_more_than_2_31_elements(assert_softmax: Callable[..., None]) -> None:
    """Rows that lie past element 2**31 are read and written where they are."""
    x = torch.randn(4_200_000, 512, dtype=torch.float16, device="cuda")
    y = KERNEL.run(x, default_config(x), 1056)
    for rows in (slice(100), slice(-10_000, None)):
        assert_softmax(y[rows].cpu(), x[rows].cpu())


def test_memory_is_one_pass() -> None:
    """The matrix is read once and written once."""
    assert KERNEL.memory_steps(Problem(7, 5)) == (MemoryStep("softmax", reads=35, writes=35),)
