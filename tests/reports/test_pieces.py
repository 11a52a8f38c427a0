"""Launches that read or write short pieces: the errors of their predicted times and bytes."""

import pytest
from record_pieces import launches, predict, predicted_columns, read


def test_short_pieces_are_predicted_within_a_tenth_in_the_median() -> None:
    """The median error is below a tenth, the 90th percentile a quarter; 83% are in their range."""
    rows = read("h200")
    assert len(rows) == len([*launches()]) == 128
    errors = sorted(abs(one["predicted_us"] / one["us"] - 1) for one in rows)
    assert errors[64] <= 0.085
    assert errors[115] <= 0.23
    inside = [one["predicted_low_us"] <= one["us"] <= one["predicted_high_us"] for one in rows]
    assert sum(inside) >= 106


def test_device_memory_reads_what_is_predicted() -> None:
    """Of the launches that read 32 MB or more, half read the predicted bytes within 1%."""
    rows = [one for one in read("h200") if int(one["dram_read_bytes"]) >= 32e6]
    errors = sorted(
        abs(int(one["predicted_dram_read_bytes"]) / int(one["dram_read_bytes"]) - 1) for one in rows
    )
    assert len(errors) >= 70
    assert errors[len(errors) // 2] <= 0.01
    assert errors[len(errors) * 9 // 10] <= 0.23


def test_the_rows_are_what_the_lab_predicts() -> None:
    """Every tenth row is predicted again; another Triton compiles nearly the same."""
    rows = read("h200")[::10]
    for row, record in zip(rows, predict(rows, "h200"), strict=True):
        columns = predicted_columns(record)
        assert columns["predicted_us"] == pytest.approx(row["predicted_us"], rel=0.05)
        assert columns["predicted_dram_read_bytes"] == int(row["predicted_dram_read_bytes"])
