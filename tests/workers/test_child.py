"""A child process answers, is timed out, dies, is restarted, and ends with its parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from occupancy_lab.workers.child import Child, command

SERVER = r"""
import contextlib
import os
import subprocess
import tempfile
import time

from occupancy_lab.workers.child import serve
from occupancy_lab.workers.child import captured


def answer(line):
    word = line.strip()
    if word == "die":
        os._exit(3)
    if word == "sleep":
        time.sleep(600)
    if word == "print":
        print("this is no answer")
    if word == "abort":
        os.abort()
    if word == "complain":
        os.write(2, b"first\n\nit does not work\n")
        os._exit(3)
    if word == "raise":
        raise ValueError("this is the reason")
    if word == "llvm":
        with captured():
            os.write(2, b"warning: a\nLLVM ERROR: no register\nStack dump:\n#0 0x1\n")
            os._exit(1)
    if word == "half":
        for descriptor in range(3, 20):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"no end")
        time.sleep(600)
    if word == "start":
        started = subprocess.Popen(["/bin/sleep", "600"])
        return f"{started.pid} {tempfile.gettempdir()}"
    return {"pid": str(os.getpid()), "where": os.environ["WHERE"]}.get(word, word.upper())


def main():
    serve(answer)
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    """Return a child that answers in capitals, and ends with the test."""
    (tmp_path / "capitals.py").write_text(SERVER)
    child = Child("capitals", environment={"PYTHONPATH": str(tmp_path), "WHERE": "far away"})
    yield child
    child.close()


def pid_of(child: Child) -> int:
    """Return the pid of the child's process, or None if it does not answer."""
    return int(child.ask("pid") or "none")


def gone(pid: int) -> bool:
    """Return whether the process ends within 30 s."""
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


def test_what_is_printed_is_no_answer(child: Child) -> None:
    """Printed output of a server is not an answer."""
    assert child.ask("print") == "PRINT\n"


def test_timeout_kills_and_the_next_question_works(child: Child) -> None:
    """A late answer is None; the next question has a new process."""
    pid = pid_of(child)
    start = time.monotonic()
    assert child.ask("sleep", 0.5) is None
    assert time.monotonic() - start < 30
    assert gone(pid)
    assert pid_of(child) != pid


def test_killed_between_questions(child: Child) -> None:
    """An idle process that was killed gives one "", then the next is answered."""
    pid = pid_of(child)
    os.kill(pid, signal.SIGKILL)
    assert child.ask("hello") == ""
    assert child.ask("hello") == "HELLO\n"


def test_close_ends_the_middle_of_an_answer(child: Child) -> None:
    """Closing from another thread ends a busy child."""
    pid = pid_of(child)
    threading.Timer(0.3, child.close).start()
    assert child.ask("sleep", 60) == ""
    assert child.closed
    assert gone(pid)


