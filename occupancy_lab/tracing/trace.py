"""`occupancy-lab trace` and `trace()`: what a program launched, shown when it has ended."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from occupancy_lab.compiling.store import store_directory
from occupancy_lab.errors import quoted, refuse
from occupancy_lab.gpus import Gpu, find_gpu
from occupancy_lab.text.document import Answer, Document
from occupancy_lab.tracing import hook, launchers, noted, sitecustomize
from occupancy_lab.tracing.actions import NO_EFFORT, Effort
from occupancy_lab.tracing.page import Outcome, write_trace
from occupancy_lab.tracing.records import read_records
from occupancy_lab.tracing.traced import Traced, TracedKernel
from occupancy_lab.workers import signals

if TYPE_CHECKING:
    import pandas as pd

FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_OF_TERMINALS = {signal.SIGINT, signal.SIGQUIT}
"""Signals that a terminal also sends to the program."""


class Trace(Answer):
    """The Triton kernels that a program, or a block of one, launched, one row each."""

    __slots__ = ("_asked", "_block", "_found", "outcome")

    def __init__(
        self, found: Traced | None = None, outcome: Outcome | None = None, asked: Any = None
    ) -> None:
        """Take what was already found, or nothing for a block that is yet to run."""
        self._found = found
        self.outcome = outcome
        self._asked = asked
        self._block: Any = None

    def __enter__(self) -> Self:
        if self._asked is None:
            refuse("this trace was used already; make another with trace()")
        self._block, self._asked = self._noting(*self._asked), None
        self._block.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._block.__exit__(None, None, None)

    @contextlib.contextmanager
    def _noting(self, gpu: Gpu | None, settings: dict[str, Any]) -> Iterator[None]:
        with folder_of_records() as records:
            session = hook.Session(str(records), **settings)
            session.launchers.install(sitecustomize.imported())
            finder = sitecustomize.Finder(session.launchers.patch)
            sys.meta_path.insert(0, finder)
            yield
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(finder)
            session.close()
            self._found = read_records(records, gpu, store_directory())

    @property
    def found(self) -> Traced:
        """The launches; InputError before the end of the block."""
        if self._found is None:
            refuse("the trace has not ended; ask for it after its block")
        return self._found

    @property
    def kernels(self) -> tuple[TracedKernel, ...]:
        """Each kernel in each configuration that was launched."""
        return self.found.kernels

    def table(self) -> pd.DataFrame:
        """Return a row for each kernel and configuration."""
        import pandas as pd

        return pd.DataFrame(self.rows()).convert_dtypes()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of plain values for each kernel and configuration, for `check`.

        `expected` is false for configurations of an autotuned kernel in a dry run that are
        predicted to be slower than another.
        """
        return [{**one.row(), "expected": one.expected} for one in self.kernels]

    def to_document(self) -> Document:
        """Return the tables, and what the numbers rest on."""
        return write_trace(self.found, self.outcome)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, separately for each process and device."""
        outcome = self.outcome
        ran = None if outcome is None else outcome.ran
        return {
            "command": None if outcome is None else list(outcome.command),
            "status": None if outcome is None else outcome.status,
            "rows": self.rows(),
            "kernels": [one.to_dict() for one in self.kernels],
            "handovers": [dataclasses.asdict(one) for one in self.found.handovers],
            "processes": [dataclasses.asdict(one) for one in self.found.processes],
            "missing": [] if ran is None else list(ran.missing),
            "assumed": [] if ran is None else list(map(dataclasses.asdict, ran.assumed)),
            "document": self.to_document().to_dict(),
        }

    def __repr__(self) -> str:
        if self._found is None:
            return "<Trace: not ended>"
        return super().__repr__()


def trace(gpu: str | Gpu | None = None, *, times: bool = True, sample: int = hook.SAMPLE) -> Trace:
    """Return a context manager that notes the launches in its block.

    `with trace() as t:` begins it, and after the block `print(t)` shows the page. It notes launches
    of this process, of Triton's kernels and of those that torch.compile makes. Blocks may be
    nested.

    Args:
        gpu: The GPU for which occupancy is computed; None means the one on which kernels launch.
        times: Whether launches are timed, with torch's events.
        sample: After the first 5, one in this many launches of a kernel over a grid is timed.

    Raises:
        InputError: the GPU is not known, or *sample* is less than 1.
    """
    return Trace(asked=(_gpu(gpu), _settings(times=times, sample=sample)))


def _gpu(gpu: str | Gpu | None) -> Gpu | None:
    if isinstance(gpu, str) and "," in gpu:
        refuse(f"a script is launched on one GPU, and {quoted(gpu)} are several: add --dry-run")
    return find_gpu(gpu) if isinstance(gpu, str) else gpu


def _settings(*, times: bool, sample: int) -> dict[str, Any]:
    if sample < 1:
        refuse(f"sample is {sample}; it must be at least 1")
    return {"times": times, "sample": sample}


def trace_program(  # noqa: PLR0913 - one argument per option of the command line
    command: Sequence[str],
    *,
    gpu: str | Gpu | None = None,
    times: bool = True,
    sample: int = hook.SAMPLE,
    profile: float = 0.0,
    effort: Effort = NO_EFFORT,
    ended: Callable[[int], None] = lambda _status: None,
    progress: Callable[[str], None] = lambda _said: None,
) -> Trace:
    """Run *command* with this process's standard streams, and return what it launched.

    Signals are passed on to it, and it decides how to react. *ended* is called with its status, as
    an Outcome has it, before anything is read. With *profile*, torch.profiler records what its GPU
    does for so many seconds from its first launch on. *effort* says how much is compiled at its end
    to find the changes that save most; *progress* is called with sentences about that, and with ""
    after it.

    Raises InputError if the GPU is not known or the command cannot be run.
    """
    asked, settings = _gpu(gpu), {**_settings(times=times, sample=sample), "profile": profile}
    with folder_of_records() as folder:
        start = folder / "start"
        start.mkdir()
        for module in (hook, launchers, noted, sitecustomize):
            shutil.copy(str(module.__file__), start)
        (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
        before = os.environ.get("PYTHONPATH")
        path = os.pathsep.join(filter(None, [str(start), before]))
        environment = {**os.environ, sitecustomize.FOLDER: str(folder), "PYTHONPATH": path}
        status = _run(command, environment)
        ended(status)
        outcome = Outcome(tuple(command), status, (folder / sitecustomize.STARTED).exists())
        found = read_records(folder, asked, store_directory(), effort=effort, progress=progress)
        return Trace(found, outcome)


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Return how *command* ended; signals that arrive meanwhile are passed to it."""
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: object) -> None:
        signals.arrived()
        if number in _OF_TERMINALS and _in_foreground():
            return
        for child in children:
            child.send_signal(number)

    # The command line's own handler of a signal would end this process before the program.
    signals.arrived()
    with signals.handled_by(pass_on, FORWARDED):
        try:
            process = subprocess.Popen(command, env=environment)  # noqa: S603 - the user's own
        except OSError as error:
            refuse(f"{quoted(command[0])} cannot be run: {error.strerror}")
        children.append(process)
        return process.wait()


def _in_foreground() -> bool:
    """Return whether a terminal's Ctrl-C reaches the program by itself."""
    try:
        with Path("/dev/tty").open("rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def end_as(status: int) -> NoReturn:
    """End this process as the program with *status* ended, with the same signal if any."""
    if status < 0:
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program wrote its own
        with contextlib.suppress(OSError):  # nobody may set a handler for SIGKILL
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status if status >= 0 else 128 - status)


PREFIX = "occupancy-lab-trace-"
LOCK = "lock"
"""A file in the folder that is locked until the folder is removed or its maker is killed."""


@contextlib.contextmanager
def folder_of_records() -> Iterator[Path]:
    """Yield a new folder, which is removed at the end; remove those of killed traces first."""
    _remove_left()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        making = folder / "making"
        with making.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            making.rename(folder / LOCK)  # other traces look at the folder only from now on
            yield folder


def _remove_left() -> None:
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
