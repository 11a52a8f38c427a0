"""Options that are refused: those without effect, and meaningless values."""

import os
from pathlib import Path

import pytest
from in_process import refused, run

from occupancy_lab.cli import main


@pytest.mark.parametrize(
    "arguments",
    [
        ("occupancy", "--points", "pipe"),
        ("evaluate", "--file", "pipe"),
        ("report", "--file", "pipe"),
        ("report", "--output", "pipe"),
        ("sweep", "--cols", "781", "--export-csv", "pipe"),
    ],
)
def test_named_pipes_are_refused(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named pipe, which may never be opened, is refused for reading and writing."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    assert "'pipe' is not a regular file" in refused(*arguments)


def test_a_pipe_that_is_open_is_read() -> None:
    """The open pipe of a shell's <(command) is read as a file of points."""
    reading, writing = os.pipe()
    os.write(writing, b"target,n_regs,shared,num_warps\nsm_90,32,0,8\n")
    os.close(writing)
    done = run("occupancy", "--points", f"/dev/fd/{reading}")
    os.close(reading)
    assert done.returncode == 0
    assert "sm_90,32,0,8" in done.stdout


@pytest.mark.parametrize("command", ["occupancy", "sweep --cols '' --cols 1 --csv --json", "gpus"])
def test_help_is_given_whatever_stands_beside_it(command: str) -> None:
    """--help is answered even beside options that would be refused."""
    done = run(*(word.replace("''", "") for word in command.split()), "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage:")


def test_nothing_asked_for_is_the_help() -> None:
    """The command without arguments prints its help."""
    done = run()
    assert done.returncode == 0
    assert "sweep" in done.stdout


@pytest.mark.parametrize("command", ["--debug explain --cols 0", "explain --cols 0 --debug"])
def test_debug_works_anywhere(command: str) -> None:
    """--debug raises the error, before the command or after its options."""
    with pytest.raises(Exception, match="cols is 0"):
        main(command.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "--cols", "9x" * 99),
        ("explain", "--cols", "9 x" * 99),
        ("explain", "--cols", "9' x" * 99),
        ("explain", "--cols", "781", "--kernel", "9x" * 99),
        ("explain", "--cols", "781", "--dtype", "9x" * 99),
        ("explain", "--cols", "781", "--gpu", "9x" * 99),
        ("explain", "--cols", "781", "--gpu", ",9x" * 99),
        ("sweep", "--cols", "9x" * 99),
        ("occupancy", "--points", "9x" * 99),
        ("9x" * 99,),
        (f"--{'9x' * 99}",),
    ],
)
def test_an_input_is_quoted_shortly(arguments: tuple[str, ...]) -> None:
    """A message quotes at most 40 characters of the input, and marks the cut."""
    said = refused(*arguments)
    assert "…" in said
    assert said.count("9") <= 21
    assert len(said) < 300
