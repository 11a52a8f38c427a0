"""The folder that the processes of a traced program write to, for as long as the trace lasts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "occupancy-lab-trace-"
LOCK = "lock"
"""A file in it that is locked until the folder is removed, or whoever made it was killed."""


@contextlib.contextmanager
def folder_of_records() -> Iterator[Path]:
    """Return a new folder, removed at the end, and remove those that killed traces have left."""
    _remove_left()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        making = folder / "making"
        with making.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            making.rename(folder / LOCK)  # only now others look at it
            yield folder


def _remove_left() -> None:
    """Remove the folders of this user whose lock nobody has."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
                continue
            descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
