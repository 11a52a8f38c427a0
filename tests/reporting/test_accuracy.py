"""The evaluation of a report: which shapes, in which order, and the launches behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_table import H200, row, table_of

from occupancy_lab.reporting.chapters.accuracy import Point, make_accuracy, the_accuracy
from occupancy_lab.reporting.source import make_source

if TYPE_CHECKING:
    from occupancy_lab.reporting.source import Source


def test_held_out_shapes_come_first_and_the_benchmark_not_at_all(small: Source) -> None:
    """What the model was not made with says the most; the benchmark has its own chapter."""
    found = make_accuracy(small)
    assert found is not None
    assert [result.use for result in found.results] == ["held out", "tuning"]
    assert [len(points) for points in found.points] == [2, 7]
    assert found.points[0] == (Point("issue", 22.0, 20.0), Point("issue", 10.5, 10.0))


def test_fresh_shapes_come_before_all_others() -> None:
    """Shapes that a rule drew before they were measured have a result of their own, the first."""
    table = table_of([row(), row(use="fresh", num_stages=1), row(use="held out", num_warps=2)])
    found = make_accuracy(make_source(H200, table))
    assert found is not None
    assert [result.use for result in found.results] == ["fresh", "held out", "tuning"]


def test_errors_are_those_of_the_rows(small: Source) -> None:
    """Held out, one launch is predicted 10% too long and one 5%."""
    found = make_accuracy(small)
    assert found is not None
    held_out = found.results[0].score.errors
    assert held_out is not None
    assert (held_out.launches, held_out.median) == (2, pytest.approx(0.075))
    assert {group.by for result in found.results for group in result.groups} == {"bound"}
    assert [miss.error for miss in found.results[0].worst] == [
        pytest.approx(0.1),
        pytest.approx(0.05),
    ]


def test_rows_without_uses_all_count() -> None:
    """A sweep's own rows are evaluated as they are."""
    table = table_of([row(), row(num_stages=1)]).drop(columns="use")
    found = make_accuracy(make_source(H200, table))
    assert found is not None
    assert [(result.use, result.launches) for result in found.results] == [("all", 2)]


def test_nothing_predicted_is_said() -> None:
    """A chapter without rows is its title and one sentence."""
    found = make_accuracy(make_source(H200, table_of([row(use="benchmark")])))
    assert found is None
    assert the_accuracy(found).blocks == ("Left out: nothing can be predicted of these launches.",)
