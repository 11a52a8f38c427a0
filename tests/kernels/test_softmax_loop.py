"""The softmax of rows of any length is as exact on long ones, and takes the time of its passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from matrices import random_matrix
from records import counted_record

from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernels.softmax_loop import KERNEL
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def test_a_long_row_is_as_exact_as_torch(launch: Callable[..., Tensor]) -> None:
    """On a row of 300,000 the error against float64 is no larger than twice torch's."""
    x = random_matrix(1, 300_000)
    expected = x.double().softmax(1)

    def error(y: Tensor) -> float:
        return float((y.double() - expected).norm() / expected.norm())

    assert error(launch(KERNEL.run, x, Config(4096, 8, 1), 1)) <= 2 * error(x.softmax(1))


@pytest.mark.parametrize("rows", [1, 4096])
def test_twice_the_columns_take_twice_the_time(rows: int) -> None:
    """A prediction counts every pass of the loop, on the multiprocessors that have a program."""
    gpu = find_gpu("h200")

    def us(cols: int) -> float:
        problem = Problem(rows, cols)
        config = KERNEL.default_config(problem, gpu.architecture.max_shared)
        record = counted_record(KERNEL, problem, config, gpu)
        assert record.prediction is not None
        return record.prediction.us

    assert us(2**20) == pytest.approx(2 * us(2**19), rel=0.1)
