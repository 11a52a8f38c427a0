"""A process that answers lines with lines, which can be timed out and killed, and may die.

A process pool of multiprocessing's kind would do on one machine, but a Dask worker is a daemon and
may have no such children, another Triton needs another interpreter, and a GPU that is lost is lost
to its process for good; a plain child serves all.

Each child has a process group and a temporary folder of its own. Both are gone when it ends: what
it started, as the ptxas of a compile, and what that left. Questions and answers are frozen values
as lines of JSON, what compilers print is captured, and tasks are distributed over children.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import ctypes
import dataclasses
import functools
import json
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
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from occupancy_lab.workers import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

LOADING = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location(
    "occupancy_lab", {folders[0]!r} + "/__init__.py", submodule_search_locations={folders!r}
)
package = sys.modules["occupancy_lab"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
"""
"""Gives another interpreter this package and nothing else of this environment."""
BOOTSTRAP = """
import importlib, os
folder = os.environ.get("TMPDIR", "")
if os.path.basename(folder).startswith("occupancy-lab-child-"):
    os.mkdir(folder, 0o700)
{loading}
importlib.import_module(sys.argv.pop(1)).main()
"""
"""A child makes its temporary folder itself: a parent that is killed before it has started one
leaves none behind."""
START_TIMEOUT = 120.0
"""Seconds until a process has imported what it needs: torch takes many from a cold disk."""
FOLDER = "occupancy-lab-child-"
"""What the name of a child's temporary folder begins with."""
PRINTED = "printed-"
"""What the name of a file begins with that keeps what is printed in the folder of a child."""
DYING = 1.0
"""Seconds that a process may take to end after its last word: a core may be written."""
TAIL_BYTES = 65536
"""The end of a child's standard error that is kept: an error and the stack that LLVM draws."""
MOST_BYTES = 1 << 26
"""An answer of more bytes is none: the measurements of a batch, the longest, have some 1e5."""
MOST_CHARACTERS = 300
"""A line that is quoted is cut here: it stands in a sentence, or in a cell of a table."""
AT_ONCE = 1e6
"""Seconds of one wait; epoll takes 2**31 ms at most, which are 2.1e6."""


def command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs the `main` of this package's *module* with *python*.

    The working directory is not on its sys.path.
    """
    return [python, "-P", "-c", BOOTSTRAP.format(loading=loading()), module, *arguments]


def loading() -> str:
    """Return what has another interpreter load this package."""
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
    """Return how *command* ended and what it printed, with standard error among it.

    *stderr* sends that elsewhere, and *umask* is another than this process's, as subprocess has
    them. Nothing that it started outlives it.

    Raises OSError where it cannot be started, and subprocess.TimeoutExpired after *timeout* s.
    """
    with subprocess.Popen(  # noqa: S603 - a program that the user names or has installed
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        env=os.environ | dict(environment or {}),
        start_new_session=True,  # so that all it starts can be ended together
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
    """A process that runs a module's `main`, started when first asked and again after it died."""

    def __init__(
        self,
        server: str,
        *,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run *server*'s `main`, with the interpreter *python* and *environment* added to it."""
        self._server = server
        self._python = python
        self._environment = environment or {}
        self._process: _Process | None = None
        self._asking = threading.Lock()
        self.closed = False
        self.last_words = ""
        """What a process that died left: the last line it printed, or what ended it."""

    def ask(self, line: str, timeout: float | None = None) -> str | None:
        """Return the answer to *line*: "" where the process died, None after *timeout* s."""
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
        """Interrupt what is being answered and return the answer; "" where none comes in time."""
        process = self._process
        return "" if process is None else process.interrupt(timeout) or ""

    def close(self) -> None:
        """End the process for good, from any thread and in the middle of an answer too."""
        self.closed = True
        self.end()

    def end(self) -> None:
        """Kill the process and all it started; the next question starts another."""
        process = self._process
        if process is not None:
            process.kill()
        # Only now: who waits for an answer is woken by the process's end, not by a closed file.
        with self._asking:
            self._forget()

    def _forget(self, *, died: bool = False) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.last_words = process.end(died=died)

    def _start(self) -> _Process:
        folder = Path(tempfile.gettempdir(), FOLDER + secrets.token_hex(8))
        self._process = process = _Process(self._open(folder), folder)
        if self.closed:  # meanwhile, by a thread that saw no process to kill
            process.kill()
        process.wait_until_ready()
        return process

    def _open(self, folder: Path) -> Opened:
        """Start the process, with *folder* for its temporary files, which it makes itself."""
        return subprocess.Popen(  # noqa: S603 - the caller's own interpreter
            command(self._server, python=self._python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | dict(self._environment) | {"TMPDIR": str(folder)},
            start_new_session=True,  # Ctrl-C is for the process that asked
        )


class Opened(Protocol):
    """What subprocess.Popen has of a process."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status once it has ended; raise TimeoutExpired after *timeout* s."""


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
        if self._process.stdin is not None:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        return self._line(timeout)

    def interrupt(self, timeout: float) -> str | None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGINT)
        return self._line(timeout)

    def _line(self, timeout: float | None) -> str | None:
        """Return the next line: "" at the end of the output, None where it takes *timeout* s."""
        if self._process.stdout is None:
            return ""
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
            while self._process.stderr and (
                part := os.read(self._process.stderr.fileno(), 1 << 16)
            ):
                self._tail = (self._tail + part)[-TAIL_BYTES:]

    def kill(self) -> None:
        _kill_group(self.pid)

    def end(self, *, died: bool) -> str:
        """Kill the process and all it started; return the last words of one that *died* itself."""
        status = None
        if died:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(DYING)
        self.kill()
        self._process.wait()
        self._listener.join(DYING)
        words = self._last_words(status) if died else ""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
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
    """Return the last error of what LLVM printed, which may draw its stack below, or last line."""
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines()]
    errors = [line for line in lines if re.search(r"\bLLVM ERROR: ", line)]
    line = next(filter(None, reversed(errors or lines)), "")
    return "".join(filter(str.isprintable, line))[:MOST_CHARACTERS]


