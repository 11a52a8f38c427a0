"""Measures launches, and keeps a command's measurements until it ends well.

A command that was killed goes on from what it had measured.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import hashlib
import inspect
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.store import key_digest, make_directory, read_kept, with_checksum
from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring.measure import L2_STATE, TIMER, driver_version
from occupancy_lab.measuring.process import (
    DEFAULT_RUNS,
    Batch,
    MeasuringProcess,
    TimedLaunch,
    device_names,
)
from occupancy_lab.text.printing import print_note
from occupancy_lab.values import Measurement, Problem
from occupancy_lab.workers import signals
from occupancy_lab.workers.child import distribute
from occupancy_lab.workers.messages import from_line, to_line
from occupancy_lab.workers.signals import UnfinishedError

Kept = tuple[dt.datetime, list[Measurement]]
"""When a batch was measured, and its measurements."""

LIFETIME = dt.timedelta(hours=24)
"""How long measurements of a killed command stay valid: a night and a day."""
PASSING = frozenset({"device lost", "out of memory"})
"""Outcomes that another try may improve: a batch with such an outcome is measured again."""
_VARIABLES = ("CUDA", "HIP", "NVIDIA", "PYTORCH", "ROC", "TORCH", "TRITON", "PTXAS", "LLVM")
"""The prefixes of environment variables that a time may depend on."""


class Journal:
    """The finished measurements of a command, in a file that is deleted when it ends well.

    A context manager around the whole command, including its output: if it is left by an exception,
    or the process ends, the file stays, and the same command goes on from it within LIFETIME. A
    command is the same if it has the same name, measures the same kernels on the same problems, and
    if nothing has changed on which a time depends: GPUs, driver, torch, Triton, timer, kernel
    files, environment. If the file cannot be written, or another process uses it, nothing is kept,
    without an error.
    """

    def __init__(self, command: str, *, keep: bool = True, resume: bool = True) -> None:
        """Keep what *command* measures unless *keep* is false; start anew if *resume* is false."""
        self._command, self._keep, self._resume = command, keep, resume
        self._path = Path()
        self._file: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._file is None:
            return
        # If the reader of a pipe closes it, the command ends with 0.
        ended_well = error is None or (isinstance(error, SystemExit) and not error.code)
        if ended_well:
            self._path.unlink(missing_ok=True)
        elif os.fstat(self._file).st_size:
            hours = LIFETIME // dt.timedelta(hours=1)
            print_note(f"the same command goes on from what was measured, within {hours} hours")
        os.close(self._file)
        self._file = None

    def begin(
        self, batches: Mapping[Problem, Batch], devices: Sequence[str | None]
    ) -> dict[Problem, list[Measurement]]:
        """Return the kept measurements of *batches*, with a note about them, and begin keeping.

        *devices* are the names of the measuring GPUs for MeasuringProcess.
        """
        if not self._keep:
            return {}
        name = key_digest(_identity(self._command, batches, devices))
        self._path = store_directory() / "unfinished" / f"{name}.jsonl"
        with contextlib.suppress(OSError):
            make_directory(store_directory())
            self._path.parent.mkdir(mode=0o755, exist_ok=True)
            oldest = (dt.datetime.now(tz=dt.UTC) - LIFETIME).timestamp()
            for path in self._path.parent.glob("*.jsonl"):
                if path.stat().st_mtime < oldest:
                    path.unlink(missing_ok=True)
            self._file = _locked(self._path, anew=not self._resume)
        if self._file is None:
            return {}
        known = _read(self._file)
        lines = {problem: to_line(batch) for problem, batch in batches.items()}
        found = {problem: known[line] for problem, line in lines.items() if line in known}
        if found:
            launches = sum(len(batch.launches) for batch in batches.values())
            kept = sum(len(measurements) for _, measurements in found.values())
            times = [when for when, _ in found.values()]
            print_note(
                f"{kept} of {launches} launches are taken from the run that was interrupted,"
                f" measured {min(times):%Y-%m-%d %H:%M:%S} to {max(times):%H:%M:%S} UTC;"
                " --no-resume measures them anew"
            )
        return {problem: measurements for problem, (_, measurements) in found.items()}

    def keep(self, batch: Batch, measurements: list[Measurement]) -> None:
        """Write the measurements of *batch* at once."""
        if self._file is None or any(found.status in PASSING for found in measurements):
            return
        entry = {
            "request": to_line(batch),
            "when": dt.datetime.now(tz=dt.UTC).isoformat(),
            "measurements": to_line(measurements),
        }
        # The entry begins a new line even if a full disk or a kill cut the previous one short.
        with contextlib.suppress(OSError):
            os.write(self._file, f"\n{json.dumps(with_checksum(entry))}\n".encode())


def _identity(
    command: str, batches: Mapping[Problem, Batch], devices: Sequence[str | None]
) -> dict[str, Any]:
    """Return everything besides the launches on which a time depends."""
    launches = [launch for batch in batches.values() for launch in batch.launches]
    kernels = sorted({launch.kernel for launch in launches if launch.config is not None})
    return {
        "command": command,
        "problems": sorted(map(str, batches)),
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
    """Return hashes of the compiled source of the kernel *name*, and of what launches it."""
    kernel = load_kernel(name)
    digest = None
    with contextlib.suppress(OSError, TypeError):
        run = kernel.run.func if isinstance(kernel.run, partial) else kernel.run
        if run is not None:
            file = Path(inspect.getfile(inspect.unwrap(run)))
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return getattr(kernel.function, "cache_key", None), digest


def _locked(path: Path, *, anew: bool) -> int | None:
    """Return the descriptor of the file at *path*, locked by this process, or None."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(file).st_mode):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if anew:
                os.ftruncate(file, 0)
            return file
    os.close(file)
    return None


