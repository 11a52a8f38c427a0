"""How long a launch takes, and why, before it is launched."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from occupancy_lab.occupancy.planning import traffic
from occupancy_lab.throughput.calibrations import calibration_for
from occupancy_lab.throughput.features import features, stack
from occupancy_lab.throughput.model import times
from occupancy_lab.throughput.overfull import overfull_us
from occupancy_lab.values import Part, Prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.throughput.calibrations import Basis
    from occupancy_lab.throughput.constants import Constants
    from occupancy_lab.throughput.features import Features
    from occupancy_lab.throughput.model import Times
    from occupancy_lab.values import Config, LaunchPlan, Occupancy, Problem, Resources


def predict(  # noqa: PLR0913, PLR0917 - the values of a record, in their order
    kernel: Kernel,
    problem: Problem,
    config: Config,
    resources: Resources,
    occupancy: Occupancy,
    plan: LaunchPlan,
    gpu: Gpu,
) -> Prediction | None:
    """Return how long a launch takes on *gpu*; None where its size or its binary are not known.

    The model is `occupancy_lab.throughput.model`'s; its constants are those of a calibration of
    this GPU, or else worked out from its data sheet, and the prediction says which. Where *plan*
    has more programs than fit, those left over are counted too.
    """
    launch = features(
        kernel, problem, config, resources, occupancy.programs_per_multiprocessor, plan, gpu
    )
    basis = calibration_for(gpu)
    if launch is None or basis is None:
        return None
    total = traffic(kernel.memory_steps(problem), problem).total_bytes
    found = predictions([launch], [total], basis)[0]
    if not launch.loops or (plan.num_programs or 0) <= launch.programs * launch.multiprocessors:
        return found
    return _longer(found, overfull_us(launch, basis.constants, plan.num_programs or 0), total)


def predictions(
    launches: Sequence[Features], total_bytes: Sequence[int], basis: Basis
) -> list[Prediction]:
    """Return the prediction of each of *launches*, which move *total_bytes*, on one GPU."""
    if not launches:
        return []
    found = times(stack(launches), basis.constants)
    return [_prediction(found, place, moved, basis) for place, moved in enumerate(total_bytes)]


def _prediction(found: Times, place: int, moved: int, basis: Basis) -> Prediction:
    def us(name: str) -> float:
        return float(getattr(found, name)[place])

    parts = (
        Part("launch", us("fixed") + us("dispatch")),
        Part("latency", us("latency")),
        Part("issue", us("issue")),
        Part("bandwidth", us("bandwidth")),
        Part("tail", us("tail")),
    )
    return Prediction(
        us=us("total"),
        gbs=moved / us("total") / 1e3,
        ceiling_gbs=moved / copy_us(moved, basis.constants) / 1e3,
        parts=parts,
        basis=basis.words,
        calibrated=basis.calibrated,
    )


def _longer(prediction: Prediction, us: float, moved: int) -> Prediction:
    """Return *prediction* of a launch that waits *us* longer for its last programs."""
    total = prediction.us + us
    parts = tuple(
        dataclasses.replace(part, us=max(part.us + us, 0.0)) if part.name == "tail" else part
        for part in prediction.parts
    )
    return dataclasses.replace(prediction, us=total, gbs=moved / total / 1e3, parts=parts)


def copy_us(moved: int, constants: Constants) -> float:
    """Return the time in us of a plain copy that reads and writes *moved* bytes in all."""
    return constants.launch_us + constants.drain_us + moved / constants.row_bandwidth_gbs / 1e3
