"""Simulated GPUs, their calibration and their launches."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from occupancy_lab.compiling.compile import check_options, failure_of
from occupancy_lab.compiling.compiler import Compilation
from occupancy_lab.compiling.environment import running_environment
from occupancy_lab.compiling.store import Store
from occupancy_lab.errors import CompileError, CompileTimeoutError, InputError
from occupancy_lab.explaining.dry_run import asked_of
from occupancy_lab.explaining.explanation import Explanation, explain_asked
from occupancy_lab.gpus import Gpu, find_gpu
from occupancy_lab.gpus.present import PresentGpu
from occupancy_lab.kernel import variants
from occupancy_lab.measuring.process import TimedLaunch
from occupancy_lab.record import Record
from occupancy_lab.sweeping.recorded import RecordedLaunch
from occupancy_lab.throughput import calibrations
from occupancy_lab.throughput.calibrations import Calibration
from occupancy_lab.values import (
    Conditions,
    Config,
    Failure,
    Measurement,
    Problem,
    Resources,
    Target,
    Work,
)
from occupancy_lab.work.counts import Counts

CONDITIONS = Conditions(
    device="NVIDIA H200",
    date="2026-11-21",
    driver="580.95.05",
    torch="2.11.0",
    triton="3.6.0",
    timer="device events",
    l2="flushed",
    sm_mhz=1980,
)
MEASURED = Measurement(
    "measured", CONDITIONS, None, 12.4, 12.2, 13.1, 30, 1e-7, mostly_launch=False
)
"""A launch that takes 12.4 us."""
CALIBRATION = Calibration(
    gpu="h200",
    device="NVIDIA H200",
    date="2026-11-20",
    torch="2.11.0",
    triton="3.6.0",
    units={"launch_us": 2.7, "read_gbs": 4400.0, "l2_loads": 0.53},
)
"""A calibration of no real GPU."""


UNLISTED = dataclasses.replace(
    find_gpu("sm_90"),
    title="NVIDIA H100 XYZ",
    multiprocessors=100,
    boost_mhz=1500,
    bandwidth_gbs=3000.0,
    architecture=dataclasses.replace(find_gpu("sm_90").architecture, max_warps=40),
)
"""A GPU that the table of devices lacks, as its driver describes it: sm_90's limits differ."""


def put_here(patch: pytest.MonkeyPatch, *names: str | Gpu) -> None:
    """Simulate the GPUs *names*, keys or GPUs, in this machine, usable by torch."""
    gpus = [find_gpu(name) if isinstance(name, str) else name for name in names]
    here = tuple(PresentGpu(gpu, gpu.title, {}, place, gpu) for place, gpu in enumerate(gpus))
    for module in ("inputs", "cli.doctor", "measuring.process", "measuring.verify"):
        patch.setattr(f"occupancy_lab.{module}.present_gpus", lambda: here)
    patch.setattr(torch.cuda, "is_available", lambda: bool(names))
    patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def put_calibration(patch: pytest.MonkeyPatch, directory: Path) -> None:
    """Keep CALIBRATION in the test's own store, and compiled results in the run's."""
    patch.setenv("OCCUPANCY_LAB_CACHE_DIR", str(directory))
    CALIBRATION.write(calibrations.calibration_path(CALIBRATION.gpu))
    for kind in ("resources", "texts", "counted"):
        shared = Path.home() / "store" / kind
        shared.mkdir(parents=True, exist_ok=True)
        (directory / kind).symlink_to(shared)
    known = {CALIBRATION.gpu: CALIBRATION}
    patch.setattr(calibrations, "_calibrations", lambda: known)


class Launches:
    """Stands in for `measure_launches`, and keeps what it is asked for.

    Every launch takes what `times` gives for it in us; None is a launch that fails.
    """

    def __init__(self, times: Callable[[TimedLaunch], float | None] = lambda _launch: 10.0) -> None:
        self.times = times
        self.asked: list[tuple[Problem, TimedLaunch]] = []
        self.devices: tuple[str | None, ...] = ()

    def __call__(
        self,
        launches: Sequence[tuple[Problem, TimedLaunch]],
        *,
        runs: int = 30,
        devices: Sequence[str | None] = (None,),
        progress: Callable[[int, int], None] = lambda _done, _of: None,
        journal: object = None,  # noqa: ARG002 - the signature of measure_launches
    ) -> list[Measurement]:
        """Return a measurement for each of *launches*."""
        self.asked += launches
        self.devices = tuple(devices)
        progress(len(launches), len(launches))
        return [self._measured(launch, runs) for _, launch in launches]

    def _measured(self, launch: TimedLaunch, runs: int) -> Measurement:
        us = self.times(launch)
        if us is None:
            return Measurement("launch failed", CONDITIONS, "RuntimeError: no luck")
        return Measurement(
            status="measured",
            conditions=CONDITIONS,
            us=us,
            us_low=us * 0.9,
            us_high=us * 1.2,
            runs=runs,
            relative_error=1e-7,
            mostly_launch=False,
        )


