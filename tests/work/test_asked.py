"""Sectors, lines and passes of addresses, against counting them one by one, and what L1 keeps."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work import operations
from occupancy_lab.work.asked import KEPT_LINES, MERGED_STORES, TAG_BANKS, Asking, distinct
from occupancy_lab.work.threads import Step


def bank_of(line: int) -> tuple[int, ...]:
    """Return the bank of the L1 cache's tags in which a line is looked up."""
    return tuple((line & bits).bit_count() % 2 for bits in TAG_BANKS)


@given(
    st.lists(st.integers(0, 6000), min_size=128, max_size=128),
    st.lists(st.booleans(), min_size=128, max_size=128),
    st.sampled_from(("drawn", "sorted", "same", "all")),
    st.sampled_from((1, 2, 4, 8, 16)),
)
def test_sectors_and_lines_are_counted_once_a_warp(
    numbers: list[int], asks: list[bool], how: str, size: int
) -> None:
    """Each warp counts its sectors and lines once, and the passes of tags or of words."""
    numbers = sorted(numbers) if how == "sorted" else numbers
    asks = [True] * 128 if how == "all" else asks
    address: Any = size * np.array(numbers).reshape(2, 64)
    if how == "same":
        address = address[:, :1]
    mask = np.array(asks).reshape(2, 64)
    spread = np.broadcast_to(address, (2, 64))
    expected = [0, 0, 0]
    for program in range(2):
        for warp in range(0, 64, 32):
            lanes = range(warp, warp + 32)
            asked = [int(spread[program, lane]) for lane in lanes if mask[program, lane]]
            lines = {one // 128 for one in asked}
            words = {(one + byte) // 4 for one in asked for byte in range(0, size, min(size, 4))}
            expected[0] += len({one // 32 for one in asked})
            expected[1] += len(lines)
            tags = max(Counter(map(bank_of, lines)).values(), default=0)
            data = max(Counter(one % 32 for one in words).values(), default=0)
            expected[2] += max(tags, data) if len(lines) > 1 else len(lines)
    assert [*distinct(address, mask, size)] == expected


@pytest.mark.parametrize(
    ("stride", "cycles"),
    [
        *((4, 1), (32, 8), (64, 16), (128, 32), (160, 10), (2000, 11), (3108, 11)),
        *((3136, 16), (4000, 11), (6000, 13), (12_000, 14)),
    ],
)
def test_a_warp_takes_the_passes_that_were_measured(stride: int, cycles: int) -> None:
    """Loads of 4 bytes a thread, each so many bytes from the next, take an H100 so many cycles."""
    address = (stride * np.arange(32))[None]
    assert distinct(address, np.ones((1, 32), bool))[2] == cycles


@pytest.mark.parametrize(
    ("seed", "cycles"),
    [*enumerate((6, 4, 3, 3, 3, 7, 8, 4, 4, 6, 8, 5))],
)
def test_lines_at_random_take_the_passes_that_were_measured(seed: int, cycles: int) -> None:
    """Words of 4 to 32 lines that were drawn take an H100 so many cycles."""
    draw = random.Random(seed)  # noqa: S311 - what was measured was drawn so
    lines = draw.choice((4, 8, 12, 16, 24, 32))
    starts = [128 * draw.randrange(1 << 14) for _ in range(lines)]
    address = np.array([starts[lane % lines] + 4 * draw.randrange(32) for lane in range(32)])
    assert distinct(address[None], np.ones((1, 32), bool))[2] == cycles


def visit(
    asking: Asking, number: int, address: Any, opcode: int = operations.LDG, **how: Any
) -> None:
    """Record an access by all threads of a program."""
    step = Step(number, opcode, None, (), (), None, negated=False)
    asking.visit(step, address, np.ones((1, address.shape[1]), bool), **{"repeat": 1, **how})


def test_the_l1_cache_has_what_a_program_loaded_shortly_before() -> None:
    """A second load of a sector finds it, until KEPT_LINES others were loaded; a store does not."""
    asking = Asking(1, 32, lambda _: "x", lambda _: 4)

    def load(number: int, first: int, opcode: int = operations.LDG) -> float:
        visit(asking, number, first + 4 * np.arange(32)[None], opcode)
        return asking.by_instruction[number].cached

    assert [load(1, 0), load(2, 64)] == [0.0, 2.0]
    for line in range(KEPT_LINES):
        load(3, 1024 + 128 * line)
    assert asking.by_instruction[3].cached == 0.0
    assert load(4, 0) == 0.0
    assert load(5, 0) == 4.0
    assert load(6, 0, operations.STG) == 0.0


def test_a_line_takes_its_room_once() -> None:
    """However many sectors of a line are loaded one after the other, one line has come."""
    asking = Asking(1, 32, lambda _: "x", lambda _: 4)
    rows = 4096 * np.arange(32)[None]  # a line for each thread
    firsts = (*range(0, 256, 32), 0)
    for number, first in enumerate(firsts):
        visit(asking, number, rows + first)
    assert KEPT_LINES < 8 * 32
    assert [asking.by_instruction[number].cached for number in range(9)] == [0] * 8 + [32]


@pytest.mark.parametrize(("opcode", "merged"), [(operations.LDG, 4.0), (operations.STG, 3.0)])
def test_what_two_warps_ask_for_is_asked_for_once(opcode: int, merged: float) -> None:
    """Of sectors that both load the L2 cache is asked for one each, of what both store for most."""
    asking = Asking(1, 64, lambda _: "x", lambda _: 4)
    visit(asking, 1, np.tile(4 * np.arange(32), 2)[None], opcode)
    found = asking.by_instruction[1]
    assert (found.sectors, found.cached, found.merged) == (8.0, 0.0, merged)


@pytest.mark.parametrize(("lines", "share"), [(4, MERGED_STORES), (32, 0.0)])
def test_a_store_goes_on_with_the_lines_of_the_last_one(lines: int, share: float) -> None:
    """The L2 cache sees one request of both, unless the last store was to very many lines."""
    asking = Asking(1, 128, lambda _: "x", lambda _: 4)
    apart = np.arange(128) % (4 * lines) * 128
    for number, offset in enumerate((0, 4)):
        visit(asking, number, (apart + offset)[None], operations.STG)
    found = asking.by_instruction[1]
    assert found.merged / found.sectors == pytest.approx(share)


def test_a_row_from_a_number_in_memory_is_counted_wherever_it_is() -> None:
    """Threads that share an unknown number ask for as many sectors, or for one more a warp."""
    asking = Asking(10, 64, lambda _: "x", lambda _: 4)
    address = (1 << 14) + 4 * np.arange(64)[None]
    visit(asking, 1, address, repeat=3, is_known=False)
    found = asking.by_instruction[1]
    assert not found.is_known
    assert found.tensor is None
    assert (found.sectors, found.most_sectors) == (30 * 2 * 4, 30 * 2 * 5)
    assert (found.lines, found.most_lines) == (30 * 2, 30 * 2 * 2)


def test_what_all_programs_load_is_told_apart() -> None:
    """A row that each program loads counts as common, one that it found before does not."""
    asking = Asking(3, 32, lambda _: "x", lambda _: 4)
    lanes = 4 * np.arange(32)[None]
    own = lanes + 4096 * np.arange(3)[:, None]
    for number, address in enumerate((lanes, lanes, own, lanes + 64)):
        visit(asking, number, address)
    found = asking.by_instruction
    assert [found[one].common for one in range(4)] == [12.0, 0.0, 0.0, 6.0]
    assert [found[one].distinct for one in range(4)] == [12.0, 0.0, 12.0, 6.0]