def serve(answer: Callable[[str], str]) -> None:
    """Answer each line of standard input with a line, until standard input ends.

    A first line says that the process is ready. Whatever else it prints goes to standard error. It
    ends with its standard input, so that no work outlives the process that asked for it.
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
    except BaseException:  # noqa: BLE001 - whatever it is, the process that asked is told
        traceback.print_exc()
    finally:
        # Python itself would wait for the thread that reads.
        os._exit(1)


def _read_lines(lines: queue.SimpleQueue[str]) -> None:
    try:
        for line in sys.stdin.buffer:
            lines.put(line.decode(errors="replace"))
    finally:
        _end_alone()


def _end_alone() -> None:
    """End this process, whose parent is gone, with all it started and all that left."""
    folder = Path(tempfile.gettempdir())
    if os.getsid(0) == os.getpid() and folder.name.startswith(FOLDER):
        # `serve` heeds no SIGHUP, which ends all others that would still write there.
        os.killpg(os.getpgrp(), signal.SIGHUP)
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


def to_line(value: Any) -> str:
    """Return *value*, a dataclass or a sequence of them, as one line of JSON."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def from_line(kind: Any, line: str) -> Any:
    """Return the value of a *line* that `to_line` made of a *kind*, which may be a union.

    Raises ValueError where the line is no JSON or of another shape.
    """
    try:
        return _reader(kind)(json.loads(line))
    except RecursionError as error:
        msg = "the JSON is nested too deep"
        raise ValueError(msg) from error


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what makes a *kind* of plain JSON: a dataclass, tuple, union, number, text or None."""
    of = typing.get_args(kind)
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return functools.partial(_one_of, [_reader(one) for one in of])
    if typing.get_origin(kind) is tuple:
        return functools.partial(_items, of[0])
    if typing.get_origin(kind) is Mapping:
        return functools.partial(_named_items, of[1])
    if dataclasses.is_dataclass(kind):
        return functools.partial(_dataclass, kind)
    return functools.partial(_single, kind)


def _one_of(readers: Sequence[Callable[[Any], Any]], plain: Any) -> Any:
    for reader in readers:
        with contextlib.suppress(ValueError):
            return reader(plain)
    raise _no(plain, "what it may be")


def _items(kind: Any, plain: Any) -> tuple[Any, ...]:
    if type(plain) is not list:
        raise _no(plain, "tuple")
    return tuple(map(_reader(kind), plain))


def _named_items(kind: Any, plain: Any) -> dict[str, Any]:
    if type(plain) is not dict:
        raise _no(plain, "mapping")
    read = _reader(kind)
    return {name: read(item) for name, item in plain.items()}


def _single(kind: Any, plain: Any) -> Any:
    if type(plain) is kind:
        return plain
    if kind is bytes and isinstance(plain, str):
        return base64.b64decode(plain, validate=True)
    if (kind is float and type(plain) is int) or (
        isinstance(kind, type) and issubclass(kind, Enum)
    ):
        return kind(plain)
    raise _no(plain, getattr(kind, "__name__", str(kind)))


@functools.cache
def _fields(kind: Any) -> dict[str, Callable[[Any], Any]]:
    hints = typing.get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}


def _dataclass(kind: Any, plain: Any) -> Any:
    if type(plain) is not dict:
        raise _no(plain, kind.__name__)
    fields = _fields(kind)
    if plain.keys() != fields.keys():
        msg = f"{kind.__name__} has the fields {', '.join(fields)}, not {', '.join(plain)}"
        raise ValueError(msg)
    return kind(**{name: read(plain[name]) for name, read in fields.items()})


def _no(plain: Any, kind: str) -> ValueError:
    return ValueError(f"{str(plain)[:40]!r} is no {kind}")


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


class Closable(Protocol):
    """A worker: something that can be ended from another thread."""

    def close(self) -> None:
        """End it for good."""


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
    """Have *workers* do *tasks*, and give each name with its outcome as soon as it is there.

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
                except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                    finished.put((name, None, error))

    # No ThreadPoolExecutor, which starts no thread once a script has come to its end.
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
