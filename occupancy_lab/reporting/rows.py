"""What the columns of a row hold, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.kernel import load_kernel
from occupancy_lab.record import record_of
from occupancy_lab.sweeping.measured import row_conditions
from occupancy_lab.throughput.predict import row_config, row_problem, row_resources
from occupancy_lab.values import Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record


def row_record(row: Mapping[Any, Any], gpu: Gpu) -> Record:
    """Return the record of a row that was compiled and fits *gpu*."""
    return record_of(
        load_kernel(str(row["kernel"])),
        row_problem(row),
        row_config(row),
        gpu,
        row_resources(row),
        triton=str(row["triton_version"]),
    )


def row_measurement(row: Mapping[Any, Any]) -> Measurement:
    """Return the measurement of a row that was launched."""
    import pandas as pd

    def known(name: str) -> Any:
        return None if pd.isna(row[name]) else row[name]

    names = ("us", "us_low", "us_high", "runs", "relative_error", "mostly_launch")
    columns = {name: known(name) for name in names}
    return Measurement(str(row["measured"]), row_conditions(row), known("why_not"), **columns)
