"""A compile in a process of its own, which can be timed out and killed, and may die.

A process pool of multiprocessing's kind would do on one machine, but a Dask worker is a daemon and
may have no such children, and another Triton needs another interpreter; a plain child serves all.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.values import Failure, Resources

if TYPE_CHECKING:
    from occupancy_lab.compiling.request import Request

ATTEMPTS = 3
"""How often a compile is tried whose process dies: killed from outside, it may well work again."""

BOOTSTRAP = """
import importlib.util, pathlib, sys
home, *others = map(pathlib.Path, sys.argv[1:])
spec = importlib.util.spec_from_file_location(
    "occupancy_lab", home / "__init__.py", submodule_search_locations=[*map(str, (home, *others))]
)
package = importlib.util.module_from_spec(spec)
sys.modules["occupancy_lab"] = package
spec.loader.exec_module(package)
from occupancy_lab.compiling.server import main
main()
"""
"""Gives another interpreter this package and nothing else of this environment."""


class CompileProcess:
    """One compiling process, started when it is first needed and again after it died."""

    def __init__(self, python: str = sys.executable) -> None:
        """Compile with the interpreter *python* and the Triton of its environment."""
        self._python = python
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def compile(self, request: Request, timeout: float | None) -> Resources | Failure:
        """Give what *request* compiles to, within *timeout* seconds a try."""
        for _ in range(ATTEMPTS):
            if self._closed:
                return Failure("compile failed", "interrupted", lasting=False)
            line = self._ask(request, timeout)
            if line is None:
                self._end()
                return Failure("timed out", f"longer than {timeout:g} s", timeout)
            if line:
                return _outcome(json.loads(line))
            self._end()
        reason = f"the compiling process died {ATTEMPTS} times"
        return Failure("compile failed", reason, lasting=False)

    def close(self) -> None:
        """End the process for good, from any thread and in the middle of a compile too."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.close()

    def _ask(self, request: Request, timeout: float | None) -> str | None:
        """Give the answer's line: "" where the process died, None where time ran out."""
        process = self._process or self._start()
        if process.stdin is None or process.stdout is None:
            return ""
        # A process that was ended meanwhile, or by another thread, has closed streams.
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(request.to_json() + "\n")
            process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                if not selector.select(timeout):
                    return None
            return process.stdout.readline()
        return ""

    def _start(self) -> subprocess.Popen[str]:
        """Start the process and wait until it is ready, or dead."""
        process = self._process = subprocess.Popen(  # noqa: S603 - the caller's own interpreter
            [self._python, "-c", BOOTSTRAP, *_package_folders()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for the process that asked
        )
        if process.stdout is not None:
            with contextlib.suppress(OSError, ValueError):
                process.stdout.readline()
        return process


def _package_folders() -> list[str]:
    """Give the folders that the package is in: its own, and in an editable install kernels/'s."""
    import occupancy_lab.kernels

    return [str(Path(__file__).parents[1]), str(Path(occupancy_lab.kernels.__path__[0]).parent)]


def _outcome(answer: dict[str, Any]) -> Resources | Failure:
    if "failure" in answer:
        return Failure(**answer["failure"])
    return Resources(**answer["resources"])
