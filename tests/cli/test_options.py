"""What is refused of a command's options: what would be ignored, and what has no meaning."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from occupancy_lab.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str) -> int:
    """Run the tool in this process and give its exit status."""
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    return int(exit_.value.code or 0)


REFUSED = {
    "occupancy --points x.csv --n-regs 32": "--n-regs would be ignored beside --points",
    "occupancy --points x.csv --target h100": "--gpu would be ignored beside --points",
    "occupancy --points x.csv --static-shared 0": "--static-shared would be ignored beside",
    "sweep --cols 781 --devices all": "--devices would be ignored without --measure",
    "sweep --cols 781 --runs 5": "--runs would be ignored without --measure",
    "sweep --cols 781 --jobs 2 --scheduler tcp://x:1": "--jobs would be ignored beside --scheduler",
    "sweep --cols 781 --csv --json": "--csv and --json contradict each other",
    "tune --cols 781 --runs 5": "--runs would be ignored without --measure",
    "tune --cols 781 --top 3 --json": "--top would be ignored beside --json without --measure",
    "tune --cols 781 --gpu h100 --gpu h200": "--gpu is given 2 times, and only one of them counts",
    "report --gpu h100 --gpu h200": "--gpu is given 2 times, and only one of them counts",
    "explain --cols 781 --cols 782": "--cols is given 2 times, and only one of them counts",
    "explain --cols 781 --json --format markdown": "--format would be ignored beside --json",
    "compare --cols 781 --json --format json": "--format would be ignored beside --json",
    "evaluate --kernel kernel.py": "--kernel would be ignored without --file",
    "verify --ncu --no-ncu": "--ncu is given 2 times, and only one of them counts",
    "sweep --cols ''": "--cols is empty; give a value, or leave it out",
    "sweep --cols 781 --num-warps ''": "--num-warps is empty",
    "explain --cols 781 --gpu ''": "--gpu is empty",
    "explain --cols 781 --gpu h100 --gpu ''": "--gpu is empty",
    "explain --cols 781 --kernel ''": "--kernel is empty",
    "gpus ''": "names is empty",
    "sweep --cols 781 --compile-timeout nan": "nan",
    "sweep --cols 781 --compile-timeout inf": "inf",
    "sweep --cols 781 --compile-timeout 0": "0",
    "sweep --cols 781 --top 0": "--top",
    "evaluate --max-median nan": "'nan' is not a number",
    "evaluate --file /dev/zero": "'/dev/zero' is not a regular file",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_would_be_ignored_is_refused(
    command: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An option without effect, twice, against another or empty is refused by its name."""
    (tmp_path / "x.csv").write_text("target,n_regs,shared,num_warps\nsm_90,32,0,8\n")
    monkeypatch.chdir(tmp_path)
    assert run(*(word.replace("''", "") for word in command.split())) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert REFUSED[command] in captured.err


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
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A named pipe, whose other end may never be opened, is no file to read or to write."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    assert run(*arguments) == 2
    assert "'pipe' is not a regular file" in capsys.readouterr().err


def test_a_pipe_that_is_open_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    """The pipe that a shell makes of <(command) is a file of points."""
    reading, writing = os.pipe()
    os.write(writing, b"target,n_regs,shared,num_warps\nsm_90,32,0,8\n")
    os.close(writing)
    assert run("occupancy", "--points", f"/dev/fd/{reading}") == 0
    os.close(reading)
    assert "sm_90,32,0,8" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["occupancy", "sweep --cols '' --cols 1 --csv --json", "gpus"])
def test_help_is_given_whatever_stands_beside_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """--help is answered where the other options would be refused."""
    assert run(*(word.replace("''", "") for word in command.split()), "--help") == 0
    assert capsys.readouterr().out.startswith("Usage:")


def test_nothing_asked_for_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The bare command prints its help."""
    assert run() == 0
    assert "sweep" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["--debug explain --cols 0", "explain --cols 0 --debug"])
def test_debug_works_anywhere(command: str) -> None:
    """--debug raises the error itself, before the command as after its options."""
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
def test_an_input_is_quoted_shortly(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A message quotes 40 characters of what was typed, and marks that there were more."""
    assert run(*arguments) == 2
    message = capsys.readouterr().err
    assert "…" in message
    assert message.count("9") <= 21
    assert len(message) < 300
