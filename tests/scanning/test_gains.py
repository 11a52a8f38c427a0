"""The estimated gain of a kernel, and its reason."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.gpus import find_gpu
from occupancy_lab.scanning.cache import Mix
from occupancy_lab.scanning.gains import (
    Ahead,
    Gain,
    Pass,
    Timed,
    beside_others,
    find_gain,
    shown_slower,
)
from occupancy_lab.scanning.page import ScannedKernel
from occupancy_lab.throughput.demand import MEMORY_CYCLES
from occupancy_lab.throughput.rounds import BANDWIDTH_SHARE
from occupancy_lab.values import Resources

H200 = find_gpu("h200")
NUMBERS = st.integers(0, 2000)
MIXES = st.builds(
    Mix,
    instructions=st.integers(10, 100_000),
    global_accesses=NUMBERS,
    global_bytes=NUMBERS,
    local_loads=st.integers(0, 5),
    local_stores=st.integers(0, 5),
    local_bytes=NUMBERS,
    copies=st.integers(0, 2),
    tensor_instructions=st.integers(0, 1),
)
STREAMING = Mix(100, 2, 32, 0, 0, 0, 0, 0)
"""A load and a store of 16 bytes per thread."""


def gain_of(mix: Mix, programs: int, after: int | None, *, cost: str = "") -> Gain:
    """Return the gain of a kernel on an H200."""
    ahead = Ahead(after, "the step", cost, "the advice")
    return find_gain(mix, Resources(64, 4, 32_768), H200, programs, ahead)


@given(mix=MIXES, programs=st.integers(1, 16), more=st.integers(1, 16))
def test_no_step_gains_more_than_its_programs(mix: Mix, programs: int, more: int) -> None:
    """A gain is at least 1 and, unless it is from spills, at most the ratio of the programs."""
    found = gain_of(mix, programs, programs + more)
    assert found.factor is not None or mix.local_loads + mix.local_stores
    assert (found.factor or 1) >= 1
    assert found.by
    if found.bound != "local":
        assert (found.factor or 1) <= (programs + more) / programs + 1e-9


@given(mix=MIXES, programs=st.integers(1, 31))
def test_more_programs_never_take_longer(mix: Mix, programs: int) -> None:
    """The time per program hardly grows with one more program."""
    work = Pass(mix, Resources(64, 4, 32_768), H200)
    assert work.us(programs + 1) <= work.us(programs) * 1.02


@given(mix=MIXES, programs=st.integers(1, 16))
def test_without_a_step_only_spills_have_a_gain(mix: Mix, programs: int) -> None:
    """If nothing lets one more program in, only removing spills can gain."""
    found = gain_of(mix, programs, None)
    assert found.factor == 1 or found.by.startswith("the advice: ")


@given(mix=MIXES, programs=st.integers(1, 16), more=st.integers(1, 16))
def test_a_kernel_that_spills_gains_by_no_step(mix: Mix, programs: int, more: int) -> None:
    """A step may add spills, so a kernel that spills only has a gain from removing them."""
    found = gain_of(mix, programs, programs + more)
    if mix.local_loads + mix.local_stores:
        assert found.factor in {1, None} or found.by.startswith("the advice: ")


def test_the_gain_of_a_step_is_unknown_with_spills() -> None:
    """Even a cheap spill makes the gain of a step unknown."""
    little = dataclasses.replace(STREAMING, local_loads=1)
    found = gain_of(little, 1, 2)
    assert (found.factor, found.bound) == (None, "latency")
    assert found.by.startswith("the step: ")
    busy = Mix(1039, 0, 2, 1, 0, 4, 0, 0)
    assert gain_of(busy, 5, 6).factor is None


def test_few_bytes_in_flight_are_short_by_littles_law() -> None:
    """One small program has fewer bytes in flight than latency times bandwidth; two gain much."""
    found = gain_of(STREAMING, 1, 2)
    held = 4 * 32 * 32 / 1024
    assert 1.7 < (found.factor or 0) <= 2
    assert found.bound == "latency"
    bandwidth = BANDWIDTH_SHARE * H200.bandwidth_gbs * 1e9 / (H200.multiprocessors or 1)
    wanted = MEMORY_CYCLES / 1980e6 * bandwidth / 1024
    assert (
        found.by == f"the step: {held:.3g} of the {wanted:.3g} KiB in flight that keep memory busy"
    )


def test_spills_are_worth_their_bytes() -> None:
    """A kernel with more local than global traffic gains from removing its spills."""
    spilling = Mix(1000, 2, 32, 200, 200, 4000, 0, 0)
    found = gain_of(spilling, 16, 32)
    assert found.factor > 2
    assert found.by == "the advice: 400 loads and stores of local memory, 2 of global"


@pytest.mark.parametrize(("gpu", "mix"), [("sm_90", STREAMING), ("h200", None)])
def test_an_unknown_gain_is_none(gpu: str, mix: Mix | None) -> None:
    """Without the speed of the GPU or the instructions, the gain is None, with the reason."""
    resources = Resources(64, 4, 0)
    found = find_gain(mix, resources, find_gpu(gpu), 1, Ahead(2, "the step", "", "the advice"))
    assert found.factor is None
    assert found.by.startswith("not known: ")


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


def test_the_reason_asks_for_more_programs_than_there_are() -> None:
    """If one more program helps, the reason names at least one more than there are."""
    large = dataclasses.replace(STREAMING, global_bytes=1024)
    found = gain_of(large, 1, 2)
    assert found.bound == "latency"
    assert "1 of the 1 programs" not in found.by


def timed(us: float | None, pass_us: float | None = None, **settings: Any) -> Timed:
    """Return a kernel of 8 warps, 3 stages and a block of 64, with other *settings*."""
    row = ScannedKernel(kernel="k", num_warps=8, num_stages=3, constexprs={"BLOCK": 64})
    return Timed(dataclasses.replace(row, **settings), us, pass_us)


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


def test_passes_only_compare_warps() -> None:
    """Without known launches, passes compare entries with other warps, but not other stages."""
    one = timed(None, 40.0)
    assert shown_slower(one, [timed(None, 44.0, num_warps=4)]) == {"fewer num_warps"}
    assert not shown_slower(one, [timed(None, 44.0, num_stages=2)])
