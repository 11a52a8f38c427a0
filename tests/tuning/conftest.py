"""A simulated GPU with a calibration, and its launches."""

from collections.abc import Iterator

import pytest
from stand_ins import Launches, put_calibration, put_here


@pytest.fixture(scope="module")
def _calibrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Share a store per test file, with an H200's calibration."""
    with pytest.MonkeyPatch.context() as patch:
        put_calibration(patch, tmp_path_factory.mktemp("calibrated"))
        yield


@pytest.fixture
def launches(_calibrated: None, monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Return the launches on a simulated H200."""
    put_here(monkeypatch, "h200")
    stand_in = Launches()
    monkeypatch.setattr("occupancy_lab.sweeping.grid.measure_launches", stand_in)
    return stand_in
