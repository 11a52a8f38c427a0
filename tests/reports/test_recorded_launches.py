"""Launches of small kernels that were recorded on a GPU: the errors of their predictions."""

from collections.abc import Mapping

import pytest
from record_atomics import ATOMICS, Recorder, predicted_times
from record_pieces import PIECES, predicted_columns
from record_rows import ROWS
from record_wide_rows import WIDE_ROWS


@pytest.mark.parametrize(
    ("recorder", "gpu", "count", "most", "inside"),
    [
        (ATOMICS, "h100", 112, {0.5: 0.125, 0.75: 0.25, 0.9: 0.42}, 0.0),
        (ATOMICS, "h200", 224, {0.5: 0.125, 0.75: 0.25, 0.9: 0.42}, 0.0),
        (ROWS, "h200", 56, {0.5: 1 / 6, 0.9: 1 / 3}, 0.0),
        (WIDE_ROWS, "h200", 60, {0.5: 0.06, 0.9: 0.12}, 0.85),
        (PIECES, "h200", 128, {0.5: 0.085, 0.9: 0.23}, 0.825),
    ],
)
def test_predicted_times_are_near_the_recorded_ones(
    recorder: Recorder, gpu: str, count: int, most: Mapping[float, float], inside: float
) -> None:
    """Quantiles of the errors are small, and many launches of all that are drawn are in range."""
    rows = recorder.read(gpu)
    sems = {one.get("sem") for one in rows}  # those of the H100 are not relaxed
    drawn = [one for one in recorder.launches() if one.get("sem") in sems]
    assert len(rows) == len(drawn) == count
    timed = [one for one in rows if one["predicted_us"]]
    errors = sorted(abs(float(one["predicted_us"]) / float(one["us"]) - 1) for one in timed)
    for share, error in most.items():
        assert errors[int(share * len(errors))] <= error
    ranges = [
        (float(one["predicted_low_us"]), float(one["us"]), float(one["predicted_high_us"]))
        for one in (timed if inside else ())
    ]
    assert sum(low <= us <= high for low, us, high in ranges) >= inside * len(ranges)


@pytest.mark.parametrize(
    ("recorder", "gpu", "step"),
    [
        (ATOMICS, "h100", 8),
        (ROWS, "h200", 7),
        (WIDE_ROWS, "h200", 10),
        (PIECES, "h200", 10),
    ],
)
def test_the_rows_are_what_the_lab_predicts(recorder: Recorder, gpu: str, step: int) -> None:
    """Some rows are predicted again; another Triton compiles nearly the same."""
    rows = recorder.read(gpu)[::step]
    for row, record in zip(rows, recorder.predict(rows, gpu), strict=True):
        found = predicted_times(record)["predicted_us"]
        assert found == pytest.approx(float(row["predicted_us"]), rel=0.05)
        if recorder is PIECES:
            columns = predicted_columns(record)
            read = "predicted_dram_read_bytes"
            assert columns[read] == int(row[read])


def test_device_memory_reads_what_is_predicted() -> None:
    """Of the pieces that read 32 MB or more, half read the predicted bytes within 1%."""
    rows = [one for one in PIECES.read("h200") if int(one["dram_read_bytes"]) >= 32e6]
    errors = sorted(
        abs(int(one["predicted_dram_read_bytes"]) / int(one["dram_read_bytes"]) - 1) for one in rows
    )
    assert len(errors) >= 70
    assert errors[len(errors) // 2] <= 0.01
    assert errors[len(errors) * 9 // 10] <= 0.23
