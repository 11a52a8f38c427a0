"""Ctrl-C while launches are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from occupancy_lab.measuring import process
from occupancy_lab.measuring.process import Batch, TimedLaunch, measure_launches
from occupancy_lab.values import Measurement, Problem
from occupancy_lab.workers.signals import UnfinishedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIRST, SECOND = Problem(8, 100), Problem(8, 200)
DONE = Measurement("measured", None, us=3.0)


def test_what_is_finished_comes_with_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is a KeyboardInterrupt as ever, and has the finished measurements by their place."""

    def interrupted(
        requests: Mapping[Problem, Batch], *_others: object
    ) -> Iterator[tuple[Problem, list[Measurement]]]:
        assert list(requests) == [FIRST, SECOND]
        yield FIRST, [DONE, DONE]
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "distribute", interrupted)
    told: list[tuple[int, int]] = []
    launches = [(problem, TimedLaunch("copy")) for problem in (FIRST, SECOND, FIRST)]
    with pytest.raises(KeyboardInterrupt) as caught:
        measure_launches(launches, progress=lambda done, of: told.append((done, of)))
    assert isinstance(caught.value, UnfinishedError)
    assert caught.value.finished == {0: DONE, 2: DONE}
    assert told == [(0, 3), (2, 3)]
