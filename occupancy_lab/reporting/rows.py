"""What the columns of a row hold, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.sweeping.measured import row_conditions
from occupancy_lab.values import Config, Measurement, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def row_problem(row: Mapping[Any, Any]) -> Problem:
    """Give the problem of a row."""
    return Problem(int(row["rows"]), int(row["cols"]), str(row["dtype"]))


def row_config(row: Mapping[Any, Any]) -> Config:
    """Give the configuration of a row."""
    return Config(int(row["BLOCK_SIZE"]), int(row["num_warps"]), int(row["num_stages"]))


def row_measurement(row: Mapping[Any, Any]) -> Measurement:
    """Give the measurement of a row that was launched."""
    import pandas as pd

    def known(name: str) -> Any:
        return None if pd.isna(row[name]) else row[name]

    names = ("us", "us_low", "us_high", "runs", "relative_error", "mostly_launch")
    columns = {name: known(name) for name in names}
    return Measurement(str(row["measured"]), row_conditions(row), known("why_not"), **columns)
