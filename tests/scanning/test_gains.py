"""The gain of a kernel by times, and what could help one whose time is not known."""

import dataclasses
from typing import Any

import pytest

from occupancy_lab.scanning.gains import Ahead, beside_others, gain_of, shown_slower
from occupancy_lab.scanning.page import ScannedKernel


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (Ahead(2, "the step", "", "the advice", 4), "the advice: 4 loads and stores of"),
        (Ahead(2, "the step", "", "", 4), "the step"),
        (Ahead(2, "the step", "it fits", "the advice"), "the step, if it fits, which"),
        (Ahead(None, "none, warps are full", "it fits", ""), "none, warps are full"),
    ],
)
def test_without_a_time_no_gain_is_known(ahead: Ahead, said: str) -> None:
    """Only the advice against spills, or the next step with its condition, is named."""
    factor, by = gain_of(None, ahead)
    assert factor is None
    assert by.startswith(said)


def test_a_faster_entry_is_named_by_its_settings() -> None:
    """The gain names the settings of the faster entry; without other settings there is none."""
    slow = ScannedKernel(kernel="norm", gpu="h200", num_warps=8, num_stages=2, predicted_us=40.0)
    fast = dataclasses.replace(slow, num_warps=4, num_ctas=2, predicted_us=20.0)
    found = next(beside_others([slow, fast]))
    assert found.gain == pytest.approx(2.0)
    assert found.gain_by == (
        "num_warps 4 and num_ctas 2, as another entry: 20.0 us instead of 40.0 us"
    )
    alike = dataclasses.replace(slow, predicted_us=20.0)
    assert next(beside_others([slow, alike])) == slow


def timed(us: float | None, **settings: Any) -> ScannedKernel:
    """Return a kernel of 8 warps, 3 stages and a block of 64, with other *settings*."""
    settings = {"num_warps": 8, "num_stages": 3, "constexprs": {"BLOCK": 64}, **settings}
    return ScannedKernel(kernel="k", predicted_us=us, **settings)


@pytest.mark.parametrize(
    ("proposal", "settings"),
    [
        ("fewer num_warps", {"num_warps": 4}),
        ("more num_warps", {"num_warps": 16}),
        ("fewer num_stages", {"num_stages": 2}),
        ("a smaller block", {"constexprs": {"BLOCK": 32}}),
        ("maxnreg=64", {"maxnreg": 64}),
        ("", {"num_stages": 4}),
        ("", {"num_warps": 4, "num_stages": 2}),
        ("", {"constexprs": {"BLOCK": 128}}),
    ],
)
def test_slower_entries_refute_a_proposal(proposal: str, settings: dict[str, Any]) -> None:
    """Slower entries that differ only in a proposal refute it, unless another one is faster."""
    one, other = timed(40.0), timed(44.0, **settings)
    assert shown_slower(one, [one, other]) == ({proposal} if proposal else set())
    assert not shown_slower(one, [one, other, timed(38.0, **settings)])
    assert not shown_slower(one, [one, timed(None, **settings)])


def test_spills_compare_warps_without_times() -> None:
    """Without known launches, other warps are not proposed that spill no less; stages may be."""
    one = timed(None, local_bytes=64)
    assert shown_slower(one, [timed(None, num_warps=4, local_bytes=128)]) == {"fewer num_warps"}
    assert not shown_slower(one, [timed(None, num_warps=4, local_bytes=100)])
    assert not shown_slower(one, [timed(None, num_stages=2, local_bytes=128)])
