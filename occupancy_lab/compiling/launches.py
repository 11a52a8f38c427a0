"""Launches of one kernel, compiled several at a time: in this process, or in others."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.compile import check_options, compile_launch, resource_key
from occupancy_lab.compiling.pool import compile_here
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.compiling.server import Request
from occupancy_lab.compiling.store import Store, key_as_json, key_digest
from occupancy_lab.errors import CompileError, CompileTimeoutError
from occupancy_lab.values import Resources

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from occupancy_lab.launch import Launch
    from occupancy_lab.values import Failure, Target


class LaunchCompiler:
    """Compiles launches of a kernel that other processes find by *name*; None compiles here."""

    def __init__(  # noqa: PLR0913 - what a compile depends on
        self,
        name: str | None,
        directory: Path | None,
        *,
        here: Collection[Target] = (),
        python: str = sys.executable,
        timeout: float | None = COMPILE_TIMEOUT,
        progress: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """Keep what is compiled in the store at *directory*; None keeps it in memory.

        The GPUs of *here* are in this machine. *python* compiles with its own Triton, each launch
        within *timeout* seconds. *progress* is told what is compiled, and "" when that is done.
        """
        self._name = name
        self._store = Store(directory)
        self._directory = None if directory is None else str(directory)
        self._here = here
        self._python = python
        self._timeout = timeout
        self._progress = progress
        self._outcomes: dict[str, Resources | Failure] = {}

    def prepare(self, launches: Iterable[tuple[Any, Launch, Target]]) -> None:
        """Compile what is not compiled yet of *launches*, each with its JITFunction and target."""
        if self._name is None:
            return
        requests: dict[str, Request] = {}
        for function, launch, target in launches:
            check_options(function, launch, target)
            key, name = self._key(function, launch, target)
            stored = None if key is None else self._store.get(key) or self._store.get_failure(key)
            if stored is not None:
                self._outcomes[name] = stored
            elif name not in self._outcomes:
                requests[name] = Request(
                    *(self._name, launch, target, self._directory),
                    present=target in self._here,
                    key=None if key is None else key_as_json(key),
                )
        if not requests:
            return
        jobs = len(os.sched_getaffinity(0))
        self._progress(f"compiling {len(requests)} of {self._name} ...")
        try:
            with contextlib.closing(
                compile_here(requests, jobs, self._timeout, self._python)
            ) as compiling:
                self._outcomes.update(compiling)
        finally:
            self._progress("")

    def resources(self, function: Any, launch: Launch, target: Target) -> Resources:
        """Return what *launch* of *function* takes on *target*.

        Raises as `compile_launch` does, and CompileError where it takes longer than it may.
        """
        if self._name is None:
            present = target in self._here
            return compile_launch(function, launch, target, self._store, present=present)
        _, name = self._key(function, launch, target)
        if name not in self._outcomes:
            self.prepare([(function, launch, target)])
        outcome = self._outcomes[name]
        if isinstance(outcome, Resources):
            return outcome
        if outcome.seconds is not None:
            raise CompileTimeoutError.of(function.__name__, outcome.seconds, target.name)
        raise CompileError(outcome.reason)

    def _key(
        self, function: Any, launch: Launch, target: Target
    ) -> tuple[dict[str, Any] | None, str]:
        """Return the key in the store, which only the Triton that compiles knows, and a name."""
        if self._python != sys.executable:
            return None, key_digest([repr(launch), str(target)])
        key = resource_key(function, launch, target)
        return key, key_digest(key)
