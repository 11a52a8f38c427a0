"""A calibration is shown, and stored where predictions find it."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_ins import CONDITIONS, put_here

from occupancy_lab.calibrating import units
from occupancy_lab.calibrating.units import Calibrated, Units, calibrate_here
from occupancy_lab.errors import DriverError, InputError
from occupancy_lab.throughput import calibrations
from occupancy_lab.throughput.calibrations import FITTED_UNITS, Calibration, calibration_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Calibrated]:
    """Return the calibration of a simulated H200."""
    put_here(monkeypatch, "h200")
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(units, "measure_units", lambda: Units(l1_cycles=34.2))
    monkeypatch.setattr(units, "conditions", lambda: CONDITIONS)
    yield calibrate_here()
    calibrations._calibrations.cache_clear()


def test_calibration_is_kept_for_predictions(made: Calibrated) -> None:
    """Measurements and conditions are read back by predictions."""
    assert made.path == calibration_path("h200")
    assert Calibration.read(made.path.read_text(encoding="utf-8")) == made.calibration
    assert made.calibration == Calibration(
        "h200", "NVIDIA H200", "2026-11-21", "2.11.0", "3.6.0", {"l1_cycles": 34.2}
    )
    assert made.seconds > 0


def test_answer_tells_time_place_and_units(made: Calibrated) -> None:
    """The page has the time, the file, what predictions use, and each unit."""
    document = dataclasses.replace(made, seconds=34.4).to_document()
    kept, used = document.answer
    assert document.title == "Calibration of NVIDIA H200, 2026-11-21"
    assert f"It took 34 s and is kept in {made.path}; predictions for h200 use it" in kept
    assert all(name in used for name in FITTED_UNITS)
    assert document.sections == (made.units.to_section(),)


def test_a_gpu_that_gives_no_number_keeps_what_was_known(
    made: Calibrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing could be measured, the old calibration stays."""
    monkeypatch.setattr(units, "measure_units", Units)
    with pytest.raises(DriverError, match="none of its units could be measured"):
        calibrate_here()
    assert Calibration.read(made.path.read_bytes()) == made.calibration


def test_a_store_that_cannot_be_written_is_said(
    made: Calibrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unwritable store is an error before any launch."""
    monkeypatch.setattr(units, "measure_units", pytest.fail)
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(made.path))
    with pytest.raises(InputError, match="cannot be written"):
        calibrate_here()
