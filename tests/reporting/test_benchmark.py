"""The benchmark: what is chosen, what it is compared with, and what that comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_table import H200, row, table_of

from occupancy_lab.kernels.softmax import ALIKE
from occupancy_lab.reporting.chapters.benchmark import (
    CHOSEN,
    FASTEST,
    TUTORIAL,
    make_benchmark,
)
from occupancy_lab.reporting.source import COPY, gbs_of, make_source, recorded_source
from occupancy_lab.sweeping.recorded import recorded_ranking

if TYPE_CHECKING:
    from occupancy_lab.reporting.chapters.benchmark import Benchmark
    from occupancy_lab.reporting.source import Source


@pytest.fixture
def benchmark(small: Source) -> Benchmark:
    """Return the benchmark of the small table."""
    found = make_benchmark(small)
    assert found is not None
    return found


@pytest.fixture
def forecast(predicted: Source) -> Benchmark:
    """Return the benchmark as it is predicted for a GH200."""
    found = make_benchmark(predicted)
    assert found is not None
    return found


def test_least_predicted_is_chosen_and_least_measured_fastest(benchmark: Benchmark) -> None:
    """Both are sought among all kernels; a time decides nothing of the choice."""
    assert [width.cols for width in benchmark.widths] == [256, 512, 1024]
    kernels = [kernel for kernel, _ in (width.chosen for width in benchmark.widths)]
    assert kernels == ["softmax", "softmax_row", "softmax_row"]
    assert [width.us[CHOSEN] for width in benchmark.widths] == [9.0, 9.0, 15.5]
    assert [width.us[FASTEST] for width in benchmark.widths] == [8.0, 9.0, 15.5]
    assert [width.configurations for width in benchmark.widths] == [3, 3, 3]


def test_lost_is_the_time_over_the_fastest(benchmark: Benchmark) -> None:
    """A loss is a share of the fastest time; its mean goes over every width."""
    lost = benchmark.longer(CHOSEN, FASTEST)
    assert (lost.count, lost.least, lost.median, lost.most) == (3, 0.0, 0.0, 0.125)
    assert lost.mean == pytest.approx(0.125 / 3)


def test_tutorial_is_launched_with_its_own_num_programs(benchmark: Benchmark) -> None:
    """Of the tutorial's configuration only the launch with its formula's num_programs counts."""
    assert [width.us[TUTORIAL] for width in benchmark.widths] == [12.0, 13.0, 20.0]
    against = benchmark.rivals()[TUTORIAL]
    assert (against.median, against.most) == (pytest.approx(12 / 9), pytest.approx(13 / 9))


def test_providers_are_those_of_the_same_matrix(benchmark: Benchmark) -> None:
    """The latest time counts; what has none, or is of another matrix, does not."""
    assert benchmark.names == (CHOSEN, FASTEST, TUTORIAL, "torch", COPY)
    assert [width.us.get("torch") for width in benchmark.widths] == [10.0, 18.0, None]
    assert [width.us.get(COPY) for width in benchmark.widths] == [7.0, None, None]


def test_bandwidth_counts_one_read_and_one_write(benchmark: Benchmark) -> None:
    """4096 x 256 elements of 4 bytes, read and written, over the time."""
    assert gbs_of(benchmark.widths[0].problem, 9.0) == pytest.approx(2 * 4096 * 256 * 4 / 9.0 / 1e3)


def test_neighbours_with_one_choice_are_one_span(benchmark: Benchmark) -> None:
    """BLOCK_SIZE follows from the columns and tells no choices apart."""
    assert [[width.cols for width in span] for span in benchmark.spans] == [[256], [512, 1024]]


def test_one_width_is_no_benchmark() -> None:
    """One number of columns draws no curve; no launch at all even less."""
    one = table_of([row(use="benchmark"), row(use="benchmark", num_stages=1)])
    assert make_benchmark(make_source(H200, one)) is None
    assert make_benchmark(make_source(H200, one.iloc[:0])) is None


def test_a_file_without_uses_is_a_benchmark_of_its_commonest_rows() -> None:
    """Where uses are not told apart, the rows and dtype with the most widths are taken."""
    launches = [row(cols=cols, rows=100) for cols in (256, 512, 700)] + [row(cols=256), row()]
    found = make_benchmark(make_source(H200, table_of(launches).drop(columns="use")))
    assert found is not None
    assert [(one.problem.rows, one.cols) for one in found.widths] == [
        (100, 256),
        (100, 512),
        (100, 700),
    ]


def test_the_fastest_is_that_of_explain() -> None:
    """The fastest launch of a width is the one that is recorded of its matrix on any page."""
    benchmark = make_benchmark(recorded_source("h200"))
    assert benchmark is not None
    for width in benchmark.widths:
        fastest = recorded_ranking("h200", width.problem, ALIKE)[0]
        assert width.us[FASTEST] == fastest.measurement.us


def test_every_width_is_predicted(forecast: Benchmark) -> None:
    """Of each width there are the best, never with the tutorial's stages, and its own launch."""
    assert [width.cols for width in forecast.widths] == [256, 512, 1024]
    assert all(width.us[CHOSEN] < width.us[TUTORIAL] for width in forecast.widths)
    assert {config.num_stages for _, config in (width.chosen for width in forecast.widths)} == {1}
