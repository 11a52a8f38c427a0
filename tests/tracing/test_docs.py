"""docs/trace.md: its commands run, and its consoles show what they print."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from runner import shell

from occupancy_lab.compiling import triton_version

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trace.md"
TEXT = PAGE.read_text("utf-8")
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


@pytest.mark.slow
def test_consoles_show_what_the_tool_prints(folder: Path, request: pytest.FixtureRequest) -> None:
    """Each console block is its command and what it prints; --update-golden writes it anew."""
    if triton_version() != "3.7.1":
        pytest.skip("made with Triton 3.7.1")

    def shown(block: re.Match[str]) -> str:
        command = block[1].partition("\n")[0].removeprefix("$ ")
        done = shell(command, folder)
        assert (done.returncode, done.stderr) == (0, "")
        return f"```console\n$ {command}\n{done.stdout.rstrip()}\n```"

    page = CONSOLE.sub(shown, TEXT)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8")
    assert page == PAGE.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("command", re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))
def test_commands_run(folder: Path, command: str) -> None:
    """Each command of a block runs, and says nothing of errors."""
    done = shell(command, folder)
    assert (done.returncode, done.stderr) == (0, "")
