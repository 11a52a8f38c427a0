"""`calibrate`: what is fitted is kept where predictions find it, and put into words."""

from __future__ import annotations

import dataclasses
import json
from importlib.resources import files
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from stand_ins import CALIBRATION, put_here, values_of

from occupancy_lab.calibrating import run
from occupancy_lab.calibrating.calibrate import fit_errors
from occupancy_lab.calibrating.run import Calibrated, calibrate_here, calibration_document
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.throughput import calibrations
from occupancy_lab.throughput.calibrations import calibration_for, calibration_path
from occupancy_lab.throughput.constants import Calibration, Constants

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return the launches of a calibration that was recorded on an H200."""
    with (files("occupancy_lab.recorded") / "calibration-h200.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


@pytest.fixture
def made(table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calibrated:
    """Return what calibrating an H200 makes that is said to be here, without a fit."""
    put_here(monkeypatch, "h200")
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path))

    def timed(
        _gpu: object, *, progress: Callable[[int, int], None], journal: object
    ) -> pd.DataFrame:
        assert journal is None
        progress(1, 1)
        return table

    monkeypatch.setattr(run, "time_calibration", timed)
    monkeypatch.setattr(run, "calibration_of", lambda _table, _gpu: CALIBRATION)
    return calibrate_here()


def test_calibration_is_kept_for_predictions(made: Calibrated) -> None:
    """What was fitted is read back from where predictions look for it."""
    assert made.path == calibration_path("h200")
    assert Calibration.read(made.path.read_text()) == made.calibration
    assert made.seconds > 0


def test_calibration_is_used_at_once(request: pytest.FixtureRequest) -> None:
    """A process that predicted before it calibrated predicts with the calibration from then on."""
    request.addfinalizer(calibrations._calibrations.cache_clear)
    before = calibration_for(find_gpu("h200"))
    made = request.getfixturevalue("made")
    after = calibration_for(find_gpu("h200"))
    assert after is not None
    assert after.constants == made.calibration.constants != before.constants


def test_errors_are_of_the_launches_that_were_fitted(made: Calibrated, table: pd.DataFrame) -> None:
    """The errors are of every row with a time but the empty kernel's."""
    timed = table[(table["measured"] == "measured") & (table["kernel"] != "empty")]
    assert made.errors.launches == len(timed)
    assert 0 <= made.errors.median <= made.errors.p90
    worse = CALIBRATION.constants.replace(launch_us=1000.0)
    assert fit_errors(table, find_gpu("h200"), worse).median > made.errors.median


def test_every_constant_is_told_with_its_meaning(made: Calibrated) -> None:
    """Each constant has a line with its value, its unit and the sentence of its definition."""
    (section,) = calibration_document(made).sections
    rows = {row[0]: row[1:] for row in section.tables[0].rows}
    assert set(rows) == set(Constants.names())
    assert all(meaning.endswith(".") for _, _, meaning in rows.values())
    value, unit, meaning = rows["launch_us"]
    assert float(value) == pytest.approx(CALIBRATION.constants.launch_us)
    assert (unit, "empty program" in meaning) == ("us", True)


def test_answer_tells_time_place_and_errors(made: Calibrated) -> None:
    """The answer says how long it took, where it is kept and how well it fits."""
    errors = dataclasses.replace(made.errors, launches=1464, median=0.034, p90=0.106)
    told = dataclasses.replace(made, seconds=184.4, errors=errors)
    kept, fits = calibration_document(told).answer
    assert f"It took 184 s and is kept in {made.path}" in kept
    assert "Half of the 1464 launches" in fits
    assert "within 3.4% of their measured times, nine in ten within 10.6%" in fits


def test_values_are_json(made: Calibrated) -> None:
    """The answer as JSON has the constants, the place and the errors."""
    values = values_of(json.dumps(made.to_dict()))
    assert values["constants"] == dataclasses.asdict(CALIBRATION.constants)
    assert values["path"] == str(made.path)
    assert values["errors"]["median"] == made.errors.median


def test_without_a_gpu_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrating needs a GPU, and says so before anything is compiled."""
    put_here(monkeypatch)
    monkeypatch.setattr(run, "time_calibration", pytest.fail)
    with pytest.raises(InputError, match="calibrate needs a GPU of this machine; none was found"):
        calibrate_here()


def test_a_store_that_cannot_be_written_is_said(
    made: Calibrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the calibration cannot be kept, the error names the place."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(made.path))
    with pytest.raises(InputError, match="cannot be written"):
        calibrate_here()
