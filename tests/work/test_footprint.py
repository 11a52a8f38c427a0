"""The distinct bytes of a launch are the same with each way of counting them."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from counted_kernels import columns, copy_block, multiply, running, two_passes
from first_texts import first_text
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.arguments import Pointer
from occupancy_lab.work import footprint
from occupancy_lab.work.accesses import Touch, grouped
from occupancy_lab.work.counts import SECTOR, Amount, Counts
from occupancy_lab.work.footprint import (
    Accessed,
    Bytes,
    TooManyRunsError,
    accessed,
    least_runs,
    merged,
    repeated,
    size_of,
    spread,
    touched,
    union,
)
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

HALF, WHOLE = Pointer("float16", 1 << 30), Pointer("float32", 1 << 30)
FAR = Pointer("float32", 1 << 40)
numbers = st.lists(st.integers(0, 300), min_size=1, max_size=9, unique=True).map(sorted)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.integers(0, 9))
def test_tiles_one_by_one_are_those_that_are_spread(m: int, n: int, k: int, more: int) -> None:
    """Moving kinds of tiles by steps gives the same bytes and sectors as listing every tile."""
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
    """Return what is known of an access, after comparing its sectors with those of its bytes."""
    groups = grouped(touch, None)
    found = touched(touch, groups, SECTOR)
    expected = [one.whole(SECTOR) for one in touched(touch, groups)]
    for name in ("starts", "ends"):
        assert [getattr(one, name).tolist() for one in found] == [
            getattr(one, name).tolist() for one in expected
        ]
    return accessed(touch, asked)


@given(numbers, numbers, numbers, st.integers(1, 40))
def test_runs_that_are_moved_are_the_bytes_of_each_move(
    starts: list[int], near: list[int], far: list[int], length: int
) -> None:
    """Moved runs cover the union of all their moves."""
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
    """Whole sectors and lines are those that contain a byte of the runs."""
    begins = np.array(starts, "int64")
    found = Bytes(begins, begins + length).whole(unit)
    assert found.size == unit * len(
        {at // unit for one in starts for at in range(one, one + length)}
    )


def test_too_many_runs_are_refused() -> None:
    """Sets with too many runs to merge raise an error."""
    many = np.arange(footprint.MOST_MERGED // 4, dtype="int64") * 4
    with pytest.raises(TooManyRunsError):
        spread(Bytes(many, many + 2), [np.arange(8, dtype="int64") * many[-1] * 2])


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(1, 60),
    st.integers(1, 40),
    st.integers(0, 1),
)
def test_sets_that_repeat_have_the_bytes_of_all_their_runs(
    runs: list[tuple[int, int]], step: int, times: int, tail: int
) -> None:
    """The union of sets with regular steps is that of their runs, or an error where they overlap.

    One of the sets is empty, as for a load whose threads are all masked.
    """
    steps, nothing = (np.arange(times, dtype="int64") * step,), np.array([], dtype="int64")
    ones = [merged(np.array([start]), np.array([start + length])) for start, length in runs]
    ones.append(merged(nothing, nothing))
    last = Bytes(np.array([2000]), np.array([2010]))
    expected = {
        start + at + by * step
        for start, length in runs
        for at in range(length)
        for by in range(times)
    } | {*range(2000, 2010 if tail else 2000)}
    try:
        several = [repeated(one, steps) for one in ones] + [last] * tail
        found = union(several)
        sectors = union(one.whole(SECTOR) for one in found)
    except TooManyRunsError:
        assert step < 40 + 9 or step % SECTOR
        return
    assert size_of(found) == len(expected)
    assert size_of(sectors) == SECTOR * len({one // SECTOR for one in expected})


@pytest.mark.parametrize("n", [300_000, 300_001, 30_000_001])
def test_a_column_of_a_large_matrix_is_counted_exactly(n: int) -> None:
    """A column of a large matrix is counted exactly, as is a column beside it."""
    arguments = {"x": FAR, "y": FAR, "n": n, "stride": 33, "B": 1024}
    counts = count(read_ttir(first_text(columns, arguments)), arguments, (-(-n // 1024),))
    x, y = sorted(counts.footprints, key=lambda one: str(one.tensor))
    assert x.read.exact == y.written.exact == 8 * n
    rows = np.arange(n, dtype="int64") * 33 * 4
    assert x.read_whole.exact == SECTOR * int((1 + (rows % SECTOR == 28)).sum())
    assert y.written_whole.exact == -(-8 * n // SECTOR) * SECTOR
