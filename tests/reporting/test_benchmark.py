"""The benchmark: the chosen configurations, the implementations beside them, and the comparison."""

import pytest
from small_table import H200, row, table_of

from occupancy_lab.kernels.softmax import ALIKE
from occupancy_lab.reporting.chapters.benchmark import CHOSEN, FASTEST, Benchmark, make_benchmark
from occupancy_lab.reporting.source import Source, make_source, recorded_source
from occupancy_lab.sweeping.recorded import recorded_ranking


@pytest.fixture
def benchmark(small: Source) -> Benchmark:
    """Return the benchmark of the small table."""
    found = make_benchmark(small)
    assert found is not None
    return found


def test_least_predicted_is_chosen_and_least_measured_fastest(benchmark: Benchmark) -> None:
    """The choice has the least predicted time of all kernels, the fastest the least measured."""
    assert [width.cols for width in benchmark.widths] == [256, 512, 1024]
    kernels = [kernel for kernel, _ in (width.chosen for width in benchmark.widths)]
    assert kernels == ["softmax", "softmax_row", "softmax_row"]
    assert [width.us[CHOSEN] for width in benchmark.widths] == [9.0, 9.0, 15.5]
    assert [width.us[FASTEST] for width in benchmark.widths] == [8.0, 9.0, 15.5]
    assert [width.configurations for width in benchmark.widths] == [3, 3, 3]


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
