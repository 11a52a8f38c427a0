"""Which constants a GPU is predicted with: its own, those of its kind, or its data sheet's."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING

import pytest
from guesses import CONSTANTS, calibration
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.gpus import devices, find_gpu
from occupancy_lab.throughput.calibrations import (
    Basis,
    Calibration,
    Constants,
    calibration_for,
    calibration_path,
)

if TYPE_CHECKING:
    from conftest import Shelves

NUMBERS = {
    name: st.floats(1e-6 if name.endswith("_gbs") else 0, 0.999 if name.endswith("_loss") else 1e6)
    for name in Constants.names()
}
"""What each constant can be: what is divided by is above 0, a part of the whole below 1."""


def basis(gpu: str) -> Basis:
    """Return what *gpu* is predicted with; there must be something."""
    found = calibration_for(find_gpu(gpu))
    assert found is not None
    return found


@given(st.fixed_dictionaries(NUMBERS))
def test_calibration_survives_its_file(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, float]
) -> None:
    """A calibration read back from its file is the same, and its directory is made."""
    path = tmp_path_factory.mktemp("some") / "new" / "h200.json"
    made = dataclasses.replace(calibration(), constants=Constants(**values))
    made.write(path)
    assert Calibration.read(path.read_text(encoding="utf-8")) == made


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"constants": {}}', "no JSON"])
def test_other_text_is_no_calibration(text: str) -> None:
    """Whatever `write` did not make is refused."""
    with pytest.raises(ValueError, match=r"."):
        Calibration.read(text)


def test_constants_of_another_version_are_refused() -> None:
    """A constant too many or too few is refused, since its meaning may have changed too."""
    values = dataclasses.asdict(calibration())
    more = values | {"constants": values["constants"] | {"another": 1.0}}
    fewer = values | {"constants": dict(list(values["constants"].items())[1:])}
    for changed in (more, fewer):
        with pytest.raises(ValueError, match="no calibration of this version"):
            Calibration.read(json.dumps(changed))


@pytest.mark.parametrize(
    "changes",
    [
        {"launch_us": "2.5"},
        {"launch_us": True},
        {"launch_us": None},
        {"launch_us": -1.0},
        {"launch_us": float("nan")},
        {"drain_us": float("inf")},
        {"row_bandwidth_gbs": 0},
        {"l2_gbs": 0.0},
        {"split_loss": 1.0},
    ],
    ids=str,
)
def test_constants_that_cannot_be_are_refused(changes: dict[str, object]) -> None:
    """A constant that is no number, or none that the model can calculate with, is refused."""
    values = dataclasses.asdict(calibration())
    values["constants"] |= changes
    with pytest.raises(ValueError, match="out of its range"):
        Calibration.read(json.dumps(values))


@pytest.mark.parametrize("name", ["gpu", "device", "date", "torch", "triton"])
def test_names_that_are_none_are_refused(name: str) -> None:
    """What says where a calibration is from has to be text."""
    values = dataclasses.asdict(calibration()) | {name: 7}
    with pytest.raises(ValueError, match="a name is none"):
        Calibration.read(json.dumps(values))


@given(st.integers(0))
def test_a_flipped_bit_is_never_another_calibration(
    tmp_path_factory: pytest.TempPathFactory, place: int
) -> None:
    """Whatever bit of a kept calibration is another, it reads as the same or is refused."""
    path = tmp_path_factory.getbasetemp() / "flipped.json"
    calibration().write(path)
    content = bytearray(path.read_bytes())
    content[place // 8 % len(content)] ^= 1 << place % 8
    try:
        found = Calibration.read(bytes(content))
    except ValueError:
        return
    assert found == calibration()


@pytest.mark.parametrize("what", ["a pipe", "a device", "a folder", "too deep", "no text"])
def test_what_is_no_file_of_this_machine_is_passed_over(shelves: Shelves, what: str) -> None:
    """A pipe that nobody writes to, a device without end and the like leave the recorded one."""
    shelves.record(calibration())
    path = shelves.keep(calibration(launch_us=9.0))
    path.unlink()
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a device":
        path.symlink_to("/dev/zero")
    elif what == "a folder":
        path.mkdir()
    else:
        path.write_bytes(b"[" * 200_000 if what == "too deep" else b"\xff\xfe")
    shelves.forget()
    assert basis("h200").constants == CONSTANTS


def test_nothing_known_gives_nothing(shelves: Shelves) -> None:
    """Without any calibration no GPU has constants."""
    assert all(calibration_for(gpu) is None for gpu in devices().values())
    assert shelves.recorded.is_dir()


def test_recorded_calibration_holds_for_its_gpu(shelves: Shelves) -> None:
    """A GPU of a kind that was calibrated has those constants, and says whose and when."""
    shelves.record(calibration())
    found = basis("h200")
    assert found.constants == CONSTANTS
    assert found.calibrated
    assert found.words == "calibrated on NVIDIA H200, 2026-11-21, Triton 3.6.0"


def test_own_calibration_comes_before_the_recorded(shelves: Shelves) -> None:
    """What this machine was calibrated to holds, whatever comes with the lab."""
    shelves.record(calibration())
    shelves.keep(calibration(device="this very H200", launch_us=9.0))
    found = basis("h200")
    assert found.constants.launch_us == 9.0
    assert "this very H200" in found.words


def test_broken_file_of_this_machine_is_passed_over(shelves: Shelves) -> None:
    """A file that is no calibration, or one of another version, leaves the recorded one."""
    shelves.record(calibration())
    path = shelves.keep(calibration(launch_us=9.0))
    for text in ("{", '{"constants": {"another": 1.0}}'):
        path.write_text(text, encoding="utf-8")
        shelves.forget()
        assert basis("h200").constants == CONSTANTS


@pytest.mark.parametrize("gpu", ["h100", "b200", "rtx4090", "mi300x", "rx7900xtx"])
def test_other_gpus_are_not_calibrated(shelves: Shelves, gpu: str) -> None:
    """A GPU of another kind, and of another vendor, goes by its data sheet, and says so."""
    shelves.record(calibration())
    found = basis(gpu)
    assert not found.calibrated
    assert "data sheet" in found.words
    assert "NVIDIA H200" in found.words
    share = (find_gpu(gpu).bandwidth_gbs or 0) / (find_gpu("h200").bandwidth_gbs or 1)
    assert found.constants.row_bandwidth_gbs == pytest.approx(CONSTANTS.row_bandwidth_gbs * share)
    assert found.constants.launch_us == CONSTANTS.launch_us


def test_the_most_alike_lends_its_constants(shelves: Shelves) -> None:
    """Of several calibrated GPUs one of the same target lends, then one of the same vendor."""
    for gpu, device in (("mi300x", "an MI300X"), ("rtx4090", "an RTX 4090"), ("h200", "an H200")):
        shelves.record(calibration(gpu, device))
    assert "an H200" in basis("h100").words
    assert "an MI300X" in basis("mi325x").words
    assert "an MI300X" in basis("rx7900xtx").words
    assert "an MI300X" not in basis("b200").words


@pytest.mark.parametrize("gpu", ["sm_90", "gfx942"])
def test_bare_architecture_has_no_constants(shelves: Shelves, gpu: str) -> None:
    """A GPU of unknown size and bandwidth cannot be predicted."""
    shelves.record(calibration())
    assert calibration_for(find_gpu(gpu)) is None


def test_path_is_in_the_store(shelves: Shelves) -> None:
    """Each GPU's calibration has a file of its own beside the recorded directory's store."""
    paths = {calibration_path(key) for key in ("h100", "h200")}
    assert len(paths) == 2
    assert {path.parent.parent for path in paths} == {shelves.recorded.with_name("store")}
