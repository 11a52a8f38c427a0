"""The kernels of a calibration: they are found by name, and compute what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from occupancy_lab.calibrating import kernels
from occupancy_lab.calibrating.calibrate import KERNEL_STAGES, OWN_BLOCKS, launches, tasks_of
from occupancy_lab.calibrating.kernels import EMPTY, KERNELS
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import Grid, Kernel, MemoryStep, load_kernel, own_kernel
from occupancy_lab.values import Config, Problem

WORKING = [kernel for kernel in KERNELS.values() if kernel is not EMPTY]

INTERPRETED = """
import json
import torch
from occupancy_lab.calibrating.kernels import EMPTY, KERNELS
from occupancy_lab.values import Config

errors = {}
for kernel in KERNELS.values():
    for cols in (500, 512) if kernel is not EMPTY else ():
        x = torch.randn(8, cols, generator=torch.Generator().manual_seed(0))
        expected = kernel.reference(x.double())
        wrong = (kernel.run(x, Config(512, 4, 1), 3).double() - expected).norm()
        errors[f"{kernel.name}, {cols}"] = float(wrong / expected.norm())
print(json.dumps(errors))
"""


def test_names_are_the_kernels_own() -> None:
    """Each kernel is under its own name, a loop is persistent, and the empty one comes first."""
    assert next(iter(KERNELS)) == "empty"
    for name, kernel in KERNELS.items():
        assert kernel.name == name
        assert (kernel.grid is Grid.PERSISTENT) == name.startswith("loop-")


def test_a_calibration_launches_each_kernel() -> None:
    """The grid names every kernel of its own and the softmaxes, and no other."""
    names = {"empty", *KERNEL_STAGES, *OWN_BLOCKS}
    assert {name for name, _, _ in launches()} == names
    assert names == {*KERNELS, "softmax", "softmax_row", *OWN_BLOCKS}


@pytest.mark.parametrize("name", OWN_BLOCKS)
def test_configurations_of_a_kernels_own_are_met_in_turn(name: str) -> None:
    """Each launch is one that the kernel itself would try, and there are many of them."""
    found = [(problem, config) for kernel, problem, config in launches() if kernel == name]
    assert all(config in own_kernel(name).configs(problem) for problem, config in found)
    assert len({config for _, config in found}) > 4


def test_every_task_is_found_in_another_process() -> None:
    """A task names its kernel so that whoever compiles or launches it finds the same one."""
    tasks = {task.name: task.matrix.kernel for task in tasks_of(find_gpu("h200"))}
    assert {name: load_kernel(name).name for name in tasks} == {
        name: kernel.name for name, kernel in tasks.items()
    }


def test_name_that_the_file_has_not_is_said() -> None:
    """A file without such a kernel is an error that names it."""
    with pytest.raises(InputError, match="no kernel 'rows-9-9'"):
        load_kernel(f"{kernels.__file__}:rows-9-9")


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 40))
def test_reference_is_the_work(rows: int, cols: int) -> None:
    """The reference does what numpy does: a copy, and the exponential where rows are reduced."""
    x = np.random.default_rng(rows * cols).standard_normal((rows, cols))
    expected = {"rows-0-0": x, "loop-0-0": x, "rows-1-0": 2.0 ** (x - x.max(axis=1, keepdims=True))}
    for kernel in WORKING:
        assert kernel.reference is not None
        found = kernel.reference(torch.from_numpy(x))
        np.testing.assert_allclose(found.numpy(), expected[kernel.name], rtol=1e-12)


@pytest.mark.parametrize("kernel", WORKING, ids=lambda kernel: kernel.name)
def test_matrix_is_read_and_written_once(kernel: Kernel) -> None:
    """Whatever the work, an element is read once and written once."""
    assert kernel.memory_steps(Problem(7, 5)) == (MemoryStep("copy", reads=35, writes=35),)


@pytest.mark.parametrize("kernel", WORKING, ids=lambda kernel: kernel.name)
def test_launch_names_the_work(kernel: Kernel) -> None:
    """A launch's reductions are those of the kernel's name, its num_stages the configuration's."""
    _, reductions, steps = kernel.name.split("-")
    keywords = kernel.launch(Problem(13, 257), Config(512, 4, 3)).keywords
    assert keywords.get("REDUCTIONS", 0) == int(reductions)
    assert int(steps) == 0
    assert keywords["num_stages"] == 3


def test_interpreted_run_equals_the_reference() -> None:
    """In Triton's interpreter each kernel gives its reference, whether or not a row fills a block.

    Triton chooses between interpreter and compiler as it is imported, hence another process.
    """
    if Version(triton.__version__) < Version("3.7") and Version(np.__version__) >= Version("2.4"):
        pytest.skip("the interpreter of Triton 3.6 needs a NumPy below 2.4")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERPRETED],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    errors = json.loads(done.stdout)
    assert len(errors) == 2 * len(WORKING)
    assert {name: error for name, error in errors.items() if error > 1e-6} == {}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(1823, 781), (7, 257), (64, 4096)])
@pytest.mark.parametrize("kernel", WORKING, ids=lambda kernel: kernel.name)
def test_run_equals_the_reference(
    kernel: Kernel, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    """On the GPU each kernel gives its reference, every row of it, with any number of programs."""
    x = torch.randn(shape, dtype=dtype, device="cuda")
    assert kernel.reference is not None
    expected = kernel.reference(x.double())
    config = Config(1 << (shape[1] - 1).bit_length(), 4, 2 if kernel.grid is Grid.PERSISTENT else 1)
    for num_programs in (1, 100, 5000):
        found = kernel.run(x, config, num_programs).double()
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
def test_empty_kernel_does_nothing() -> None:
    """A launch of the empty kernel leaves its matrix as it was."""
    x = torch.randn(16, 16, device="cuda")
    before = x.clone()
    EMPTY.run(x, Config(16, 1, 1), 1)
    torch.cuda.synchronize()
    assert torch.equal(x, before)
