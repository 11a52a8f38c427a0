"""The small table as a source of measured launches and of predicted ones."""

from types import SimpleNamespace

import pytest
from small_table import H200, predicted_of, providers, rows, table_of

from occupancy_lab.evaluating import evaluation
from occupancy_lab.reporting.source import Source, make_source


@pytest.fixture(scope="session")
def small() -> Source:
    """Return the source of the small table, whose predictions are its own."""
    return make_source(H200, table_of(rows()), providers())


@pytest.fixture(scope="session")
def predicted(small: Source) -> Source:
    """Return the predictions for the small table on a GH200."""
    return predicted_of(table_of(rows()), small)


@pytest.fixture
def no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every prediction fail, so that only times in the table are known."""
    without = SimpleNamespace(prediction=None)
    monkeypatch.setattr(evaluation, "compile_runs", lambda asked, _compiler: [without] * len(asked))
    monkeypatch.setattr(evaluation, "with_counts", lambda runs, _asked, _compiler: runs)
