"""What measuring costs, counted as the timer counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.measuring.timer import Timer
from occupancy_lab.tuning.choice import FLUSH_US, cost_of, launches_each

if TYPE_CHECKING:
    import pytest


class Event:
    """Stands in for a CUDA event."""

    def __init__(self, *, enable_timing: bool) -> None:
        self.enable_timing = enable_timing

    def record(self) -> None:
        """Record nothing."""

    def elapsed_time(self, _end: Event) -> float:
        """Return no time at all."""
        return 0.0


def test_a_configuration_is_launched_as_often_as_the_timer_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The count is the check's one launch and all that the timer makes, one of them to warm up."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch, "empty", lambda *_shape, **_options: torch.zeros(1))
    timer = Timer()
    for runs in (1, 6, 7, 30):
        made: list[int] = []
        timer.time([lambda: made.append(1)], runs=runs, warmup_ms=0.0)  # noqa: B023 - called now
        assert 1 + len(made) == launches_each(runs)


@given(st.lists(st.floats(1, 1e5), max_size=40), st.integers(1, 500))
def test_cost_is_the_sum_of_its_launches(predicted: list[float], runs: int) -> None:
    """Every configuration costs its launches, each with a flush before it."""
    cost = cost_of(predicted, runs)
    each = launches_each(runs)
    assert cost.launches == each * len(predicted) >= runs * len(predicted)
    flushed = each * FLUSH_US * len(predicted) / 1e6
    assert flushed <= cost.seconds <= flushed + each * max(predicted, default=0) * 40 / 1e6 + 1e-9
