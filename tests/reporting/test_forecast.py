"""The benchmark where nothing was launched: what is predicted, and what others measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_table import H100, row, table_of

from occupancy_lab.reporting.chapters.benchmark import CHOSEN, FASTEST, TUTORIAL
from occupancy_lab.reporting.chapters.forecast import make_forecast, the_forecast
from occupancy_lab.reporting.source import COPY, make_predicted, make_source

if TYPE_CHECKING:
    from occupancy_lab.reporting.chapters.forecast import Forecast
    from occupancy_lab.reporting.source import Source


@pytest.fixture
def forecast(predicted: Source) -> Forecast:
    """Return the forecast of the small table."""
    found = make_forecast(predicted)
    assert found is not None
    return found


def test_every_width_is_predicted(forecast: Forecast) -> None:
    """Of each width there are the best, never with the tutorial's stages, and its own launch."""
    widths = forecast.benchmark.widths
    assert [width.cols for width in widths] == [256, 512, 1024]
    assert all(width.us[CHOSEN] == width.us[FASTEST] < width.us[TUTORIAL] for width in widths)
    assert {width.chosen.config.num_stages for width in widths} == {1}
    assert [width.configurations for width in widths] == [3, 3, 3]


def test_recorded_widths_need_not_be_the_benchmarks(forecast: Forecast) -> None:
    """781 columns were measured by others and compiled; 999 were not compiled, and are left out."""
    assert [one.width.cols for one in forecast.recorded] == [256, 512, 781]
    first, second, third = forecast.recorded
    assert first.us == {TUTORIAL: 11.0, "torch": 10.0, COPY: 7.0, FASTEST: 8.0}
    assert second.us == {"torch": 18.0}
    assert third.us == {TUTORIAL: 16.0, COPY: 10.5, FASTEST: 12.0}
    assert third.gbs(FASTEST) == pytest.approx(2 * 4096 * 781 * 4 / 12.0 / 1e3)


def test_rivals_are_measured_against_measured(forecast: Forecast) -> None:
    """A measured time is set against the fastest measured, where both are known."""
    against = forecast.against_fastest(TUTORIAL)
    assert against is not None
    assert (against.count, against.most) == (2, pytest.approx(11 / 8))
    assert forecast.against_fastest("torch.compile") is None


def test_nothing_recorded_leaves_the_predictions(small: Source) -> None:
    """Where others measured nothing the benchmark is predicted all the same."""
    found = make_forecast(make_predicted(H100, small))
    assert found is not None
    assert (len(found.benchmark.widths), found.recorded, found.names) == (3, (), ())


def test_one_width_is_no_forecast() -> None:
    """One number of columns draws no curve."""
    found = make_forecast(make_predicted(H100, make_source(H100, table_of([row(gpu="h100")]))))
    assert found is None
    assert str(the_forecast(found).blocks[0]).startswith("Left out: ")
