"""The GPUs of this machine that launches are timed on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from occupancy_lab.errors import InputError, quoted
from occupancy_lab.gpus import present_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.gpus import Gpu, PresentGpu

ALL = "all"


def chosen_devices(
    purpose: str, asked: str | Sequence[int] | None = None
) -> tuple[Gpu, tuple[str | None, ...]]:
    """Return the GPU that is here, and what a MeasuringProcess calls each device of that kind.

    *asked* is "all", or the numbers of GPUs as a list or with commas; None takes the first GPU.

    Raises InputError, naming the *purpose*, where there is no GPU, where torch cannot use it, and
    where those asked for are not there or not alike.
    """
    here = present_gpus()
    if not here:
        msg = f"{purpose} needs a GPU of this machine; none was found"
        raise InputError(msg)
    _check_torch(purpose, here[0])
    if asked is None:
        return here[0].gpu, (None,)
    chosen = [one for one in here if one.gpu.key == here[0].gpu.key]
    if asked != ALL:
        chosen = [_numbered(here, number) for number in _numbers(asked)]
    kinds = {one.gpu.key: one.name for one in chosen}
    if len(kinds) > 1:
        msg = f"{' and '.join(kinds.values())} are not alike: {purpose} takes GPUs of one kind"
        raise InputError(msg)
    return chosen[0].gpu, tuple(dict.fromkeys(map(_visible_name, chosen)))


def device_names() -> tuple[str, ...]:
    """Return every GPU of this machine by its name and its own UUID."""
    return tuple(f"{one.name} {one.uuid}" for one in present_gpus())


def _check_torch(purpose: str, present: PresentGpu) -> None:
    import torch

    if not torch.cuda.is_available():
        msg = (
            f"{purpose} needs a torch that can use {present.name}; the one installed,"
            f" {torch.__version__}, cannot"
        )
        raise InputError(msg)


def _numbers(asked: str | Sequence[int]) -> list[int]:
    parts = asked.split(",") if isinstance(asked, str) else [str(number) for number in asked]
    if not parts or not all(part.strip().isdecimal() for part in parts):
        msg = f"{quoted(asked)} names no GPUs; give all, or their numbers with commas, such as 0,1"
        raise InputError(msg)
    return [int(part) for part in parts]


def _numbered(here: Sequence[PresentGpu], number: int) -> PresentGpu:
    alike = [one for one in here if one.gpu.vendor == here[0].gpu.vendor]
    for one in alike:
        if one.index == number:
            return one
    known = ", ".join(str(one.index) for one in alike)
    msg = f"there is no GPU {number} here; there is {known}"
    raise InputError(msg)


def _visible_name(present: PresentGpu) -> str:
    """Return what CUDA_VISIBLE_DEVICES has to be for a process that sees this GPU alone.

    Where it is set already, the driver numbers only those that it lists; KFD numbers them all.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not listed or present.gpu.vendor != "NVIDIA":
        return str(present.index)
    return listed.split(",")[present.index].strip()
