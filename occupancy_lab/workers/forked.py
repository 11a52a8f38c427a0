"""Calls in forks of this process, which may hang or die without it."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from occupancy_lab.workers.child import PRINTED, last_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

Name = TypeVar("Name")

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux: what ends this process where the one that forked it ends."""

END = b"\n"
"""What follows an answer."""


@dataclass(frozen=True, slots=True)
class _Fork:
    """A fork that makes a call."""

    pid: int
    reading: int
    """The pipe that its answer comes through."""
    until: float
    """When its time is over."""
    printed: Path
    answer: bytearray = field(default_factory=bytearray)

    def end(self) -> str:
        """Kill it and all it started, and return the last line of what it printed."""
        os.close(self.reading)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        words = [last_line(path.read_bytes()) for path in self.printed.parent.glob(f"{PRINTED}*")]
        shutil.rmtree(self.printed.parent, ignore_errors=True)
        return next(filter(None, words), "")


def in_forks(
    calls: Mapping[Name, Callable[[], str]], jobs: int, timeout: float | None
) -> Generator[tuple[Name, tuple[str | None, str]]]:
    """Make *calls* in forks of this process, *jobs* at a time, and give each name with its answer.

    The answer is what the call returns, and ""; "" where the fork died, and the last line that it
    printed; None where it took more than *timeout* seconds, and "". However the caller ends, no
    fork is left behind.
    """
    waiting = list(calls.items())[::-1]
    with selectors.DefaultSelector() as selector:
        running = selector.get_map()
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    name, call = waiting.pop()
                    fork = _start(call, timeout)
                    selector.register(fork.reading, selectors.EVENT_READ, (name, fork))
                for name, fork, answer in _ended(selector):
                    selector.unregister(fork.reading)
                    words = fork.end()
                    yield name, (answer, "" if answer or answer is None else words)
        finally:
            for key in running.values():
                key.data[1].end()


def _ended(
    selector: selectors.BaseSelector,
) -> list[tuple[Any, _Fork, str | None]]:
    """Wait, and return the forks that have ended or whose time is over, with their answers."""
    running = [key.data for key in selector.get_map().values()]
    left = min(fork.until for _, fork in running) - time.monotonic()
    ready = selector.select(None if left == math.inf else max(left, 0))
    ended = []
    for key, _ in ready:
        name, fork = key.data
        part = os.read(fork.reading, 1 << 16)
        fork.answer.extend(part)
        if not part:  # an answer without its end is that of a fork that died writing it
            whole = fork.answer.endswith(END)
            ended.append((name, fork, fork.answer[: -len(END)].decode() if whole else ""))
    late = [] if ready else [(*data, None) for data in running if data[1].until <= time.monotonic()]
    return ended + late


def _start(call: Callable[[], str], timeout: float | None) -> _Fork:
    reading, writing = os.pipe()
    printed = Path(tempfile.mkdtemp()) / f"{PRINTED}fork"
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings(action="ignore"):  # of threads, none of which the call needs
        pid = os.fork()
    if not pid:
        _answer(call, writing, printed)
    os.close(writing)
    until = math.inf if timeout is None else time.monotonic() + timeout
    return _Fork(pid, reading, until, printed)


def _answer(call: Callable[[], str], writing: int, printed: Path) -> NoReturn:
    """Write what *call* returns in this fork, and end it."""
    try:
        os.setsid()  # what it starts ends with it
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        tempfile.tempdir = str(printed.parent)  # where `captured` keeps what is printed
        words = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(words, 1)
        os.dup2(words, 2)
        with open(writing, "w", encoding="utf-8") as pipe:  # the answer ends where it is closed
            try:
                pipe.write(call() + END.decode())
            except BaseException as error:  # noqa: BLE001 - the process that forked is told
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)
