"""The persistent softmax is the tutorial's kernel, as the tutorial launches it."""

# A @triton.jit function's arguments have no Python types, and the tutorial's are eight.
# ruff: noqa: ANN001, ANN201, N803, PLR0913, PLR0917

import dataclasses
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

from occupancy_lab.compiling.offline import offline
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernels.softmax import KERNEL
from occupancy_lab.launch import Launch
from occupancy_lab.values import Config, Problem, Target


@pytest.mark.parametrize(
    ("cols", "max_shared", "config"),
    [
        (781, 232_448, Config(1024, 8, 4)),
        (1024, 200_000, Config(1024, 8, 2)),
        (1025, 65_536, Config(2048, 8, 2)),
        (1, 232_448, Config(1, 8, 4)),
    ],
)
def test_default_config_is_the_tutorials(cols: int, max_shared: int, config: Config) -> None:
    """It is the next power of two, 8 warps, and 4 stages above 200 kB of shared memory, else 2."""
    assert KERNEL.default_config(Problem(3, cols), max_shared) == config


@pytest.mark.parametrize("num_programs", [0, -1])
def test_no_program_is_refused(num_programs: int) -> None:
    """A launch without programs, which would write nothing, is refused."""
    with pytest.raises(InputError, match="1 or more"):
        KERNEL.run(torch.zeros(2, 5), Config(8, 4, 1), num_programs)


@triton.jit
def softmax_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    num_stages: tl.constexpr,
):
    """Do what the kernel of Triton's tutorial 02 does, in its order of operations."""
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        row_start_ptr = input_ptr + row_idx * input_row_stride
        col_offsets = tl.arange(0, BLOCK_SIZE)
        input_ptrs = row_start_ptr + col_offsets
        mask = col_offsets < n_cols
        row = tl.load(input_ptrs, mask=mask, other=-float("inf"))
        row_minus_max = row - tl.max(row, axis=0)
        numerator = tl.exp(row_minus_max)
        denominator = tl.sum(numerator, axis=0)
        softmax_output = numerator / denominator
        output_row_start_ptr = output_ptr + row_idx * output_row_stride
        output_ptrs = output_row_start_ptr + col_offsets
        tl.store(output_ptrs, softmax_output, mask=mask)


def binary(function: Any, launch: Launch, target: Target) -> bytes:
    """Return the cubin or hsaco of *launch* of *function*, without debug information."""
    taken = {name: value for name, value in launch.keywords.items() if name != "INT64_OFFSETS"}
    with offline(target), knobs.compilation.scope():
        knobs.compilation.disable_line_info = True
        function.device_caches.clear()
        keywords = launch.keywords if function is KERNEL.function else taken
        compiled = dataclasses.replace(launch, keywords=keywords).warm_up(function)
    return compiled.asm["cubin" if target.backend == "cuda" else "hsaco"]


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize(("cols", "config"), [(781, (1024, 8, 4)), (4096, (4096, 4, 2))])
def test_compiles_to_the_tutorials_binary(
    target: str, cols: int, config: tuple[int, int, int]
) -> None:
    """Where 32-bit offsets reach every element, the binary is the tutorial kernel's."""
    launch = KERNEL.launch(Problem(4096, cols), Config(*config))
    known = find_gpu(target).target
    assert binary(KERNEL.function, launch, known) == binary(softmax_kernel, launch, known)
