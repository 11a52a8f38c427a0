"""How far the measured times can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_table import H100, H200, checks, row, table_of

from occupancy_lab.reporting.chapters.spread import make_spread, the_spread
from occupancy_lab.reporting.chapters.taken import make_taken
from occupancy_lab.reporting.source import make_source

if TYPE_CHECKING:
    from occupancy_lab.reporting.chapters.spread import Spread


def spread_of(*rows: dict[str, object]) -> Spread:
    """Return the spread of *rows*."""
    found = make_spread(make_source(H200, table_of(list(rows))))
    assert found is not None
    return found


def test_range_is_a_share_of_the_median() -> None:
    """A range of 9.5 to 11 us around 10 us is 15% wide."""
    found = spread_of(row(), row(num_stages=1, us_low=9.0, us_high=12.0))
    assert found.within is not None
    assert found.runs is not None
    assert (found.within.least, found.within.most) == (pytest.approx(0.15), pytest.approx(0.3))
    assert (found.runs.least, found.runs.most) == (30, 30)


def test_what_was_measured_twice_is_compared() -> None:
    """The same launch in two uses differs by 10%; another num_programs is another launch."""
    wrong = {"num_warps": 16, "num_stages": 1, "n_regs": 22}
    found = spread_of(
        row(**wrong, us=10.0),
        row(**wrong, us=11.0, use="benchmark"),
        row(**wrong, us=20.0, as_tutorial=True),
    )
    assert found.between is not None
    assert (found.between.count, found.between.most) == (1, pytest.approx(0.1))
    assert spread_of(row()).between is None


def test_short_launches_clocks_and_errors() -> None:
    """What could mislead is counted: short launches, slow clocks, inexact results."""
    found = spread_of(
        row(mostly_launch=True, sm_mhz=1500, throttled="power"),
        row(num_stages=1, relative_error=2e-7),
        row(dtype="float16", relative_error=1e-4),
    )
    assert found.mostly_launch == 1
    assert found.clocks is not None
    assert (found.clocks.least, found.clocks.most) == (1500, 1980)
    assert found.throttled == ("power",)
    assert found.relative_errors == {"float32": 2e-7, "float16": 1e-4}


def test_unknown_clocks_and_errors_are_not_told() -> None:
    """Where nobody knows the clock or compared the result, nothing is said of them."""
    source = make_source(H200, table_of([row(sm_mhz=None, relative_error=None)]))
    found = make_spread(source)
    assert found is not None
    assert (found.clocks, found.relative_errors) == (None, {})
    (words,) = the_spread(make_taken(source), found).blocks
    assert "clock" not in str(words)
    assert "float64" not in str(words)


def test_a_bare_time_says_what_it_is() -> None:
    """Where nobody told the spread, the launches or the clock, what is known is still said."""
    source = make_source(H100, table_of(checks()))
    found = make_spread(source)
    assert found is not None
    assert (found.runs, found.within, found.mostly_launch, found.launches) == (None, None, None, 5)
    assert the_spread(make_taken(source), found).blocks == (
        "- Each time is a median, timed with do_bench, the L2 cache flushed before each.",
    )


def test_nothing_measured_is_none() -> None:
    """Without a time there is no spread."""
    assert make_spread(make_source(H200, table_of([row(measured="launch failed")]))) is None
