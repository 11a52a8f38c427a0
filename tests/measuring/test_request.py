"""What passes between the process that asks for a measurement and the one that takes it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.measuring.request import (
    Launch,
    Request,
    measurements_from_json,
    measurements_to_json,
)
from occupancy_lab.values import Conditions, Config, Measurement, Problem

SIZES = st.integers(1, 2**40)
WORDS = st.text(max_size=30)
TIMES = st.none() | st.floats(0, allow_nan=False)
PROBLEMS = st.builds(Problem, SIZES, SIZES, st.sampled_from(["float32", "float16", "bfloat16"]))
CONFIGS = st.builds(Config, SIZES, SIZES, SIZES)
LAUNCHES = st.builds(Launch, WORDS, st.none() | CONFIGS, SIZES)
REQUESTS = st.builds(
    Request, PROBLEMS, st.lists(LAUNCHES, max_size=4).map(tuple), st.integers(1, 999)
)
CONDITIONS = st.builds(
    Conditions,
    device=WORDS,
    date=WORDS,
    driver=st.none() | WORDS,
    torch=WORDS,
    triton=WORDS,
    timer=WORDS,
    l2=WORDS,
    sm_mhz=st.none() | SIZES,
    throttled=st.none() | WORDS,
)
MEASUREMENTS = st.builds(
    Measurement,
    status=WORDS,
    conditions=st.none() | CONDITIONS,
    reason=st.none() | WORDS,
    us=TIMES,
    us_low=TIMES,
    us_high=TIMES,
    runs=st.none() | SIZES,
    relative_error=TIMES,
    mostly_launch=st.none() | st.booleans(),
)


@given(REQUESTS)
def test_request_survives_its_line(request_: Request) -> None:
    """A request read back from its line, which is one line, is the same request."""
    line = request_.to_json()
    assert Request.from_json(line) == request_
    assert len(line.splitlines()) == 1


@given(st.lists(MEASUREMENTS, max_size=4))
def test_measurements_survive_their_line(measurements: list[Measurement]) -> None:
    """Measurements read back from their line are the same, in their order."""
    line = measurements_to_json(measurements)
    assert measurements_from_json(line) == measurements
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_wrong_results_survive_their_line(error: float) -> None:
    """A relative error that is no number, or without bounds, comes back as it was."""
    line = measurements_to_json([Measurement("wrong result", None, relative_error=error)])
    (back,) = measurements_from_json(line)
    assert back.relative_error == pytest.approx(error, nan_ok=True)
