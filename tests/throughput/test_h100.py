"""The model against an H100 that was never calibrated."""

from __future__ import annotations

from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.sweeping.recorded import CHECK, recorded_table
from occupancy_lab.throughput.predict import add_predictions


def test_data_sheet_predicts_what_was_measured_on_an_h100() -> None:
    """217 launches of an H100 are met within 5 % by half and within 10 % by nine tenths."""
    table = recorded_table()
    figures = table[table["use"] == CHECK]
    columns = {"predicted_us": None, "predicted_gbs": None, "bound": "", "basis": ""}
    figures = figures.assign(**columns)
    kernels = {name: load_kernel(name) for name in ("softmax", "softmax_row")}
    add_predictions(figures, kernels, {"h100": find_gpu("h100")})
    predicted = figures["predicted_us"].notna()
    error = (figures["predicted_us"] / figures["us"] - 1).abs()
    assert len(figures) == 259
    assert predicted.sum() == 217
    assert set(figures["gpu"]) == {"h100"}
    assert figures.loc[predicted, "basis"].str.startswith("the data sheet").all()
    assert error.median() < 0.05
    assert error.quantile(0.9) < 0.10
