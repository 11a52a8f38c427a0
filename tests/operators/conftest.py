"""Runs operators on a GPU, or on CPU tensors that pass for a GPU's."""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import torch
from matrices import to_gpu
from records import plan_of
from torch import Tensor

from occupancy_lab.gpus import Gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.operators import planning
from occupancy_lab.operators import softmax as operator
from occupancy_lab.operators.planning import Choice, Launcher, Rows
from occupancy_lab.values import Problem


def matrix_at(pointer: int, problem: Problem, rows: Rows) -> Tensor:
    """Return the matrix at an address of the CPU's memory."""
    elements = (problem.rows - 1) * rows.stride + problem.cols
    memory = (ctypes.c_char * (elements * problem.item_bytes)).from_address(pointer)
    flat = torch.frombuffer(memory, dtype=getattr(torch, problem.dtype))
    return flat.as_strided((problem.rows, problem.cols), (rows.stride, 1))


@dataclass
class CpuLaunches:
    """Stands in for `launcher`: what it gives computes with torch, from addresses alone."""

    asked: list[tuple[tuple[str, ...], Problem, tuple[Rows, ...]]] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)

    def launcher(
        self, kernels: tuple[str, ...], device: int, problem: Problem, matrices: tuple[Rows, ...]
    ) -> Launcher:
        """Return what reads and writes the matrices at the addresses that it is given."""
        assert device == 0
        self.asked.append((kernels, problem, matrices))

        def launch(stream: int, *pointers: int) -> None:
            self.streams.append(stream)
            for pointer, rows in zip(pointers, matrices, strict=True):
                assert (pointer % 16 == 0) is rows.aligned
            output, *inputs = map(matrix_at, pointers, [problem] * len(pointers), matrices)
            values = [one.double() for one in inputs]
            if len(values) == 1:
                output.copy_(values[0].softmax(1))
            else:
                y, dy = values
                output.copy_(y * (dy - (dy * y).sum(1, keepdim=True)))

        return Launcher(launch, 0)


@pytest.fixture
def cpu_launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[CpuLaunches]:
    """Let CPU tensors pass for those on cuda:0, with launches computed by torch."""
    launches = CpuLaunches()
    monkeypatch.setattr(operator, "launcher", launches.launcher)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 0)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 7, raising=False)
    forget()
    yield launches
    forget()


def default_choice(
    kernels: tuple[str, ...], problem: Problem, matrices: tuple[Rows, ...], gpu: Gpu
) -> Choice:
    """Return the default of a kernel that takes any row, without compiling."""
    name = kernels[0] if len(kernels) == 1 else "softmax_loop"
    name = "softmax_row" if name == "softmax_loop" and problem.cols <= 4096 else name
    kernel = planning.as_laid_out(load_kernel(name), matrices, wide=False)
    config = kernel.default_config(problem, gpu.architecture.max_shared)
    plan = plan_of(kernel, problem, config, 1, gpu.multiprocessors)
    return Choice(kernel, problem, config, plan, gpu.target)


def forget() -> None:
    """Forget all remembered launches."""
    operator._launcher.cache_clear()
    planning.launcher.cache_clear()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Tensor], Tensor]]:
    """Return what puts a tensor, with its strides, where `softmax` runs.

    On a GPU the kernels run with their default configurations.
    """
    if request.param == "cpu":
        request.getfixturevalue("cpu_launches")
        yield lambda tensor: tensor
        return
    monkeypatch.setattr(planning, "choose", default_choice)
    forget()
    yield to_gpu
    forget()
