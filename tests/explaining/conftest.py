"""Records of kernels whose resources are given, so that words do not depend on a compiler."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from records import record_of
from stand_ins import CALIBRATION

from occupancy_lab import compiled_records, record
from occupancy_lab.explaining import timing
from occupancy_lab.explaining.case import Case, Recorded
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import check_launch
from occupancy_lab.kernel import load_kernel
from occupancy_lab.prediction import Part, Prediction
from occupancy_lab.throughput import calibrations
from occupancy_lab.throughput.calibrations import UNCONFIRMED_ERROR
from occupancy_lab.values import Config, Measurement, Problem, Resources

if TYPE_CHECKING:
    from collections.abc import Callable

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.throughput.predict import PlannedLaunch


def simple_prediction(launch: PlannedLaunch | None, gpu: Gpu) -> Prediction | None:
    """Stand in for the model, so that words do not depend on it either."""
    moved = None if launch is None else launch.work.traffic
    if launch is None or moved is None:
        return None
    plan, resources = launch.plan, launch.resources
    if None in {gpu.multiprocessors, gpu.bandwidth_gbs, resources.instructions}:
        return None
    floor = moved.floor_us(gpu.bandwidth_gbs) or 0.0
    loops = plan.is_persistent
    fit = launch.programs_per_multiprocessor * (gpu.multiprocessors or 0)
    waiting = 7.0 if loops and (plan.num_programs or 0) > fit else 0.0
    parts = (
        Part("launch", 3.0 + (plan.num_programs or 0) / 1000),
        Part("latency", 2.0 * (plan.rounds or 0)),
        Part("issue", 0.04 * resources.num_warps * plan.work / gpu.multiprocessors),
        Part("bandwidth", floor * (1.1 if loops else 1.05)),
        Part("tail", 0.25 + waiting),
    )
    us = parts[0].us + max(part.us for part in parts[1:]) + waiting
    calibrated = gpu.vendor == "NVIDIA"
    return Prediction(
        us=us,
        gbs=moved.total_bytes / us / 1e3,
        copy_gbs=moved.total_bytes / (2.5 + 1.05 * floor) / 1e3,
        parts=parts,
        basis="calibrated on this GPU" if calibrated else "the data sheet",
        calibrated=calibrated,
        error=None if calibrated else UNCONFIRMED_ERROR,
    )


@pytest.fixture(autouse=True)
def _calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have constants of the tests' own, where what is compiled is predicted."""
    monkeypatch.setattr(calibrations, "_calibrations", lambda: {CALIBRATION.gpu: CALIBRATION})


@pytest.fixture
def make_case(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Case]:
    """Return a function that makes a case of resources instead of compiling."""
    for module in (record, compiled_records, timing):
        monkeypatch.setattr(
            module,
            "predict",
            lambda launches, gpu: [simple_prediction(launch, gpu) for launch in launches],
        )

    def make(  # noqa: PLR0913 - what a case is made of
        gpu: str,
        resources: Resources,
        single_stage: Resources | None = None,
        *,
        kernel: str = "softmax",
        problem: Problem = Problem(4096, 781),  # noqa: B008 - it is frozen
        config: Config | None = None,
        measurement: Measurement | None = None,
        recorded: Recorded = Recorded(),  # noqa: B008 - it is frozen
    ) -> Case:
        found, chosen = load_kernel(kernel), find_gpu(gpu)
        config = config or found.default_config(problem, chosen.architecture.max_shared)
        check_launch(found, problem, config, chosen)
        made = record_of(found, problem, config, chosen, resources)
        made = dataclasses.replace(made, measurement=measurement)
        one_stage = dataclasses.replace(config, num_stages=1)
        single = record_of(found, problem, one_stage, chosen, single_stage or resources)
        return Case(made, single, recorded=recorded)

    return make
