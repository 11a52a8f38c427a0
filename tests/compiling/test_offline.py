"""Offline compiles specialize and cache launches as Triton does on a GPU.

That the arguments of any launch are specialized as Triton specializes them is in test_launch.py,
and that the kernels of the lab launch what they describe in tests/kernels/test_conformance.py.
"""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from triton.runtime import driver

from occupancy_lab.compiling.compile import _compile
from occupancy_lab.compiling.offline import OfflineDriver, offline
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import bare_gpus, find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Problem

TARGETS = [gpu.target for gpu in bare_gpus().values()]
SM_90, GFX942 = find_gpu("sm_90").target, find_gpu("gfx942").target
SOFTMAX = load_kernel("softmax")
PROBLEM = Problem(1, 1)
CONFIG = Config(1024, 4, 2)


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_options_reach_the_compiler(stages: int) -> None:
    """num_stages reaches the compiler unless a constexpr has the name."""
    kernel = dataclasses.replace(
        load_kernel("vector_add"),
        constexprs=lambda _problem, _config: {"BLOCK_SIZE": 1024, "INT64_OFFSETS": False},
        options={"num_ctas": 1, "maxnreg": 40},
    )
    launch = kernel.launch(Problem(4, 781), Config(1024, 8, stages))
    with offline(SM_90):
        compiled = launch.warm_up(kernel.function)
    metadata = compiled.metadata
    assert (metadata.num_warps, metadata.num_stages, metadata.maxnreg) == (8, stages, 40)


@pytest.mark.parametrize("number", [2**63, 10**30, -(2**63) - 1])
def test_numbers_beyond_64_bits_are_refused(number: int) -> None:
    """Integers beyond Triton's range are refused; the last in range is taken."""
    kernel = dataclasses.replace(SOFTMAX, arguments=lambda _problem: (number,))
    with pytest.raises(InputError, match=r"softmax is given a number of 2\*\*63 or more"):
        kernel.launch(PROBLEM, CONFIG)
    extremes = (-(2**63), 2**63 - 1)
    fine = dataclasses.replace(SOFTMAX, arguments=lambda _problem: extremes * 3)
    classes = fine.launch(PROBLEM, CONFIG).specialization(fine.function, SM_90)
    assert classes[:2] == ["i64 % 16 = 0", "i64"]


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Return the active driver, and check that the test leaves it active."""
    active = OfflineDriver(SM_90)
    monkeypatch.setattr(driver, "_active", active)
    yield active
    assert driver.active is active


def test_each_target_has_a_device_number_of_its_own() -> None:
    """No two targets share a device number, and none has a real GPU's."""
    numbers = {target: OfflineDriver(target).get_current_device() for target in TARGETS}
    assert len(set(numbers.values())) == len(TARGETS)
    assert min(numbers.values()) > 1000
    for target in reversed(TARGETS):
        assert OfflineDriver(target).get_current_device() == numbers[target]


def test_the_driver_before_is_active_again_after_an_error(before: object) -> None:
    """An exception restores the previous driver."""
    with pytest.raises(ZeroDivisionError), offline(GFX942):
        1 / 0  # noqa: B018
    assert driver.active is before


def test_no_gpu_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither entering nor leaving the block looks for a GPU."""

    def no_gpu() -> Any:
        msg = "0 active drivers ([]). There should only be one."
        raise RuntimeError(msg)

    monkeypatch.setattr(sys.modules["triton.runtime.driver"], "_create_driver", no_gpu)
    for name in ("_active", "_default"):
        monkeypatch.setattr(driver, name, None)
    with offline(SM_90):
        pass
    assert driver._active is None
    with pytest.raises(RuntimeError, match="0 active drivers"):
        _ = driver.active


def test_the_second_target_does_not_get_the_firsts_kernel() -> None:
    """A kernel compiled for several targets has a binary for each."""
    kernel = load_kernel("softmax")
    launch = kernel.launch(Problem(64, 784), Config(1024, 4, 2))
    for _ in range(2):
        for name in ("sm_90", "gfx942", "sm_80", "gfx1100"):
            target = find_gpu(name).target
            compiled = _compile(kernel.function, launch, target, "softmax", present=False)
            assert str(compiled.metadata.target.arch) == target.arch
            assert ("cubin" if target.backend == "cuda" else "hsaco") in compiled.asm
