"""Calibrations survive being written and read, and other files are skipped."""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import CALIBRATION

from occupancy_lab.compiling.store import write_kept
from occupancy_lab.gpus import find_gpu
from occupancy_lab.throughput import calibrations
from occupancy_lab.throughput.calibrations import (
    Calibration,
    calibration_path,
    keep_calibration,
    known_calibrations,
    measured_units,
)

UNITS = {"launch_us": 2.7, "read_gbs": 4429.0}
MEASURED = dataclasses.replace(CALIBRATION, units=UNITS)
H200 = find_gpu("h200")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty store."""
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / "store"))
    calibrations._calibrations.cache_clear()
    yield tmp_path / "store"
    calibrations._calibrations.cache_clear()


@given(st.dictionaries(st.text(max_size=9), st.floats(0, exclude_min=True, allow_infinity=False)))
def test_calibration_survives_its_file(
    tmp_path_factory: pytest.TempPathFactory, units: dict[str, float]
) -> None:
    """A calibration that is written to a new directory is read back equal."""
    path = tmp_path_factory.mktemp("some") / "new" / "h200.json"
    made = dataclasses.replace(CALIBRATION, units=units)
    made.write(path)
    assert Calibration.read(path.read_text(encoding="utf-8")) == made


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"units": {}}', "no JSON"])
def test_other_text_is_no_calibration(text: str) -> None:
    """Text that `write` did not write is refused."""
    with pytest.raises(ValueError, match=r"."):
        Calibration.read(text)


@pytest.mark.parametrize("units", [UNITS, None], ids=["units", "none"])
def test_calibration_of_an_earlier_version_is_read(
    tmp_path: Path, units: dict[str, float] | None
) -> None:
    """Constants of earlier versions are ignored, and units may be missing."""
    path, values = tmp_path / "h200.json", dataclasses.asdict(MEASURED)
    del values["units"]
    values |= {"constants": {"launch_us": 2.5}} | ({} if units is None else {"units": units})
    write_kept(path, values)
    assert Calibration.read(path.read_bytes()) == dataclasses.replace(MEASURED, units=units or {})


@pytest.mark.parametrize("value", ["2.5", True, None, -1.0, 0, float("nan"), float("inf")], ids=str)
def test_units_that_cannot_be_are_refused(value: object) -> None:
    """Units that are not positive, finite numbers are refused."""
    values = dataclasses.asdict(MEASURED)
    values["units"]["launch_us"] = value
    with pytest.raises(ValueError, match="out of its range"):
        Calibration.read(json.dumps(values))


@given(st.integers(0))
def test_a_flipped_bit_is_never_another_calibration(
    tmp_path_factory: pytest.TempPathFactory, place: int
) -> None:
    """A calibration with a flipped bit is read as equal or refused."""
    path = tmp_path_factory.getbasetemp() / "flipped.json"
    MEASURED.write(path)
    content = bytearray(path.read_bytes())
    content[place // 8 % len(content)] ^= 1 << place % 8
    try:
        found = Calibration.read(bytes(content))
    except ValueError:
        return
    assert found == MEASURED


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "what", ["a pipe", "a device", "a folder", "too deep", "no text", "no end", "another kind"]
)
def test_other_files_are_skipped(what: str) -> None:
    """Pipes, devices, folders and damaged files do not hide other calibrations."""
    path = keep_calibration(dataclasses.replace(MEASURED, gpu="h100"))
    keep_calibration(MEASURED)
    path.unlink()
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a device":
        path.symlink_to("/dev/zero")
    elif what == "a folder":
        path.mkdir()
    else:
        texts = {"too deep": b"[" * 200_000, "no text": b"\xff\xfe", "no end": b"{"}
        path.write_bytes(texts.get(what, b'{"units": {"another": 1.0}}'))
    assert known_calibrations() == (MEASURED,)


def test_calibration_holds_for_its_gpu_from_when_it_is_kept(store: Path) -> None:
    """A kept calibration is a file in the store, and applies at once, and only to its GPU."""
    assert (known_calibrations(), measured_units(H200)) == ((), {})
    path = keep_calibration(MEASURED)
    assert path == calibration_path("h200") == store / "calibrations" / "h200.json"
    assert measured_units(H200) == UNITS
    assert measured_units(find_gpu("h100")) == {}
    keep_calibration(dataclasses.replace(MEASURED, units={"launch_us": 9.0}))
    assert measured_units(H200) == {"launch_us": 9.0}
