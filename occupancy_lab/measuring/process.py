"""Measuring in processes of their own, one a GPU, so that a lost GPU is lost to one launch only."""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_lab.errors import InputError, quoted
from occupancy_lab.gpus import present_gpus
from occupancy_lab.values import Config, Measurement, Problem
from occupancy_lab.workers import signals
from occupancy_lab.workers.child import Child
from occupancy_lab.workers.messages import from_line, to_line
from occupancy_lab.workers.spread import UnfinishedError, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from occupancy_lab.gpus import Gpu, PresentGpu
    from occupancy_lab.measuring.journal import Journal

DEFAULT_RUNS = 30
"""Launches that are timed: a tenth of them, beyond which us_low and us_high lie, is three."""


@dataclass(frozen=True, slots=True)
class TimedLaunch:
    """One thing to time on a problem: a kernel's launch, or a provider by its name."""

    kernel: str
    """What `load_kernel` finds it by, or the name of a provider."""
    config: Config | None = None
    """None for a provider."""
    num_programs: int = 1


@dataclass(frozen=True, slots=True)
class TimedLaunches:
    """Launches to be timed side by side on one problem."""

    problem: Problem
    launches: tuple[TimedLaunch, ...]
    runs: int = DEFAULT_RUNS

    def to_json(self) -> str:
        """Return the request as one line of JSON."""
        return to_line(self)

    @classmethod
    def from_json(cls, line: str) -> TimedLaunches:
        """Return the request of a line that `to_json` made."""
        request: TimedLaunches = from_line(cls, line)
        return request


def measurements_to_json(measurements: Sequence[Measurement]) -> str:
    """Return *measurements* as one line of JSON."""
    return to_line(measurements)


def measurements_from_json(line: str) -> list[Measurement]:
    """Return the measurements of a line that `measurements_to_json` made.

    Raises ValueError for any other line.
    """
    return list(from_line(tuple[Measurement, ...], line))


ALL = "all"


def chosen_devices(
    purpose: str, asked: str | Sequence[int] | None = None
) -> tuple[Gpu, tuple[str | None, ...]]:
    """Return the GPU that is here, and what a MeasuringProcess calls each device of that kind.

    *asked* is "all", or the numbers of GPUs as a list or with commas; None takes the first GPU.

    Raises InputError, naming the *purpose*, where there is no GPU, where torch cannot use it, and
    where those asked for are not there or not alike.
    """
    here = present_gpus()
    if not here:
        msg = f"{purpose} needs a GPU of this machine; none was found"
        raise InputError(msg)
    _check_torch(purpose, here[0])
    if asked is None:
        return here[0].gpu, (None,)
    chosen = [one for one in here if one.gpu.key == here[0].gpu.key]
    if asked != ALL:
        chosen = [_numbered(here, number) for number in _numbers(asked)]
    kinds = {one.gpu.key: one.name for one in chosen}
    if len(kinds) > 1:
        msg = f"{' and '.join(kinds.values())} are not alike: {purpose} takes GPUs of one kind"
        raise InputError(msg)
    return chosen[0].gpu, tuple(dict.fromkeys(map(_visible_name, chosen)))


def device_names() -> tuple[str, ...]:
    """Return every GPU of this machine by its name and its own UUID."""
    return tuple(f"{one.name} {one.uuid}" for one in present_gpus())


def _check_torch(purpose: str, present: PresentGpu) -> None:
    import torch

    if not torch.cuda.is_available():
        msg = (
            f"{purpose} needs a torch that can use {present.name}; the one installed,"
            f" {torch.__version__}, cannot"
        )
        raise InputError(msg)


def _numbers(asked: str | Sequence[int]) -> list[int]:
    parts = asked.split(",") if isinstance(asked, str) else [str(number) for number in asked]
    if not parts or not all(part.strip().isdecimal() for part in parts):
        msg = f"{quoted(asked)} names no GPUs; give all, or their numbers with commas, such as 0,1"
        raise InputError(msg)
    return [int(part) for part in parts]


def _numbered(here: Sequence[PresentGpu], number: int) -> PresentGpu:
    alike = [one for one in here if one.gpu.vendor == here[0].gpu.vendor]
    for one in alike:
        if one.index == number:
            return one
    known = ", ".join(str(one.index) for one in alike)
    msg = f"there is no GPU {number} here; there is {known}"
    raise InputError(msg)


def _visible_name(present: PresentGpu) -> str:
    """Return what CUDA_VISIBLE_DEVICES has to be for a process that sees this GPU alone.

    Where it is set already, the driver numbers only those that it lists; KFD numbers them all.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not listed or present.gpu.vendor != "NVIDIA":
        return str(present.index)
    return listed.split(",")[present.index].strip()


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
        self._child = Child("occupancy_lab.measuring.measure", environment=environment)
        self._timeout = timeout

    def measure(self, request: TimedLaunches) -> list[Measurement]:
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
    launches: Sequence[tuple[Problem, TimedLaunch]],
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
        problem: TimedLaunches(problem, tuple(launches[place][1] for place in places), runs)
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
