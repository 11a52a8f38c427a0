"""How long the kernel should take on each GPU, by the tutorial's choice and with fewest stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.reporting.vendors import Vendors
    from occupancy_lab.values import Prediction, Problem


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch whose time can be predicted."""

    record: Record
    prediction: Prediction


@dataclass(frozen=True, slots=True)
class Times:
    """One problem on one GPU."""

    gpu: Gpu
    problem: Problem
    tutorial: Launch | None
    """With the num_warps and num_stages that the tutorial takes on that GPU; None: not known."""
    best: Launch
    """With the fewest stages and the num_warps that are predicted to be the fastest with them."""


def make_times(vendors: Vendors) -> tuple[Times, ...]:
    """Return the predicted times of each problem on each GPU that has a prediction."""
    found = (_times(vendors, gpu, problem) for problem in vendors.problems for gpu in vendors.gpus)
    return tuple(times for times in found if times is not None)


def tutorial_record(vendors: Vendors, gpu: Gpu, problem: Problem) -> Record | None:
    """Return the kernel as the tutorial would compile it for *gpu*; None where that is no row."""
    kernel = vendors.records[0].kernel
    config = kernel.default_config(problem, gpu.architecture.max_shared)
    return vendors.at(gpu, problem, config.num_warps, config.num_stages)


def _times(vendors: Vendors, gpu: Gpu, problem: Problem) -> Times | None:
    launches = [
        launch
        for num_warps in vendors.num_warps
        if (record := vendors.at(gpu, problem, num_warps, vendors.num_stages[0])) is not None
        and (launch := _launch(record)) is not None
    ]
    if not launches:
        return None
    tutorial = tutorial_record(vendors, gpu, problem)
    return Times(
        gpu=gpu,
        problem=problem,
        tutorial=None if tutorial is None else _launch(tutorial),
        best=min(launches, key=lambda launch: launch.prediction.us),
    )


def _launch(record: Record) -> Launch | None:
    return None if record.prediction is None else Launch(record, record.prediction)
