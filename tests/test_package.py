"""What the package offers, and what is installed of it."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import occupancy_lab

ROOT = Path(__file__).parent.parent


def test_every_export_exists() -> None:
    """Each name of __all__ can be imported, and nothing is lost from the list of homes."""
    assert sorted(occupancy_lab.__all__) == sorted(occupancy_lab._HOME_OF)
    for name in occupancy_lab.__all__:
        assert getattr(occupancy_lab, name).__name__ == name


def test_unknown_name_is_an_attribute_error() -> None:
    """A name that is not there fails as in any module."""
    with pytest.raises(AttributeError, match="nonsense"):
        occupancy_lab.nonsense  # noqa: B018 - looking is the test


def test_version_is_the_projects() -> None:
    """The module's version is the distribution's."""
    assert occupancy_lab.__version__ == importlib.metadata.version("occupancy-lab")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the names of the files in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    # A copy: setuptools puts whatever an earlier build left in build/ into the wheel.
    left_out = shutil.ignore_patterns(".*", "build", "*.egg-info", "tests")
    tree = shutil.copytree(ROOT, folder / "tree", ignore=left_out)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, tree],
        check=True,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


def test_wheel_holds_kernels_and_data_but_no_top_level_kernels(wheel: list[str]) -> None:
    """The wheel has occupancy_lab.kernels, the tables and py.typed, and installs nothing else."""
    names = wheel
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"occupancy_lab"}
    for needed in ("kernels/softmax.py", "gpus/data/devices.csv", "py.typed"):
        assert f"occupancy_lab/{needed}" in names


def test_wheel_holds_the_recorded_data_that_is_read_and_no_other(wheel: list[str]) -> None:
    """Launches, providers and calibrations travel; what the pages are made of stays behind."""
    folder = "occupancy_lab/recorded/"
    found = {name.removeprefix(folder) for name in wheel if name.startswith(folder)}
    assert found == {
        *("__init__.py", "measured-h200.csv", "measured-h100.csv"),
        *("providers-h200.csv", "providers-h100.csv", "calibration-h200.json"),
    }
