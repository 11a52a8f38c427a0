"""Sectors, lines, lookups and passes of addresses, against counting one by one, and L1 hits."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work import operations
from occupancy_lab.work.asked import (
    KEPT_LINES,
    MERGED_STORES,
    TABLE_BYTES,
    TAG_BANKS,
    Asking,
    distinct,
    stored_in_part,
)
from occupancy_lab.work.threads import Step

BYTES = dict.fromkeys(range(64), 4)
"""The bytes that a thread moves by each instruction."""


def bank_of(line: int) -> tuple[int, ...]:
    """Return the tag bank of the L1 cache in which a line is looked up."""
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
    """Each warp counts its distinct sectors and lines, and the busiest tag and data bank.

    The part of a warp that moves 128 bytes is served apart.
    """
    numbers = sorted(numbers) if how == "sorted" else numbers
    asks = [True] * 128 if how == "all" else asks
    address: Any = size * np.array(numbers).reshape(2, 64)
    if how == "same":
        address = address[:, :1]
    mask = np.array(asks).reshape(2, 64)
    spread = np.broadcast_to(address, (2, 64))
    expected = [0, 0, 0, 0]
    for program in range(2):
        for warp in range(0, 64, 32):
            lanes = range(warp, warp + 32)
            asked = [int(spread[program, lane]) for lane in lanes if mask[program, lane]]
            lines = {one // 128 for one in asked}
            expected[0] += len({one // 32 for one in asked})
            expected[1] += len(lines)
            tags = max(Counter(map(bank_of, lines)).values(), default=0)
            expected[2] += tags
            together = 128 // max(size, 4)
            for part in range(warp, warp + 32, together):
                mine = range(part, part + together)
                asked = [int(spread[program, lane]) for lane in mine if mask[program, lane]]
                words = {(x + byte) // 4 for x in asked for byte in range(0, size, min(size, 4))}
                data = max(Counter(one % 32 for one in words).values(), default=0)
                expected[3] += data if len(lines) > 1 else bool(asked)
    assert [*distinct(address, mask, size)] == expected


@pytest.mark.parametrize(
    ("stride", "cycles"),
    [
        *((4, 1), (32, 8), (64, 16), (128, 32), (160, 10), (2000, 11), (3108, 11)),
        *((3136, 16), (4000, 11), (6000, 13), (12_000, 14)),
    ],
)
def test_a_warp_takes_the_passes_that_were_measured(stride: int, cycles: int) -> None:
    """Loads of 4 bytes per thread at a stride take the cycles that were measured on an H100."""
    address = (stride * np.arange(32))[None]
    assert max(distinct(address, np.ones((1, 32), bool))[2:]) == cycles


@pytest.mark.parametrize(
    ("seed", "cycles"),
    [*enumerate((6, 4, 3, 3, 3, 7, 8, 4, 4, 6, 8, 5))],
)
def test_lines_at_random_take_the_passes_that_were_measured(seed: int, cycles: int) -> None:
    """Loads of words in random lines take the cycles that were measured on an H100."""
    draw = random.Random(seed)  # noqa: S311 - what was measured was drawn so
    lines = draw.choice((4, 8, 12, 16, 24, 32))
    starts = [128 * draw.randrange(1 << 14) for _ in range(lines)]
    address = np.array([starts[lane % lines] + 4 * draw.randrange(32) for lane in range(32)])
    assert max(distinct(address[None], np.ones((1, 32), bool))[2:]) == cycles


def visit(
    asking: Asking, number: int, address: Any, opcode: int = operations.LDG, **how: Any
) -> None:
    """Record an access by all threads of a program."""
    step = Step(number, opcode, None, (), (), None, negated=False)
    asking.visit(step, address, np.ones((1, address.shape[1]), bool), **{"repeat": 1, **how})


@pytest.mark.parametrize("kept", [KEPT_LINES, 24, 1024])
def test_recent_loads_hit_in_the_l1_cache(kept: int) -> None:
    """A load hits until the cache has loaded as many other lines, and a store never does."""
    asking = Asking(1, 32, lambda _: "x", BYTES, kept_lines=kept)

    def load(number: int, first: int, opcode: int = operations.LDG) -> float:
        visit(asking, number, first + 4 * np.arange(32)[None], opcode)
        return asking.by_instruction[number].cached

    assert [load(1, 0), load(2, 64)] == [0.0, 2.0]
    for line in range(kept):
        load(3, 1024 + 128 * line)
    assert asking.by_instruction[3].cached == 0.0
    assert load(4, 0) == 0.0
    assert load(5, 0) == 4.0
    assert load(6, 0, operations.STG) == 0.0


def test_a_line_counts_once_in_the_cache() -> None:
    """A line counts once in the cache, however many of its sectors are loaded."""
    asking = Asking(1, 32, lambda _: "x", BYTES)
    rows = 4096 * np.arange(32)[None]  # a line for each thread
    firsts = (*range(0, 256, 32), 0)
    for number, first in enumerate(firsts):
        visit(asking, number, rows + first)
    assert KEPT_LINES < 8 * 32
    assert [asking.by_instruction[number].cached for number in range(9)] == [0] * 8 + [32]


@pytest.mark.parametrize(("opcode", "merged"), [(operations.LDG, 4.0), (operations.STG, 3.0)])
def test_requests_of_two_warps_are_merged(opcode: int, merged: float) -> None:
    """Sectors that two warps load are requested once from L2; sectors that both store, mostly."""
    asking = Asking(1, 64, lambda _: "x", BYTES)
    visit(asking, 1, np.tile(4 * np.arange(32), 2)[None], opcode)
    found = asking.by_instruction[1]
    assert (found.sectors, found.cached, found.merged) == (8.0, 0.0, merged)


@pytest.mark.parametrize(("lines", "share"), [(4, MERGED_STORES), (32, 0.0)])
def test_stores_to_the_same_lines_merge(lines: int, share: float) -> None:
    """The next store to the same lines merges, unless the last store had very many."""
    asking = Asking(1, 128, lambda _: "x", BYTES)
    apart = np.arange(128) % (4 * lines) * 128
    for number, offset in enumerate((0, 4)):
        visit(asking, number, (apart + offset)[None], operations.STG)
    found = asking.by_instruction[1]
    assert found.merged == pytest.approx(share * min(4 * lines, found.sectors))


@pytest.mark.parametrize(
    ("lines", "in_step", "merged"), [(8, True, 0.375), (16, True, 0.0), (8, False, 0.0)]
)
def test_warps_merge_stores_to_few_lines_if_they_are_in_step(
    *, lines: int, in_step: bool, merged: float
) -> None:
    """Two warps that store to the same lines make fewer requests only if both are near in time."""
    asking = Asking(1, 64, lambda _: "x", BYTES, in_step=in_step)
    lanes = np.arange(64) % 32
    visit(asking, 1, (lanes % lines * 128 + lanes // lines * 4)[None], operations.STG)
    found = asking.by_instruction[1]
    assert found.merged / found.sectors == pytest.approx(merged)


def test_stores_that_fill_little_of_their_sectors_do_not_merge() -> None:
    """Two warps that store 4 bytes to each sector of the same lines make two requests per line."""
    asking = Asking(1, 64, lambda _: "x", BYTES)
    apart = 32 * np.tile(np.arange(32), 2) + 4 * np.repeat(np.arange(2), 32)
    visit(asking, 1, apart[None], operations.STG)
    assert asking.by_instruction[1].merged == 0.0


@pytest.mark.parametrize(
    ("size", "between", "merged"),
    [(4, "nothing", 0.75), (2, "nothing", 0.2), (4, "load", 0.0), (4, "other lines", 0.0)],
)
def test_successive_stores_merge(size: int, between: str, merged: float) -> None:
    """Stores between those of another one merge if they follow each other, mostly whole words."""
    asking = Asking(1, 64, lambda _: "x", {1: size, 2: size, 3: 4}, in_step=False)
    apart = (1 << 16) + 16 * np.arange(64)[None]
    visit(asking, 1, apart, operations.STG)
    if between == "load":
        visit(asking, 3, apart << 8)
    if between == "other lines":
        for place in range(2, 6):
            visit(asking, 3, apart << place, operations.STG)
    visit(asking, 2, apart + 4, operations.STG)
    found = asking.by_instruction[2]
    assert found.merged == pytest.approx(merged * found.sectors)


@pytest.mark.parametrize(
    ("size", "stride", "start", "partial"),
    [(4, 4, 0, 0.0), (4, 8, 0, 1.0), (16, 16, 0, 0.0), (4, 4, 4, 1.0), (4, 4, 32, 0.0)],
)
def test_requests_in_part_are_those_that_do_not_fill_their_sectors(
    size: int, stride: int, start: int, partial: float
) -> None:
    """A warp's store to a line is a request in part if any of its sectors is not filled."""
    address = (1 << 16) + start + stride * np.arange(32)
    assert stored_in_part(address, np.ones(32, bool), size, 32) == partial


