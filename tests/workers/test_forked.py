"""A call in a fork answers, dies or hangs without affecting this process."""

import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from processes import is_running

from occupancy_lab.workers.forked import in_forks


def in_fork(call: Callable[[], str], timeout: float) -> tuple[str | None, str]:
    """Return the answer of one call."""
    ((_, answer),) = in_forks({"call": call}, 1, timeout)
    return answer


def test_a_call_answers() -> None:
    """A call's result comes back, whatever its length."""
    assert in_fork(lambda: "x" * 200_000, 60) == ("x" * 200_000, "")


def test_a_call_that_dies_leaves_its_last_words() -> None:
    """An abort or an exception ends only the fork, with its last line."""

    def aborting() -> str:
        os.write(2, b"LLVM ERROR: no register\n")
        os.abort()

    answer, words = in_fork(aborting, 60)
    assert answer == ""
    assert words.startswith("LLVM ERROR: no register")  # and the signal, if it is known in time
    assert in_fork(lambda: str({}["key"]), 60) == ("", "KeyError: 'key'")


def test_a_part_of_an_answer_is_none() -> None:
    """A fork that dies while answering has died; others answer."""
    streams = {"0", "1", "2"}

    def partly() -> str:
        for name in {one.name for one in Path("/proc/self/fd").iterdir()} - streams:
            with contextlib.suppress(OSError):  # those that only read, and the list's own
                if stat.S_ISFIFO(os.fstat(int(name)).st_mode):
                    os.write(int(name), "caf\u00e9".encode()[:-1])
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    calls: dict[str, Callable[[], str]] = {"one": partly, "two": lambda: "caf\u00e9"}
    found = dict(in_forks(calls, 1, 60))
    assert found["one"][0] == ""
    assert found["two"] == ("caf\u00e9", "")


def test_a_call_that_hangs_is_ended(tmp_path: Path) -> None:
    """A hanging fork is killed, and its answer is None."""
    pid = tmp_path / "pid"

    def hanging() -> str:
        pid.write_text(str(os.getpid()), encoding="utf-8")
        time.sleep(600)
        return ""

    assert in_fork(hanging, 2) == (None, "")
    assert not is_running(pid.read_text(encoding="utf-8"))


def test_calls_are_made_together(tmp_path: Path) -> None:
    """Two calls that wait for each other both answer."""

    def meeting(own: str, other: str) -> str:
        (tmp_path / own).touch()
        while not (tmp_path / other).exists():
            time.sleep(0.01)
        return own

    calls: dict[str, Callable[[], str]] = {
        "one": lambda: meeting("one", "two"),
        "two": lambda: meeting("two", "one"),
    }
    assert dict(in_forks(calls, 2, 60)) == {"one": ("one", ""), "two": ("two", "")}
    many = {str(number): partial(str, number) for number in range(20)}
    assert dict(in_forks(many, 3, 60)) == {name: (name, "") for name in many}


def test_no_fork_outlives_who_asked(tmp_path: Path) -> None:
    """Running forks are ended when their answers are no longer wanted."""

    def waiting() -> str:
        (tmp_path / str(os.getpid())).touch()
        time.sleep(600)
        return ""

    answers = in_forks({"late": waiting, "soon": lambda: "now"}, 2, 60)
    assert next(answers) == ("soon", ("now", ""))
    while not list(tmp_path.iterdir()):
        time.sleep(0.01)
    answers.close()
    assert not any(is_running(path.name) for path in tmp_path.iterdir())
