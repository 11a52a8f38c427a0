"""The benchmark: the chosen configurations, the implementations beside them, and the comparison."""

from small_table import H200, row, table_of

from occupancy_lab.kernels.softmax import ALIKE
from occupancy_lab.reporting.chapters.benchmark import FASTEST, make_benchmark
from occupancy_lab.reporting.source import make_source, recorded_source
from occupancy_lab.sweeping.recorded import recorded_ranking


def test_one_width_is_no_benchmark() -> None:
    """A single number of columns, or no launch at all, is no benchmark."""
    one = table_of([row(use="benchmark"), row(use="benchmark", num_stages=1)])
    assert make_benchmark(make_source(H200, one)) is None
    assert make_benchmark(make_source(H200, one.iloc[:0])) is None


def test_a_file_without_uses_is_a_benchmark_of_its_commonest_rows() -> None:
    """Without uses, the rows and dtype with the most widths are the benchmark."""
    launches = [row(cols=cols, rows=100) for cols in (256, 512, 700)] + [row(cols=256), row()]
    found = make_benchmark(make_source(H200, table_of(launches).drop(columns="use")))
    assert [(one.problem.rows, one.cols) for one in found.widths] == [
        (100, 256),
        (100, 512),
        (100, 700),
    ]


def test_the_fastest_is_that_of_explain() -> None:
    """The fastest launch of a width is the same as in explain."""
    benchmark = make_benchmark(recorded_source("h200"))
    for width in benchmark.widths:
        fastest = recorded_ranking("h200", width.problem, ALIKE)[0]
        assert width.us[FASTEST] == fastest.measurement.us
