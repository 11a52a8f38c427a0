"""Measured rates of GPUs' units, which predictions for these GPUs use."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from occupancy_lab.compiling.store import MOST_BYTES, read_kept, store_directory, write_kept
from occupancy_lab.files import read_bytes
from occupancy_lab.gpus import Gpu, devices

FITTED_TO = "h100"
"""The key of the GPU whose launches the constants were fitted to."""
FITTED_UNITS: Mapping[str, float] = {"launch_us": 2.976, "read_gbs": 3093.6, "l2_loads": 0.5304}
"""What `calibrate` measures on this GPU, by the fields of `calibrating.units.Units`. On another
GPU, the ratio of its measurement to this one takes the place of the data sheet."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measured rates of a GPU's units, and where they were measured."""

    gpu: str
    """The key of the GPU that it applies to."""
    device: str
    """The driver's name of the GPU that it was measured on."""
    date: str
    torch: str
    triton: str
    units: Mapping[str, float]
    """What each unit does by itself, as far as it was measured, by the fields of
    `calibrating.units.Units`."""

    def write(self, path: Path) -> None:
        """Write the calibration to *path* as JSON; raise OSError where it cannot be written."""
        write_kept(path, dataclasses.asdict(self))

    @classmethod
    def read(cls, text: str | bytes) -> Calibration:
        """Return the calibration that `write` wrote as *text*; raise ValueError for any other text.

        A text without a checksum is accepted, and so is one of an earlier version, which has more
        fields or no units.
        """
        kept = read_kept(text)
        try:
            names = {name: kept[name] for name in ("gpu", "device", "date", "torch", "triton")}
            units = dict(kept.get("units", {}))
        except (TypeError, KeyError, ValueError) as error:
            msg = f"no calibration: {error}"
            raise ValueError(msg) from error
        are_numbers = all(
            type(one) in {int, float} and 0 < one < math.inf for one in units.values()
        )
        if not (are_numbers and all(isinstance(name, str) for name in names.values())):
            msg = "no calibration: a number is out of its range, or a name is not text"
            raise ValueError(msg)
        return cls(**names, units=units)


def calibration_path(key: str) -> Path:
    """Return the file of the calibration of the GPU *key* on this machine."""
    return store_directory() / "calibrations" / f"{key}.json"


def keep_calibration(calibration: Calibration) -> Path:
    """Keep *calibration* for predictions on this machine and in this process; return its file.

    Raises OSError where it cannot be written.
    """
    path = calibration_path(calibration.gpu)
    calibration.write(path)
    _calibrations.cache_clear()
    return path


def measured_units(gpu: Gpu) -> Mapping[str, float]:
    """Return what `calibrate` measured of such a GPU's units; empty where it was not run."""
    own = _calibrations().get(gpu.key)
    return {} if own is None else own.units


def l2_share(gpu: Gpu) -> float:
    """Return a multiprocessor's share of the L2 cache, relative to that of an H100.

    Where it was not measured, it follows from the size of the cache, because all slices of an
    architecture are equal: an H200 has 96 and an H100 has 80, of 640 KiB each (Nsight Compute). 1
    for other architectures, whose slices are not known.
    """
    measured = measured_units(gpu).get("l2_loads")
    if measured is not None:
        return measured / FITTED_UNITS["l2_loads"]
    model = devices()[FITTED_TO]
    if model.target != gpu.target:
        return 1.0
    own, fitted = ((one.l2_bytes or 0) / (one.multiprocessors or 1) for one in (gpu, model))
    return own / fitted if own and fitted else 1.0


def known_calibrations() -> tuple[Calibration, ...]:
    """Return the calibrations that are kept on this machine, one per GPU."""
    return tuple(_calibrations().values())


@cache
def _calibrations() -> dict[str, Calibration]:
    found = {}
    for path in sorted((store_directory() / "calibrations").glob("*.json")):
        with suppress(OSError, ValueError):
            own = Calibration.read(read_bytes(path, MOST_BYTES))
            found[own.gpu] = own
    return found
