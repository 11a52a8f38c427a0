"""Atomic additions: how near the recorded launches are predicted."""

import pytest
from record_atomics import launches, predict, read


def test_additions_are_predicted_within_an_eighth_in_the_median() -> None:
    """Three in four errors are below a fifth, nine in ten below two fifths, whatever is shared."""
    rows = read("h100")
    assert len(rows) == len([*launches()]) == 112
    errors = sorted(abs(float(one["predicted_us"]) / float(one["us"]) - 1) for one in rows)
    assert errors[56] <= 0.125
    assert errors[84] <= 0.21
    assert errors[100] <= 0.40


def test_the_rows_are_what_the_lab_predicts() -> None:
    """Every eighth is worked out anew; another Triton compiles nearly the same."""
    rows = read("h100")[::8]
    for row, record in zip(rows, predict(rows, "h100"), strict=True):
        assert record.prediction.us == pytest.approx(float(row["predicted_us"]), rel=0.05)
