"""Harmful things in the place of files, and a limit for tests that may hang on them."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


def put(what: str, path: Path) -> Path:
    """Put a pipe without a writer, a device without end or a file of 2 GB at *path*."""
    path.unlink(missing_ok=True)
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 2 << 30)
    return path


HOSTILE = ("a pipe", "a device", "a large file")


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail a block that hangs."""

    def fail(*_arguments: object) -> None:
        pytest.fail(f"it took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
