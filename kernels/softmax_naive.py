"""Softmax in five PyTorch operations, each of which reads and writes global memory.

It has no Triton function and shows what the fused kernels save: 8MN + 4M elements against 2MN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.arguments import Pointer
from occupancy_lab.kernel import Grid, Kernel, MemoryStep
from occupancy_lab.kernels.softmax import reference
from occupancy_lab.values import Config

if TYPE_CHECKING:
    import torch

    from occupancy_lab.values import Problem


def softmax_naive(x: torch.Tensor, config: Config, num_programs: int) -> torch.Tensor:
    """Return a new matrix with the softmax of each row of *x*, a matrix on any device.

    Every step rounds to the dtype of *x*. PyTorch chooses its own launches, whatever *config* and
    *num_programs* say.
    """
    if x.numel() == 0:
        return x.clone()
    row_max = x.amax(dim=1, keepdim=True)
    shifted = x - row_max
    numerator = shifted.exp()
    denominator = numerator.sum(dim=1, keepdim=True)
    return numerator / denominator


def arguments(problem: Problem) -> tuple[Pointer | int, ...]:
    """Return the input of the operations."""
    return (Pointer(problem.dtype, problem.matrix_bytes),)


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return a configuration of ones, which `softmax_naive` does not use."""
    return Config(block_size=1, num_warps=1, num_stages=1)


def memory_steps(problem: Problem) -> tuple[MemoryStep, ...]:
    """Return the five operations, which read 5MN + 2M elements and write 3MN + 2M."""
    rows = problem.rows
    elements = problem.rows * problem.cols
    return (
        MemoryStep("max", reads=elements, writes=rows),
        MemoryStep("subtract", reads=elements + rows, writes=elements),
        MemoryStep("exp", reads=elements, writes=elements),
        MemoryStep("sum", reads=elements, writes=rows),
        MemoryStep("divide", reads=elements + rows, writes=elements),
    )


KERNEL = Kernel(
    name="softmax_naive",
    title="Softmax in five PyTorch operations",
    grid=Grid.ROWS,
    function=None,
    arguments=arguments,
    default_config=default_config,
    memory_steps=memory_steps,
    run=softmax_naive,
    reference=reference,
)
