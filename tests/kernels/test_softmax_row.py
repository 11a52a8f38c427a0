"""The softmax of one program a row gives torch's softmax, whatever the matrix."""

from __future__ import annotations

import pytest

from occupancy_lab.kernel import MemoryStep
from occupancy_lab.kernels.softmax_row import KERNEL
from occupancy_lab.values import Config, Problem

MAX_SHARED = 232_448


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


def test_memory_is_one_pass() -> None:
    """The matrix is read once and written once."""
    assert KERNEL.memory_steps(Problem(7, 5)) == (MemoryStep("softmax", reads=35, writes=35),)
