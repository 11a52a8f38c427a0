"""What there is to win is an estimate that follows from one formula, and says why."""

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
"""A load and a store of 16 bytes a thread."""


def gain_of(mix: Mix, programs: int, after: int | None, *, cost: str = "") -> Gain:
    """Return the gain of a kernel on an H200."""
    ahead = Ahead(after, "the step", cost, "the advice")
    return find_gain(mix, Resources(64, 4, 32_768), H200, programs, ahead)


@given(mix=MIXES, programs=st.integers(1, 16), more=st.integers(1, 16))
def test_no_step_gains_more_than_its_programs(mix: Mix, programs: int, more: int) -> None:
    """A gain is at least 1, and without spills at most the ratio of the programs."""
    found = gain_of(mix, programs, programs + more)
    assert found.factor is not None or mix.local_loads + mix.local_stores
    assert (found.factor or 1) >= 1
    assert found.by
    if found.bound != "local":
        assert (found.factor or 1) <= (programs + more) / programs + 1e-9


@given(mix=MIXES, programs=st.integers(1, 31))
def test_more_programs_never_take_longer(mix: Mix, programs: int) -> None:
    """A pass takes next to no longer with one program more, as programs wait for each other."""
    work = Pass(mix, Resources(64, 4, 32_768), H200)
    assert work.us(programs + 1) <= work.us(programs) * 1.02


@given(mix=MIXES, programs=st.integers(1, 16))
def test_nothing_is_named_that_cannot_be_had(mix: Mix, programs: int) -> None:
    """Where nothing brings a further program, only spills have something to win."""
    found = gain_of(mix, programs, None)
    assert found.factor == 1 or found.by.startswith("the advice: ")


@given(mix=MIXES, programs=st.integers(1, 16), more=st.integers(1, 16))
def test_a_step_of_a_kernel_that_spills_is_not_counted(mix: Mix, programs: int, more: int) -> None:
    """What a step adds to spills is not known: such a kernel gains by what spares them alone."""
    found = gain_of(mix, programs, programs + more)
    if mix.local_loads + mix.local_stores:
        assert found.factor in {1, None} or found.by.startswith("the advice: ")


def test_a_spill_that_costs_nothing_has_no_step_to_gain_by() -> None:
    """What a kernel that spills a little would gain by more programs is not known."""
    little = dataclasses.replace(STREAMING, local_loads=1)
    found = gain_of(little, 1, 2)
    assert (found.factor, found.bound) == (None, "latency")
    assert found.by.startswith("the step: ")
    busy = Mix(1039, 0, 2, 1, 0, 4, 0, 0)
    assert gain_of(busy, 5, 6).factor is None


def test_few_bytes_in_flight_are_short_by_littles_law() -> None:
    """One small program holds less than latency times bandwidth, and two gain much."""
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
    """A kernel that moves more local than global memory is told to stop that first."""
    spilling = Mix(1000, 2, 32, 200, 200, 4000, 0, 0)
    found = gain_of(spilling, 16, 32)
    assert found.factor > 2
    assert found.by == "the advice: 400 loads and stores of local memory, 2 of global"


@pytest.mark.parametrize(("gpu", "mix"), [("sm_90", STREAMING), ("h200", None)])
def test_what_is_not_known_is_not_a_number(gpu: str, mix: Mix | None) -> None:
    """Without the speed of the GPU, or the instructions, no gain is known, and that is said."""
    resources = Resources(64, 4, 0)
    found = find_gain(mix, resources, find_gpu(gpu), 1, Ahead(2, "the step", "", "the advice"))
    assert found.factor is None
    assert found.by.startswith("not known: ")


def test_another_entry_is_named_by_what_it_is_launched_with() -> None:
    """What is predicted to be faster is named by its settings; no settings of its own, no gain."""
    slow = ScannedKernel(kernel="norm", gpu="h200", num_warps=8, num_stages=2, predicted_us=40.0)
    fast = dataclasses.replace(slow, num_warps=4, num_ctas=2, predicted_us=20.0)
    found = next(beside_others([slow, fast]))
    assert found.gain == pytest.approx(2.0)
    assert found.gain_by == (
        "num_warps 4 and num_ctas 2, as another entry: 20.0 us instead of 40.0 us"
    )
    alike = dataclasses.replace(slow, predicted_us=20.0)
    assert next(beside_others([slow, alike])) == slow


def test_more_programs_are_wanted_than_there_are() -> None:
    """Where one more overlaps its loads with computing, no fewer than one more are said to do."""
    large = dataclasses.replace(STREAMING, global_bytes=1024)
    found = gain_of(large, 1, 2)
    assert found.bound == "latency"
    assert "1 of the 1 programs" not in found.by


def timed(us: float | None, pass_us: float | None = None, **settings: Any) -> Timed:
    """Return a kernel of 8 warps, 3 stages and a block of 64, but for *settings*."""
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
def test_an_entry_shows_what_a_proposal_brings(proposal: str, settings: dict[str, Any]) -> None:
    """A proposal is refuted by slower entries that differ in it alone, unless one is faster."""
    one, other = timed(40.0), timed(44.0, **settings)
    assert shown_slower(one, [one, other]) == ({proposal} if proposal else set())
    assert not shown_slower(one, [one, other, timed(38.0, **settings)])
    assert not shown_slower(one, [one, timed(None, **settings)])


def test_passes_compare_entries_of_other_warps_alone() -> None:
    """Where no launch is known a pass tells of warps, but not of stages, as it counts none."""
    one = timed(None, 40.0)
    assert shown_slower(one, [timed(None, 44.0, num_warps=4)]) == {"fewer num_warps"}
    assert not shown_slower(one, [timed(None, 44.0, num_stages=2)])
