"""Ctrl-C, SIGTERM and SIGHUP on the command line: each ends it after a clean-up."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE = 0.7
"""Seconds from a signal to the end of a process that did not notice it: short enough that nobody
presses Ctrl-C again."""

_received: list[int] = []
_arrived = threading.Event()


class Interrupted(KeyboardInterrupt):
    """A signal that ends the program; raised in the main thread inside `handled`."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        self.signal = signal.Signals(number)
        super().__init__(f"interrupted by {self.signal.name}")

    @property
    def exit_status(self) -> int:
        """The exit status that shells give a program ended by the signal: 130, 143 or 129."""
        return 128 + self.signal


class UnfinishedError(KeyboardInterrupt):
    """A signal in the middle of work, with the results that were finished before."""

    def __init__(self, finished: Any) -> None:
        super().__init__("interrupted")
        self.finished = finished


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Raise Interrupted for SIGNALS inside the block, and end the process if that is swallowed.

    Code in the block may swallow the exception: an import that it interrupts, a `__del__`, a bare
    `except`. A thread ends the process with the signal's exit status if GRACE seconds after the
    signal neither the block has ended nor `arrived` was called. An ignored signal, such as SIGHUP
    under nohup, stays ignored. Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received.clear()
    _arrived.clear()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    threading.Thread(target=_watch, args=(reading, _copy_of_stderr()), daemon=True).start()
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        with handled_by(_interrupt, SIGNALS):
            try:
                yield
            finally:
                _arrived.set()
    finally:
        signal.set_wakeup_fd(wakeup)
        os.close(writing)


@contextlib.contextmanager
def handled_by(
    handler: Callable[[int, FrameType | None], object], numbers: Iterable[int]
) -> Iterator[None]:
    """Call *handler* in the block for those signals of *numbers* that are not ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    heeded = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    try:
        for number in heeded:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in heeded.items():
            signal.signal(number, old)


def arrived() -> None:
    """Note that the signal was noticed, so that the process may take its time to end.

    To be called first where KeyboardInterrupt is caught to write the results so far.
    """
    _arrived.set()


def exit_status(error: BaseException) -> int:
    """Return the exit status of a program that ends by *error*, which a signal may have caused."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Interrupted):
            return cause.exit_status
        cause = cause.__cause__
    return 128 + signal.SIGINT


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # A closed terminal sends SIGHUP more than once, which must not disturb the clean-up.
    again = bool(_received)
    _received.append(number)
    if number == signal.SIGINT or not again:
        raise Interrupted(number)


def _copy_of_stderr() -> int:
    """Return a descriptor of standard error that stays valid while output is captured."""
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _watch(reading: int, errors: int) -> None:
    """End the process GRACE seconds after a signal read from *reading*, unless it was noticed.

    Python writes the signal's number there at once, whatever the main thread does.
    """
    with open(reading, "rb", buffering=0) as numbers, open(errors, "wb", buffering=0) as stderr:
        while number := numbers.read(1):
            if number[0] in SIGNALS and not _arrived.wait(GRACE):
                with contextlib.suppress(OSError):
                    shown = b"\x1b[?25h" if stderr.isatty() else b""  # a progress bar hides it
                    stderr.write(shown + b"\noccupancy-lab: interrupted\n")
                os._exit(128 + number[0])
