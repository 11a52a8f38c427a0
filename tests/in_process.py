"""The tool in the test's own process, which saves starting Python and importing."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from unittest import mock

import pytest
from stand_ins import values_of

from occupancy_lab.cli import NAME, main

SECONDS = 120
"""Seconds that one command line may take."""


def run(*words: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Return the exit status, the standard output and the standard error of a command line.

    *text* is its standard input, and *environment* is added to the environment.
    """
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(text.encode()))
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "stdin", given),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as raised,
    ):
        main(list(words))
    status = int(raised.value.code or 0)
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def refused(*words: str) -> str:
    """Return the only sentence of a command line that is refused with exit 2."""
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def check_answered(words: Sequence[str], done: subprocess.CompletedProcess[str]) -> None:
    """Check that a command line answers, or exits with 2 and one sentence that is no accident.

    It may also exit with 1 if nothing that was asked for compiles and fits. The output of --json
    must be strict JSON.
    """
    status, out, err = done.returncode, done.stdout, done.stderr
    assert status in {0, 1, 2}
    assert "Traceback" not in err
    if status == 2 or (status == 1 and err and not out):
        # The rows of a sweep are printed even if a file cannot be written.
        assert out == "" or (words[0] == "sweep" and "cannot be written" in err)
        assert err.startswith(f"{NAME}: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert "--debug shows where" not in err, err
        assert len(err) < 1000
        return
    assert out or "--output" in words
    assert not err or status == 1
    asks_help = {"--help", "-h", "--version", "--words"} & {*words}
    if out and ("--json" in words or "json" in words) and not asks_help:
        values_of(out)
