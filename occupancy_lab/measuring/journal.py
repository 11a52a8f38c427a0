"""Measures launches, and keeps a command's measurements until it ends well.

A command that was killed goes on from what it had measured.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from occupancy_lab.compiling import Store, store_directory
from occupancy_lab.compiling.store import key_digest
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

KIND = "unfinished"
"""What the store calls the measurements of commands that have not ended well."""
LIFETIME = dt.timedelta(hours=24)
"""How long measurements of a killed command stay valid: a night and a day."""
PASSING = frozenset({"device lost", "out of memory"})
"""Outcomes that another try may improve: a batch with such an outcome is measured again."""
_VARIABLES = ("CUDA", "HIP", "NVIDIA", "PYTORCH", "ROC", "TORCH", "TRITON", "PTXAS", "LLVM")
"""The prefixes of environment variables that a time may depend on."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The measurements of a batch that an unfinished command made."""

    when: str
    """When, in UTC."""
    measurements: tuple[Measurement, ...]


class Journal:
    """The finished measurements of a command, which the store keeps until it ends well.

    A context manager around the whole command, including its output: if it is left by an exception,
    or the process ends, the measurements stay, and the same command goes on from them within
    LIFETIME. A command is the same if it has the same name, measures the same kernels on the same
    problems, and if nothing has changed on which a time depends: GPUs, driver, torch, Triton,
    timer, kernel files, environment. If the store cannot be written, nothing is kept, without an
    error.
    """

    def __init__(self, command: str, *, keep: bool = True, resume: bool = True) -> None:
        """Keep what *command* measures unless *keep* is false; start anew if *resume* is false."""
        self._command, self._keep, self._resume = command, keep, resume
        self._store = Store(None)
        self._keys: dict[Problem, dict[str, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        # If the reader of a pipe closes it, the command ends with 0.
        if error is None or (isinstance(error, SystemExit) and not error.code):
            for key in self._keys.values():
                self._store.forget(KIND, key)
        elif any(self._store.get_line(KIND, key) for key in self._keys.values()):
            hours = LIFETIME // dt.timedelta(hours=1)
            print_note(f"the same command goes on from what was measured, within {hours} hours")

    def begin(
        self, batches: Mapping[Problem, Batch], devices: Sequence[str | None]
    ) -> dict[Problem, tuple[Measurement, ...]]:
        """Return the kept measurements of *batches*, with a note about them, and begin keeping.

        *devices* are the names of the measuring GPUs for MeasuringProcess.
        """
        if not self._keep:
            return {}
        self._store = Store(store_directory())
        oldest = dt.datetime.now(tz=dt.UTC) - LIFETIME
        self._store.forget_before(KIND, oldest.timestamp())
        same = key_digest(_identity(self._command, batches, devices))
        self._keys = {
            problem: {"command": same, "batch": to_line(batch)}
            for problem, batch in batches.items()
        }
        if not self._resume:
            for key in self._keys.values():
                self._store.forget(KIND, key)
        found: dict[Problem, Kept] = {}
        for problem, key in self._keys.items():
            with contextlib.suppress(ValueError):  # another version wrote it
                found[problem] = from_line(Kept, self._store.get_line(KIND, key) or "")
        if found:
            launches = sum(len(batch.launches) for batch in batches.values())
            kept = sum(len(one.measurements) for one in found.values())
            times = [dt.datetime.fromisoformat(one.when) for one in found.values()]
            print_note(
                f"{kept} of {launches} launches are taken from the run that was interrupted,"
                f" measured {min(times):%Y-%m-%d %H:%M:%S} to {max(times):%H:%M:%S} UTC;"
                " --no-resume measures them anew"
            )
        return {problem: one.measurements for problem, one in found.items()}

    def keep(self, batch: Batch, measurements: Sequence[Measurement]) -> None:
        """Write the measurements of *batch* at once."""
        if self._keys and not any(found.status in PASSING for found in measurements):
            kept = Kept(dt.datetime.now(tz=dt.UTC).isoformat(), tuple(measurements))
            self._store.put_line(KIND, self._keys[batch.problem], to_line(kept))


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
    for problem, known in kept.items():
        found.update(zip(places[problem], known, strict=True))
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
