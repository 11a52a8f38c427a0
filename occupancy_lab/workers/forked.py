"""Calls and children in forks of this process, which may hang or die without affecting it."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

from occupancy_lab.workers.child import Child, distribute, serve

Name = TypeVar("Name")

ASKING = 0.01
"""Seconds between two checks whether a fork has ended."""


def in_forks(
    calls: Mapping[Name, Callable[[], str]], jobs: int, timeout: float | None
) -> Generator[tuple[Name, tuple[str | None, str]]]:
    """Make *calls* in *jobs* forks and yield each name with its answer, a line, and its last words.

    The answer is None after *timeout* s, and "" if the fork dies. However the caller ends, no fork
    is left behind.
    """
    made = [*calls.values()]

    def ask(child: Child, place: int) -> tuple[str | None, str]:
        answer = child.ask(str(place), timeout)
        if not answer:
            return answer, child.last_words
        return answer.removesuffix("\n"), ""

    main = partial(serve, lambda line: made[int(line)]())
    children = [ForkedChild(main) for _ in range(min(jobs, len(made)))]
    yield from distribute({name: place for place, name in enumerate(calls)}, children, ask)


class ForkedChild(Child):
    """A child that is a fork of this process, so that it need not repeat imports."""

    def __init__(self, main: Callable[[], None]) -> None:
        """Run *main*, which must end in `serve`.

        The fork is made at once, because it must not be made in the middle of a thread's import.
        """
        super().__init__("")
        self._main = main
        with contextlib.suppress(OSError, ValueError):
            self._start()

    def _open(self, folder: Path) -> _Served:
        return _Served(self._main, folder)


class _Served:
    """A fork that runs *main*, with the interface of subprocess.Popen."""

    def __init__(self, main: Callable[[], None], folder: Path) -> None:
        (asked, asking), (answers, answering), (words, saying) = (os.pipe() for _ in range(3))
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings(action="ignore"):  # the fork needs none of the threads
            self.pid = os.fork()
        if not self.pid:
            _serve(main, folder, (asked, answering, saying))
        for theirs in (asked, answering, saying):
            os.close(theirs)
        self.stdin = os.fdopen(asking, "wb")
        self.stdout = os.fdopen(answers, "rb", 0)
        self.stderr = os.fdopen(words, "rb", 0)
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while self._status is None:
            pid, status = os.waitpid(self.pid, 0 if timeout is None else os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= until:
                raise subprocess.TimeoutExpired([], timeout or 0.0)
            else:
                time.sleep(ASKING)
        return self._status


def _serve(main: Callable[[], None], folder: Path, streams: tuple[int, int, int]) -> NoReturn:
    """Run *main* in this fork with *streams* as its standard streams, and end the fork."""
    try:
        os.setsid()  # its children end with it, and Ctrl-C goes to the asking process
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # also the input of other children, to end them
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, 1, encoding="utf-8")  # noqa: PTH123, SIM115 - until it ends
            for number, mode in enumerate("rww")
        )
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # A handler that prints a stack may wait for the lock of a thread that is not in the fork.
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        folder.mkdir(0o700)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        main()
    except BaseException:  # noqa: BLE001 - the forking process reads any error
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        os._exit(1)
