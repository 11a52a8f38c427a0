"""Vector addition, z = x + y: one program per block of BLOCK_SIZE elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from occupancy_lab.arguments import Pointer
from occupancy_lab.kernel import OPTIONS, Grid, Kernel, MemoryStep
from occupancy_lab.kernels.softmax import constexprs
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import torch


@triton.jit
def vector_add_kernel(
    x_ptr, y_ptr, z_ptr, n_elements, BLOCK_SIZE: tl.constexpr, INT64_OFFSETS: tl.constexpr
):
    """Add block `program_id` of two vectors; the mask cuts off what lies past the last element."""
    pid = tl.program_id(0)
    if INT64_OFFSETS:
        pid = pid.to(tl.int64)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(z_ptr + offsets, x + y, mask=mask)


def vector_add(
    x: torch.Tensor, config: Config, num_programs: int, y: torch.Tensor | None = None
) -> torch.Tensor:
    """Return x + y in a new tensor, for tensors of one shape and dtype on the current GPU.

    Without *y* it returns x + x, whose second read a cache answers: measure with a *y*. A tensor
    that is not contiguous is copied first. As many programs as blocks are launched, whatever
    *num_programs* says.
    """
    import torch

    x = x.contiguous()
    y = x if y is None else y.contiguous()
    z = torch.empty_like(x)
    n_elements = z.numel()
    if n_elements > 0:
        vector_add_kernel[(triton.cdiv(n_elements, config.block_size),)](
            x,
            y,
            z,
            n_elements,
            num_warps=config.num_warps,
            **constexprs(Problem(1, n_elements), config),
            **OPTIONS,
        )
    return z


def arguments(problem: Problem) -> tuple[Pointer | int, ...]:
    """Return what `vector_add` passes by position: x, y, z and the number of elements."""
    vector = Pointer(problem.dtype, problem.matrix_bytes)
    return (vector, vector, vector, problem.rows * problem.cols)


def default_config(problem: Problem, max_shared: int) -> Config:
    """Return blocks of 1024 elements with 4 warps each, and no pipelining."""
    return Config(block_size=1024, num_warps=4, num_stages=1)


def memory_steps(problem: Problem) -> tuple[MemoryStep, ...]:
    """Return the one pass, which reads two vectors and writes one."""
    elements = problem.rows * problem.cols
    return (MemoryStep("add", reads=2 * elements, writes=elements),)


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return PyTorch's sum."""
    return x + y


KERNEL = Kernel(
    name="vector_add",
    title="Vector addition, one program a block",
    grid=Grid.BLOCKS,
    function=vector_add_kernel,
    arguments=arguments,
    constexprs=constexprs,
    default_config=default_config,
    memory_steps=memory_steps,
    run=vector_add,
    reference=reference,
    operands=2,
)
