"""A GPU that is said to be here, calibrated, and what its launches take."""

from collections.abc import Iterator

import pytest
from stand_ins import Launches, put_calibration, put_here


@pytest.fixture(scope="module")
def _calibrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what a file's tests compile in one store, with the calibration of an H200."""
    with pytest.MonkeyPatch.context() as patch:
        put_calibration(patch, tmp_path_factory.mktemp("calibrated"))
        yield


@pytest.fixture
def launches(_calibrated: None, monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Return the launches on an H200 that is said to be here."""
    put_here(monkeypatch, "h200")
    stand_in = Launches()
    monkeypatch.setattr("occupancy_lab.sweeping.grid.measure_launches", stand_in)
    return stand_in
