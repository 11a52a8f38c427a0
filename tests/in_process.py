"""The tool in the test's own process: a command line costs no start of Python and of imports."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from unittest import mock

import pytest

from occupancy_lab.cli import main


def run(*words: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Return the exit status, the standard output and the standard error of a command line.

    *text* is its standard input, and *environment* comes on top of the environment.
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