def test_close_ends_a_process_that_is_being_started(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that starts while its child is closed answers nothing."""

    class Slow(subprocess.Popen):  # type: ignore[type-arg] # of bytes
        def __init__(self, *arguments: object, **options: object) -> None:
            child.closed = True
            super().__init__(*arguments, **options)  # type: ignore[call-overload] # as they came

    monkeypatch.setattr(subprocess, "Popen", Slow)
    assert child.ask("sleep", 60) == ""


def test_server_that_cannot_start_gives_nothing() -> None:
    """A missing module is a process that dies."""
    child = Child("no_such_module")
    assert child.ask("hello", 60) == ""


def test_working_directory_is_not_searched(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module in the working directory is not imported."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "queue.py").write_text("raise SystemExit('this is no queue')\n")
    (tmp_path / "here" / "capitals.py").write_text("raise SystemExit('these are no capitals')\n")
    monkeypatch.chdir(tmp_path / "here")
    assert child.ask("hello") == "HELLO\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("die", "exit status 3"),
        ("abort", "Aborted"),
        ("complain", "it does not work"),
        ("raise", "ValueError: this is the reason"),
        ("llvm", "LLVM ERROR: no register"),
    ],
)
def test_last_words_are_kept(child: Child, line: str, words: str) -> None:
    """A died process leaves its last line, or how it ended."""
    assert child.ask(line) == ""
    assert child.last_words == words
    assert child.ask("hello") == "HELLO\n"


def test_answer_without_an_end_is_timed_out(child: Child) -> None:
    """An unfinished line is no answer at the time limit."""
    start = time.monotonic()
    assert child.ask("half", 1) is None
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("timeout", [3e6, 1e12, 1e300, float("inf")])
def test_limits_of_weeks_are_waited_for_in_parts(child: Child, timeout: float) -> None:
    """Limits longer than the system can wait at once work."""
    assert child.ask("hello", timeout) == "HELLO\n"


def test_process_that_is_never_ready_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter that hangs before serving counts as died."""
    monkeypatch.setattr("occupancy_lab.workers.child.START_TIMEOUT", 0.5)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 600\n")
    python.chmod(0o755)
    child = Child("capitals", python=str(python))
    assert child.ask("hello") == ""
    assert "not ready within 0.5 s" in child.last_words


@pytest.mark.parametrize("how", ["timeout", "close", "death"])
def test_all_that_a_process_started_ends_with_it(child: Child, how: str) -> None:
    """A child's own children and files are removed with it."""
    pid, folder = (child.ask("start") or "").split()
    assert os.path.isdir(folder)  # noqa: PTH112 - a text from another process
    if how == "timeout":
        child.ask("sleep", 0.1)
    elif how == "close":
        child.close()
    else:
        child.ask("die")
    assert gone(int(pid))
    assert not os.path.exists(folder)  # noqa: PTH110 - the same


def test_bytes_that_are_no_text_are_a_line_too(tmp_path: Path) -> None:
    """A child answers input that is not UTF-8, and ends with its input."""
    (tmp_path / "capitals.py").write_text(SERVER)
    with subprocess.Popen(
        command("capitals"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "WHERE": ""},
    ) as process:
        assert process.stdout is not None
        process.stdin.write(b"\xff\xfe\nhello\n")
        process.stdin.flush()
        answers = [process.stdout.readline() for _ in range(3)]
        process.stdin.close()
        assert process.wait(60) == 0
    assert answers == [b"ready\n", "\ufffd\ufffd\n".encode(), b"HELLO\n"]


def test_nothing_of_a_killed_parent_is_left(tmp_path: Path) -> None:
    """If the parent is killed, the child, its children and its files are gone."""
    (tmp_path / "capitals.py").write_text(SERVER)
    code = (
        "from occupancy_lab.workers.child import Child\n"
        f"child = Child('capitals', environment={{'PYTHONPATH': {str(tmp_path)!r}, 'WHERE': ''}})\n"
        "print(child.ask('pid').strip(), child.ask('start').strip(), flush=True)\n"
        "child.ask('sleep')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as one:
        *pids, folder = one.stdout.readline().split()
        one.kill()
    assert all(gone(int(pid)) for pid in pids)
    end = time.monotonic() + 30
    while os.path.exists(folder):  # noqa: PTH110 - a text from another process
        assert time.monotonic() < end
        time.sleep(0.05)


def test_no_child_outlives_a_parent_that_never_asked_on(tmp_path: Path) -> None:
    """A parent killed before its child is ready leaves nothing."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\n" + SERVER)
    code = (
        "import os, threading, time\n"
        "from occupancy_lab.workers.child import Child\n"
        f"child = Child('slow', environment={{'PYTHONPATH': {str(tmp_path)!r}, 'WHERE': ''}})\n"
        "threading.Thread(target=child.ask, args=('pid',), daemon=True).start()\n"
        "while child._process is None: time.sleep(0.01)\n"
        "print(child._process.pid, child._process.folder, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid, folder = done.stdout.split()
    assert gone(int(pid))
    assert not os.path.exists(folder)  # noqa: PTH110 - a text from another process
