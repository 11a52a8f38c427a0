"""What is refused of a command's options: what would be ignored, and what has no meaning."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from in_process import run

from occupancy_lab.cli import main

if TYPE_CHECKING:
    from pathlib import Path


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
    "explain --cols 781 --json --format markdown": "--json and --format contradict each other",
    "compare --cols 781 --json --format json": "--json and --format contradict each other",
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
    "sweep --cols 781 --triton 3.6.0 --scheduler tcp://host:1": "--triton would be ignored",
    "sweep --cols 781 --triton 3.6.0 --retry-failed": "--retry-failed would be ignored",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_would_be_ignored_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option without effect, twice, against another or empty is refused by its name."""
    (tmp_path / "x.csv").write_text("target,n_regs,shared,num_warps\nsm_90,32,0,8\n")
    monkeypatch.chdir(tmp_path)
    done = run(*(word.replace("''", "") for word in command.split()))
    assert (done.returncode, done.stdout) == (2, "")
    assert REFUSED[command] in done.stderr


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
    """A named pipe, whose other end may never be opened, is no file to read or to write."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    done = run(*arguments)
    assert done.returncode == 2
    assert "'pipe' is not a regular file" in done.stderr


def test_a_pipe_that_is_open_is_read() -> None:
    """The pipe that a shell makes of <(command) is a file of points."""
    reading, writing = os.pipe()
    os.write(writing, b"target,n_regs,shared,num_warps\nsm_90,32,0,8\n")
    os.close(writing)
    done = run("occupancy", "--points", f"/dev/fd/{reading}")
    os.close(reading)
    assert done.returncode == 0
    assert "sm_90,32,0,8" in done.stdout


@pytest.mark.parametrize("command", ["occupancy", "sweep --cols '' --cols 1 --csv --json", "gpus"])
def test_help_is_given_whatever_stands_beside_it(command: str) -> None:
    """--help is answered where the other options would be refused."""
    done = run(*(word.replace("''", "") for word in command.split()), "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage:")


def test_nothing_asked_for_is_the_help() -> None:
    """The bare command prints its help."""
    done = run()
    assert done.returncode == 0
    assert "sweep" in done.stdout


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
def test_an_input_is_quoted_shortly(arguments: tuple[str, ...]) -> None:
    """A message quotes 40 characters of what was typed, and marks that there were more."""
    done = run(*arguments)
    assert done.returncode == 2
    assert "…" in done.stderr
    assert done.stderr.count("9") <= 21
    assert len(done.stderr) < 300
