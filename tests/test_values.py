"""The values that records consist of: their sizes, names and unknowns."""

import pytest
import torch

from occupancy_lab.gpus import bare_gpus, find_gpu
from occupancy_lab.values import ITEM_BYTES, Problem, Resources


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_a_dtype_has_the_size_that_torch_gives_it(dtype: str) -> None:
    """An element takes torch's bytes, and a matrix rows times cols of them."""
    item_bytes = getattr(torch, dtype).itemsize
    assert Problem(1, 1, dtype).item_bytes == item_bytes
    assert Problem(4096, 781, dtype).matrix_bytes == 4096 * 781 * item_bytes


@pytest.mark.parametrize("name", bare_gpus())
def test_a_target_is_found_by_both_of_its_names(name: str) -> None:
    """The vendor's name and the name that Triton's tools take both lead to the target."""
    target = bare_gpus()[name].target
    assert find_gpu(target.name).target == target
    assert find_gpu(str(target)).target == target


@pytest.mark.parametrize(("local_bytes", "n_spills"), [(0, 0), (8, 2), (5432, 1358), (None, None)])
def test_spills_are_words_of_local_memory(local_bytes: int | None, n_spills: int | None) -> None:
    """Triton's n_spills is the local memory in 4-byte words, and unknown if that is unknown."""
    assert Resources(32, 8, 0, local_bytes=local_bytes).n_spills == n_spills
