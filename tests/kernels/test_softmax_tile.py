"""The softmax of several rows a program gives torch's softmax, whatever the matrix and the tile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matrices import DTYPES, MAX_SHARED, problem_of

from occupancy_lab.compiling import Store, compile_resources
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import check_config
from occupancy_lab.kernel import OPTIONS, Grid, MemoryStep
from occupancy_lab.kernels.softmax_tile import KERNEL, row_size, work
from occupancy_lab.occupancy.planning import plan_launch
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def default_config(x: Tensor) -> Config:
    """Return the kernel's own configuration for *x* on a GPU like the H100."""
    return KERNEL.default_config(problem_of(x), MAX_SHARED)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_around_a_chunk_are_whole(
    launch: Callable[..., Tensor],
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    dtype: torch.dtype,
) -> None:
    """Rows of 1 to 17 columns, which begin anywhere in a chunk, are written and no further."""
    for cols in range(1, 18):
        x = random_matrix(9, cols, dtype)
        size = max(1 << (cols - 1).bit_length(), 16 // dtype.itemsize)
        assert_softmax(launch(KERNEL.run, x, Config(4 * size, 1, 1), 1), x)


@pytest.mark.parametrize(("stride", "passed"), [(781, 781), (785, 785), (783, 781), (797, 797)])
def test_only_rows_that_lie_otherwise_are_copied(
    record: Callable[..., object], random_matrix: Callable[..., Tensor], stride: int, passed: int
) -> None:
    """Rows are read in place where they lie to 16 bytes as a dense matrix' rows do."""
    x = random_matrix(5, stride)[:, :781]
    assert record(KERNEL, x, default_config(x), 1).arguments[2] == passed


@pytest.mark.parametrize("block_size", [512, 1536, 2000])
def test_a_block_that_is_no_tile_is_refused(
    random_matrix: Callable[..., Tensor], block_size: int
) -> None:
    """A BLOCK_SIZE below a row, or no power of two, is refused, with one that would do."""
    message = (
        f"BLOCK_SIZE is {block_size}; softmax_tile takes a power of two that holds rows of 781"
        " elements, such as 4096"
    )
    config = Config(block_size, 4, 1)
    with pytest.raises(InputError, match=message):
        KERNEL.constexprs(Problem(2, 781), config)
    with pytest.raises(InputError, match=message):
        KERNEL.run(random_matrix(2, 781), config, 2)


@pytest.mark.parametrize("num_programs", [1, 1000])
@pytest.mark.parametrize(
    ("rows", "cols", "dtype", "tiles"),
    [(13, 257, torch.float16, 4), (16, 128, torch.float32, 1), (17, 128, torch.bfloat16, 2)],
)
def test_launch_is_as_described(  # noqa: PLR0913, PLR0917 - the shape, and two fixtures
    record: Callable[..., object],
    random_matrix: Callable[..., Tensor],
    rows: int,
    cols: int,
    dtype: torch.dtype,
    tiles: int,
    num_programs: int,
) -> None:
    """`run` passes what `arguments` and `constexprs` say, to one program a tile."""
    x = random_matrix(rows, cols, dtype)
    problem, config = problem_of(x), default_config(x)
    launched = record(KERNEL, x, config, num_programs)
    assert launched.arguments == KERNEL.arguments(problem)
    assert launched.keywords == {
        "num_warps": 4,
        "num_stages": 1,
        **KERNEL.constexprs(problem, config),
        **OPTIONS,
    }
    assert launched.grid == (tiles,) == (work(problem, config),)
    assert KERNEL.grid is Grid.ROWS
    assert plan_launch(KERNEL, problem, config, 1, 1).num_programs == tiles


@given(cols=st.integers(1, 2048), dtype=st.sampled_from(["float32", "float16", "bfloat16"]))
def test_every_config_can_be_launched(cols: int, dtype: str) -> None:
    """What `configs` and `default_config` give is never refused, and its tiles hold every row."""
    problem = Problem(1000, cols, dtype)
    for config in (*KERNEL.configs(problem), KERNEL.default_config(problem, MAX_SHARED)):
        passed = KERNEL.constexprs(problem, config)
        assert passed["ROWS"] * row_size(problem) == config.block_size
        assert 0 <= passed["PIECES"] * passed["PIECE_SIZE"] - cols < max(passed["PIECE_SIZE"], 8)
        assert 0 <= work(problem, config) * passed["ROWS"] - 1000 < passed["ROWS"]


def test_configs_end_where_rows_are_long() -> None:
    """Rows of more than 2048 columns have no configuration to try."""
    assert KERNEL.configs(Problem(3, 2048))
    assert KERNEL.configs(Problem(3, 2049)) == ()


@pytest.mark.parametrize(
    ("cols", "config"),
    [(1, Config(2048, 4, 1)), (128, Config(2048, 4, 1)), (2049, Config(4096, 8, 1))],
)
def test_default_config(cols: int, config: Config) -> None:
    """2048 elements, or one row, and a warp for every 512 of them."""
    assert KERNEL.default_config(Problem(3, cols), MAX_SHARED) == config


@pytest.mark.parametrize(
    ("target", "cols", "dtype", "load_bytes"),
    [
        ("sm_90", 781, "float32", 4),
        ("sm_90", 781, "bfloat16", 4),
        ("sm_90", 128, "float16", 16),
        ("sm_100", 781, "bfloat16", 4),
        ("sm_100", 128, "float32", 16),
        ("gfx942", 781, "float32", 4),
        ("gfx942", 128, "float16", 8),
    ],
)
def test_compiles_without_spills(target: str, cols: int, dtype: str, load_bytes: int) -> None:
    """Rows of whole chunks are read by 16 bytes, with 64 threads a warp by 8, and others by 4."""
    problem = Problem(4096, cols, dtype)
    config = KERNEL.default_config(problem, MAX_SHARED)
    gpu = find_gpu(target)
    check_config(KERNEL, problem, config, gpu)
    found = compile_resources(KERNEL, problem, config, gpu.target, Store(None))
    assert (found.load_bytes, found.store_bytes) == (load_bytes, load_bytes)
    assert found.n_spills in {0, None}


def test_memory_is_one_pass() -> None:
    """The matrix is read once and written once."""
    assert KERNEL.memory_steps(Problem(7, 5)) == (MemoryStep("softmax", reads=35, writes=35),)
