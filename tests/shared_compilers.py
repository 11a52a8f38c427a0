"""Compiling processes that tests share, because starting one takes seconds."""

import os
import tempfile
import threading
from collections.abc import Collection, Hashable
from pathlib import Path
from typing import Any

import pytest

from occupancy_lab.workers.child import Child

COMPILER = "occupancy_lab.compiling.process"
MOST = 3
"""The most processes that wait for a test: the one that waited longest is ended first."""
UNHEARD = {"OCCUPANCY_LAB_CACHE_DIR", "PYTEST_CURRENT_TEST", "COLUMNS", "NO_COLOR"}
"""Variables that no compile depends on."""


class SharedCompilers:
    """Starts and ends compiling processes for Child objects, unless a test is about them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.shared = False
        self._waiting: list[tuple[Hashable, Any]] = []
        self._made: dict[int, Hashable] = {}
        self._choosing = threading.Lock()
        start, close = Child._start, Child.close
        patch.setattr(Child, "_start", lambda child: self._find(child) or self._note(child, start))
        patch.setattr(Child, "close", lambda child: (self._keep(child), close(child))[1])

    def _find(self, child: Child) -> Any:
        """Give *child* a waiting process that was started under the same conditions."""
        conditions = _conditions(child)
        with self._choosing:
            for place, (made, process) in enumerate(self._waiting):
                if self.shared and made == conditions and process._process.poll() is None:
                    del self._waiting[place]
                    process._tail = b""
                    self._made[process.pid] = made
                    child._process = process
                    return process
        return None

    def _note(self, child: Child, start: Any) -> Any:
        conditions, process = _conditions(child), start(child)
        self._made[process.pid] = conditions
        return process

    def _keep(self, child: Child) -> None:
        """Keep the process of *child* for another test if it is idle."""
        if self.shared and child._server == COMPILER and child._asking.acquire(blocking=False):
            process, child._process = child._process, None
            child._asking.release()
            if process is not None:
                self._waiting.append((self._made.pop(process.pid), process))
                self.end(but=MOST)

    def end(self, *, but: int = 0) -> None:
        """End the waiting processes *but* that many."""
        while len(self._waiting) > but:
            _, process = self._waiting.pop(0)
            process.end(died=False)


def _conditions(child: Child) -> Hashable:
    """Return the conditions under which a process of *child* would start."""
    variables = frozenset((heard() | dict(child._environment)).items())
    return child._server, child._python, Path.cwd(), tempfile.gettempdir(), variables


def heard(more: Collection[str] = ()) -> dict[str, str]:
    """Return the environment variables that affect a new process, without *more*."""
    return {name: value for name, value in os.environ.items() if name not in UNHEARD.union(more)}