def test_a_row_at_an_unknown_index_is_counted() -> None:
    """Threads that share an unknown offset request as many sectors, or one more per warp."""
    asking = Asking(10, 64, lambda _: "x", BYTES)
    address = (1 << 14) + 4 * np.arange(64)[None]
    visit(asking, 1, address, repeat=3, is_known=False)
    found = asking.by_instruction[1]
    assert not found.is_known
    assert found.tensor is None
    assert (found.sectors, found.most_sectors) == (30 * 2 * 4, 30 * 2 * 5)
    assert (found.lines, found.most_lines) == (30 * 2, 30 * 2 * 2)


def test_common_sectors_are_those_that_all_programs_load() -> None:
    """A row that every program loads is common, unless it hits in the L1 cache."""
    asking = Asking(3, 32, lambda _: "x", BYTES)
    lanes = 4 * np.arange(32)[None]
    own = lanes + TABLE_BYTES * np.arange(3)[:, None]
    for number, address in enumerate((lanes, lanes, own, lanes + 64)):
        visit(asking, number, address)
    found = asking.by_instruction
    assert [found[one].common for one in range(4)] == [12.0, 0.0, 0.0, 6.0]
    assert [found[one].distinct for one in range(4)] == [12.0, 0.0, 12.0, 6.0]


def test_parts_of_a_table_are_common_too() -> None:
    """Programs that load rows of a table in turn load all of it once in as many as it has rows."""
    asking = Asking(64, 32, lambda _: "x", BYTES)
    rows = np.arange(64)[:, None] % 8 * 128 + 4 * np.arange(32)
    visit(asking, 0, rows)
    visit(asking, 1, rows + (1 << 20))
    found = [asking.by_instruction[one] for one in range(2)]
    assert [(one.common, one.turns / one.common) for one in found] == [(256.0, 8.0)] * 2
