"""Which constants hold for a GPU: its own calibration, one that was recorded, or its data sheet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from occupancy_lab.compiling.store import read_bytes, store_directory
from occupancy_lab.gpus import find_device
from occupancy_lab.throughput.constants import Calibration, Constants

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from occupancy_lab.gpus import Gpu


@dataclass(frozen=True, slots=True)
class Basis:
    """The constants that a prediction rests on."""

    constants: Constants
    words: str
    """Where they are from."""
    calibrated: bool
    """Whether they were measured on a GPU of this kind."""


def calibration_path(key: str) -> Path:
    """Return where a calibration of the GPU *key* is kept on this machine."""
    return store_directory() / "calibrations" / f"{key}.json"


def keep_calibration(calibration: Calibration) -> Path:
    """Keep *calibration* for this machine's predictions, this process's too; return its file.

    Raises OSError where it cannot be written.
    """
    path = calibration_path(calibration.gpu)
    calibration.write(path)
    _calibrations.cache_clear()
    return path


def calibration_for(gpu: Gpu) -> Basis | None:
    """Return the constants for *gpu*; None where its clock, size or bandwidth is not known."""
    own = _calibrations().get(gpu.key)
    if own is not None:
        words = f"calibrated on {own.device}, {own.date}, Triton {own.triton}"
        return Basis(own.constants, words, calibrated=True)
    return _from_data_sheet(gpu)


def known_calibrations() -> tuple[Calibration, ...]:
    """Return the calibrations that predictions rest on, one a GPU."""
    return tuple(_calibrations().values())


@cache
def _calibrations() -> dict[str, Calibration]:
    """Return the calibrations by their GPU's key: this machine's before the recorded ones."""
    return {calibration.gpu: calibration for calibration in _all()}


def _all() -> Iterator[Calibration]:
    recorded = files("occupancy_lab.recorded").iterdir()
    for entry in sorted(recorded, key=lambda entry: entry.name):
        if entry.name.startswith("calibration-") and entry.name.endswith(".json"):
            yield Calibration.read(entry.read_text(encoding="utf-8"))
    for path in sorted((store_directory() / "calibrations").glob("*.json")):
        try:
            yield Calibration.read(read_bytes(path))
        except (OSError, ValueError):
            continue


def _from_data_sheet(gpu: Gpu) -> Basis | None:
    """Scale the constants of the most alike calibrated GPU to the data sheet of *gpu*.

    What counts cycles stays; bandwidths keep their share of the peak. A time in us stays too: the
    memory's latency and a launch have not become shorter with newer GPUs.
    """
    sibling = _most_alike(gpu)
    if sibling is None or gpu.bandwidth_gbs is None:
        return None
    model = find_device(sibling.gpu)
    if model is None or model.bandwidth_gbs is None:
        return None
    scale = gpu.bandwidth_gbs / model.bandwidth_gbs
    scaled = {
        name: getattr(sibling.constants, name) * scale
        for name in Constants.names()
        if name.endswith("bandwidth_gbs")
    }
    constants = sibling.constants.replace(**scaled)
    words = f"the data sheet, with what {sibling.device} was calibrated to a multiprocessor"
    return Basis(constants, words, calibrated=False)


def _most_alike(gpu: Gpu) -> Calibration | None:
    known = list(_calibrations().values())

    def unlike(calibration: Calibration) -> tuple[bool, bool]:
        other = find_device(calibration.gpu)
        if other is None:
            return True, True
        return other.target != gpu.target, other.vendor != gpu.vendor

    return min(known, key=unlike, default=None)
