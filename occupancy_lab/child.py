"""A process that answers lines with lines, which can be timed out and killed, and may die.

A process pool of multiprocessing's kind would do on one machine, but a Dask worker is a daemon and
may have no such children, another Triton needs another interpreter, and a GPU that is lost is lost
to its process for good; a plain child serves all.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BOOTSTRAP = """
import importlib, importlib.util, pathlib, sys
server, home, *others = sys.argv[1:]
home = pathlib.Path(home)
spec = importlib.util.spec_from_file_location(
    "occupancy_lab", home / "__init__.py", submodule_search_locations=[str(home), *others]
)
package = importlib.util.module_from_spec(spec)
sys.modules["occupancy_lab"] = package
spec.loader.exec_module(package)
importlib.import_module(server).main()
"""
"""Gives another interpreter this package and nothing else of this environment."""


class Child:
    """A process that runs a module's `main`, started when first asked and again after it died."""

    def __init__(
        self,
        server: str,
        *,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run *server*'s `main`, with the interpreter *python* and *environment* added to it."""
        self._command = [python, "-c", BOOTSTRAP, server]
        self._environment = {} if environment is None else dict(environment)
        self._process: subprocess.Popen[str] | None = None
        self._asking = threading.Lock()
        self.closed = False

    def ask(self, line: str, timeout: float | None = None) -> str | None:
        """Return the answer to *line*: "" where the process died, None after *timeout* s."""
        with self._asking:
            if self.closed:
                return ""
            process = self._process or self._start()
            answer: str | None = ""
            with contextlib.suppress(OSError, ValueError):  # a killed process reads nothing
                answer = _exchange(process, line, timeout)
            if not answer:
                self._forget()
            return answer

    def close(self) -> None:
        """End the process for good, from any thread and in the middle of an answer too."""
        self.closed = True
        self.end()

    def end(self) -> None:
        """Kill the process; the next question starts another."""
        process = self._process
        if process is not None:
            process.kill()
        # Only now: who waits for an answer is woken by the process's end, not by a closed file.
        with self._asking:
            self._forget()

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.close()

    def _start(self) -> subprocess.Popen[str]:
        """Start the process and wait until it is ready, or dead."""
        process = self._process = subprocess.Popen(  # noqa: S603 - the caller's own interpreter
            [*self._command, *_package_folders()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | self._environment,
            start_new_session=True,  # Ctrl-C is for the process that asked
        )
        if process.stdout is not None:
            with contextlib.suppress(OSError, ValueError):
                process.stdout.readline()
        return process


def _exchange(process: subprocess.Popen[str], line: str, timeout: float | None) -> str | None:
    if process.stdin is None or process.stdout is None:
        return ""
    process.stdin.write(line + "\n")
    process.stdin.flush()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(timeout):
            return None
    return process.stdout.readline()


def _package_folders() -> list[str]:
    """Return the folders that the package is in: its own, and in an editable install kernels/'s."""
    import occupancy_lab.kernels

    return [str(Path(__file__).parent), str(Path(occupancy_lab.kernels.__path__[0]).parent)]


def serve(answer: Callable[[str], str]) -> None:
    """Answer each line of standard input with a line, until standard input ends.

    A first line says that the process is ready. What else is printed goes to standard error; the
    process ends with its standard input, so that no work outlives the process that asked for it.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    answers.write("ready\n")
    answers.flush()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    while True:
        answers.write(answer(lines.get()) + "\n")
        answers.flush()


def _read_lines(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)
