"""What was measured of the units of GPUs, on which predictions for them rest."""

from __future__ import annotations

import dataclasses
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from occupancy_lab.compiling.store import MOST_BYTES, read_kept, store_directory, write_kept
from occupancy_lab.files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from occupancy_lab.gpus import Gpu


FITTED_TO = "h100"
"""The key of the GPU whose launches the constants were fitted to."""
FITTED_UNITS: Mapping[str, float] = {"launch_us": 2.976, "read_gbs": 3093.6, "l2_loads": 0.5304}
"""What `calibrate` measures on it, by the names of `calibrating.units.Units`. What it measures on
another GPU counts in proportion to that, in place of the data sheet."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the units of a GPU do, and where it was measured."""

    gpu: str
    """The key of the GPU that it holds for."""
    device: str
    """The driver's name of the GPU that it was measured on."""
    date: str
    torch: str
    triton: str
    units: Mapping[str, float]
    """What each of its units does by itself, as far as it was measured, by the names of
    `calibrating.units.Units`."""

    def write(self, path: Path) -> None:
        """Write the calibration to *path*, as JSON; OSError where it cannot be written."""
        write_kept(path, dataclasses.asdict(self))

    @classmethod
    def read(cls, text: str | bytes) -> Calibration:
        """Return the calibration that `write` made *text* of; ValueError for any other text.

        A text without a checksum will do, and one of an earlier version, which has more in it or no
        units.
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
            msg = "no calibration: a number is out of its range, or a name is none"
            raise ValueError(msg)
        return cls(**names, units=units)


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


def measured_units(gpu: Gpu) -> Mapping[str, float]:
    """Return what `calibrate` measured of the units of such a GPU; nothing where it did not."""
    own = _calibrations().get(gpu.key)
    return {} if own is None else own.units


def known_calibrations() -> tuple[Calibration, ...]:
    """Return the calibrations that are kept on this machine, one per GPU."""
    return tuple(_calibrations().values())


@cache
def _calibrations() -> dict[str, Calibration]:
    """Return this machine's calibrations by their GPU's key."""
    found = {}
    for path in sorted((store_directory() / "calibrations").glob("*.json")):
        with suppress(OSError, ValueError):
            own = Calibration.read(read_bytes(path, MOST_BYTES))
            found[own.gpu] = own
    return found
