"""Atomic additions: the errors of the predicted times."""

import pytest
from record_atomics import launches, predict, read


def test_additions_are_predicted_within_an_eighth_in_the_median() -> None:
    """The median error is within an eighth, 75% are below a fifth and 90% below two fifths."""
    rows = read("h100")
    assert len(rows) == len([*launches()]) == 112
    errors = sorted(abs(float(one["predicted_us"]) / float(one["us"]) - 1) for one in rows)
    assert errors[56] <= 0.125
    assert errors[84] <= 0.21
    assert errors[100] <= 0.40


def test_the_rows_are_what_the_lab_predicts() -> None:
    """Every eighth row is predicted again; another Triton compiles nearly the same."""
    rows = read("h100")[::8]
    for row, record in zip(rows, predict(rows, "h100"), strict=True):
        assert record.prediction.us == pytest.approx(float(row["predicted_us"]), rel=0.05)
