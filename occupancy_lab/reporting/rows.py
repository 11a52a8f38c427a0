"""What the measured columns of a row hold, as a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.sweeping.measured import row_conditions
from occupancy_lab.values import Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def row_measurement(row: Mapping[Any, Any]) -> Measurement:
    """Give the measurement of a row that was launched."""
    import pandas as pd

    def known(name: str) -> Any:
        return None if pd.isna(row[name]) else row[name]

    names = ("us", "us_low", "us_high", "runs", "relative_error", "mostly_launch")
    columns = {name: known(name) for name in names}
    return Measurement(str(row["measured"]), row_conditions(row), known("why_not"), **columns)
