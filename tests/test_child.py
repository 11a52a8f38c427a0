"""A child process: it answers, is timed out, dies and comes back, and ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from occupancy_lab.child import Child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVER = """
import os
import time

from occupancy_lab.child import serve


def answer(line):
    word = line.strip()
    if word == "die":
        os._exit(3)
    if word == "sleep":
        time.sleep(600)
    if word == "print":
        print("this is no answer")
    return {"pid": str(os.getpid()), "where": os.environ["WHERE"]}.get(word, word.upper())


def main():
    serve(answer)
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    """A child that answers in capitals, and is gone after the test."""
    (tmp_path / "capitals.py").write_text(SERVER)
    child = Child("capitals", environment={"PYTHONPATH": str(tmp_path), "WHERE": "far away"})
    yield child
    child.close()


def gone(pid: int) -> bool:
    """Whether the process is no more, within 30 s."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_lines_are_answered_by_one_process(child: Child) -> None:
    """Every line gets its answer, from a process that is started once."""
    assert child.ask("hello") == "HELLO\n"
    assert child.ask("pid") == child.ask("pid") != f"{os.getpid()}\n"
    assert child.ask("") == "\n"


def test_environment_is_added(child: Child) -> None:
    """The child has the environment that it was given."""
    assert child.ask("where") == "far away\n"


def test_what_is_printed_is_no_answer(child: Child) -> None:
    """A server that prints does not answer with it."""
    assert child.ask("print") == "PRINT\n"


def test_timeout_kills_and_the_next_question_works(child: Child) -> None:
    """An answer that takes too long is None at its limit; the next has a fresh process."""
    pid = child.ask("pid")
    start = time.monotonic()
    assert child.ask("sleep", 0.5) is None
    assert time.monotonic() - start < 30
    assert gone(int(pid or 0))
    assert child.ask("pid") not in {pid, "", None}


def test_dead_process_gives_nothing_and_is_replaced(child: Child) -> None:
    """A question that its process dies of has the answer ""; the next has a fresh process."""
    pid = child.ask("pid")
    assert child.ask("die") == ""
    assert child.ask("pid") not in {pid, "", None}


def test_killed_between_questions(child: Child) -> None:
    """A process that was killed while idle gives one "", and the next question an answer."""
    pid = int(child.ask("pid") or 0)
    os.kill(pid, signal.SIGKILL)
    assert child.ask("hello") == ""
    assert child.ask("hello") == "HELLO\n"


def test_close_ends_the_middle_of_an_answer(child: Child) -> None:
    """Closed from another thread, a child that is busy is gone, and it says that it is closed."""
    pid = int(child.ask("pid") or 0)
    threading.Timer(0.3, child.close).start()
    assert child.ask("sleep", 60) == ""
    assert child.closed
    assert gone(pid)


def test_server_that_cannot_start_gives_nothing() -> None:
    """A module that is not there is a process that dies."""
    child = Child("no_such_module")
    assert child.ask("hello", 60) == ""


def test_child_ends_with_its_parent(tmp_path: Path) -> None:
    """No child outlives the process that asked for it, even one that was killed in the middle."""
    (tmp_path / "capitals.py").write_text(SERVER)
    code = (
        "from occupancy_lab.child import Child\n"
        f"child = Child('capitals', environment={{'PYTHONPATH': {str(tmp_path)!r}, 'WHERE': ''}})\n"
        "print(child.ask('pid'), flush=True)\n"
        "child.ask('sleep')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        pid = int(one.stdout.readline())
        one.kill()
    assert gone(pid)
