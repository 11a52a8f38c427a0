"""The README: every command in it runs, and what it shows is what the tool prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from occupancy_lab.compiling import triton_version

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN_WITH = "3.7.1"
"""The Triton that made the output in the README; other versions give other registers."""


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    """Return every shell command."""
    return [line for block in blocks("sh") for line in block.splitlines()]


def shell(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would, with the tool on the PATH and no GPU at hand."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": places, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80"}
    environment |= variables
    return subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", [line for line in commands() if "occupancy-lab" in line])
def test_command_runs(command: str) -> None:
    """Each occupancy-lab command of the README runs and prints something."""
    done = shell(command)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", "".join(blocks("bash")).splitlines())
def test_command_that_launches_asks_for_a_gpu(command: str) -> None:
    """What the README runs on a GPU is understood without one, and one sentence says so."""
    done = shell(command)
    assert done.returncode == 2
    assert "GPU" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith("make")])
def test_make_target_exists(command: str) -> None:
    """Each make command of the README is a target; the tests themselves run inside one."""
    done = shell(f"{command} --dry-run")
    assert done.returncode == 0, done.stderr


def test_every_command_is_run() -> None:
    """No command of the README is left out by the two tests above."""
    assert all("occupancy-lab" in line or line.startswith("make") for line in commands())


def test_python_example_runs() -> None:
    """The Python example runs as it stands."""
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\n") == 2


@pytest.mark.skipif(triton_version() != SHOWN_WITH, reason=f"shown with Triton {SHOWN_WITH}")
def test_shown_output_is_printed(tmp_path: Path) -> None:
    """Each passage of output in the README is one of what the tool prints with an empty store."""
    (console,) = blocks("console")
    command, _, shown = console.removeprefix("$ ").partition("\n")
    printed = shell(command, OCCUPANCY_LAB_CACHE_DIR=str(tmp_path)).stdout
    for passage in shown.split("...\n"):
        assert passage.strip("\n") in printed


def test_accuracy_is_what_evaluate_says() -> None:
    """The sentence on the held-out shapes is the one that `evaluate` prints today."""
    from occupancy_lab.evaluating.evaluation import run

    evaluation, _ = run(uses=("held out",))
    said = next(line for line in evaluation.to_markdown().splitlines() if line.startswith("- "))
    quoted = " ".join(README.replace("  > ", " ").split())
    assert said.removeprefix("- ") in quoted
