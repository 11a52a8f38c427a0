"""Triton's driver for a target that is not here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from occupancy_lab.compiling import Launch
from occupancy_lab.compiling.compile import _warmup
from occupancy_lab.compiling.offline import OfflineDriver, offline
from occupancy_lab.gpus import bare_gpus, find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGETS = [gpu.target for gpu in bare_gpus().values()]
SM_90, GFX942 = find_gpu("sm_90").target, find_gpu("gfx942").target


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """The driver that is active before, and after, whatever the test does."""
    active = OfflineDriver(SM_90)
    monkeypatch.setattr(driver, "_active", active)
    yield active
    assert driver.active is active


def test_each_target_has_a_device_number_of_its_own() -> None:
    """No two targets share a number, and a target keeps its own."""
    numbers = {target: OfflineDriver(target).get_current_device() for target in TARGETS}
    assert len(set(numbers.values())) == len(TARGETS)
    for target in reversed(TARGETS):
        assert OfflineDriver(target).get_current_device() == numbers[target]


def test_device_numbers_are_no_real_gpus() -> None:
    """A target that is not here never takes the number of a GPU that is."""
    assert min(OfflineDriver(target).get_current_device() for target in TARGETS) > 1000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm_90", GPUTarget("cuda", 90, 32)),
        ("sm_120", GPUTarget("cuda", 120, 32)),
        ("gfx942", GPUTarget("hip", "gfx942", 64)),
        ("gfx1100", GPUTarget("hip", "gfx1100", 32)),
    ],
)
def test_targets_are_tritons(name: str, expected: GPUTarget) -> None:
    """Inside the block Triton's active driver answers with the target as Triton writes it."""
    with offline(find_gpu(name).target):
        assert driver.active.get_current_target() == expected
        assert driver.active.get_current_stream(driver.active.get_current_device()) == 0


def test_the_driver_before_is_active_again(before: object) -> None:
    """After the block the driver is the one from before it."""
    with offline(GFX942):
        assert driver.active is not before
    assert driver.active is before


def test_the_driver_before_is_active_again_after_an_error(before: object) -> None:
    """An exception inside the block goes out of it, and the driver is the one from before."""
    with pytest.raises(ZeroDivisionError), offline(GFX942):
        1 / 0  # noqa: B018
    assert driver.active is before


def test_blocks_nest(before: object) -> None:
    """A block inside a block gives its own target, and after it the outer one's again."""
    with offline(GFX942):
        with offline(SM_90):
            assert driver.active.get_current_target().arch == 90
        assert driver.active.get_current_target().arch == "gfx942"
    assert driver.active is before


def test_no_gpu_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither entering nor leaving a block asks for a GPU, which fails where there is none."""

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
    """One kernel compiled for several targets in turn gives each its own binary, each time."""
    kernel = load_kernel("softmax")
    launch = Launch.of(kernel, Problem(64, 784), Config(1024, 4, 2))
    for _ in range(2):
        for name in ("sm_90", "gfx942", "sm_80", "gfx1100"):
            target = find_gpu(name).target
            compiled = _warmup(kernel.function, launch, target, present=False)
            assert str(compiled.metadata.target.arch) == target.arch
            assert ("cubin" if target.backend == "cuda" else "hsaco") in compiled.asm
