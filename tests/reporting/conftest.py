"""The small table as a source, its predictions columns of it, and what is predicted of it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from guesses import BASIS
from small_table import H100, H200, checks, providers, rows, table_of

from occupancy_lab import record
from occupancy_lab.evaluating import evaluation
from occupancy_lab.explaining import timing
from occupancy_lab.reporting import source
from occupancy_lab.throughput import predict as model
from occupancy_lab.values import Part, Prediction

if TYPE_CHECKING:
    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.values import Config, LaunchPlan, Occupancy, Problem, Resources


def guess(num_warps: Any, num_stages: Any) -> Any:
    """Return a time that nobody worked out, in us, of a launch whose table says none."""
    return 8.0 + num_warps / 4 + num_stages / 2


def claim(table: pd.DataFrame, *_: Any) -> pd.DataFrame:
    """Stand in for the model: the predictions are a column, or else a guess."""
    shape = table.groupby(["rows", "cols", "dtype"], sort=False).ngroup()
    guesses = guess(table["num_warps"], table["num_stages"]).astype(float)
    said = (
        table["predicted_us"].astype(float).fillna(guesses) if "predicted_us" in table else guesses
    )
    return table.assign(predicted_us=said, bound="issue", copy_us=5.0, shape=shape)


def predict(
    _kernel: Kernel,
    _problem: Problem,
    config: Config,
    _resources: Resources,
    occupancy: Occupancy,
    plan: LaunchPlan,
    gpu: Gpu,
) -> Prediction:
    """Stand in for the model where one launch is predicted; programs that do not fit cost more."""
    fit = occupancy.programs_per_multiprocessor * (gpu.multiprocessors or 0)
    us = guess(config.num_warps, config.num_stages) + (0.5 if (plan.num_programs or 0) > fit else 0)
    names = ("launch", "latency", "issue", "bandwidth", "tail")
    parts = tuple(Part(name, 1.0) for name in names)
    return Prediction(us, 1000.0, 2000.0, parts, "guessed", calibrated=False)


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the model out, whose predictions are other tests' business."""
    monkeypatch.setattr(source, "with_predictions", claim)
    monkeypatch.setattr(source, "calibration_for", lambda _gpu: BASIS)
    monkeypatch.setattr(model, "calibration_for", lambda _gpu: None)
    monkeypatch.setattr(evaluation, "with_predictions", claim)
    monkeypatch.setattr(record, "predict", predict)
    monkeypatch.setattr(timing, "predict", lambda *_: None)


@pytest.fixture
def small() -> Source:
    """Return the source of the small table."""
    return source.make_source(H200, table_of(rows()), providers())


@pytest.fixture
def predicted(small: Source, monkeypatch: pytest.MonkeyPatch) -> Source:
    """Return what is predicted of the small table on an H100, of which a few times are known."""
    basis = dataclasses.replace(BASIS, words="the data sheet", calibrated=False)
    monkeypatch.setattr(source, "calibration_for", lambda _gpu: basis)
    recorded = source.make_source(H100, table_of(checks()), providers())
    return source.make_predicted(H100, small, recorded)
