"""How long launches take, and why, before they are launched: one, or the rows of a table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from occupancy_lab.kernel import Grid
from occupancy_lab.occupancy.planning import plan_launch, traffic
from occupancy_lab.throughput.calibrations import calibration_for
from occupancy_lab.throughput.features import features, launch_features, stack
from occupancy_lab.throughput.model import launch_times, overfull_us
from occupancy_lab.throughput.plain_copy import copy_launch, further_launches
from occupancy_lab.values import Config, Part, Prediction, Problem, Resources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.throughput.calibrations import Basis
    from occupancy_lab.throughput.features import Features
    from occupancy_lab.throughput.model import LaunchTimes
    from occupancy_lab.values import LaunchPlan, Occupancy, Traffic


def predict(  # noqa: PLR0913, PLR0917 - the values of a record, in their order
    kernel: Kernel,
    problem: Problem,
    config: Config,
    resources: Resources,
    occupancy: Occupancy,
    plan: LaunchPlan,
    gpu: Gpu,
) -> Prediction | None:
    """Return how long a launch takes; None where the GPU, the binary or the traffic is not known.

    The model is `occupancy_lab.throughput.model`'s; its constants are those of a calibration of
    this GPU, or else worked out from its data sheet, and the prediction says which. Where *plan*
    has more programs than fit, those left over are counted too.
    """
    return predict_all([(kernel, problem, config, resources, occupancy, plan)], gpu)[0]


PlannedLaunch: TypeAlias = "tuple[Kernel, Problem, Config, Resources, Occupancy, LaunchPlan]"
"""What `predict` takes of a launch besides the GPU."""


def predict_all(launches: Sequence[PlannedLaunch], gpu: Gpu) -> list[Prediction | None]:
    """Return what `predict` returns of each of *launches*, and None where no program fits."""
    basis = calibration_for(gpu)
    if basis is None:
        return [None] * len(launches)
    known, totals = {}, {}
    for place, (kernel, problem, config, resources, occupancy, plan) in enumerate(launches):
        programs = occupancy.programs_per_multiprocessor
        launch = features(kernel, problem, config, resources, programs, plan, gpu)
        if launch is not None and programs:
            known[place] = launch
            totals[place] = traffic(kernel.steps(problem), problem).total_bytes
    found: list[Prediction | None] = [None] * len(launches)
    together = predictions([*known.values()], [*totals.values()], gpu, basis)
    for (place, launch), prediction in zip(known.items(), together, strict=True):
        num_programs, total = launches[place][-1].num_programs or 0, totals[place]
        strides = launches[place][0].grid is Grid.PERSISTENT and launch.loops
        if strides and num_programs > launch.programs * launch.multiprocessors:
            longer = overfull_us(launch, basis.constants, num_programs)
            prediction = _longer(prediction, longer, total)  # noqa: PLW2901 - the same, with its end
        found[place] = prediction
    return found


def predict_launch(
    resources: Resources, moved: Traffic, occupancy: Occupancy, plan: LaunchPlan, gpu: Gpu
) -> Prediction | None:
    """Return how long a launch of any kernel takes that moves *moved*.

    It is no less than its bytes take at the bandwidth of the data sheet. A kernel with a loop,
    tensor cores or clusters has no prediction: the binary does not say how often a loop runs, and
    the model knows neither of the others. None too where the GPU or the binary leaves it open.
    """
    basis, least = calibration_for(gpu), moved.floor_us(gpu.bandwidth_gbs)
    simple = (
        resources.loop_instructions is None
        and not resources.tensor_instructions
        and resources.num_ctas == 1
    )
    programs = occupancy.programs_per_multiprocessor
    launch = launch_features(resources, moved, programs, plan, gpu) if simple else None
    if launch is None or basis is None or least is None or not moved.total_bytes:
        return None
    found = predictions([launch], [moved.total_bytes], gpu, basis)[0]
    us = max(found.us, least)
    return dataclasses.replace(found, us=us, gbs=moved.total_bytes / us / 1e3)


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
        _prediction(found, place, moved, copy_us[moved], basis)
        for place, moved in enumerate(total_bytes)
    ]


def _prediction(
    found: LaunchTimes, place: int, moved: int, copy_us: float, basis: Basis
) -> Prediction:
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


_RESOURCES = tuple(field.name for field in dataclasses.fields(Resources))


def row_problem(row: Mapping[Any, Any]) -> Problem:
    """Return the problem of a row."""
    return Problem(int(row["rows"]), int(row["cols"]), str(row["dtype"]))


def row_config(row: Mapping[Any, Any]) -> Config:
    """Return the configuration of a row."""
    return Config(int(row["BLOCK_SIZE"]), int(row["num_warps"]), int(row["num_stages"]))


def row_resources(row: Mapping[Any, Any]) -> Resources:
    """Return the resources that a row's columns hold; a column that is missing or empty is None."""
    import pandas as pd

    known = {name: int(row[name]) for name in _RESOURCES if name in row and not pd.isna(row[name])}
    return Resources(**known)


def row_features(row: Mapping[Any, Any], kernel: Kernel, gpu: Gpu) -> Features | None:
    """Return the features of a row's launch with as many programs as planned.

    None where one of them is not known.
    """
    import pandas as pd

    if pd.isna(row["programs_per_multiprocessor"]):
        return None
    problem, config = row_problem(row), row_config(row)
    programs = int(row["programs_per_multiprocessor"])
    plan = plan_launch(kernel, problem, config, programs, gpu.multiprocessors)
    return features(kernel, problem, config, row_resources(row), programs, plan, gpu)


@dataclass(frozen=True, slots=True)
class RowPrediction:
    """What is predicted of one row of a table."""

    place: int
    """The row's place in the table."""
    total_bytes: int
    """Bytes that its launch reads and writes."""
    prediction: Prediction


def predict_rows(
    rows: pd.DataFrame, kernels: Mapping[str, Kernel], gpu: Gpu, basis: Basis
) -> list[RowPrediction]:
    """Return what is predicted of those of *rows*, all of *gpu*, that can be predicted."""
    places, launches, totals = [], [], []
    for place, row in enumerate(rows.to_dict("records")):
        kernel = kernels[str(row["kernel"])]
        launch = row_features(row, kernel, gpu)
        if launch is not None:
            problem = row_problem(row)
            places.append(place)
            launches.append(launch)
            totals.append(traffic(kernel.steps(problem), problem).total_bytes)
    found = zip(places, totals, predictions(launches, totals, gpu, basis), strict=True)
    return [RowPrediction(place, total, prediction) for place, total, prediction in found]


PREDICTED_COLUMNS = ("predicted_us", "predicted_gbs", "bound", "basis")
"""The columns of a table that are fields of a Prediction."""


def add_predictions(
    table: pd.DataFrame, kernels: Mapping[str, Kernel], gpus: Mapping[str, Gpu]
) -> None:
    """Fill the predicted columns of *table*; what cannot be predicted stays missing.

    *kernels* has the kernels of its rows by their names, *gpus* their GPUs by their keys.
    """
    for name, rows in table.groupby("gpu", sort=False):
        gpu = gpus[str(name)]
        basis = calibration_for(gpu)
        if basis is None:
            continue
        found = predict_rows(rows, kernels, gpu, basis)
        places = rows.index[[one.place for one in found]]
        for column in PREDICTED_COLUMNS:
            values = [getattr(one.prediction, column.removeprefix("predicted_")) for one in found]
            table.loc[places, column] = values
