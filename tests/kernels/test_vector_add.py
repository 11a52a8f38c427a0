"""The program table of vector addition matches the kernel."""

import numpy as np
import pytest

from occupancy_lab.kernels.vector_add import program_table


@pytest.mark.parametrize("n_elements", [0, 1, 7, 8, 9, 20, 64])
@pytest.mark.parametrize("block_size", [1, 8, 32])
def test_program_table_is_numpys(n_elements: int, block_size: int) -> None:
    """The rows hold numpy's blocks of a range, and the mask is its comparison with the length."""
    offsets = np.arange(n_elements + -n_elements % block_size).reshape(-1, block_size)
    rows = program_table(n_elements, block_size)
    assert [row.pid for row in rows] == list(range(len(offsets)))
    assert [row.block_start for row in rows] == offsets[:, 0].tolist()
    assert [list(row.offsets) for row in rows] == offsets.tolist()
    assert [list(row.mask) for row in rows] == (offsets < n_elements).tolist()