def values_of(text: str) -> object:
    """Return the values in a JSON *text*, which must be strict JSON."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise AssertionError(word)


class GivenCompiler:
    """Stands in for a Compiler: *outcome* gives a launch's resources or failure."""

    def __init__(self, outcome: Callable[[Mapping[str, Any], Target], Resources | str]) -> None:
        self._outcome = outcome
        self.environment = running_environment()
        self.store = Store(None)

    def close(self) -> None:
        """Do nothing."""

    def check_file(self, name: str) -> None:
        """Do nothing."""

    def compile(self, wanted: Sequence[Compilation]) -> list[Resources | Failure]:
        """Return the given outcome for each launch's keywords."""
        return [self._given(one) for one in wanted]

    def texts(self, wanted: Sequence[Compilation]) -> list[None]:
        """Return None for each."""
        return [None for _ in wanted]

    def _given(self, wanted: Compilation) -> Resources | Failure:
        try:
            return self.resources(wanted)
        except (CompileError, InputError) as error:
            return failure_of(error)

    def resources(self, wanted: Compilation) -> Resources:
        """Return the given resources for the launch's keywords."""
        check_options(wanted.function, wanted.launch, wanted.target)
        found = self._outcome(wanted.launch.keywords, wanted.target)
        if isinstance(found, str):
            error = CompileTimeoutError if "longer" in found else CompileError
            raise error(found)
        return found


def dry(  # noqa: PLR0913 - what a launch line has
    kernel: Any,
    gpus: str,
    outcome: Callable[[Mapping[str, Any], Target], Resources | str],
    *arguments: Any,
    grid: Any = None,
    read: int | None = None,
    written: int | None = None,
    counts: Counts | None = None,
    **keywords: Any,
) -> Explanation:
    """Return the dry run of a launch line of which *outcome* says what is compiled.

    *counts* are what each launch does.
    """
    compiler: Any = GivenCompiler(outcome)
    found = [
        dataclasses.replace(one, launch=dataclasses.replace(one.launch, work=Work(read, written)))
        for one in variants(kernel, arguments, keywords, grid)
    ]
    gpus_ = [find_gpu(name) for name in gpus.split(",")]
    page = explain_asked(asked_of(found, gpus_), compiler)
    if counts is None:
        return page
    counted = {"counts": counts, "why_not_counted": None}
    runs = (
        dataclasses.replace(one, **counted).with_time() if isinstance(one, Record) else one  # type: ignore[arg-type]
        for one in page.runs
    )
    return dataclasses.replace(page, runs=tuple(runs))


def recorded_launch(us: float) -> RecordedLaunch:
    """Return a launch with one program per row that took *us* when it was recorded."""
    measured = dataclasses.replace(MEASURED, us=us)
    return RecordedLaunch(
        "softmax_row", Config(1024, 4, 1), 4096, as_compiled=True, measurement=measured
    )


class Waiting:
    """Stands in for torch.cuda: the processor needs *needed* cycles to queue a burst."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.waited: list[int] = []

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it in torch's place, and a small tensor in the place of any."""
        monkeypatch.setattr(torch, "cuda", self)
        monkeypatch.setattr(torch, "empty", lambda *_shape, **_options: torch.zeros(1))

    def __getattr__(self, _name: str) -> object:
        return lambda **_options: self

    def _sleep(self, cycles: int) -> None:
        self.waited.append(cycles)

    def query(self) -> bool:
        """Return whether the GPU came to a launch before it was queued."""
        return self.waited[-1] < self.needed

    def elapsed_time(self, _end: object) -> float:
        """Return a time in ms that is longer where a launch was late."""
        return 2e-3 if self.query() else 1e-3
