"""Atomic additions of rows: the errors of the predicted times."""

import pytest
from record_atomics import predicted_times
from record_rows import launches, predict, read


def test_additions_of_rows_are_predicted_within_a_sixth_in_the_median() -> None:
    """The median error is within a sixth, and nine in ten are below a third."""
    rows = read("h200")
    assert len(rows) == len([*launches()]) == 56
    errors = sorted(abs(one["predicted_us"] / one["us"] - 1) for one in rows)
    assert errors[28] <= 1 / 6
    assert errors[50] <= 1 / 3


def test_the_rows_are_what_the_lab_predicts() -> None:
    """Every seventh row is predicted again; another Triton compiles nearly the same."""
    rows = read("h200")[::7]
    for row, record in zip(rows, predict(rows, "h200"), strict=True):
        found = predicted_times(record)["predicted_us"]
        assert found == pytest.approx(row["predicted_us"], rel=0.05)
