"""The predicted time of a plain copy, against recorded copies."""

from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest

from occupancy_lab.evaluating.score import time_errors
from occupancy_lab.gpus import find_gpu
from occupancy_lab.prediction import Part, Prediction
from occupancy_lab.throughput.launch_time import UNEVEN_US, beside_copy, copy_us
from occupancy_lab.values import ITEM_BYTES

SIZES = (0, 1, 4, 8, 16, 32, 64, 128, 256, 512, 10_000)
"""Limits of bins of recorded copies, in megabytes read and written."""


def copies(gpu: str) -> pd.DataFrame:
    """Return the recorded copies on *gpu* with their predicted times."""
    with (files("occupancy_lab.recorded") / f"providers-{gpu}.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file)
    found = table[(table["provider"] == "copy") & (table["measured"] == "measured")]
    moved = [2 * ITEM_BYTES[row.dtype] * row.rows * row.cols for row in found.itertuples()]
    return found.assign(moved=moved, predicted_us=predicted_us(moved, gpu))


def predicted_us(totals: list[int], gpu: str) -> list[float | None]:
    """Return the predicted times of copies of *totals* bytes."""
    return [copy_us(total, find_gpu(gpu)) for total in totals]


@pytest.mark.parametrize(("gpu", "by_size"), [("h100", 0.055), ("h200", 0.035)])
def test_recorded_copies_are_predicted(gpu: str, by_size: float) -> None:
    """The median error of 261 copies per GPU is below 1.5%, without a bias in any bin."""
    found = copies(gpu)
    errors = time_errors(found["predicted_us"], found["us"])
    assert errors.launches == 261
    assert errors.median < 0.015
    assert errors.p90 < (0.04 if gpu == "h200" else 0.05)
    assert abs(errors.bias) < 0.01
    for size, some in found.groupby(pd.cut(found["moved"] / 1e6, SIZES)):
        assert abs(time_errors(some["predicted_us"], some["us"]).bias) < by_size, size


def test_drawn_copies_are_predicted() -> None:
    """Copies of 36 random matrices, recorded after the model was fixed, have small errors."""
    found = pd.read_csv(Path(__file__).parents[2] / "reports/data/copies-h200.csv")
    moved = [2 * ITEM_BYTES[row.dtype] * row.rows * row.cols for row in found.itertuples()]
    errors = time_errors(pd.Series(predicted_us(moved, "h200")), found["copy_us"])
    assert errors.launches == 36
    assert errors.median < 0.03
    assert errors.p90 < 0.045


@pytest.mark.parametrize(
    ("gpu", "size", "is_longer"),
    [
        ("h200", 2**20 - 1, False),
        ("h200", 2**20 + 4096, False),
        ("h200", 2**20 + 2048, True),
        ("mi300x", 2**20 + 2048, False),
    ],
)
def test_uneven_copies_take_longer(gpu: str, size: int, is_longer: bool) -> None:  # noqa: FBT001
    """CUDA copies of 1 MiB or more that are no multiple of 4 KiB take about a launch longer."""
    device = find_gpu(gpu)
    whole, uneven = (copy_us(2 * one, device) for one in (size // 4096 * 4096, size))
    assert whole is not None
    assert uneven is not None
    assert uneven - whole == pytest.approx(UNEVEN_US if is_longer else 0.0, abs=0.02)


def test_a_copy_is_of_as_many_bytes() -> None:
    """The share of a copy's speed is the copy's time over the launch's; an unknown GPU has none."""
    gpu, made = find_gpu("h200"), (Part("bandwidth", 9.0),)
    launch = Prediction(20.0, None, None, made, "", calibrated=True, low_us=18.0, high_us=24.0)
    found = beside_copy(launch, 2**25, gpu)
    assert found.gbs == pytest.approx(2**25 / 20.0 / 1e3)
    assert found.share_of_copy == pytest.approx((copy_us(2**25, gpu) or 0.0) / 20.0)
    assert copy_us(2**20, find_gpu("sm_90")) is None
