"""A child process that answers lines with lines, can be timed out and killed, and may die.

A multiprocessing pool would do on one machine, but a Dask worker is a daemon and may not have such
children, another Triton needs another interpreter, and a GPU that is lost is lost to its whole
process. A plain child process works for all of these.

Each child has its own process group and temporary folder. When it ends, everything that it started,
such as ptxas, and the files that it left are removed. What compilers print is captured, and tasks
are distributed over children.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import math
import os
import queue
import re
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import typing
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from occupancy_lab.workers import signals

LOADING = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location(
    "occupancy_lab", {folders[0]!r} + "/__init__.py", submodule_search_locations={folders!r}
)
package = sys.modules["occupancy_lab"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
"""
"""Code that makes another interpreter load this package and nothing else of this environment."""
BOOTSTRAP = """
import importlib, os
folder = os.environ.get("TMPDIR", "")
if os.path.basename(folder).startswith("occupancy-lab-child-"):
    os.mkdir(folder, 0o700)
{loading}
importlib.import_module(sys.argv.pop(1)).main()
"""
"""Code that starts a child. The child makes its temporary folder itself, so that a parent that is
killed before starting the child leaves no folder behind."""
START_TIMEOUT = 120.0
"""Seconds until a process has finished its imports: torch takes many from a cold disk."""
FOLDER = "occupancy-lab-child-"
"""The prefix of the name of a child's temporary folder."""
PRINTED = "printed-"
"""The prefix of the names of files with captured output in a child's folder."""
DYING = 1.0
"""Seconds that a process may take to end after its last output: it may write a core."""
TAIL_BYTES = 65536
"""How many bytes of a child's standard error are kept: an error and LLVM's stack trace."""
MOST_BYTES = 1 << 26
"""The largest valid answer, bytes; the longest answer, a batch's measurements, has some 1e5."""
MOST_CHARACTERS = 300
"""A quoted line is cut to this length, because it is part of a sentence or a table's cell."""
AT_ONCE = 1e6
"""The longest single wait, seconds; epoll takes at most 2**31 ms, which are 2.1e6 s."""


