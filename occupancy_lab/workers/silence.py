"""What compilers print from below Python: kept off the terminal, kept for --debug."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
from typing import TYPE_CHECKING

from occupancy_lab.workers.child import PRINTED

if TYPE_CHECKING:
    from collections.abc import Iterator


class Printed:
    """What was printed inside a `captured` block; empty until the block ends."""

    text = ""


@contextlib.contextmanager
def captured() -> Iterator[Printed]:
    """Take what is written to file descriptors 1 and 2, sys.stdout and sys.stderr in the block.

    LLVM and MLIR write their diagnostics to the descriptor itself, and Triton prints the whole
    PTX to sys.stdout, which in a notebook is not the descriptor, where ptxas fails: either would
    end up in the middle of a JSON document. A child that dies in the block leaves the file, where
    its last words are read.
    """
    printed = Printed()
    with tempfile.NamedTemporaryFile(prefix=PRINTED) as file:
        _flush()
        saved = os.dup(1), os.dup(2)
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            with (
                open(1, "w", buffering=1, encoding="utf-8", closefd=False) as stream,
                contextlib.redirect_stdout(stream),
                contextlib.redirect_stderr(stream),
            ):
                yield printed
        finally:
            _flush()
            for descriptor, copy in enumerate(saved, start=1):
                os.dup2(copy, descriptor)
                os.close(copy)
            file.seek(0)
            printed.text = file.read().decode(errors="replace")


def _flush() -> None:
    ctypes.CDLL(None).fflush(None)  # what C keeps would be written after the block
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()
