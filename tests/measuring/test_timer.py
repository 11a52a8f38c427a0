"""The timer: every launch as often as the others, in turns, and times that are true."""

from __future__ import annotations

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.measuring.timer import BURST, Timer


class Clockwork(Timer):
    """A timer without a GPU: a burst takes as long as its launch says."""

    def __init__(self) -> None:
        self.order: list[object] = []

    def _warm_up(self, launches: object, warmup_ms: float) -> None:
        """Do nothing."""

    def _burst(self, launch: object) -> list[float]:
        self.order.append(launch)
        return [float(launch())] * BURST  # type: ignore[operator] # the tests' launches give a number


@given(st.integers(1, 5), st.integers(1, 40))
def test_every_launch_is_timed_as_often(count: int, runs: int) -> None:
    """Each launch has its own times, at least as many as asked for and less than a burst more."""
    launches = [lambda place=place: place for place in range(count)]
    times = Clockwork().time(launches, runs=runs)
    assert [set(some) for some in times] == [{float(place)} for place in range(count)]
    assert {len(some) for some in times} == {-(-runs // BURST) * BURST}


def test_rounds_start_with_another_launch() -> None:
    """In each round every launch has its turn, and the next one begins."""
    timer = Clockwork()
    launches = [lambda: 0, lambda: 1, lambda: 2]
    timer.time(launches, runs=3 * BURST)
    order = [launch() for launch in timer.order]  # type: ignore[operator] # they are launches
    assert order == [0, 1, 2, 1, 2, 0, 2, 0, 1]


def test_nothing_to_time() -> None:
    """Without launches there are no times."""
    assert Clockwork().time([], runs=30) == []


@pytest.mark.gpu
def test_times_are_the_launches_own() -> None:
    """A copy of 64 times as much takes 20 to 80 times as long, in the order of the launches."""
    small, large = (torch.empty(mib * 2**20, dtype=torch.int8, device="cuda") for mib in (64, 4096))
    timer = Timer()
    (short, long) = timer.time([small.clone, large.clone], runs=12)
    assert len(short) == len(long) == 12
    assert 20 < statistics.median(long) / statistics.median(short) < 80