def _read(file: int) -> dict[str, Kept]:
    found = {}
    with open(file, encoding="utf-8", errors="replace", closefd=False) as entries:
        entries.seek(0)
        for entry in entries:
            # Blank, cut short, or written by another version.
            with contextlib.suppress(KeyError, TypeError, ValueError):
                values = read_kept(entry)
                when = dt.datetime.fromisoformat(values["when"])
                if dt.datetime.now(tz=dt.UTC) - when < LIFETIME:
                    measured = from_line(tuple[Measurement, ...], values["measurements"])
                    found[values["request"]] = when, list(measured)
    return found


def measure_launches(
    launches: Sequence[tuple[Problem, TimedLaunch]],
    *,
    runs: int = DEFAULT_RUNS,
    devices: Sequence[str | None] = (None,),
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    journal: Journal | None = None,
) -> list[Measurement]:
    """Return a measurement for each of *launches*, in order.

    Launches on one problem are timed side by side; problems are spread over *devices*. What
    *journal* has from an interrupted run is not measured again, and each problem is added to it as
    soon as it is measured.

    On Ctrl-C raises UnfinishedError with the finished measurements by index.
    """
    places: dict[Problem, list[int]] = {}
    for place, (problem, _) in enumerate(launches):
        places.setdefault(problem, []).append(place)
    batches = {
        problem: Batch(problem, tuple(launches[place][1] for place in own), runs)
        for problem, own in places.items()
    }
    kept = {} if journal is None else journal.begin(batches, devices)
    found: dict[int, Measurement] = {}
    for problem, measured in kept.items():
        found.update(zip(places[problem], measured, strict=True))
    missing = {problem: batch for problem, batch in batches.items() if problem not in kept}
    processes = [MeasuringProcess(device) for device in devices[: len(missing)]]
    progress(len(found), len(launches))
    finished = distribute(missing, processes, MeasuringProcess.measure)
    try:
        with contextlib.closing(finished):
            for problem, measured in finished:
                if journal is not None:
                    journal.keep(batches[problem], measured)
                found.update(zip(places[problem], measured, strict=True))
                progress(len(found), len(launches))
    except KeyboardInterrupt as interrupt:
        signals.arrived()
        raise UnfinishedError(found) from interrupt
    return [found[place] for place in range(len(launches))]
