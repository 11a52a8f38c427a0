"""What the package offers, and what is installed of it."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import occupancy_lab

ROOT = Path(__file__).parent.parent
TABLES = ROOT / "occupancy_lab" / "gpus" / "data"


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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of a clean copy, in which no older build has left anything."""
    copy, wheels = tmp_path_factory.mktemp("copy") / "lab", tmp_path_factory.mktemp("wheels")
    leave = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "tests")
    shutil.copytree(ROOT, copy, ignore=leave)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir")
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", wheels, copy]
    subprocess.run(command, check=True, capture_output=True)
    (made,) = wheels.glob("*.whl")
    return made


def test_wheel_holds_the_package_and_its_data_alone(wheel: Path) -> None:
    """The wheel has every module, the kernels, tables and py.typed, and nothing else."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {
        f"{package}/{file.relative_to(ROOT / folder)}"
        for folder, package in {
            "occupancy_lab": "occupancy_lab",
            "kernels": "occupancy_lab/kernels",
        }.items()
        for file in (ROOT / folder).rglob("*.py")
    }
    modules.add("occupancy_lab/recorded/__init__.py")
    assert {name for name in names if name.endswith(".py")} == modules
    others = names - modules
    tables = {f"occupancy_lab/gpus/data/{file.name}" for file in TABLES.glob("*.csv")}
    recorded = {
        f"occupancy_lab/recorded/{name}"
        for name in (
            *("measured-h200.csv", "measured-h100.csv", "providers-h200.csv"),
            *("providers-h100.csv", "calibration-h200.json"),
        )
    }
    assert others == {"occupancy_lab/py.typed"} | tables | recorded


def test_wheel_works_where_it_alone_is_installed(wheel: Path, tmp_path: Path) -> None:
    """With its dependencies beside it, the wheel answers and needs nothing of this folder."""
    venv.create(tmp_path, symlinks=True)
    python = tmp_path / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*command, wheel], check=True, capture_output=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path)}))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def run(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout

    home = run(python, "-c", "import occupancy_lab; print(occupancy_lab.__file__)")
    assert Path(home.strip()).is_relative_to(site)
    tool = python.with_name("occupancy-lab")
    assert run(tool, "--help").startswith("Usage: occupancy-lab")
    point = "--target sm_90 --n-regs 32 --shared 12320 --num-warps 8 --json"
    (calculated,) = json.loads(run(tool, "occupancy", *point.split()))
    assert calculated["programs_per_multiprocessor"] == 8
    assert run(tool, "explain", "--cols", "781", "--gpu", "h100,h200", "--format", "markdown")
