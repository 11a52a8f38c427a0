"""The model over the rows of a table, those of a sweep or of a recorded file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.occupancy.planning import plan_launch, traffic
from occupancy_lab.throughput.calibrations import calibration_for
from occupancy_lab.throughput.features import features
from occupancy_lab.throughput.predict import predictions
from occupancy_lab.values import Config, Problem, Resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.throughput.calibrations import Basis
    from occupancy_lab.throughput.features import Features
    from occupancy_lab.values import Prediction

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
    found = []
    for place, row in enumerate(rows.to_dict("records")):
        kernel = kernels[str(row["kernel"])]
        launch = row_features(row, kernel, gpu)
        if launch is not None:
            problem = row_problem(row)
            moved = traffic(kernel.memory_steps(problem), problem).total_bytes
            found.append((place, moved, launch))
    said = predictions([launch for _, _, launch in found], [moved for _, moved, _ in found], basis)
    return [
        RowPrediction(place, moved, one) for (place, moved, _), one in zip(found, said, strict=True)
    ]


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
        table.loc[places, "predicted_us"] = [one.prediction.us for one in found]
        table.loc[places, "predicted_gbs"] = [one.prediction.gbs for one in found]
        table.loc[places, "bound"] = [one.prediction.bound for one in found]
        table.loc[places, "basis"] = [one.prediction.basis for one in found]
