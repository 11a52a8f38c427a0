"""Predicted times compared with AMD's traces of an MI300X."""

from pathlib import Path

import mi300x_launches
import pandas as pd

ROOT = Path(__file__).parent.parent.parent
ROWS = pd.read_csv(ROOT / "reports" / "data" / "tracelens-mi300x.csv")
ERRORS = (ROWS["predicted_us"] / ROWS["us"] - 1).abs()


def test_each_operation_has_its_row() -> None:
    """The recorded rows are those of the operations."""
    for row, one in zip(ROWS.itertuples(), mi300x_launches.OPERATIONS, strict=True):
        assert row.trace == one.trace
        assert str(row.kernel).startswith(one.kernel)


def test_half_are_within_a_tenth_and_all_in_their_range() -> None:
    """Of kernels above 10 us, half are within 10%, and all are in their range."""
    assert ROWS["us"].min() > 10
    assert ERRORS.median() <= 0.10
    assert ERRORS.max() <= 0.30
    inside = ROWS["us"].between(ROWS["predicted_low_us"], ROWS["predicted_high_us"])
    assert inside.all()
