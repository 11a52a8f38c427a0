"""The small table as a source, its predictions columns of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from guesses import BASIS
from small_table import H200, providers, rows, table_of

from occupancy_lab import record
from occupancy_lab.evaluating import evaluation
from occupancy_lab.explaining import timing
from occupancy_lab.reporting import source

if TYPE_CHECKING:
    import pandas as pd

    from occupancy_lab.reporting.source import Source


def claim(table: pd.DataFrame, *_: Any) -> pd.DataFrame:
    """Stand in for the model: the predictions are a column."""
    shape = table.groupby(["rows", "cols", "dtype"], sort=False).ngroup()
    return table.assign(bound="issue", copy_us=5.0, shape=shape)


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the model out, whose predictions are other tests' business."""
    monkeypatch.setattr(source, "with_claims", claim)
    monkeypatch.setattr(source, "calibration_for", lambda _gpu: BASIS)
    monkeypatch.setattr(evaluation, "with_claims", claim)
    monkeypatch.setattr(record, "predict", lambda *_: None)
    monkeypatch.setattr(timing, "predict", lambda *_: None)


@pytest.fixture
def small() -> Source:
    """Give the source of the small table."""
    return source.make_source(H200, table_of(rows()), providers())
