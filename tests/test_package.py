"""What the package offers, and what is installed of it."""

from __future__ import annotations

import importlib.metadata
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


def test_wheel_holds_kernels_and_data_but_no_top_level_kernels(tmp_path: Path) -> None:
    """The wheel has occupancy_lab.kernels, the tables and py.typed, and installs nothing else."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, ROOT],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"occupancy_lab"}
    for needed in ("kernels/softmax.py", "gpus/data/devices.csv", "py.typed"):
        assert f"occupancy_lab/{needed}" in names
