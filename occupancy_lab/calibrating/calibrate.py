"""A calibration of the GPU at hand: measure its units, and keep what they do for predictions."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.calibrating.units import measure_units
from occupancy_lab.errors import DriverError
from occupancy_lab.files import refused
from occupancy_lab.measuring.measure import conditions
from occupancy_lab.measuring.process import chosen_devices
from occupancy_lab.text.document import Answer, Document, literal
from occupancy_lab.throughput.calibrations import Calibration, calibration_path, keep_calibration

if TYPE_CHECKING:
    from pathlib import Path

    from occupancy_lab.calibrating.units import Units

USED = (
    "Of the units, predicted times use a launch (launch_us), reads of device memory (read_gbs) and"
    " loads that the L2 cache serves (l2_loads), in place of the data sheet."
)


@dataclass(frozen=True, slots=True, repr=False)
class Calibrated(Answer):
    """A calibration that was made and kept."""

    calibration: Calibration
    path: Path
    seconds: float
    units: Units
    """What each unit of the GPU does by itself."""

    def to_document(self) -> Document:
        """Return what the units do, where it is kept, and what predictions use of it."""
        calibration = self.calibration
        kept = (
            f"It took {self.seconds:.0f} s and is kept in {literal(str(self.path))}; predictions"
            f" for {calibration.gpu} use it from now on."
        )
        title = f"Calibration of {calibration.device}, {calibration.date}"
        return Document(title, (kept, USED), (self.units.to_section(),))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            **dataclasses.asdict(self.calibration),
            "path": str(self.path),
            "seconds": self.seconds,
            "units": dataclasses.asdict(self.units),
        }


def calibrate_here() -> Calibrated:
    """Measure the units of the first GPU of this machine, and keep them for predictions.

    Raises InputError where there is no GPU or the calibration cannot be kept, and DriverError where
    no unit could be measured.
    """
    start = time.monotonic()
    gpu, _ = chosen_devices("calibrate")
    path = calibration_path(gpu.key)
    with refused(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    units, at = measure_units(), conditions()
    numbers = units.numbers()
    if not numbers:
        msg = f"{gpu.title} cannot be calibrated: none of its units could be measured"
        raise DriverError(msg)
    calibration = Calibration(gpu.key, at.device, str(at.date), at.torch, at.triton, numbers)
    with refused(path):
        keep_calibration(calibration)
    return Calibrated(calibration, path, time.monotonic() - start, units)
