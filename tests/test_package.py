"""What the package exports, and what is installed with it."""

import ast
import dataclasses
import importlib.metadata
import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import occupancy_lab
from occupancy_lab.compiling import environment

ROOT = Path(__file__).parent.parent
TABLES = ROOT / "occupancy_lab" / "gpus" / "data"
PAGE = ROOT / "occupancy_lab" / "exploring"


def test_every_export_exists() -> None:
    """Each name of __all__ can be imported and has a docstring."""
    assert len(occupancy_lab.__all__) > 40
    assert set(occupancy_lab.__all__) <= set(dir(occupancy_lab))
    for name in occupancy_lab.__all__:
        found = getattr(occupancy_lab, name)
        assert getattr(found, "__name__", name) == name
        assert found.__doc__


def test_what_a_kernel_file_needs_is_exported() -> None:
    """The package itself exports everything that the lab's own kernels are made of."""
    for name in occupancy_lab.kernel_names():
        source = (ROOT / "kernels" / f"{name}.py").read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("occupancy_lab."):
                names = {alias.name for alias in node.names}
                if not node.module.startswith("occupancy_lab.kernels"):
                    assert names <= set(occupancy_lab.__all__)


def test_type_checkers_see_the_exports(tmp_path: Path) -> None:
    """A user's mypy --strict takes every public name from the package."""
    names = ", ".join(occupancy_lab.__all__)
    (tmp_path / "use.py").write_text(f"from occupancy_lab import {names}\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache"]
    done = subprocess.run(
        [*command, tmp_path / "use.py"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert "does not explicitly export" not in done.stdout
    assert "has no attribute" not in done.stdout
    assert done.returncode == 0, done.stdout


ASKED = {
    "rows": np.int64(4096),
    "dtype": torch.float16,
    "gpu": occupancy_lab.find_gpu("h100"),
    "num_warps": np.int32(8),
}
AS_TEXT = {"rows": 4096, "dtype": "float16", "gpu": "h100", "num_warps": 8}


def own_kernel() -> occupancy_lab.Kernel:
    """Return a Kernel that only this process has."""
    return dataclasses.replace(occupancy_lab.load_kernel("softmax"), name="own")


def test_arguments_of_every_kind_are_explained() -> None:
    """A Kernel, a Gpu, torch's dtype and numpy's numbers mean the same as their names."""
    named = occupancy_lab.explain(781, **AS_TEXT).records[0]
    found = occupancy_lab.explain(np.int64(781), **ASKED, kernel=named.kernel).records[0]
    assert found == named
    own = occupancy_lab.explain(781, **ASKED, kernel=own_kernel())
    assert own.records[0].resources == named.resources
    assert own.records[0].prediction == named.prediction
    assert repr(own) == "<Explanation of own on h100: 1 of 1 compile and fit>"
    assert str(own) == own.to_markdown()
    assert "`occupancy_lab.tune(kernel=KERNEL, cols=781, dtype='float16', gpu='h100')`" in str(own)
    assert "the tutorial's" not in str(own)
    assert json.loads(own.to_json())["records"][0]["kernel"] == "own"


def test_arguments_of_every_kind_are_swept_tuned_and_compared() -> None:
    """A sweep, a tuning and a comparison take the same arguments, including a user's Kernel."""
    asked = {**ASKED, "num_stages": np.array([1, 2])}
    table = occupancy_lab.sweep([np.int64(781)], **asked, kernel=own_kernel())
    named = occupancy_lab.sweep(781, **AS_TEXT, num_stages="1,2")
    assert (table["status"] == "ok").all()
    assert table.drop(columns="kernel").equals(named.drop(columns="kernel"))
    tuning = occupancy_lab.tune(781, **asked, kernel=[own_kernel(), "softmax_row"])
    assert set(tuning.table["kernel"]) == {"own", "softmax_row"}
    assert repr(tuning) == "<Tuning: 4096 x 781 float16 on H100 SXM>"
    comparison = occupancy_lab.compare(781, **asked, kernel=own_kernel())
    assert [one.config.num_stages for one in comparison.records] == [1, 2]
    assert "1674" not in repr(comparison)


OTHER = "0.0"


@pytest.fixture(autouse=True)
def _another_triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Provide a Python whose Triton claims to be 0.0, and is the one of the tests."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    other = environment.Environment(str(python), OTHER)
    monkeypatch.setattr(environment, "triton_python", lambda _version: str(python))
    monkeypatch.setattr(environment, "_ask", lambda _python, _wanted: other.triton)


def test_another_triton_explains_sweeps_and_tunes() -> None:
    """Every row and page names the other Triton that compiled it, and so do commands."""
    explanation = occupancy_lab.explain(781, gpu="h100,mi300x", triton=OTHER)
    assert {one.triton_version for one in explanation.records} == {OTHER}
    text = explanation.to_markdown()
    assert f"{explanation.records[0].resources.n_regs} per thread (Triton 0.0)" in text
    assert "--gpu mi300x --triton 0.0` ranks other launches" in text
    table = occupancy_lab.sweep(
        781, gpu="h100", num_warps=(4, 8), num_stages=(1, 4), triton=OTHER, jobs=1
    )
    here = occupancy_lab.sweep(781, gpu="h100", num_warps=(4, 8), num_stages=(1, 4))
    assert set(table["triton_version"]) == {OTHER}
    assert table.drop(columns="triton_version").equals(here.drop(columns="triton_version"))
    tuning = occupancy_lab.tune(781, gpu="h100", num_warps=8, num_stages="1,2", triton=OTHER)
    assert "Compiled with Triton 0.0." in str(tuning)


def test_unknown_name_is_an_attribute_error() -> None:
    """A missing name fails as in any module."""
    with pytest.raises(AttributeError, match="nonsense"):
        occupancy_lab.nonsense  # noqa: B018 - looking is the test


def test_version_is_the_projects() -> None:
    """The module has the version of the distribution."""
    assert occupancy_lab.__version__ == importlib.metadata.version("occupancy-lab")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of a clean copy, in which no older build has left anything."""
    copy, wheels = tmp_path_factory.mktemp("copy") / "lab", tmp_path_factory.mktemp("wheels")
    leave = shutil.ignore_patterns(
        ".*", "__pycache__", "node_modules", "*.egg-info", "build", "dist", "tests"
    )
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
            *("measured-h200.csv", "measured-h100.csv"),
            *("providers-h200.csv", "providers-h100.csv"),
        )
    }
    exploring = {
        str(file.relative_to(ROOT)) for file in (PAGE / "kernels.json", *(PAGE / "page").iterdir())
    }
    assert others == {"occupancy_lab/py.typed"} | tables | recorded | exploring


def test_wheel_works_where_it_alone_is_installed(wheel: Path, tmp_path: Path) -> None:
    """With its dependencies, the wheel answers and needs nothing of this folder."""
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
    run(tool, "explore", "--output", "explore.html")
    assert (tmp_path / "explore.html").read_bytes() == (ROOT / "reports/explore.html").read_bytes()
    assert run(tool, "explain", "--cols", "781", "--gpu", "h100,h200", "--format", "markdown")
