"""Sectors, lines and passes of addresses, against counting them one by one, and what L1 keeps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work import operations
from occupancy_lab.work.asked import KEPT_LINES, Asking, distinct
from occupancy_lab.work.threads import Step


@given(
    st.lists(st.integers(0, 600), min_size=128, max_size=128),
    st.lists(st.booleans(), min_size=128, max_size=128),
    st.sampled_from(("drawn", "sorted", "same", "all")),
)
def test_sectors_and_lines_are_counted_once_a_warp(
    addresses: list[int], asks: list[bool], how: str
) -> None:
    """Each warp counts its sectors and lines once, and its passes: most sectors of a quarter."""
    addresses = sorted(addresses) if how == "sorted" else addresses
    asks = [True] * 128 if how == "all" else asks
    address: Any = np.array(addresses).reshape(2, 64)
    if how == "same":
        address = address[:, :1]
    mask = np.array(asks).reshape(2, 64)
    spread = np.broadcast_to(address, (2, 64))
    expected = [0, 0, 0]
    for program in range(2):
        for warp in range(0, 64, 32):
            lanes = range(warp, warp + 32)
            asked = [int(spread[program, lane]) for lane in lanes if mask[program, lane]]
            expected[0] += len({one // 32 for one in asked})
            expected[1] += len({one // 128 for one in asked})
            quarters = Counter(one % 4 for one in {one // 32 for one in asked})
            expected[2] += max(quarters.values(), default=0)
    assert list(distinct(address, mask)) == expected


def test_the_l1_cache_has_what_a_program_loaded_shortly_before() -> None:
    """A second load of a sector finds it, until KEPT_LINES others were loaded; a store does not."""
    asking = Asking(1, 32, lambda _: "x")
    everyone = np.ones((1, 32), bool)

    def load(number: int, first: int, opcode: int = operations.LDG) -> float:
        address = first + 4 * np.arange(32)[None]
        step = Step(number, opcode, None, (), (), None, negated=False)
        asking.visit(step, address, everyone, repeat=1)
        return asking.by_instruction[number].cached

    assert [load(1, 0), load(2, 64)] == [0.0, 2.0]
    for line in range(KEPT_LINES):
        load(3, 1024 + 128 * line)
    assert asking.by_instruction[3].cached == 0.0
    assert load(4, 0) == 0.0
    assert load(5, 0) == 4.0
    assert load(6, 0, operations.STG) == 0.0


def test_a_row_from_a_number_in_memory_is_counted_wherever_it_is() -> None:
    """Threads that share an unknown number ask for as many sectors, or for one more a warp."""
    asking = Asking(10, 64, lambda _: "x")
    address = (1 << 14) + 4 * np.arange(64)[None]
    step = Step(1, operations.LDG, None, (), (), None, negated=False)
    asking.visit(step, address, np.ones((1, 64), bool), repeat=3, is_known=False)
    found = asking.by_instruction[1]
    assert not found.is_known
    assert found.tensor is None
    assert (found.sectors, found.most_sectors) == (30 * 2 * 4, 30 * 2 * 5)
    assert (found.lines, found.most_lines) == (30 * 2, 30 * 2 * 2)


def test_passes_that_are_left_out_move_nothing_out_of_the_cache() -> None:
    """A load in a pass that stands for many finds what the same pass loaded just before."""
    asking = Asking(1, 32, lambda _: "x")
    address = 128 * np.arange(32)[None]
    for number in (1, 2):
        step = Step(number, operations.LDG, None, (), (), None, negated=False)
        asking.visit(step, address, np.ones((1, 32), bool), repeat=1000)
    assert asking.by_instruction[2].cached == asking.by_instruction[2].sectors == 32_000
