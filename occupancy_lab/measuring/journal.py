"""What a command has measured, kept until it ends well: killed, it goes on from there."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import hashlib
import inspect
import json
import os
import stat
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.store import key_digest, make_directory
from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring.measure import L2_STATE, TIMER, driver_version
from occupancy_lab.measuring.process import (
    device_names,
    measurements_from_json,
    measurements_to_json,
)
from occupancy_lab.text.printing import print_note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from occupancy_lab.measuring.process import TimedLaunches
    from occupancy_lab.values import Measurement, Problem

LIFETIME = dt.timedelta(hours=24)
"""How long a measurement counts for the command that was killed after it."""
PASSING = frozenset({"device lost", "out of memory"})
"""What another try may well do better: a request that ended so is measured again."""
_VARIABLES = ("CUDA", "HIP", "NVIDIA", "PYTORCH", "ROC", "TORCH", "TRITON", "PTXAS", "LLVM")


class Journal:
    """The finished measurements of one command, in a file that is deleted when it ends well.

    A context manager around the whole command, its output included: left by an exception or by the
    end of the process, the file stays, and the same command goes on from it for LIFETIME. It is the
    same command where it has the same name, measures the same kernels on the same problems, and
    nothing has changed that a time depends on: GPUs, driver, torch, Triton, timer, kernel files,
    environment. Where the file cannot be written, or another process has it, nothing is kept; that
    is no error.
    """

    def __init__(self, command: str, *, keep: bool = True, resume: bool = True) -> None:
        """Keep what *command* measures; with *keep* false nothing, with *resume* false anew."""
        self._command = command
        self._keep = keep
        self._resume = resume
        self._path: Path | None = None
        self._file: int | None = None
        self._kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._file is None:
            return
        # The reader of a pipe that has seen enough ends the command with 0.
        ended_well = error is None or (isinstance(error, SystemExit) and not error.code)
        if ended_well and self._path is not None:
            self._path.unlink(missing_ok=True)
        elif self._kept:
            print_note("the same command goes on from what was measured, within 24 hours")
        os.close(self._file)
        self._file = None

    def begin(
        self, requests: Mapping[Problem, TimedLaunches], devices: Sequence[str | None]
    ) -> dict[Problem, list[Measurement]]:
        """Return what is kept of *requests*, which standard error tells, and keep what comes.

        *devices* are what MeasuringProcess calls the GPUs that measure.
        """
        if not self._keep:
            return {}
        name = key_digest(_identity(self._command, requests, devices))
        self._path = store_directory() / "unfinished" / f"{name}.jsonl"
        with contextlib.suppress(OSError):
            make_directory(store_directory())
            self._path.parent.mkdir(mode=0o755, exist_ok=True)
            _delete_old(self._path.parent)
            self._file = _locked(self._path, anew=not self._resume)
        if self._file is None:
            return {}
        known = _read(self._file)
        lines = {problem: request.to_json() for problem, request in requests.items()}
        found = {problem: known[line] for problem, line in lines.items() if line in known}
        if found:
            of = sum(len(request.launches) for request in requests.values())
            print_note(_told(list(found.values()), of))
        return {problem: measurements for problem, (_, measurements) in found.items()}

    def keep(self, request: TimedLaunches, measurements: list[Measurement]) -> None:
        """Write down at once what was measured of *request*."""
        if self._file is None or any(one.status in PASSING for one in measurements):
            return
        entry = json.dumps(
            {
                "request": request.to_json(),
                "when": dt.datetime.now(tz=dt.UTC).isoformat(),
                "measurements": measurements_to_json(measurements),
            }
        )
        # A line of its own even after one that a full disk or a kill has cut short.
        with contextlib.suppress(OSError):
            os.write(self._file, f"\n{_checksum(entry)} {entry}\n".encode())
            self._kept = True


def _told(found: Sequence[tuple[dt.datetime, list[Measurement]]], of: int) -> str:
    launches = sum(len(measurements) for _, measurements in found)
    times = [when for when, _ in found]
    return (
        f"{launches} of {of} launches are taken from the run that was interrupted, measured"
        f" {min(times):%Y-%m-%d %H:%M:%S} to {max(times):%H:%M:%S} UTC;"
        " --no-resume measures them anew"
    )


def _identity(
    command: str, requests: Mapping[Problem, TimedLaunches], devices: Sequence[str | None]
) -> dict[str, Any]:
    launches = [launch for request in requests.values() for launch in request.launches]
    kernels = sorted({launch.kernel for launch in launches if launch.config is not None})
    return {
        "command": command,
        "requests": sorted(str(problem) for problem in requests),
        "kernels": {name: _source(name) for name in kernels},
        "providers": sorted({launch.kernel for launch in launches if launch.config is None}),
        "devices": [*device_names(), *map(str, devices)],
        "driver": driver_version(),
        "versions": [version("torch"), version("triton")],
        "timer": [TIMER, L2_STATE],
        "environment": {
            name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)
        },
    }


def _source(name: str) -> tuple[str | None, str | None]:
    """Return hashes of what is compiled of the kernel called *name*, and of what launches it."""
    kernel = load_kernel(name)
    digest = None
    with contextlib.suppress(OSError, TypeError):
        run = kernel.run.func if isinstance(kernel.run, partial) else kernel.run
        file = Path(inspect.getfile(inspect.unwrap(run)))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return getattr(kernel.function, "cache_key", None), digest


def _delete_old(directory: Path) -> None:
    oldest = (dt.datetime.now(tz=dt.UTC) - LIFETIME).timestamp()
    for path in directory.glob("*.jsonl"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


def _locked(path: Path, *, anew: bool) -> int | None:
    """Return the descriptor of the file at *path*, which this process alone writes, or None."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if anew:
                os.ftruncate(file, 0)
            return file
    except OSError:
        pass
    os.close(file)
    return None


def _read(file: int) -> dict[str, tuple[dt.datetime, list[Measurement]]]:
    """Return when each request of *file* was measured, and its measurements."""
    with open(file, encoding="utf-8", errors="replace", closefd=False) as lines:
        lines.seek(0)
        entries = [line.rstrip("\n").partition(" ") for line in lines]
    found = {}
    for checksum, _, entry in entries:
        if not entry or checksum != _checksum(entry):
            continue
        with contextlib.suppress(KeyError, TypeError, ValueError):  # written by another version
            values = json.loads(entry)
            when = dt.datetime.fromisoformat(values["when"])
            if dt.datetime.now(tz=dt.UTC) - when < LIFETIME:
                found[values["request"]] = when, measurements_from_json(values["measurements"])
    return found


def _checksum(entry: str) -> str:
    return hashlib.sha256(entry.encode()).hexdigest()[:16]
