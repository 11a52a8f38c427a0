"""The model against an H100 as if that had never been calibrated."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from occupancy_lab.evaluating.evaluation import counted_rows, with_predictions
from occupancy_lab.gpus import find_gpu
from occupancy_lab.sweeping.recorded import recorded_table
from occupancy_lab.throughput import calibrations
from occupancy_lab.throughput.calibrations import UNCONFIRMED_ERROR, calibration_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd


@pytest.fixture(scope="module")
def figures() -> Iterator[pd.DataFrame]:
    """Return launches of the H100, predicted with what was calibrated on an H200."""
    table = recorded_table()
    found = table[(table["gpu"] == "h100") & table["use"].isin(["held out", "fresh"])]
    known = {one.gpu: one for one in calibrations.known_calibrations() if one.gpu == "h200"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrations, "_calibrations", lambda: known)
        gpu = find_gpu("h100")
        basis = calibration_for(gpu)
        assert basis is not None
        assert basis.words.startswith("the data sheet")
        yield with_predictions(counted_rows(found), {}, gpu, basis)


def test_data_sheet_predicts_what_was_measured_on_an_h100(figures: pd.DataFrame) -> None:
    """Launches of an H100 are met within 5 % by half and within 13 % by nine tenths."""
    error = (figures["predicted_us"] / figures["us"] - 1).abs()
    assert len(figures) == 3275
    assert error.median() < 0.05
    assert error.quantile(0.9) < 0.13


def test_what_is_unconfirmed_is_off_by_what_the_h100_is(figures: pd.DataFrame) -> None:
    """The error of a GPU that nobody measured is what nine in ten of the H100 keep, rounded up.

    That is of times, and of ratios of the times of two launches of one matrix.
    """
    off = (figures["predicted_us"] / figures["us"]).astype(float)
    of_matrices = [off[rows.index] for _, rows in figures.groupby(["rows", "cols", "dtype"])]
    ratios = [
        abs(one / other - 1)
        for matrix in of_matrices
        for one, other in itertools.combinations(matrix, 2)
    ]
    kept = max((off - 1).abs().quantile(0.9), sorted(ratios)[len(ratios) * 9 // 10])
    assert UNCONFIRMED_ERROR - 0.01 < kept <= UNCONFIRMED_ERROR
    for gpu in ("b200", "mi300x", "rtx4090"):
        basis = calibration_for(find_gpu(gpu))
        assert basis is not None
        assert basis.error == UNCONFIRMED_ERROR
    for gpu in ("h100", "h200"):
        basis = calibration_for(find_gpu(gpu))
        assert basis is not None
        assert basis.error is None
