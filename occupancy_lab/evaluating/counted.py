"""The rows of a table that count in an evaluation, each with what is predicted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.kernel import own_kernel
from occupancy_lab.throughput.predict import copy_us
from occupancy_lab.throughput.table import predict_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.throughput.calibrations import Basis

SHAPE = ["rows", "cols", "dtype"]
"""The columns that name a shape; all its configurations, of one kernel or several, compete."""


def counted_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a time of the launch that is planned, in their order.

    Rows where another number of programs was launched, as the tutorial's formula gives it, are
    not what is predicted.
    """
    planned = (table["launched"] == table["num_programs"]).astype("boolean").fillna(value=False)
    rows = table[(table["measured"] == "measured") & planned.astype(bool)]
    types = {"us": float, "occupancy": float, "num_warps": int, "num_stages": int}
    return rows.astype(types).reset_index(drop=True)


def with_claims(
    rows: pd.DataFrame, kernels: Mapping[str, Kernel], gpu: Gpu, basis: Basis
) -> pd.DataFrame:
    """Return those of *rows*, all of *gpu*, that can be predicted, with what is said of each.

    The columns predicted_us, bound, copy_us (the time of a plain copy of as many bytes) and shape
    (a number) are added. *kernels* holds kernels that the lab does not have by their name.

    Raises InputError where a kernel is neither there nor the lab's own.
    """
    known = {name: kernels.get(name) or own_kernel(name) for name in rows["kernel"].unique()}
    found = predict_rows(rows, known, gpu, basis)
    chosen = rows.iloc[[one.place for one in found]]
    return chosen.assign(
        predicted_us=[one.prediction.us for one in found],
        bound=[one.prediction.bound for one in found],
        copy_us=[copy_us(one.total_bytes, basis.constants) for one in found],
        shape=chosen.groupby(SHAPE, sort=False).ngroup(),
    )
