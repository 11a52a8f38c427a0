"""The naive softmax is five operations of torch, which move what its memory steps say."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from occupancy_lab.kernels.softmax_naive import KERNEL
from occupancy_lab.values import Config, Problem

UNUSED = Config(1, 1, 1)


class ElementCounter(TorchDispatchMode):
    """Counts the elements of the tensors that each operation reads and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic: list[tuple[int, int]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        read = sum(each.numel() for each in args if isinstance(each, torch.Tensor))
        self.traffic.append((read, result.numel()))
        return result


@pytest.mark.parametrize(("rows", "cols"), [(1823, 781), (5, 1), (1, 300)])
def test_each_operation_moves_what_its_step_says(rows: int, cols: int) -> None:
    """Torch runs the five operations on as many elements as the steps count.

    They read 5MN + 2M elements and write 3MN + 2M, the tutorial's count.
    """
    steps = KERNEL.memory_steps(Problem(rows, cols))
    x = torch.randn(rows, cols)
    with ElementCounter() as counter:
        KERNEL.run(x, UNUSED, 1)
    assert counter.traffic == [(step.reads, step.writes) for step in steps]
    assert sum(step.reads for step in steps) == 5 * rows * cols + 2 * rows
    assert sum(step.writes for step in steps) == 3 * rows * cols + 2 * rows


def test_triton_compiles_nothing() -> None:
    """There is no Triton function, and no configuration for one."""
    assert KERNEL.function is None
    assert KERNEL.constexprs(Problem(1, 1), UNUSED) == {}
