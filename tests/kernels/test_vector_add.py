"""Vector addition gives torch's sum, and its program table is the arithmetic of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from occupancy_lab.kernel import OPTIONS, Grid, MemoryStep
from occupancy_lab.kernels.vector_add import KERNEL, program_table
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

CONFIG = Config(1024, 4, 1)


@pytest.mark.parametrize("cols", [0, 1, 1023, 1024, 1025, 98_432])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_equals_torch(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    cols: int,
    dtype: torch.dtype,
) -> None:
    """Lengths around a block's give torch's sum to the last bit."""
    x, y = random_matrix(1, cols, dtype), random_matrix(3, cols, dtype)[2:]
    assert torch.equal(launch(KERNEL.run, x, CONFIG, 1, y), x + y)


# Triton's interpreter adds the bits of bfloat16 numbers as integers.
@pytest.mark.parametrize("launch", [pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)
def test_bfloat16(launch: Callable[..., Tensor], random_matrix: Callable[..., Tensor]) -> None:
    """A bfloat16 sum is torch's to the last bit."""
    x, y = random_matrix(7, 257, torch.bfloat16), random_matrix(7, 257, torch.bfloat16).flip(0)
    assert torch.equal(launch(KERNEL.run, x, CONFIG, 1, y), x + y)


def test_a_matrix_keeps_its_shape(
    launch: Callable[..., Tensor], random_matrix: Callable[..., Tensor]
) -> None:
    """Matrices that are no dense row after row are added element by element all the same."""
    x, y = random_matrix(40, 60).t(), random_matrix(60, 99)[:, 3:43]
    assert torch.equal(launch(KERNEL.run, x, CONFIG, 1, y), x + y)


def test_one_operand_is_doubled(
    launch: Callable[..., Tensor], random_matrix: Callable[..., Tensor]
) -> None:
    """Without a second operand the first is added to itself."""
    x = random_matrix(40, 60)
    assert torch.equal(launch(KERNEL.run, x, CONFIG, 1), x + x)


@pytest.mark.parametrize("config", [Config(32, 1, 1), Config(4096, 16, 3), Config(65536, 32, 1)])
def test_any_config_gives_the_same_sum(
    launch: Callable[..., Tensor], random_matrix: Callable[..., Tensor], config: Config
) -> None:
    """Blocks smaller and larger than the vector, and other warps, change no result."""
    x = random_matrix(30, 257)
    assert torch.equal(launch(KERNEL.run, x, config, 1), x + x)


@pytest.mark.gpu
def test_more_than_2_31_elements() -> None:
    """Elements past 2**31 are read and written where they are."""
    x = torch.randn(1, 2**31 + 5000, dtype=torch.float16, device="cuda")
    assert torch.equal(KERNEL.run(x, CONFIG, 1), x + x)


@pytest.mark.parametrize("n_elements", [0, 1, 7, 8, 9, 20, 64])
@pytest.mark.parametrize("block_size", [1, 8, 32])
def test_program_table_is_numpys(n_elements: int, block_size: int) -> None:
    """The rows hold numpy's blocks of a range, and the mask its comparison with the length."""
    offsets = np.arange(n_elements + -n_elements % block_size).reshape(-1, block_size)
    rows = program_table(n_elements, block_size)
    assert [row.pid for row in rows] == list(range(len(offsets)))
    assert [row.block_start for row in rows] == offsets[:, 0].tolist()
    assert [list(row.offsets) for row in rows] == offsets.tolist()
    assert [list(row.mask) for row in rows] == (offsets < n_elements).tolist()


@pytest.mark.parametrize("num_programs", [1, 1000])
def test_launch_is_as_described(
    record: Callable[..., object], random_matrix: Callable[..., Tensor], num_programs: int
) -> None:
    """`run` passes what `arguments` and `constexprs` say, to the programs of the table."""
    launched = record(
        KERNEL, random_matrix(13, 257, torch.float16), Config(512, 4, 1), num_programs
    )
    assert launched.arguments == KERNEL.arguments(Problem(13, 257, "float16"))
    assert launched.keywords == {
        "num_warps": 4,
        **KERNEL.constexprs(Problem(13, 257), Config(512, 4, 1)),
        **OPTIONS,
    }
    assert launched.grid == (len(program_table(13 * 257, 512)),)
    assert KERNEL.grid is Grid.BLOCKS


def test_memory_is_one_pass() -> None:
    """Two vectors are read and one is written."""
    assert KERNEL.memory_steps(Problem(7, 5)) == (MemoryStep("add", reads=70, writes=35),)


def test_default_config() -> None:
    """Blocks of 1024 elements, 4 warps each, whatever the problem."""
    assert KERNEL.default_config(Problem(1823, 781), 65_536) == CONFIG
