"""Triton for a GPU that is not here: a driver with which it compiles."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from occupancy_lab.compiling.texts import BINARIES, TEXTS
from occupancy_lab.errors import TargetError, refuse
from occupancy_lab.values import Target

_device_numbers: dict[str, int] = {}
_next_number = itertools.count(1_000_000)


def gpu_target(target: Target) -> Any:
    """Return *target* as Triton's GPUTarget."""
    from triton.backends.compiler import GPUTarget

    arch = int(target.arch) if target.backend == "cuda" else target.arch
    return GPUTarget(target.backend, arch, target.warp_size)


@cache
def default_options(target: Target) -> Mapping[str, Any]:
    """Return every option of Triton's compiler for *target* with its default value.

    Raises TargetError if the installed Triton has no compiler for *target*.
    """
    from triton.compiler.compiler import make_backend

    try:
        with warnings.catch_warnings(action="ignore"):  # 3.9 warns of a default that will change
            found: Mapping[str, Any] = vars(make_backend(gpu_target(target)).parse_options({}))
    except Exception:  # noqa: BLE001 - the refusal says it in other words
        refuse(f"the installed Triton has no compiler for {target.name}", TargetError)
    return found


OTHERS = {"cuda": Target("hip", "gfx942", 64), "hip": Target("cuda", "90", 32)}
"""A target of the other vendor, by the backend of a target."""


def foreign_options(names: Collection[str], target: Target) -> set[str]:
    """Return those of *names* that are options of only the other vendor's compiler."""
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
    """Make Triton compile for *target* inside the block, whether or not a GPU is here.

    Compiles leave files in Triton's cache as under `whole_entries`.
    """
    from triton.runtime import driver

    # `reset_active` would look for a GPU at once, and fail where there is none.
    before = driver._active  # noqa: SLF001
    driver.set_active(OfflineDriver(target))
    try:
        with whole_entries():
            yield
    finally:
        driver.set_active(before)


@contextlib.contextmanager
def whole_entries() -> Iterator[None]:
    """Make compiles in the block leave only whole entries in Triton's cache.

    Triton writes each file as soon as it is made, and the files stay if a later step fails, hangs
    or crashes. Here all files are written together with the last one. A cache manager class that
    the user has set stays in use.
    """
    from triton import knobs
    from triton.runtime.cache import FileCacheManager

    if knobs.cache.manager_class is not None or knobs.compilation.use_ir_loc:  # it reads the files
        yield
        return
    folders: list[str] = []
    kept = {*TEXTS, *BINARIES.values(), "json"}

    class Manager(FileCacheManager):  # type: ignore[misc] # Triton has no types
        """Keeps the files of an entry in memory until its metadata is written."""

        def __init__(self, key: str, **which: bool) -> None:
            super().__init__(key, **which)
            self._held: dict[str, str | bytes] | None = None if any(which.values()) else {}
            if self._held is not None:
                folders.append(self.cache_dir)

        def put(self, data: Any, filename: str, binary: bool = True) -> str:  # noqa: FBT001, FBT002
            path: str = self._make_path(filename)
            if self._held is None or filename.rpartition(".")[2] not in kept:
                return str(super().put(data, filename, binary))
            # The next step changes a module of MLIR, so its text is taken now.
            self._held[filename] = data if isinstance(data, bytes) else str(data)
            if filename.endswith(".json"):
                for name, content in self._held.items():
                    super().put(content, name)
                self._held.clear()
            return path

    knobs.cache.manager_class = Manager
    try:
        yield
    finally:
        knobs.cache.manager_class = None
        for folder in folders:
            with contextlib.suppress(OSError):  # the folder has a kernel
                Path(folder).rmdir()
