"""Atomic additions of rows: the errors of the predicted times."""

import pytest
from record_atomics import predicted_times
from record_rows import launches, predict, read


def test_additions_of_rows_are_predicted_within_a_seventh_in_the_median() -> None:
    """The median error is within a seventh, and nine in ten are below two fifths."""
    rows = read("h200")
    assert len(rows) == len([*launches()]) == 28
    errors = sorted(abs(one["predicted_us"] / one["us"] - 1) for one in rows)
    assert errors[14] <= 1 / 7
    assert errors[25] <= 0.4


def test_the_rows_are_what_the_lab_predicts() -> None:
    """Every fourth row is predicted again; another Triton compiles nearly the same."""
    rows = read("h200")[::4]
    for row, record in zip(rows, predict(rows, "h200"), strict=True):
        found = predicted_times(record)["predicted_us"]
        assert found == pytest.approx(row["predicted_us"], rel=0.05)
