"""docs/check.md: what it shows is what the tool prints, and its workflow runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from occupancy_lab.compiling import triton_version

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "check.md"
TEXT = PAGE.read_text(encoding="utf-8")
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
KERNEL = '''"""A softmax of rows that a program holds whole."""

import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 4096}, num_warps=8)], key=["n_cols"])
@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, x / tl.sum(x, axis=0), mask=cols < n_cols)
'''
pytestmark = pytest.mark.slow


def shell(
    command: str, folder: Path, flags: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in *folder* as a reader would, with the tool on the PATH and no GPU at hand."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": places, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80"}
    return subprocess.run(
        ["/bin/bash", *flags.split(), "-c", command],
        cwd=folder,
        env=environment | {"GITHUB_ACTIONS": ""} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def commands(block: str) -> list[str]:
    """Return the commands of a block: lines with a prompt, and those that they go on in."""
    return re.findall(r"^\$ ((?:.*[\\|]\n)*.*)", block, re.MULTILINE)


def test_consoles_show_what_the_tool_prints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each console block is its commands and what they print; --update-golden writes it anew."""
    if triton_version() != "3.7.1":
        pytest.skip("made with Triton 3.7.1")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    script = ""

    def shown(block: re.Match[str]) -> str:
        nonlocal script
        asked = commands(block[1])
        before = f"{script}\n" if script else ""
        done = shell(f"{{ {before}:; }} > /dev/null\n" + "\n".join(asked), tmp_path)
        script = "\n".join(one for one in asked if "=" in one.partition(" ")[0])
        assert not done.stderr
        lines = "".join(f"$ {one}\n" for one in asked)
        return f"```console\n{lines}{done.stdout.rstrip()}\n```"

    page = CONSOLE.sub(shown, TEXT)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8")
    assert page == PAGE.read_text("utf-8")


def test_the_example_in_python_runs() -> None:
    """The example prints the status, the advice and the words of a change."""
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first == (
        "1 Another launch meets it: num_warps 8 instead of 4, compiled: occupancy is 0.75; which is"
        " faster is not known here."
    )
    assert second.startswith("80 registers instead of 72: 6 programs per SM instead of 7")


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL))
def test_the_workflow_runs(block: str, tmp_path: Path) -> None:
    """Each command of ours in a workflow runs as GitHub runs it, and the gate passes."""
    workflow = yaml.safe_load(block)
    for place in (tmp_path, tmp_path / "base"):
        (place / "kernels").mkdir(parents=True)
        (place / "kernels" / "rows.py").write_text(KERNEL, encoding="utf-8")
    checks = "[tool.occupancy-lab.checks]\nno-spills = 'local_bytes == 0'\n"
    (tmp_path / "pyproject.toml").write_text(checks, encoding="utf-8")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    ours = [
        step["run"] for step in steps if re.match("(?s).*occupancy-lab (?!$)", step.get("run", ""))
    ]
    ours = [one for one in ours if not one.startswith("pip install")]
    assert len(ours) >= 2
    variables = {
        **workflow.get("env", {}),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_ACTIONS": "true",
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
        "OCCUPANCY_LAB_CACHE_DIR": str(tmp_path / "store"),
    }
    for one in ours:
        done = shell(one, tmp_path, "-e -o pipefail", **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "::error" not in done.stderr
