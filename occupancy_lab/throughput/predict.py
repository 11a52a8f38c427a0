"""How long launches take, and why, before they are launched."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.occupancy.exact import FIELDS
from occupancy_lab.occupancy.planning import plan_launch
from occupancy_lab.prediction import Part, Prediction
from occupancy_lab.throughput.calibrations import calibration_for
from occupancy_lab.throughput.features import features, stack
from occupancy_lab.throughput.model import launch_times, overfull_us
from occupancy_lab.throughput.plain_copy import copy_launch, further_launches
from occupancy_lab.values import Config, Problem, Resources, Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.throughput.calibrations import Basis
    from occupancy_lab.throughput.features import Features
    from occupancy_lab.throughput.model import LaunchTimes
    from occupancy_lab.values import LaunchPlan, Work


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """What a prediction takes of a launch besides the GPU."""

    work: Work
    num_stages: int
    resources: Resources
    programs_per_multiprocessor: int
    plan: LaunchPlan

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - what a plan depends on
        cls,
        grid: Sequence[int] | None,
        work: Work,
        num_stages: int,
        resources: Resources,
        programs_per_multiprocessor: int,
        gpu: Gpu,
    ) -> PlannedLaunch | None:
        """Return a launch with so many programs resident on each multiprocessor of *gpu*.

        None where how much there is to do is not known.
        """
        programs, multiprocessors = programs_per_multiprocessor, gpu.multiprocessors
        resident = None if multiprocessors is None else programs * multiprocessors
        plan = plan_launch(grid, work, resident)
        return None if plan is None else cls(work, num_stages, resources, programs, plan)

    def features(self, gpu: Gpu) -> Features | None:
        """Return what the model needs to know of it on *gpu*; None where that is not known."""
        programs = self.programs_per_multiprocessor
        if not programs or not (self.work.traffic and self.work.traffic.total_bytes):
            return None
        return features(self.work, self.num_stages, self.resources, programs, self.plan, gpu)


def predict(
    launches: Sequence[PlannedLaunch | None], gpu: Gpu, basis: Basis | None = None
) -> list[Prediction | None]:
    """Return how long each launch takes; None where GPU, binary, traffic or loop is not known.

    The model is `occupancy_lab.throughput.model`'s; its constants are *basis*, else those of a
    calibration of this GPU or worked out from its data sheet, and the prediction says which. No
    launch takes less than its bytes at the bandwidth of the data sheet. Where a plan has more
    programs than fit, those left over are counted too.
    """
    basis = basis or calibration_for(gpu)
    found: list[Prediction | None] = [None] * len(launches)
    if basis is None:
        return found
    known = [
        (place, one, launch)
        for place, one in enumerate(launches)
        if one is not None and (launch := one.features(gpu)) is not None
    ]
    totals = [one.work.known_bytes or 0 for _, one, _ in known]
    predicted = predictions([launch for *_, launch in known], totals, gpu, basis)
    for (place, one, launch), total, prediction in zip(known, totals, predicted, strict=True):
        num_programs, longer = one.plan.num_programs or 0, prediction
        strides = one.plan.is_persistent and launch.loops
        if strides and num_programs > launch.programs * launch.multiprocessors:
            us = overfull_us(launch, basis.constants, num_programs)
            longer = _longer(prediction, us, total)
        found[place] = longer
    return found


def predictions(
    launches: Sequence[Features], total_bytes: Sequence[int], gpu: Gpu, basis: Basis
) -> list[Prediction]:
    """Return the prediction of each of *launches*, which move *total_bytes*, on *gpu*."""
    if not launches:
        return []
    totals = dict.fromkeys(total_bytes)
    copies = {total: copy for total in totals if (copy := copy_launch(total, gpu)) is not None}
    found = launch_times(stack([*launches, *copies.values()]), basis.constants)
    copy_us = {
        total: float(us) + further_launches(total, gpu) * basis.constants.launch_us
        for total, us in zip(copies, found.total[len(launches) :], strict=True)
    }
    return [
        _prediction(found, place, Traffic(moved, 0), copy_us[moved], gpu, basis)
        for place, moved in enumerate(total_bytes)
    ]


def _prediction(  # noqa: PLR0913, PLR0917 - what it is made of
    found: LaunchTimes, place: int, traffic: Traffic, copy_us: float, gpu: Gpu, basis: Basis
) -> Prediction:
    moved = traffic.total_bytes

    def us(name: str) -> float:
        return float(getattr(found, name)[place])

    parts = (
        Part("launch", us("fixed") + us("dispatch")),
        Part("latency", us("latency")),
        Part("issue", us("issue")),
        Part("bandwidth", us("bandwidth")),
        Part("tail", us("tail")),
    )
    total = max(us("total"), traffic.floor_us(gpu.bandwidth_gbs) or 0.0)
    return Prediction(
        us=total,
        gbs=moved / total / 1e3,
        copy_gbs=moved / copy_us / 1e3,
        parts=parts,
        basis=basis.words,
        calibrated=basis.calibrated,
        error=basis.error,
    )


def _longer(prediction: Prediction, us: float, moved: int) -> Prediction:
    """Return *prediction* of a launch that waits *us* longer for its last programs."""
    total = prediction.us + us
    parts = tuple(
        dataclasses.replace(part, us=max(part.us + us, 0.0)) if part.name == "tail" else part
        for part in prediction.parts
    )
    return dataclasses.replace(prediction, us=total, gbs=moved / total / 1e3, parts=parts)


def row_problem(row: Mapping[Any, Any]) -> Problem:
    """Return the problem of a row."""
    return Problem(int(row["rows"]), int(row["cols"]), str(row["dtype"]))


def row_config(row: Mapping[Any, Any]) -> Config:
    """Return the configuration of a row."""
    return Config(int(row["BLOCK_SIZE"]), int(row["num_warps"]), int(row["num_stages"]))


def row_resources(row: Mapping[Any, Any]) -> Resources:
    """Return the resources that a row's columns hold; a column that is missing or empty is None."""
    import pandas as pd

    known = {name: int(row[name]) for name in FIELDS if name in row and not pd.isna(row[name])}
    return Resources(**known)


def row_launch(row: Mapping[Any, Any], kernel: Kernel, gpu: Gpu) -> PlannedLaunch | None:
    """Return a row's launch with as many programs as planned; None where no program fits."""
    import pandas as pd

    programs = row["programs_per_multiprocessor"]
    if pd.isna(programs):
        return None
    problem, config = row_problem(row), row_config(row)
    grid, work = kernel.launched_grid(problem, config), kernel.launched_work(problem, config)
    resources = row_resources(row)
    return PlannedLaunch.of(grid, work, config.num_stages, resources, int(programs), gpu)