def command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs the `main` of this package's *module* with *python*.

    The working directory is not on its sys.path.
    """
    return [python, "-P", "-c", BOOTSTRAP.format(loading=loading()), module, *arguments]


def loading() -> str:
    """Return code that makes another interpreter load this package."""
    import occupancy_lab.kernels

    # The package's own folder, and in an editable install the one that kernels/ is in.
    paths = Path(occupancy_lab.__file__).parent, Path(occupancy_lab.kernels.__path__[0]).parent
    return LOADING.format(folders=[str(one) for one in paths])


def run(
    command: Sequence[str],
    timeout: float,
    environment: Mapping[str, str] | None = None,
    *,
    stderr: int = subprocess.STDOUT,
    umask: int = -1,
) -> subprocess.CompletedProcess[str]:
    """Return how *command* ended and what it printed, including standard error.

    *stderr* redirects standard error, and *umask* replaces this process's, as in subprocess.
    Nothing that the command started outlives it.

    Raises OSError if it cannot be started, and subprocess.TimeoutExpired after *timeout* s.
    """
    with subprocess.Popen(  # noqa: S603 - a program that the user names or has installed
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        env=os.environ | dict(environment or {}),
        start_new_session=True,  # so that everything it starts can be ended together
        umask=umask,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=timeout)
        finally:
            _kill_group(process.pid)
    return subprocess.CompletedProcess(command, process.returncode, printed)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


class Child:
    """A process that runs a module's `main`, started when needed and restarted after it died."""

    def __init__(
        self,
        server: str,
        *,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run *server*'s `main`, with the interpreter *python* and the additional *environment*."""
        self._server = server
        self._python = python
        self._environment = environment or {}
        self._process: _Process | None = None
        self._asking = threading.Lock()
        self.closed = False
        self.last_words = ""
        """The last line printed by a process that died, or what ended it."""

    def ask(self, line: str, timeout: float | None = None) -> str | None:
        """Return the answer to *line*: "" if the process died, None after *timeout* s."""
        with self._asking:
            if self.closed:
                return ""
            answer: str | None = ""
            with contextlib.suppress(OSError, ValueError):  # a killed process reads nothing
                process = self._process or self._start()
                answer = process.answer(line, timeout)
            if not answer:
                self._forget(died=answer is not None)
            return answer

    def interrupt(self, timeout: float) -> str:
        """Interrupt the current question and return its answer; "" if none comes in time."""
        process = self._process
        return "" if process is None else process.interrupt(timeout) or ""

    def close(self) -> None:
        """End the process for good; any thread may call this, even during an answer."""
        self.closed = True
        self.end()

    def end(self) -> None:
        """Kill the process and everything it started; the next question starts a new one."""
        process = self._process
        if process is not None:
            process.kill()
        # The lock is taken only now: the process's end wakes the thread that waits for an answer.
        with self._asking:
            self._forget()

    def _forget(self, *, died: bool = False) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.last_words = process.end(died=died)

    def _start(self) -> _Process:
        folder = Path(tempfile.gettempdir(), FOLDER + secrets.token_hex(8))
        self._process = process = _Process(self._open(folder), folder)
        if self.closed:  # by another thread, which did not see the process yet
            process.kill()
        process.wait_until_ready()
        return process

    def _open(self, folder: Path) -> Opened:
        """Start the process with *folder* for its temporary files, which the process makes."""
        return subprocess.Popen(  # noqa: S603 - the caller's own interpreter
            command(self._server, python=self._python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | dict(self._environment) | {"TMPDIR": str(folder)},
            start_new_session=True,  # Ctrl-C is for the process that asked
        )


class Opened(Protocol):
    """The part of subprocess.Popen's interface that is used here; all streams are pipes."""

    pid: int
    stdin: Any
    stdout: Any
    stderr: Any

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status of the ended process; raise TimeoutExpired after *timeout* s."""


class _Process:
    def __init__(self, process: Opened, folder: Path) -> None:
        self.folder = folder
        self._process = process
        self.pid = process.pid
        self._tail = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_until_ready(self) -> None:
        if self._line(START_TIMEOUT) is None:
            self.kill()
            self._tail += f"\nit was not ready within {START_TIMEOUT:g} s".encode()

    def answer(self, line: str, timeout: float | None) -> str | None:
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return self._line(timeout)

    def interrupt(self, timeout: float) -> str | None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGINT)
        return self._line(timeout)

    def _line(self, timeout: float | None) -> str | None:
        """Return the next line, "" at the end of the output, or None after *timeout* s."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                left = end - time.monotonic()
                if left <= 0:
                    return None
                if not selector.select(min(left, AT_ONCE)):
                    continue
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                line += part
                if not part or len(line) > MOST_BYTES:
                    return ""
        return line.decode(errors="replace")

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while part := os.read(self._process.stderr.fileno(), 1 << 16):
                self._tail = (self._tail + part)[-TAIL_BYTES:]

    def kill(self) -> None:
        _kill_group(self.pid)

    def end(self, *, died: bool) -> str:
        """Kill the process and everything it started; return its last words if it *died*."""
        status = None
        if died:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(DYING)
        self.kill()
        self._process.wait()
        self._listener.join(DYING)
        words = self._last_words(status) if died else ""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        return words

    def _last_words(self, status: int | None) -> str:
        printed = [_tail_of(path) for path in self.folder.glob(f"{PRINTED}*")]
        line = next(filter(None, map(last_line, (*printed, self._tail))), "")
        if status is None or (status >= 0 and line):
            return line
        by_signal = signal.strsignal(-status) if status < 0 else None
        how = by_signal or f"exit status {status}"
        return f"{line} ({how})" if line else how


def _tail_of(path: Path) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        return file.read()
    return b""


def last_line(printed: bytes) -> str:
    """Return LLVM's last error in the output, which may precede a stack trace, or the last line."""
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines()]
    errors = [line for line in lines if re.search(r"\bLLVM ERROR: ", line)]
    line = next(filter(None, reversed(errors or lines)), "")
    return "".join(filter(str.isprintable, line))[:MOST_CHARACTERS]


def serve(answer: Callable[[str], str]) -> None:
    """Answer each line of standard input with a line, until standard input ends.

    The first line says that the process is ready. Other output of the process goes to standard
    error. The process ends with its standard input, so that no work outlives the process that asked
    for it.
    """
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    try:
        line = "ready"
        while True:
            answers.write(line + "\n")
            answers.flush()
            line = answer(lines.get())
    except BrokenPipeError:
        _end_alone()
    except BaseException:  # noqa: BLE001 - the asking process reads any error
        traceback.print_exc()
    finally:
        # Python itself would wait for the reading thread.
        os._exit(1)


def _read_lines(lines: queue.SimpleQueue[str]) -> None:
    try:
        for line in sys.stdin.buffer:
            lines.put(line.decode(errors="replace"))
    finally:
        _end_alone()


def _end_alone() -> None:
    """End this process, whose parent is gone, with everything it started and all files it left."""
    folder = Path(tempfile.gettempdir())
    if os.getsid(0) == os.getpid() and folder.name.startswith(FOLDER):
        # `serve` ignores SIGHUP, which ends all others that may still write there.
        os.killpg(os.getpgrp(), signal.SIGHUP)
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


class Printed:
    """The output of a `captured` block; empty until the block ends."""

    text = ""


@contextlib.contextmanager
def captured() -> Iterator[Printed]:
    """Capture what is written to descriptors 1 and 2, sys.stdout and sys.stderr in the block.

    LLVM and MLIR write diagnostics directly to the descriptor. If ptxas fails, Triton prints the
    whole PTX to sys.stdout, which in a notebook is not the descriptor. Either would end up in the
    middle of a JSON document. A child that dies in the block leaves the file, from which its last
    words are read.
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
    ctypes.CDLL(None).fflush(None)  # C's buffers would be written after the block
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()


class Closable(Protocol):
    """A worker that can be ended from another thread."""

    def close(self) -> None:
        """End the worker for good."""


Name = TypeVar("Name")
Task = TypeVar("Task")
Outcome = TypeVar("Outcome")
Worker = TypeVar("Worker", bound=Closable)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def distribute(
    tasks: Mapping[Name, Task], workers: Sequence[Worker], do: Callable[[Worker, Task], Outcome]
) -> Generator[tuple[Name, Outcome]]:
    """Make *workers* do *tasks*, and yield each name with its outcome as soon as it is there.

    However the caller ends, every worker is closed.
    """
    waiting = collections.deque(tasks.items())
    finished: queue.SimpleQueue[tuple[Name, Outcome | None, BaseException | None]]
    finished = queue.SimpleQueue()

    def work(worker: Worker) -> None:
        with contextlib.suppress(IndexError):
            while True:
                name, task = waiting.popleft()
                try:
                    finished.put((name, do(worker, task), None))
                except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
                    finished.put((name, None, error))

    # A ThreadPoolExecutor would not start threads once a script has come to its end.
    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            name, outcome, error = finished.get()
            if error is not None:
                raise error
            yield name, typing.cast("Outcome", outcome)
    except KeyboardInterrupt:
        signals.arrived()
        raise
    finally:
        waiting.clear()
        for worker in workers:
            worker.close()
        for thread in threads:
            thread.join()
