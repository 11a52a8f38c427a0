"""Reuse distances, against a list of all accesses."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from counted_kernels import copied_column, multiply, two_passes
from first_texts import first_text
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.arguments import Pointer
from occupancy_lab.work.accesses import Runs
from occupancy_lab.work.reuse import Blocks, Schedule, distances, steps_of
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

HALF = Pointer("float16", 1 << 30)
SIZE = 64
WHOLE = Schedule((1, 1, 1), 1)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9), st.booleans()), min_size=1))
def test_distances_are_those_of_a_list(touches: list[tuple[int, int, bool]]) -> None:
    """Between accesses to a block lie all blocks of the steps between, and half of both steps."""
    made = [
        Blocks(
            np.array([block * SIZE for _, block, reads in touches if reads == kind], "int64"),
            np.zeros(sum(reads == kind for *_, reads in touches), "int64"),
            np.array([step for step, _, reads in touches if reads == kind], "int64"),
            ((b"", SIZE),),
            reads=kind,
            writes=not kind,
        )
        for kind in (True, False)
    ]
    blocks = {block for _, block, _ in touches}
    found = steps_of(made, len(blocks) * SIZE, WHOLE)
    between = distances(found.touched, WHOLE)
    again: Counter[tuple[int, int]] = Counter()
    rewritten: Counter[tuple[int, int]] = Counter()
    for block in blocks:
        steps = sorted({step for step, other, _ in touches if other == block})
        for before, after in itertools.pairwise(steps):
            each = [{other for one, other, _ in touches if one == step} for step in (before, after)]
            inside = {other for one, other, _ in touches if before < one < after}
            expected = SIZE * (len(inside) + sum(map(len, each)) / 2)
            assert between[before, after] == expected
            if (after, block, True) in touches:
                again[before, after] += SIZE
            earlier = ((step, block, False) in touches for step in range(after))
            if (after, block, False) in touches and any(earlier):
                rewritten[before, after] += SIZE
    for expected_bytes, sums in ((again, found.again), (rewritten, found.rewritten)):
        for (before, after), size in expected_bytes.items():
            assert sums[before + 1, after] == size
        assert sums.sum() == sum(expected_bytes.values())


def late(counts: Any, tensor: str, distance: float) -> int:
    """Return the bytes of a tensor that are read again at *distance* or more."""
    (found,) = [one.again for one in counts.footprints if one.tensor == tensor]
    assert found is not None
    return sum(one.bytes for one in found if one.distance >= distance)


@pytest.mark.slow
def test_reuse_of_a_product_matches_a_simulation() -> None:
    """A product's reuse matches a simulation of 64 resident programs with an LRU list."""
    size, block, inner, resident = 1024, 64, 32, 64
    across = size // block
    arguments = {"a": HALF, "b": HALF, "c": HALF, "m": size, "n": size, "k": size, "stride": size}
    text = first_text(multiply, {**arguments, "M": block, "N": block, "K": inner})
    given_ = {**arguments, "M": block, "N": block, "K": inner}
    counts = count(read_ttir(text), given_, (across, across), resident=resident)
    recent: dict[Any, int] = {}  # in LRU order
    again: Counter[str] = Counter()
    cut = 2 * size * size  # the size of a matrix
    for wave in range(0, across * across, resident):
        programs = range(wave, wave + resident)
        touches = [
            (("a", one % across, step), ("b", one // across, step))
            for step in range(size // inner)
            for one in programs
        ]
        for tile in [tile for pair in touches for tile in pair] + [("c", one) for one in programs]:
            if tile in recent:
                others = [*recent]
                apart = sum(recent[one] for one in others[others.index(tile) + 1 :])
                again[tile[0]] += recent.pop(tile) * (apart >= cut)
            recent[tile] = 2 * block * (inner if len(tile) > 2 else block)
    assert again["a"] > 0
    for tensor in ("a", "b"):
        assert late(counts, tensor, cut) == pytest.approx(again[tensor], rel=0.05)


@pytest.mark.parametrize("resident", [16, 64])
def test_reuse_distance_of_a_second_pass(resident: int) -> None:
    """A second pass over rows comes after the rows of all resident programs, and their output."""
    rows, columns = 64, 65536
    arguments = {"x": HALF, "y": HALF, "n": columns, "B": 1024}
    counts = count(
        read_ttir(first_text(two_passes, arguments)), arguments, (rows,), resident=resident
    )
    row = columns * 2
    assert late(counts, "x", 0.95 * resident * row) == pytest.approx(rows * row, rel=0.01)
    assert 0 < late(counts, "x", 1.5 * resident * row) < rows * row
    assert late(counts, "x", 2.3 * resident * row) == 0


def test_launches_without_reuse() -> None:
    """Small launches, single reads and simultaneous reads have no reuse."""
    arguments = {"x": HALF, "y": HALF, "n": 1024, "B": 1024}
    text = read_ttir(first_text(two_passes, arguments))
    for resident, again in ((4, ()), (None, None)):
        counts = count(text, arguments, (64,), resident=resident)
        assert [one.again for one in counts.footprints] == [again] * 2


def test_columns_occupy_whole_lines() -> None:
    """A column's sectors come again with the next column, after a whole line of each row."""
    rows, columns, block, resident = 8192, 64, 128, 128
    single = Pointer("float32", 1 << 30)
    arguments = {"x": single, "y": single, "stride": columns, "B": block}
    text, grid = read_ttir(first_text(copied_column, arguments)), (rows // block, columns)
    counts = count(text, arguments, grid, resident=resident)
    assert [one.occupied for one in counts.accesses] == [4.0, 4.0]
    sectors, lines = rows * 32, rows * 128
    late = columns // 2 * sectors - rows * columns * 4  # two columns are copied at a time
    x, y = counts.footprints
    for found in (x.again, y.rewritten):
        assert found is not None
        assert sum(one.bytes for one in found) == late
        assert all(2 * lines <= one.distance <= 3 * lines for one in found)
    assert (x.rewritten, y.again) == ((), ())


def test_tiles_without_an_element_are_no_runs() -> None:
    """A tile that is masked off has no runs, in bytes or in whole sectors; others are merged."""
    nothing = np.zeros(0, "int64")
    assert len(Runs(nothing, nothing, nothing).whole(32).starts) == 0
    rows, starts = np.array([0, 0, 2]), np.array([0, 40, 40])
    found = Runs(rows, starts, starts + 4).whole(32)
    assert [one.tolist() for one in (found.rows, found.starts, found.ends)] == [
        [0, 2],
        [0, 32],
        [64, 64],
    ]
