"""Passes of shared memory, against counting the words of each bank one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work.banks import passes_of_pairs, wavefronts

LANES = np.arange(32)


def passes(places: list[int], asks: list[bool], size: int, *, is_load: bool) -> int:
    """Return the passes of a warp whose threads access *size* bytes at *places*."""
    at_once = min(32, 128 // size)
    for distance in (1, 2):
        pairs = [(one, one ^ distance) for one in range(32) if asks[one] and asks[one ^ distance]]
        if is_load and size > 4 and all(places[one] == places[other] for one, other in pairs):
            at_once = 256 // size
    found = 0
    for first in range(0, 32, at_once):
        words: dict[int, set[int]] = {}
        for lane in range(first, first + at_once):
            for byte in range(size) if asks[lane] else ():
                word = (places[lane] + byte) // 4
                words.setdefault(word % 32, set()).add(word)
        found += max(map(len, words.values()), default=0)
    return found


@given(
    st.lists(st.integers(0, 150), min_size=64, max_size=64),
    st.lists(st.booleans(), min_size=64, max_size=64),
    st.sampled_from((1, 2, 4, 8, 16)),
    st.sampled_from(("drawn", "all", "pairs", "next but one", "same")),
    st.sampled_from(("load", "store")),
)
def test_each_bank_gives_a_word_a_pass(
    places: list[int], asks: list[bool], size: int, how: str, kind: str
) -> None:
    """A warp takes as many passes as its fullest bank has words, in each part served at a time."""
    if how == "all":
        asks = [True] * 64
    lane = {"pairs": lambda one: one & ~1, "next but one": lambda one: one & ~2}.get(how)
    if lane is not None:
        places = [places[lane(one)] for one in range(64)]
    address: Any = np.array([places[:1] if how == "same" else places]) * size
    everywhere = [int(one) for one in np.broadcast_to(address, (1, 64))[0]]
    is_load = kind == "load"
    expected = sum(
        passes(everywhere[first : first + 32], asks[first : first + 32], size, is_load=is_load)
        for first in (0, 32)
    )
    assert wavefronts(address, np.array([asks]), size, is_load=is_load) == expected


@pytest.mark.parametrize(
    ("address", "size", "expected"),
    [
        (4 * LANES, 4, 1),
        (8 * LANES, 4, 2),
        (128 * LANES, 4, 32),
        (132 * LANES, 4, 1),
        (0 * LANES, 4, 1),
        (LANES, 1, 1),
        (8 * LANES, 8, 2),
        (16 * LANES, 16, 4),
        (128 * LANES, 16, 32),
        (0 * LANES, 16, 2),
    ],
)
def test_known_patterns(address: Any, size: int, expected: int) -> None:
    """Neighbours, strides, a padded column and one word for all take the passes known of them."""
    everyone = np.ones((1, 32), bool)
    assert wavefronts(address[None, :], everyone, size, is_load=True) == expected
    assert wavefronts(address[None, :], ~everyone, size, is_load=True) == 0


@given(
    st.lists(st.integers(0, 400), min_size=64, max_size=64),
    st.lists(st.integers(0, 400), min_size=64, max_size=64),
    st.lists(st.booleans(), min_size=64, max_size=64),
)
def test_a_copy_through_the_cache_takes_two_lines_at_a_time(
    source: list[int], words: list[int], asks: list[bool]
) -> None:
    """Each two lines that a warp copies from are written in as many passes as they need alone."""
    expected = 0
    for first in (0, 32):
        lanes = [lane for lane in range(first, first + 32) if asks[lane]]
        lines = sorted({source[lane] // 32 for lane in lanes})
        for place in range(0, len(lines), 2):
            banks: dict[int, set[int]] = {}
            for lane in lanes:
                if source[lane] // 32 in lines[place : place + 2]:
                    banks.setdefault(words[lane] % 32, set()).add(words[lane])
            expected += max(map(len, banks.values()))
    given: Any = (np.array([source]) * 4, np.array([words]) * 4, np.array([asks]))
    assert passes_of_pairs(*given) == expected


@pytest.mark.parametrize(
    ("lanes_of_line", "stride", "expected"), [(8, 1, 2), (1, 1, 16), (8, 16, 16), (32, 16, 16)]
)
def test_lines_and_banks_of_a_copy(lanes_of_line: int, stride: int, expected: int) -> None:
    """Threads in a row copy two lines a cycle; those of one bank wait for each other in a pair."""
    source = (LANES // lanes_of_line * 128 + LANES % lanes_of_line * 4)[None, :]
    address = (4 * stride * LANES)[None, :]
    assert passes_of_pairs(source, address, np.ones((1, 32), bool)) == expected
