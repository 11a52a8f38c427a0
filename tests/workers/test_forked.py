"""A call in a fork answers, dies or hangs without the process that made it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from processes import is_running

from occupancy_lab.workers.forked import in_fork

if TYPE_CHECKING:
    from pathlib import Path


def test_a_call_answers() -> None:
    """What the call returns comes back, whatever its length."""
    assert in_fork(lambda: "x" * 200_000, 60) == ("x" * 200_000, "")


def test_a_call_that_dies_leaves_its_last_words() -> None:
    """An abort or an exception ends the fork alone, and its last line is told."""

    def aborting() -> str:
        os.write(2, b"LLVM ERROR: no register\n")
        os.abort()

    assert in_fork(aborting, 60) == ("", "LLVM ERROR: no register")
    assert in_fork(lambda: str({}["key"]), 60) == ("", "KeyError: 'key'")


def test_a_call_that_hangs_is_ended(tmp_path: Path) -> None:
    """After its time the fork is killed, and None tells that."""
    pid = tmp_path / "pid"

    def hanging() -> str:
        pid.write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(600)
        return ""

    assert in_fork(hanging, 2) == (None, "")
    assert not is_running(pid.read_text(encoding="utf-8"))
