"""The model over the rows of a table, those of a sweep or of a recorded file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from occupancy_lab.gpus import find_gpu
from occupancy_lab.planning import plan_launch, traffic
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

_RESOURCES = tuple(field.name for field in dataclasses.fields(Resources))


def row_resources(row: Mapping[Any, Any]) -> Resources:
    """Give the resources that a row's columns hold; a column that is missing or empty is None."""
    import pandas as pd

    known = {name: int(row[name]) for name in _RESOURCES if name in row and not pd.isna(row[name])}
    return Resources(**known)


def row_features(row: Mapping[Any, Any], kernel: Kernel, gpu: Gpu) -> Features | None:
    """Give the features of a row's launch, None where one is not known.

    A row with `launched` was launched with that many programs, another with as many as planned.
    """
    import pandas as pd

    if pd.isna(row["programs_per_multiprocessor"]):
        return None
    problem = Problem(int(row["rows"]), int(row["cols"]), str(row["dtype"]))
    config = Config(int(row["BLOCK_SIZE"]), int(row["num_warps"]), int(row["num_stages"]))
    programs = int(row["programs_per_multiprocessor"])
    plan = plan_launch(kernel, problem, config, programs, gpu.multiprocessors)
    return features(kernel, problem, config, row_resources(row), programs, plan, gpu)


def add_predictions(table: pd.DataFrame, kernels: Mapping[str, Kernel]) -> None:
    """Fill the predicted columns of *table*; what cannot be predicted stays missing."""
    for name, rows in table.groupby("gpu", sort=False):
        gpu = find_gpu(str(name))
        basis = calibration_for(gpu)
        if basis is not None:
            _fill(table, rows, kernels, (gpu, basis))


def _fill(
    table: pd.DataFrame,
    rows: pd.DataFrame,
    kernels: Mapping[str, Kernel],
    on: tuple[Gpu, Basis],
) -> None:
    gpu, basis = on
    found = [
        (place, launch, row)
        for place, row in zip(rows.index, rows.to_dict("records"), strict=True)
        if (launch := row_features(row, kernels[str(row["kernel"])], gpu)) is not None
    ]
    total = [_bytes(kernels[str(row["kernel"])], row) for _, _, row in found]
    predicted = predictions([launch for _, launch, _ in found], total, basis)
    for (place, _, _), one in zip(found, predicted, strict=True):
        table.loc[place, "predicted_us"] = one.us
        table.loc[place, "predicted_gbs"] = one.gbs
        table.loc[place, "bound"] = one.bound
        table.loc[place, "basis"] = one.basis


def _bytes(kernel: Kernel, row: Mapping[Any, Any]) -> int:
    problem = Problem(int(row["rows"]), int(row["cols"]), str(row["dtype"]))
    return traffic(kernel.memory_steps(problem), problem).total_bytes
