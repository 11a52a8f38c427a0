"""What is found, what is missing, and what each missing item is for."""

import re
import sys
import tempfile
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from stand_ins import CALIBRATION

import occupancy_lab
from occupancy_lab.cli import doctor
from occupancy_lab.cli.doctor import Finding, examine, write_findings
from occupancy_lab.compiling import Store
from occupancy_lab.gpus import find_gpu
from occupancy_lab.gpus.present import PresentGpu
from occupancy_lab.values import Resources

ROOT = Path(__file__).parents[2]


def finding(subject: str) -> Finding:
    """Return the only finding about *subject*."""
    (found,) = [one for one in examine() if one.subject == subject]
    return found


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a store that does not exist yet."""
    directory = tmp_path / "not yet" / "there"
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(directory))
    return directory


def test_versions_are_told() -> None:
    """The lab, Python and each required package are found with their versions."""
    assert finding("occupancy-lab") == Finding("occupancy-lab", "ok", occupancy_lab.__version__)
    assert sys.executable in finding("Python").detail
    for name in doctor.REQUIRED:
        assert finding(name) == Finding(name, "ok", version(name))


def test_every_requirement_is_looked_for() -> None:
    """The packages looked for are those that an installation requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.split("[<>=]", item)[0] for item in project["dependencies"]}
    assert names == set(doctor.REQUIRED)


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("pandas", "problem", "not installed; `pip install pandas`"),
        (doctor.NVML, "missing", "reads the clock of a measurement.*occupancy-lab\\[nvidia\\]"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, status: str, said: str
) -> None:
    """A package that is not there has the command that installs it; the others have versions."""

    def versions(asked: str) -> str:
        if asked == name:
            raise PackageNotFoundError(name)
        return "13.580.65"

    monkeypatch.setattr(doctor, "version", versions)
    assert finding(name).status == status
    assert re.match(said, finding(name).detail)
    assert (name in write_findings(examine()).answer[0]) is (status == "problem")
    assert {finding(one).detail for one in ("rich", doctor.NVML) if one != name} == {"13.580.65"}


def broken(_target: object) -> bool:
    """Stand in for a Triton that cannot be imported."""
    msg = "libtriton.so: file too short"
    raise ImportError(msg)


@pytest.mark.parametrize(
    ("asked", "answer", "subject", "status", "said"),
    [
        ("can_compile", broken, "compiler for sm_90", "problem", "file too short"),
        ("can_compile", lambda _target: False, "compiler for gfx942", "problem", "has none"),
        ("can_compile", lambda _target: True, "compiler for gfx942", "ok", "without a GPU"),
        ("present_gpus", tuple, "GPU", "missing", "explained"),
        ("find_ncu", lambda: None, "ncu", "missing", "Nsight Compute"),
        ("find_ncu", lambda: "/cuda/ncu", "ncu", "ok", "/cuda/ncu"),
        ("known_calibrations", tuple, "calibration", "missing", "calibrate"),
        (
            *("known_calibrations", lambda: (CALIBRATION,), "calibration", "ok"),
            "h200: NVIDIA H200, 2026-11-20, Triton 3.6.0",
        ),
    ],
)
def test_what_is_there_and_what_is_not_is_told(  # noqa: PLR0913, PLR0917 - and what is expected
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    answer: Callable[..., object],
    subject: str,
    status: str,
    said: str,
) -> None:
    """A finding has what was found, or what the missing item is for."""
    monkeypatch.setattr(doctor, asked, answer)
    assert finding(subject).status == status
    assert said in finding(subject).detail


@pytest.mark.parametrize("name", doctor.PROBED_TARGETS)
def test_both_vendors_compilers_work(name: str) -> None:
    """The installed Triton compiles for NVIDIA and AMD, whatever GPU is here."""
    assert finding(f"compiler for {name}").status == "ok"


def test_a_folder_that_cannot_be_made_is_no_missing_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If there is no folder to compile in, that is the problem."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    found = finding("compiler for sm_90")
    assert (found.status, "No such file" in found.detail) == ("problem", True)
    assert "none" not in found.detail


def test_each_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU is listed with its driver's name, its target and its size."""
    here = [
        PresentGpu(find_gpu(key), name, {}, index, find_gpu(key))
        for index, (key, name) in enumerate([("h100", "NVIDIA H100"), ("mi300x", "AMD MI300X")])
    ]
    monkeypatch.setattr(doctor, "present_gpus", lambda: tuple(here))
    found = [one.detail for one in examine() if one.subject == "GPU"]
    assert found == ["NVIDIA H100, sm_90, 132 SMs", "AMD MI300X, gfx942, 304 CUs"]


def test_the_store_is_made_and_counted(store: Path) -> None:
    """A new store is made, and its compiled kernels are counted."""
    assert finding("store") == Finding("store", "ok", f"0 compiled kernels in {store}")
    for cols in range(3):
        Store(store).put({"cols": cols}, Resources(32, 8, 0))
    assert finding("store").detail == f"3 compiled kernels in {store}"


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_unwritable_store_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An unwritable store is a problem with its path and the reason."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(tmp_path / name))
    found = finding("store")
    assert found.status == "problem"
    assert f"{tmp_path / name} cannot be written: " in found.detail
