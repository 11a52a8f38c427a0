"""docs/trace.md: its commands run, and its consoles show what they print."""

import os
import re
import shlex
import sys
from pathlib import Path

import in_process
import pytest

from occupancy_lab.compiling import triton_version

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trace.md"
TEXT = PAGE.read_text("utf-8")
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with the examples, where `python` is this one."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def printed(command: str) -> str:
    """Return the output of a command, which succeeds and prints no errors."""
    tool, *words = shlex.split(command)
    assert tool == "occupancy-lab"
    done = in_process.run(*words, CUDA_VISIBLE_DEVICES="", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_consoles_show_what_the_tool_prints(request: pytest.FixtureRequest) -> None:
    """Each console block has its command's output; --update-golden renews it."""
    if triton_version() != "3.7.1":
        pytest.skip("made with Triton 3.7.1")

    def shown(block: re.Match[str]) -> str:
        command = block[1].partition("\n")[0].removeprefix("$ ")
        return f"```console\n$ {command}\n{printed(command).rstrip()}\n```"

    page = CONSOLE.sub(shown, TEXT)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8")
    assert page == PAGE.read_text("utf-8")


@pytest.mark.parametrize("block", re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))
def test_commands_run(block: str) -> None:
    """Each command of a block runs and prints no errors."""
    for command in block.splitlines():
        printed(command)
