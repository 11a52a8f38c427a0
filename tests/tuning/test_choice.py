"""What measuring costs, counted as the timer counts."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.measuring import timer
from occupancy_lab.tuning.choice import FLUSH_US, cost_of


class Event:
    """Stands in for a CUDA event."""

    def __init__(self, *, enable_timing: bool) -> None:
        self.enable_timing = enable_timing

    def record(self) -> None:
        """Record nothing."""

    def elapsed_time(self, _end: Event) -> float:
        """Return no time at all."""
        return 0.0


class Clock:
    """Stands in for the module time: it goes on by what a launch takes, and by nothing else."""

    def __init__(self) -> None:
        self.us = 0.0
        self.launches = 0

    def perf_counter(self) -> float:
        """Return the time in seconds."""
        return self.us / 1e6

    def launch(self, us: float) -> None:
        """Launch what takes *us*."""
        self.us += us
        self.launches += 1


@given(
    predicted=st.lists(st.floats(1.1, 9e4), min_size=1, max_size=9),
    runs=st.sampled_from([1, 6, 7, 30]),
)
def test_launches_are_counted_as_the_timer_makes_them(predicted: list[float], runs: int) -> None:
    """The count is a check each and all that the timer makes, those in 25 ms of warm-up too."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "Event", Event)
        patch.setattr(torch.cuda, "synchronize", lambda: None)
        patch.setattr(torch, "empty", lambda *_shape, **_options: torch.zeros(1))
        patch.setattr(timer, "time", clock)
        timer.Timer().time([partial(clock.launch, us) for us in predicted], runs=runs)
    counted = cost_of(predicted, runs).launches
    assert counted == pytest.approx(len(predicted) + clock.launches, abs=len(predicted))


@given(st.lists(st.floats(1, 1e5), max_size=40), st.integers(1, 500))
def test_cost_is_the_sum_of_its_launches(predicted: list[float], runs: int) -> None:
    """Every configuration costs its launches, each that is timed with a flush before it."""
    cost = cost_of(predicted, runs)
    assert cost.configurations == len(predicted)
    assert cost.launches >= (runs + 2) * len(predicted)
    flushed = runs * FLUSH_US * len(predicted) / 1e6
    assert flushed <= cost.seconds <= cost.launches * (max(predicted, default=0) + FLUSH_US) / 1e6
