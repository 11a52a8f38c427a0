"""Measuring in processes of their own, one a GPU, so that a lost GPU is lost to one launch only."""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_lab.measuring.request import DEFAULT_RUNS, Request, measurements_from_json
from occupancy_lab.values import Measurement
from occupancy_lab.workers import signals
from occupancy_lab.workers.child import Child
from occupancy_lab.workers.spread import UnfinishedError, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.measuring.request import Launch
    from occupancy_lab.values import Problem

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"


class MeasuringProcess:
    """One measuring process on one GPU, started when first needed and again after it died."""

    def __init__(self, device: str | None = None, timeout: float | None = 600.0) -> None:
        """Measure on the GPU that *device* names, as CUDA_VISIBLE_DEVICES does; None: the first."""
        environment = {} if device is None else dict.fromkeys(VISIBLE, device)
        # torch.compile would keep what it compiles in the temporary folder, a child's is its own.
        cache = Path(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
        environment[INDUCTOR] = os.environ.get(INDUCTOR, str(cache))
        self._child = Child("occupancy_lab.measuring.server", environment=environment)
        self._timeout = timeout

    def measure(self, request: Request) -> list[Measurement]:
        """Return a measurement for each launch of *request*, in their order.

        Where the process dies, each launch gets a process for itself, so that only the launch
        that is the cause has no time.
        """
        line = self._child.ask(request.to_json(), self._timeout)
        if line:
            measurements = self._measurements(line, len(request.launches))
            if any(measurement.status == "device lost" for measurement in measurements):
                self._child.end()
            return measurements
        if self._child.closed:
            return [Measurement("launch failed", None, "interrupted") for _ in request.launches]
        if len(request.launches) == 1:
            died = f"the process died: {self._child.last_words}"
            reason = died if line == "" else f"no end in {self._timeout:g} s"
            return [Measurement("device lost", None, reason)]
        return [
            measurement
            for launch in request.launches
            for measurement in self.measure(replace(request, launches=(launch,)))
        ]

    def _measurements(self, line: str, count: int) -> list[Measurement]:
        with contextlib.suppress(ValueError):
            found = measurements_from_json(line)
            if len(found) == count:
                return found
        self._child.end()
        reason = f"the measuring process answers what is no answer: {line.strip()[:40]!r}"
        return [Measurement("launch failed", None, reason)] * count

    def close(self) -> None:
        """End the process for good."""
        self._child.close()


def measure_launches(
    launches: Sequence[tuple[Problem, Launch]],
    *,
    runs: int = DEFAULT_RUNS,
    devices: Sequence[str | None] = (None,),
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    journal: Journal | None = None,
) -> list[Measurement]:
    """Return a measurement for each of *launches*, in their order.

    Launches on one problem are timed side by side; problems are spread over *devices*. What
    *journal* has of an interrupted run is not measured again, and each problem is kept there as
    soon as it is measured.

    Raises UnfinishedError, with the finished measurements by their place, on Ctrl-C.
    """
    groups: dict[Problem, list[int]] = {}
    for place, (problem, _) in enumerate(launches):
        groups.setdefault(problem, []).append(place)
    requests = {
        problem: Request(problem, tuple(launches[place][1] for place in places), runs)
        for problem, places in groups.items()
    }
    found: dict[int, Measurement] = {}
    kept = {} if journal is None else journal.begin(requests, devices)
    for problem, measured in kept.items():
        found.update(zip(groups[problem], measured, strict=True))
    missing = {problem: one for problem, one in requests.items() if problem not in kept}
    processes = [MeasuringProcess(device) for device in devices[: len(missing)]]
    progress(len(found), len(launches))
    try:
        with contextlib.closing(spread(missing, processes, MeasuringProcess.measure)) as finished:
            for problem, measured in finished:
                if journal is not None:
                    journal.keep(requests[problem], measured)
                found.update(zip(groups[problem], measured, strict=True))
                progress(len(found), len(launches))
    except KeyboardInterrupt as interrupt:
        signals.arrived()
        raise UnfinishedError(found) from interrupt
    return [found[place] for place in range(len(launches))]
