"""Sectors and lines of addresses, against counting them one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work.asked import distinct


@given(
    st.lists(st.integers(0, 600), min_size=128, max_size=128),
    st.lists(st.booleans(), min_size=128, max_size=128),
    st.sampled_from(("drawn", "sorted", "same", "all")),
)
def test_sectors_and_lines_are_counted_once_a_warp(
    addresses: list[int], asks: list[bool], how: str
) -> None:
    """Each warp counts the sectors and the lines of its own threads that ask, each once."""
    addresses = sorted(addresses) if how == "sorted" else addresses
    asks = [True] * 128 if how == "all" else asks
    address: Any = np.array(addresses).reshape(2, 64)
    if how == "same":
        address = address[:, :1]
    mask = np.array(asks).reshape(2, 64)
    spread = np.broadcast_to(address, (2, 64))
    expected = [0, 0]
    for program in range(2):
        for warp in range(0, 64, 32):
            lanes = range(warp, warp + 32)
            asked = [int(spread[program, lane]) for lane in lanes if mask[program, lane]]
            expected[0] += len({one // 32 for one in asked})
            expected[1] += len({one // 128 for one in asked})
    assert list(distinct(address, mask)) == expected
