"""The softmax of rows of any length gives torch's softmax, whatever the matrix and the block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from occupancy_lab.compiling import Store
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import MemoryStep
from occupancy_lab.kernels.softmax_loop import KERNEL
from occupancy_lab.record import make_record
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

MAX_SHARED = 232_448


def default_config(x: Tensor) -> Config:
    """Return the kernel's own configuration for *x* on a GPU like the H100."""
    return KERNEL.default_config(Problem(*x.shape), MAX_SHARED)


@pytest.mark.parametrize("block_size", [None, 64])
def test_equals_torch(
    launch: Callable[..., Tensor],
    matrix: Tensor,
    assert_softmax: Callable[..., None],
    block_size: int | None,
) -> None:
    """Every shape, dtype, layout and special value gives torch's softmax, in a dense matrix."""
    x = matrix[:200] if block_size is None else matrix[:40]
    config = default_config(x) if block_size is None else Config(block_size, 2, 1)
    result = launch(KERNEL.run, x, config, 7)
    assert_softmax(result, x)
    assert result.is_contiguous()


@pytest.mark.parametrize("cols", [1, 255, 256, 257, 512, 1000])
def test_rows_around_a_block_are_whole(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    cols: int,
) -> None:
    """A row a column shorter or longer than whole blocks is written to its end and no further."""
    x = random_matrix(3, cols)
    assert_softmax(launch(KERNEL.run, x, Config(256, 4, 1), 1), x)


@pytest.mark.parametrize("order", ["rising", "falling"])
def test_a_maximum_in_any_block_is_found(
    launch: Callable[..., Tensor], assert_softmax: Callable[..., None], order: str
) -> None:
    """Rows that rise or fall by 1000 over their blocks lose nothing to an early or late maximum."""
    x = torch.linspace(-500, 500, 900).expand(2, 900)
    x = x if order == "rising" else x.flip(1)
    # Triton's interpreter rounds the product of an fma, which the kernel counts on not to be.
    assert_softmax(launch(KERNEL.run, x, Config(128, 4, 1), 1), x, 64)


def test_blocks_of_minus_infinity_count_for_nothing(
    launch: Callable[..., Tensor], assert_softmax: Callable[..., None]
) -> None:
    """Whole blocks and lanes of -inf take nothing from a row, unless all of it is -inf."""
    x = torch.full((4, 700), -float("inf"))
    x[0, 650] = 3.0
    x[1, :128] = torch.linspace(-3, 3, 128)
    x[2, 5] = -3.4028234663852886e38
    assert_softmax(launch(KERNEL.run, x, Config(128, 4, 1), 1), x)


def test_a_long_row_is_as_exact_as_torch(
    launch: Callable[..., Tensor], random_matrix: Callable[..., Tensor]
) -> None:
    """On a row of 300,000 the error against float64 is no larger than twice torch's."""
    x = random_matrix(1, 300_000)
    expected = x.double().softmax(1)

    def error(y: Tensor) -> float:
        return float((y.double() - expected).norm() / expected.norm())

    assert error(launch(KERNEL.run, x, default_config(x), 1)) <= 2 * error(x.softmax(1))


@pytest.mark.parametrize(
    ("cols", "config"),
    [
        (1, Config(1, 1, 1)),
        (1000, Config(1024, 2, 1)),
        (4096, Config(4096, 8, 1)),
        (3_000_000, Config(4096, 8, 1)),
    ],
)
def test_default_config(cols: int, config: Config) -> None:
    """Blocks of at most 4096 elements, 512 a warp."""
    assert KERNEL.default_config(Problem(3, cols), MAX_SHARED) == config


@pytest.mark.parametrize("rows", [1, 4096])
def test_twice_the_columns_take_twice_the_time(rows: int) -> None:
    """A prediction counts every pass of the loop, on the multiprocessors that have a program."""
    gpu = find_gpu("h200")

    def us(cols: int) -> float:
        problem = Problem(rows, cols)
        config = KERNEL.default_config(problem, gpu.architecture.max_shared)
        record = make_record(KERNEL, problem, config, gpu, Store(None))
        assert record.prediction is not None
        return record.prediction.us

    assert us(2**20) == pytest.approx(2 * us(2**19), rel=0.1)


def test_memory_is_two_reads_and_one_write() -> None:
    """The matrix is read for the sum, and read and written for the result."""
    assert KERNEL.memory_steps(Problem(7, 5)) == (
        MemoryStep("max and sum", reads=35, writes=0),
        MemoryStep("softmax", reads=35, writes=35),
    )
    assert KERNEL.passes(Problem(7, 5000), Config(4096, 8, 1)) == 4
