"""Triton's driver for a GPU that is not here."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import TargetError
from occupancy_lab.values import Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_device_numbers: dict[str, int] = {}
_next_number = itertools.count(1_000_000)


def gpu_target(target: Target) -> Any:
    """Return *target* as Triton's GPUTarget."""
    from triton.backends.compiler import GPUTarget

    arch = int(target.arch) if target.backend == "cuda" else target.arch
    return GPUTarget(target.backend, arch, target.warp_size)


@cache
def default_options(target: Target) -> Mapping[str, Any]:
    """Return every option of Triton's compiler for *target* and the value that it has unasked.

    Raises TargetError where the installed Triton has no compiler for *target*.
    """
    from triton.compiler.compiler import make_backend

    try:
        with warnings.catch_warnings(action="ignore"):  # 3.9 warns of a default that will change
            found: Mapping[str, Any] = vars(make_backend(gpu_target(target)).parse_options({}))
    except Exception as error:
        msg = f"the installed Triton has no compiler for {target.name}"
        raise TargetError(msg) from error
    return found


OTHERS = {"cuda": Target("hip", "gfx942", 64), "hip": Target("cuda", "90", 32)}
"""A target of the other vendor, by a target's backend."""


def foreign_options(names: Collection[str], target: Target) -> set[str]:
    """Return those of *names* that are options of the other vendor's compiler alone."""
    if not names:
        return set()
    try:
        own, other = default_options(target), default_options(OTHERS[target.backend])
    except TargetError:
        return set()
    return {name for name in names if name in other and name not in own}


class OfflineDriver:
    """Triton's driver for a GPU that is not here: the answers that `JITFunction.warmup` needs."""

    def __init__(self, target: Target) -> None:
        self._target = target
        # JITFunction keeps its compiled kernels by device number, so each target has its own.
        self._device = _device_numbers.setdefault(str(target), next(_next_number))

    def get_current_target(self) -> Any:
        """Return the target as Triton's GPUTarget."""
        return gpu_target(self._target)

    def get_current_device(self) -> int:
        """Return a device number that no other target has."""
        return self._device

    def get_current_stream(self, _device: int | None = None) -> int:
        """Return the default stream."""
        return 0


@contextlib.contextmanager
def offline(target: Target) -> Iterator[None]:
    """Make Triton compile for *target* inside the block, whatever GPU is or is not here."""
    from triton.runtime import driver

    # `reset_active` would look for a GPU at once, and fail where there is none.
    before = driver._active  # noqa: SLF001
    driver.set_active(OfflineDriver(target))
    try:
        yield
    finally:
        driver.set_active(before)
