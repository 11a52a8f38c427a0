"""A call in a fork of this process, which may hang or die without it."""

from __future__ import annotations

import os
import selectors
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from occupancy_lab.workers.child import PRINTED, last_line

if TYPE_CHECKING:
    from collections.abc import Callable


def in_fork(call: Callable[[], str], timeout: float | None) -> tuple[str | None, str]:
    """Return what *call* returns in a fork, and "", or the last line of a fork that died.

    The answer is "" where the fork died, and None where it took more than *timeout* seconds.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        printed = Path(folder) / f"{PRINTED}fork"
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()  # Python warns of threads, none of which the call needs
        if not pid:
            _answer(call, writing, printed)
        os.close(writing)
        try:
            answer = _read(reading, timeout)
        finally:
            os.close(reading)
            _end(pid)
        if answer:
            return answer, ""
        words = [last_line(path.read_bytes()) for path in Path(folder).glob(f"{PRINTED}*")]
        return answer, next(filter(None, words), "")


def _answer(call: Callable[[], str], writing: int, printed: Path) -> NoReturn:
    """Write what *call* returns in this fork, and end it."""
    try:
        os.setsid()  # what it starts ends with it
        tempfile.tempdir = str(printed.parent)  # where `captured` keeps what is printed
        words = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(words, 1)
        os.dup2(words, 2)
        with open(writing, "w", encoding="utf-8") as pipe:  # the answer ends where it is closed
            try:
                pipe.write(call())
            except BaseException as error:  # noqa: BLE001 - the process that forked is told
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)


def _read(reading: int, timeout: float | None) -> str | None:
    """Return all that comes through a pipe until it ends; None after *timeout* seconds."""
    until = None if timeout is None else time.monotonic() + timeout
    parts: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while True:
            left = None if until is None else until - time.monotonic()
            if (left is not None and left <= 0) or not selector.select(left):
                return None
            part = os.read(reading, 1 << 16)
            if not part:
                return b"".join(parts).decode()
            parts.append(part)


def _end(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    os.waitpid(pid, 0)
