"""The softmax of rows in pieces gives torch's softmax, wherever rows begin and whatever the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matrices import DTYPES, MAX_SHARED, problem_of

from occupancy_lab.errors import InputError
from occupancy_lab.kernel import OPTIONS, Grid, MemoryStep
from occupancy_lab.kernels.softmax_pieces import (
    KERNEL,
    LEAST_PIECE_BYTES,
    block_sizes,
    pieces_of,
    rows_alike,
)
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def default_config(x: Tensor) -> Config:
    """Return the kernel's own configuration for *x* on a GPU like the H100."""
    return KERNEL.default_config(problem_of(x), MAX_SHARED)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("cols", "dtype"),
    [(10_869, torch.float16), (24_576, torch.float16), (32_749, torch.bfloat16)],
)
def test_any_config_of_a_long_row_gives_the_same_softmax(
    random_matrix: Callable[..., Tensor],
    assert_softmax: Callable[..., None],
    cols: int,
    dtype: torch.dtype,
) -> None:
    """Packed elements and pieces of any number change no result."""
    x = random_matrix(9, cols, dtype)
    on_gpu = x.cuda()
    configs = KERNEL.configs(problem_of(x))
    assert configs
    for config in configs:
        assert_softmax(KERNEL.run(on_gpu, config, 6).cpu(), x)


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
        assert_softmax(launch(KERNEL.run, x, default_config(x), 1), x)


def test_only_rows_that_lie_otherwise_are_copied() -> None:
    """Rows are read in place where they lie to 16 bytes as a dense matrix' rows do."""
    wide = torch.zeros(5, 800)
    for x in (wide[:, :781].contiguous(), wide.as_strided((5, 781), (785, 1)), wide[:, :796]):
        assert rows_alike(x) is x
    unaligned = torch.zeros(4001)[1:].view(5, 800)
    for x in (wide[:, 1:797], wide.as_strided((5, 781), (783, 1)), wide[:, ::2], unaligned):
        copy = rows_alike(x)
        assert copy.data_ptr() != x.data_ptr()
        assert copy.is_contiguous()
        assert copy.data_ptr() % 16 == 0


@pytest.mark.parametrize(
    ("dtype", "block_size", "message"),
    [
        ("float32", 512, "BLOCK_SIZE is 512; softmax_pieces takes a multiple of 4 .* such as 896"),
        ("float32", 1022, "takes a multiple of 4 that holds a row, such as 896"),
        ("bfloat16", 780, "takes a multiple of 8 that holds a row, such as 1024"),
        ("float16", 1028, "takes a multiple of 8 that holds a row, such as 1024"),
    ],
)
def test_a_block_that_holds_no_row_is_refused(dtype: str, block_size: int, message: str) -> None:
    """A BLOCK_SIZE below a row, or with part of a chunk, is refused, with what would do."""
    with pytest.raises(InputError, match=message):
        KERNEL.constexprs(Problem(2, 781, dtype), Config(block_size, 4, 1))


def test_run_refuses_a_block_that_holds_no_row(random_matrix: Callable[..., Tensor]) -> None:
    """`run` launches nothing that would leave a row's end out."""
    with pytest.raises(InputError, match="holds a row"):
        KERNEL.run(random_matrix(2, 781), Config(512, 4, 1), 2)


def test_long_16_bit_rows_are_packed() -> None:
    """16-bit elements stay packed from 32 a thread on, and float32 never does."""

    def passed(dtype: str, block_size: int, num_warps: int) -> dict[str, int]:
        return KERNEL.constexprs(Problem(2, 16_000, dtype), Config(block_size, num_warps, 1))

    assert passed("float16", 16_384, 16) == {
        "BLOCK_SIZE": 16_384,
        "PIECE_SIZE": 4096,
        "CHUNK": 8,
        "WHOLE_CHUNKS": True,
        "PACKED": True,
    }
    assert not passed("float16", 16_384, 32)["PACKED"]
    assert not passed("float32", 16_384, 16)["PACKED"]


@pytest.mark.parametrize("num_programs", [1, 1000])
@pytest.mark.parametrize(
    ("cols", "dtype"), [(257, torch.float16), (781, torch.float32), (16_000, torch.bfloat16)]
)
def test_launch_is_as_described(
    record: Callable[..., object],
    random_matrix: Callable[..., Tensor],
    cols: int,
    dtype: torch.dtype,
    num_programs: int,
) -> None:
    """`run` passes what `arguments` and `constexprs` say, to one program a row."""
    x = random_matrix(13, cols, dtype)
    config = Config(default_config(x).block_size, 16, 1)
    launched = record(KERNEL, x, config, num_programs)
    assert launched.arguments == KERNEL.arguments(problem_of(x))
    assert launched.keywords == {
        "num_warps": 16,
        "num_stages": 1,
        **KERNEL.constexprs(problem_of(x), config),
        **OPTIONS,
    }
    assert launched.grid == (13,)
    assert KERNEL.grid is Grid.ROWS


@given(
    needed=st.integers(1, 65_536),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
)
def test_block_sizes_are_the_least_sums_of_powers_of_two(needed: int, dtype: str) -> None:
    """Each is the least sum of at most three, two or one powers of two that holds a row."""
    problem = Problem(1, needed, dtype)
    least = LEAST_PIECE_BYTES // problem.item_bytes
    found = block_sizes(needed, problem)
    if needed <= least:
        assert found == (1 << (needed - 1).bit_length(),)
        return
    sizes = [size for size in range(least, 2 * needed + least, least) if size >= needed]
    assert list(found) == sorted(
        {min(size for size in sizes if size.bit_count() <= most) for most in (1, 2, 3)}
    )
    for size in found:
        for piece_size in (256, 1024, 65_536):
            pieces = pieces_of(size, piece_size)
            assert sum(pieces) == size
            assert all(min(piece_size, least) <= piece <= piece_size for piece in pieces)
            assert pieces == sorted(pieces, reverse=True)


@given(cols=st.integers(1, 65_536), dtype=st.sampled_from(["float32", "float16", "bfloat16"]))
def test_every_config_can_be_launched(cols: int, dtype: str) -> None:
    """What `configs` and `default_config` give is never refused."""
    problem = Problem(3, cols, dtype)
    for config in (*KERNEL.configs(problem), KERNEL.default_config(problem, MAX_SHARED)):
        assert KERNEL.constexprs(problem, config)["BLOCK_SIZE"] >= cols


def test_configs_end_where_registers_do() -> None:
    """Rows of more than 32768 columns, with which an SM holds a single program, try nothing."""
    assert KERNEL.configs(Problem(3, 32_768))
    assert KERNEL.configs(Problem(3, 32_769)) == ()


def test_memory_is_one_pass() -> None:
    """The matrix is read once and written once."""
    assert KERNEL.memory_steps(Problem(7, 5)) == (MemoryStep("softmax", reads=35, writes=35),)
