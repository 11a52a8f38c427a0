"""The distinct bytes of a launch are the same however they are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
from counted_kernels import copy_block, multiply, running, two_passes
from first_texts import first_text
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.arguments import Pointer
from occupancy_lab.work import footprint
from occupancy_lab.work.counts import SECTOR
from occupancy_lab.work.footprint import (
    Accessed,
    Bytes,
    TooManyRunsError,
    accessed,
    least_runs,
    merged,
    spread,
    touched,
)
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

if TYPE_CHECKING:
    from occupancy_lab.work.accesses import Touch
    from occupancy_lab.work.counts import Amount, Counts

HALF, WHOLE = Pointer("float16", 1 << 30), Pointer("float32", 1 << 30)
numbers = st.lists(st.integers(0, 300), min_size=1, max_size=9, unique=True).map(sorted)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.integers(0, 9))
def test_tiles_one_by_one_are_those_that_are_spread(m: int, n: int, k: int, more: int) -> None:
    """Kinds of tiles moved by their steps have the bytes and sectors of each program's tiles."""
    stride = max(m, n, k) + more
    sizes = {"m": m, "n": n, "k": k, "stride": stride, "M": 32, "N": 16, "K": 16}
    launches: list[tuple[Any, tuple[int, ...], dict[str, Any]]] = [
        (multiply, (-(-m // 32), -(-n // 16)), {"a": HALF, "b": HALF, "c": HALF, **sizes}),
        (
            copy_block,
            (-(-m // 32),),
            {"x": HALF, "y": HALF, "rows": m, "columns": n, "M": 32, "N": 64},
        ),
        (two_passes, (n,), {"x": HALF, "y": HALF, "n": m, "B": 32}),
        (running, (m,), {"x": WHOLE, "n": n, "B": 16}),
    ]
    for function, grid, arguments in launches:
        text = read_ttir(first_text(function, arguments))

        def counted() -> Counts:
            with patch("occupancy_lab.work.walk.accessed", checked):
                return count(text, arguments, grid)  # noqa: B023 - it is called at once

        with patch.multiple(footprint, FEW_RUNS=0, RUNS_A_KIND=0):
            spread_out = counted()
        with patch.multiple(footprint, FEW_RUNS=2**20):
            assert spread_out == counted()


def checked(touch: Touch, asked: Amount) -> Accessed:
    """Return what is known of an access, whose sectors are those of its bytes."""
    found, expected = touched(touch, SECTOR), touched(touch).whole(SECTOR)
    assert found.starts.tolist() == expected.starts.tolist()
    assert found.ends.tolist() == expected.ends.tolist()
    return accessed(touch, asked)


@given(numbers, numbers, numbers, st.integers(1, 40))
def test_runs_that_are_moved_are_the_bytes_of_each_move(
    starts: list[int], near: list[int], far: list[int], length: int
) -> None:
    """What runs cover when they are moved by each sum of steps is a set of bytes."""
    begins = np.array(starts, "int64")
    one = merged(begins, begins + length)
    steps = [np.array(near, "int64"), np.array(far, "int64") * 1000]
    found = spread(one, steps)
    expected = {
        begin + by + along * 1000 + at
        for begin in starts
        for by in near
        for along in far
        for at in range(length)
    }
    covered = [range(*ends) for ends in zip(found.starts, found.ends, strict=True)]
    assert {at for run in covered for at in run} == expected
    assert found.size == len(expected)
    assert (found.starts[1:] > found.ends[:-1]).all()
    assert least_runs(one, steps) <= max(len(found.starts), len(one.starts))


@given(numbers, st.integers(1, 50), st.sampled_from([32, 128]))
def test_whole_units_cover_all_that_they_touch(starts: list[int], length: int, unit: int) -> None:
    """Whole sectors and lines of runs are those in which a byte of them lies."""
    begins = np.array(starts, "int64")
    found = Bytes(begins, begins + length).whole(unit)
    assert found.size == unit * len(
        {at // unit for one in starts for at in range(one, one + length)}
    )


def test_too_many_runs_are_refused() -> None:
    """What would take seconds to merge is told to be too scattered."""
    many = np.arange(footprint.MOST_MERGED // 4, dtype="int64") * 4
    with pytest.raises(TooManyRunsError):
        spread(Bytes(many, many + 2), [np.arange(8, dtype="int64") * many[-1] * 2])
