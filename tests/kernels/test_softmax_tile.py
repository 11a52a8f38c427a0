"""The softmax of several rows per program cuts a matrix into tiles."""

from hypothesis import given
from hypothesis import strategies as st
from matrices import MAX_SHARED

from occupancy_lab.kernels.softmax_tile import KERNEL, row_size, work
from occupancy_lab.values import Problem


@given(cols=st.integers(1, 2048), dtype=st.sampled_from(["float32", "float16", "bfloat16"]))
def test_tiles_hold_every_row(cols: int, dtype: str) -> None:
    """The tiles of each configuration hold the rows and columns, and none is empty."""
    problem = Problem(1000, cols, dtype)
    for config in (*KERNEL.configs(problem), KERNEL.default_config(problem, MAX_SHARED)):
        passed = KERNEL.constexprs(problem, config)
        assert passed["ROWS"] * row_size(problem) == config.block_size
        assert 0 <= passed["PIECES"] * passed["PIECE_SIZE"] - cols < max(passed["PIECE_SIZE"], 8)
        assert 0 <= work(problem, config) * passed["ROWS"] - 1000 < passed["ROWS"]
