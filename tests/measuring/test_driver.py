"""The prediction against the driver of the GPU at hand, which nobody here wrote."""

from __future__ import annotations

import itertools

import pytest

from occupancy_lab.compiling import Store
from occupancy_lab.errors import DoesNotFitError
from occupancy_lab.gpus import present_gpus
from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring import accepts_cooperative_launch, ask_driver
from occupancy_lab.record import Record, make_record
from occupancy_lab.values import Config, Problem

pytestmark = pytest.mark.gpu

ELEMENTS_A_THREAD = 64
"""Above this ptxas takes many seconds a kernel."""
STORE = Store(None)


def record(kernel: str, cols: int, config: Config, dtype: str = "float32") -> Record:
    """Return the record of *kernel* on the GPU at hand."""
    gpu = present_gpus()[0].gpu
    return make_record(
        load_kernel(kernel), Problem(8192, cols, dtype), config, gpu, STORE, present=True
    )


def configs(block_size: int) -> list[Config]:
    """Return every configuration of a block size that compiles in a moment."""
    grid = itertools.product((1, 2, 4, 8, 16, 32), (1, 2, 3, 4))
    return [
        Config(block_size, num_warps, num_stages)
        for num_warps, num_stages in grid
        if block_size <= num_warps * 32 * ELEMENTS_A_THREAD
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("cols", [100, 256, 781, 1024, 2000, 4096, 8192, 12672, 16384, 32768])
@pytest.mark.parametrize("kernel", ["softmax", "softmax_row"])
def test_driver_agrees(kernel: str, cols: int, dtype: str) -> None:
    """Registers, local bytes, static shared and programs an SM equal the driver's, every config."""
    block_size = 1 << (cols - 1).bit_length()
    checked = 0
    for config in configs(block_size):
        if kernel == "softmax_row" and config.num_stages > 1:
            continue
        try:
            mine = record(kernel, cols, config, dtype)
        except DoesNotFitError:
            continue
        said = ask_driver(mine.kernel, mine.problem, config, mine.gpu.target)
        assert (
            mine.resources.n_regs,
            mine.resources.local_bytes,
            mine.resources.static_shared,
            mine.occupancy.programs_per_multiprocessor,
        ) == (
            said.n_regs,
            said.local_bytes,
            said.static_shared,
            said.programs_per_multiprocessor,
        ), config
        checked += 1
    assert checked


@pytest.mark.parametrize(
    ("cols", "num_warps", "num_stages"),
    [
        (781, 8, 4),
        (781, 4, 2),
        (781, 1, 1),
        (1024, 2, 3),
        (4096, 8, 2),
        (8192, 16, 4),
        (12672, 4, 1),
    ],
)
def test_cooperative_launch(cols: int, num_warps: int, num_stages: int) -> None:
    """A cooperative launch is accepted at the predicted num_programs and refused at one more."""
    block_size = 1 << (cols - 1).bit_length()
    mine = record("softmax", cols, Config(block_size, num_warps, num_stages))
    held = mine.plan.resident_programs
    assert held is not None
    assert accepts_cooperative_launch(mine.kernel, mine.problem, mine.config, held)
    assert not accepts_cooperative_launch(mine.kernel, mine.problem, mine.config, held + 1)
