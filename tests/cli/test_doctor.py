"""What is found, what is missing, and what each missing item is for."""

import re
import sys
import tempfile
import tomllib
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


def test_a_missing_package_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is named with the command that installs it."""

    def without_pandas(name: str) -> str:
        if name == "pandas":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", without_pandas)
    assert finding("pandas") == Finding("pandas", "problem", "not installed; `pip install pandas`")
    assert finding("rich").status == "ok"
    assert "pandas" in write_findings(examine()).answer[0]


@pytest.mark.parametrize("name", doctor.PROBED_TARGETS)
def test_both_vendors_compilers_work(name: str) -> None:
    """The installed Triton compiles for NVIDIA and AMD, whatever GPU is here."""
    assert finding(f"compiler for {name}").status == "ok"


def test_a_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Triton without a compiler for a target is a problem, not an exception."""
    monkeypatch.setattr(doctor, "can_compile", lambda target: target.backend == "cuda")
    assert finding("compiler for sm_90").status == "ok"
    assert finding("compiler for gfx942").status == "problem"


def test_a_triton_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken Triton is a problem with its reason."""

    def broken(_target: object) -> bool:
        msg = "libtriton.so: file too short"
        raise ImportError(msg)

    monkeypatch.setattr(doctor, "can_compile", broken)
    found = finding("compiler for sm_90")
    assert (found.status, "file too short" in found.detail) == ("problem", True)


def test_a_folder_that_cannot_be_made_is_no_missing_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If there is no folder to compile in, that is the problem."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    found = finding("compiler for sm_90")
    assert (found.status, "No such file" in found.detail) == ("problem", True)
    assert "none" not in found.detail


def test_no_gpu_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU the finding says that the lab still explains."""
    monkeypatch.setattr(doctor, "present_gpus", tuple)
    assert finding("GPU").status == "missing"
    assert "explained" in finding("GPU").detail


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


def test_nsight_compute_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing Nsight Compute says what it is for; a found one has its path."""
    monkeypatch.setattr(doctor, "find_ncu", lambda: None)
    assert finding("ncu").status == "missing"
    assert "Nsight Compute" in finding("ncu").detail
    monkeypatch.setattr(doctor, "find_ncu", lambda: tmp_path / "ncu")
    assert finding("ncu") == Finding("ncu", "ok", str(tmp_path / "ncu"))


def test_nvml_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-ml-py has its version, or is missing with the extra that installs it."""

    def installed(name: str) -> str:
        return "13.580.65" if name == doctor.NVML else version(name)

    def missing(name: str) -> str:
        if name == doctor.NVML:
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", installed)
    assert finding(doctor.NVML) == Finding(doctor.NVML, "ok", "13.580.65")
    monkeypatch.setattr(doctor, "version", missing)
    assert finding(doctor.NVML).status == "missing"
    assert "occupancy-lab[nvidia]" in finding(doctor.NVML).detail


def test_calibrations_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each calibration is listed by GPU, device and date; so is their absence."""
    monkeypatch.setattr(doctor, "known_calibrations", lambda: (CALIBRATION,))
    assert finding("calibration").status == "ok"
    assert finding("calibration").detail == "h200: NVIDIA H200, 2026-11-20, Triton 3.6.0"
    monkeypatch.setattr(doctor, "known_calibrations", tuple)
    assert finding("calibration").status == "missing"
