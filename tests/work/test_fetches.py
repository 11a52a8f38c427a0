"""Fetching evicted code."""

from __future__ import annotations

import pytest

from occupancy_lab.gpus import architectures
from occupancy_lab.work.fetches import CODE_BYTES, Fetches, fetches

CACHE = architectures()["sm_90"].instruction_cache_bytes


def looped(kib: int, *, num_warps: int = 4, inside: float = 0.0) -> Fetches:
    """Return the fetches of a loop with a pass; a share *inside* of it is a loop of 100 passes."""
    lines = kib * 1024 // CODE_BYTES
    first = round(lines * (1 - inside))
    return fetches(
        {0: set(range(first)), 1: set(range(first, lines))},
        {0: {0, 1}, 1: {1}} if inside else {0: {0, 1}},
        {0: 10.0, 1: 1000.0 if inside else 10.0},
        {0: 1.0, 1: 10.0},
        num_warps=num_warps,
        cache=CACHE,
    )


@pytest.mark.parametrize(
    ("kib", "programs", "warps", "cycles"),
    [
        *((64, 2, 4, 20_500), (64, 4, 4, 41_000), (64, 2, 8, 39_100)),
        *((85, 2, 4, 29_900), (85, 4, 4, 50_400), (85, 2, 8, 48_600)),
    ],
)
def test_programs_take_turns_for_their_code(
    kib: int, programs: int, warps: int, cycles: int
) -> None:
    """Programs at different places of a loop take the time that was measured on an H200."""
    found = programs * looped(kib, num_warps=warps).port_cycles / 10
    warps_in_step = 1 if warps <= 4 else warps / 4  # without barriers, these drift apart
    assert found * warps_in_step == pytest.approx(cycles, rel=0.25)


@pytest.mark.parametrize("kib", [24, 256])
def test_code_that_near_caches_hold_or_none_does_takes_no_turns(kib: int) -> None:
    """Small code is at hand, and for large code programs wait together."""
    assert looped(kib).port_cycles == pytest.approx(0.0, abs=1e-6)


def test_a_small_loop_is_fetched_once_for_all_its_passes() -> None:
    """A loop that the near caches hold costs as much as if its passes were one."""
    assert looped(85, inside=0.2).port_cycles == pytest.approx(looped(85).port_cycles, rel=0.01)
    assert looped(85, inside=0.2).cycles == looped(85).cycles
