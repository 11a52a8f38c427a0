"""The evaluation in a report: its shapes, their order, and the launches behind it."""

from small_table import H200, row, table_of

from occupancy_lab.reporting.chapters.accuracy import make_accuracy
from occupancy_lab.reporting.source import make_source


def test_fresh_shapes_come_before_all_others() -> None:
    """Shapes that a rule drew before they were measured have their own result, the first one."""
    table = table_of([row(), row(use="fresh", num_stages=1), row(use="held out", num_warps=2)])
    found = make_accuracy(make_source(H200, table))
    assert [result.use for result in found.results] == ["fresh", "held out", "tuning"]


def test_rows_without_uses_all_count() -> None:
    """A sweep's own rows are evaluated without uses."""
    table = table_of([row(), row(num_stages=1)]).drop(columns="use")
    found = make_accuracy(make_source(H200, table))
    assert [(result.use, result.launches) for result in found.results] == [("all", 2)]


def test_a_benchmark_alone_is_not_evaluated() -> None:
    """The tutorial's widths have their own chapter and are not evaluated."""
    assert make_accuracy(make_source(H200, table_of([row(use="benchmark")]))) is None
