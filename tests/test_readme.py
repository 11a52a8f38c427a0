"""The README: every command in it runs, and what it shows is what the tool prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import readme

from occupancy_lab.compiling import triton_version

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("name", readme.PARTS)
def test_numbers_are_what_the_script_writes(name: str) -> None:
    """Each part of the README that holds numbers is what its script makes of the tool and data."""
    if name in readme.COMPILED and triton_version() != readme.SHOWN_WITH:
        pytest.skip(f"made with Triton {readme.SHOWN_WITH}")
    assert readme.fill(README, name) == README


def test_script_overwrites_what_was_typed() -> None:
    """A number that somebody changes by hand is made right again."""
    typed = README.replace("median error 4", "median error 1")
    assert typed != README
    assert readme.fill(typed, "checks") == README


def test_no_time_or_share_is_typed() -> None:
    """Times, bandwidths, sizes and shares stand in the parts that the script makes alone."""
    parts = r"<!-- (\w+): python reports/readme.py -->.*?<!-- end of \1 -->"
    by_hand = re.sub(parts, "", README, flags=re.DOTALL)
    assert not re.findall(r"[0-9] ?(?:us|MB|GB|GB/s|%)(?!\w)", by_hand)
