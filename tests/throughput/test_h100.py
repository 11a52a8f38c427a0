"""The model against an H100 that was never calibrated."""

from __future__ import annotations

from importlib.resources import files

import pandas as pd

from occupancy_lab.kernel import load_kernel
from occupancy_lab.throughput.table import add_predictions


def test_data_sheet_predicts_what_was_measured_on_an_h100() -> None:
    """29 times that an H100 took are met within 5 % by half and within 10 % by nine tenths."""
    with files("occupancy_lab.recorded").joinpath("figures-h100.csv").open() as file:
        figures = pd.read_csv(file)
    columns = {"predicted_us": 0.0, "predicted_gbs": 0.0, "bound": "", "basis": ""}
    figures = figures.assign(**columns)
    add_predictions(figures, {name: load_kernel(name) for name in ("softmax", "softmax_row")})
    error = (figures["predicted_us"] / figures["us"] - 1).abs()
    assert len(figures) == 29
    assert figures["basis"].str.startswith("the data sheet").all()
    assert error.median() < 0.05
    assert error.quantile(0.9) < 0.10
