"""The softmax of rows in pieces: the powers of two that make a row, and what is copied first."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matrices import check_softmax, problem_of, random_matrix

from occupancy_lab.kernels.softmax import rows_alike
from occupancy_lab.kernels.softmax_pieces import KERNEL, LEAST_PIECE_BYTES, block_sizes, pieces_of
from occupancy_lab.values import Config, Problem


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("cols", "dtype"),
    [(10_869, torch.float16), (24_576, torch.float16), (32_749, torch.bfloat16)],
)
def test_any_config_of_a_long_row_gives_the_same_softmax(cols: int, dtype: torch.dtype) -> None:
    """Packed elements and pieces of any number change no result."""
    x = random_matrix(9, cols, dtype)
    on_gpu = x.cuda()
    configs = KERNEL.configs(problem_of(x))
    assert configs
    for config in configs:
        check_softmax(KERNEL.run(on_gpu, config, 6).cpu(), x)


def test_only_rows_that_lie_otherwise_are_copied() -> None:
    """Rows are read in place if they are aligned to 16 bytes as a dense matrix' rows are."""
    wide = torch.zeros(5, 800)
    for x in (wide[:, :781].contiguous(), wide.as_strided((5, 781), (785, 1)), wide[:, :796]):
        assert rows_alike(x) is x
    unaligned = torch.zeros(4001)[1:].view(5, 800)
    for x in (wide[:, 1:797], wide.as_strided((5, 781), (783, 1)), wide[:, ::2], unaligned):
        copy = rows_alike(x)
        assert copy.data_ptr() != x.data_ptr()
        assert copy.is_contiguous()
        assert copy.data_ptr() % 16 == 0


def test_long_16_bit_rows_are_packed() -> None:
    """16-bit elements stay packed from 32 per thread on, and float32 never does."""

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
