"""The ranges of predicted times: by what a launch does, and how much of it is known."""

from __future__ import annotations

import pytest

from occupancy_lab.throughput.launch_time import RANGES, STRANGER, Range, range_of, varies
from occupancy_lab.work.counts import Amount

KNOWN = {
    "varies": False,
    "is_followed": True,
    "spills": False,
    "multiplies": False,
    "moves": False,
}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"moves": True}, "bandwidth"),
        ({}, "other"),
        ({"multiplies": True, "moves": True}, "tensor"),
        ({"spills": True, "multiplies": True}, "spills"),
        ({"is_followed": False, "spills": True}, "counted"),
        ({"is_followed": False, "multiplies": True}, "counted products"),
    ],
)
def test_what_is_least_known_decides_the_class(said: dict[str, bool], expected: str) -> None:
    """A binary that was not replayed comes first, then spills, then tensor cores.

    With values that nobody knows no range is narrower.
    """
    found = range_of(**KNOWN | said)
    assert found == RANGES[expected]
    wider = range_of(**KNOWN | said | {"varies": True})
    assert wider.low <= min(found.low, RANGES["unknown"].low)
    assert wider.high >= max(found.high, RANGES["unknown"].high)


def test_a_range_is_wider_for_an_architecture_that_nobody_measured() -> None:
    """Both ends are as many times farther."""
    low, high = Range(0.9, 1.2).around(100.0, is_alike=True)
    assert (low, high) == pytest.approx((90.0, 120.0))
    farther = Range(0.9, 1.2).around(100.0, is_alike=False)
    assert farther == pytest.approx((low / STRANGER, high * STRANGER))


def test_an_amount_varies_by_its_upper_limit() -> None:
    """It does so if it may be more times as much as asked, or nobody knows how much it may be."""
    assert not varies([Amount(10, 20), None], 2.0)
    assert varies([Amount.of(5), Amount(10, 21)], 2.0)
    assert varies([Amount(10, None)], 2.0)
