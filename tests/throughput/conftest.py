"""The calibrations that a test of the prediction has, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from occupancy_lab.throughput import calibrations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from occupancy_lab.throughput.calibrations import Calibration


class Shelves:
    """Where calibrations lie: those that come with the lab, and this machine's own."""

    def __init__(self, recorded: Path) -> None:
        self.recorded = recorded

    def record(self, calibration: Calibration) -> None:
        """Have *calibration* come with the lab."""
        calibration.write(self.recorded / f"calibration-{calibration.gpu}.json")
        self.forget()

    def keep(self, calibration: Calibration) -> Path:
        """Make *calibration* this machine's own, and give its file."""
        return calibrations.keep_calibration(calibration)

    def forget(self) -> None:
        """Have the files read again."""
        calibrations._calibrations.cache_clear()


@pytest.fixture
def shelves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelves]:
    """No calibration at all, until the test puts one there."""
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    files: Callable[[str], Path] = lambda _package: recorded  # noqa: E731 - it is typed so
    monkeypatch.setattr(calibrations, "files", files)
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    made = Shelves(recorded)
    made.forget()
    yield made
    made.forget()
