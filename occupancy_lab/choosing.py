"""What was asked for, filled up with what is usual: rows, GPUs, kernel and configuration."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu, find_gpus, present_gpus
from occupancy_lab.kernel import load_kernel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.values import Config, Problem

DEFAULT_ROWS = 4096
"""The rows of the tutorial's benchmark."""
TUTORIAL_KERNEL = "softmax"
"""The kernel whose default configuration is the tutorial's."""
DEFAULT_GPUS = "h100,mi300x"
"""One of each vendor, where no GPU is at hand."""


def chosen_kernel(name: str) -> Kernel:
    """Return the kernel called *name*; InputError where there is none or Triton compiles none."""
    kernel = load_kernel(name)
    if kernel.function is None:
        msg = f"{kernel.name} is made of torch operations: Triton compiles nothing of it"
        raise InputError(msg)
    return kernel


def chosen_config(
    kernel: Kernel, problem: Problem, gpu: Gpu, chosen: Mapping[str, int | None]
) -> Config:
    """Return what was *chosen* of a configuration; the kernel's own choice of what is None."""
    default = kernel.default_config(problem, gpu.architecture.max_shared)
    given = {name: value for name, value in chosen.items() if value is not None}
    return dataclasses.replace(default, **given)


def chosen_gpus(names: str | Iterable[str] | None) -> tuple[tuple[Gpu, bool], ...]:
    """Return the GPUs of a list, or of a text with commas, each with whether it is here.

    `explain` says what None is.
    """
    if names is not None and not isinstance(names, str):
        names = ",".join(names)
    here = present_gpus()
    if names is None and here:
        return ((here[0].gpu, True),)
    targets_here = {present.gpu.target for present in here[:1]}
    asked = find_gpus(DEFAULT_GPUS if names is None else names)
    return tuple((gpu, gpu.target in targets_here) for gpu in asked)


def gpu_measured(key: str, devices: Collection[str]) -> Gpu:
    """Return the GPU of rows that name it by *key* and were measured on *devices*.

    One that the table of devices lacks, whose size only its driver knows, is found where it is at
    hand under the drivers' name for it.

    Raises InputError where nothing has this key.
    """
    found = find_gpu(key)
    if found.multiprocessors is not None:
        return found
    here = (one.gpu for one in present_gpus() if one.gpu.key == key and {one.name} == set(devices))
    return next(here, found)
