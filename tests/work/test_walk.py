"""What is counted of a launch is what a loop over its programs in Python counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from counted_kernels import (
    copy,
    copy_block,
    gather,
    multiply,
    one_and_either,
    one_by_a_flag,
    one_of_two,
    persistent,
    running,
    two_exits,
    uniform_sum,
)
from first_texts import first_text
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.arguments import Pointer
from occupancy_lab.work.counts import Amount
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from occupancy_lab.work.counts import Counts

HALF, WHOLE, INDEX = (
    Pointer("float16", 1 << 30),
    Pointer("float32", 1 << 30),
    Pointer("int32", 4096),
)


def counts_of(
    function: Any, grid: tuple[int, ...], arguments: dict[str, Any], **more: Any
) -> Counts:
    """Return the counts of a launch."""
    return count(read_ttir(first_text(function, arguments)), arguments, grid, **more)


def pieces(offsets: Iterable[int], size: int) -> int:
    """Return in how many pieces of *size* bytes the offsets are."""
    return len({one // size for one in offsets})


@settings(max_examples=12)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.integers(0, 9))
def test_a_matmul_is_counted_exactly(m: int, n: int, k: int, more: int) -> None:
    """Loads, stores and dots of a matmul of any size are those of its programs, one by one."""
    stride = max(m, n, k) + more
    arguments = {"a": HALF, "b": HALF, "c": HALF, "m": m, "n": n, "k": k, "stride": stride}
    grid = (-(-m // 32), -(-n // 16))
    counts = counts_of(multiply, grid, {**arguments, "M": 32, "N": 16, "K": 16})
    asked: dict[str, list[list[int]]] = {"a": [], "b": [], "c": []}
    for x in range(grid[0]):
        for y in range(grid[1]):
            rows, columns = range(x * 32, x * 32 + 32), range(y * 16, y * 16 + 16)
            for start in range(0, k, 16):
                inner = [one for one in range(start, start + 16) if one < k]
                asked["a"].append([2 * (i * stride + j) for i in rows if i < m for j in inner])
                asked["b"].append([2 * (i * stride + j % n) for i in inner for j in columns])
            asked["c"].append(
                [2 * (i * stride + j) for i in rows if i < m for j in columns if j < n]
            )
    for access in counts.accesses:
        blocks = asked[access.tensor or ""]
        assert access.active == Amount.of(sum(map(len, blocks)))
        assert access.executions == Amount.of(len(blocks))
        assert access.sectors == Amount.of(sum(pieces(one, 32) for one in blocks))
        assert access.lines == Amount.of(sum(pieces(one, 128) for one in blocks))
        assert access.unique_bytes == Amount.of(2 * len({one for block in blocks for one in block}))
    trips = grid[0] * grid[1] * -(-k // 16)
    assert counts.dot_flops == {"fp16": Amount.of(trips * 2 * 32 * 16 * 16)}
    assert not counts.unknowns


def test_an_address_from_memory_is_between_limits() -> None:
    """A gather touches at least one element and at most as many as it asks for, and says why."""
    arguments = {"x": WHOLE, "index": INDEX, "out": WHOLE, "n": 100, "B": 64}
    counts = counts_of(gather, (2,), arguments)
    load = next(one for one in counts.accesses if one.tensor == "x")
    assert load.active == Amount.of(100)
    assert load.sectors == Amount(2, 100)
    assert [(one.name, one.steers) for one in counts.unknowns] == [("values of index", "address")]


def test_values_at_hand_make_it_exact() -> None:
    """Where the values of a tensor are given, what is loaded by them is known."""
    arguments = {"x": WHOLE, "index": INDEX, "out": WHOLE, "n": 100, "B": 64}
    counts = counts_of(gather, (2,), arguments, values={"index": [7] * 50 + [9] * 50})
    load = next(one for one in counts.accesses if one.tensor == "x")
    assert load.unique_bytes == Amount.of(8)
    assert load.sectors == Amount.of(1 + 2 - 1 + 1)
    assert not counts.unknowns


@pytest.mark.parametrize(("tiles", "programs"), [(10, 4), (3, 4), (1000, 7), (0, 2)])
def test_a_while_loop_has_the_trips_of_each_program(tiles: int, programs: int) -> None:
    """A persistent kernel's loop runs as often as each program has tiles, and its branch half."""
    counts = counts_of(
        persistent, (programs,), {"x": WHOLE, "tiles": tiles, "limit": 1 << 20, "B": 64}
    )
    (loop,) = counts.loops
    each = [len(range(one, tiles, programs)) for one in range(programs)]
    assert (loop.trips, loop.least, loop.most) == (Amount.of(tiles), min(each), max(each))
    taken = len(range(0, tiles, 2))
    assert sum(one.taken.low for one in counts.branches) == taken
    assert sum(one.active.low for one in counts.accesses) == 64 * taken


def test_the_sum_of_a_tile_of_equal_numbers_is_known() -> None:
    """A mask from the sum of a tile whose elements are all an argument is exact."""
    counts = counts_of(uniform_sum, (5,), {"y": WHOLE, "n": 3, "B": 32})
    assert [one.active for one in counts.accesses] == [Amount.of(5 * 3)]
    assert not counts.unknowns


def test_a_descriptor_leaves_out_what_is_outside() -> None:
    """What a block has outside of its tensor is no active element."""
    arguments = {"x": HALF, "y": HALF, "rows": 50, "columns": 72, "M": 32, "N": 64}
    counts = counts_of(copy_block, (2,), arguments)
    assert [one.operation for one in counts.accesses] == ["descriptor load", "descriptor store"]
    for access in counts.accesses:
        assert access.elements == Amount.of(2 * 2 * 32 * 64)
        assert access.active == Amount.of(50 * 72)
        assert access.unique_bytes == Amount.of(50 * 72 * 2)


def test_an_8192_cubed_matmul_is_counted_whole() -> None:
    """Half a million iterations of 4096 programs are counted, each tensor once."""
    size = 8192
    arguments = {"a": HALF, "b": HALF, "c": HALF, "m": size, "n": size, "k": size, "stride": size}
    counts = counts_of(multiply, (64, 64), {**arguments, "M": 128, "N": 128, "K": 64}, resident=264)
    assert counts.dot_flops == {"fp16": Amount.of(2 * size**3)}
    assert counts.unique_read_bytes == Amount.of(2 * 2 * size**2)
    assert counts.read_bytes == Amount.of(64 * 64 * 128 * (128 * 64 * 2 * 2))
    (loop,) = counts.loops
    assert (loop.trips.exact, loop.least, loop.most) == (64 * 64 * 128, 128, 128)


def test_a_scan_of_equal_numbers_is_known() -> None:
    """The running sum of a tile of equal numbers has the multiples of the number."""
    (store,) = counts_of(running, (1,), {"x": WHOLE, "n": 100, "B": 16}).accesses
    assert store.unique_bytes == Amount.of(16 * 4)
    assert store.lines == Amount.of(pieces([400 * (one + 1) for one in range(16)], 128))


@pytest.mark.parametrize("programs", [3 * 2**20, 2**24 - 1])
def test_of_too_many_programs_some_stand_for_all(programs: int) -> None:
    """A launch of millions of programs is counted in proportion, and says how many were walked."""
    counts = counts_of(copy, (programs,), {"x": WHOLE, "y": WHOLE, "n": programs * 64, "B": 64})
    assert 0 < counts.walked < counts.programs == programs
    assert counts.read_bytes == counts.unique_read_bytes == Amount.of(programs * 256)


def test_early_returns_are_branches() -> None:
    """Programs that return early store nothing, and each return is a branch that some take."""
    counts = counts_of(two_exits, (10,), {"x": WHOLE, "n": 7, "m": 0, "B": 32})
    assert [(one.reached.exact, one.taken.exact) for one in counts.branches] == [(10, 3), (7, 4)]
    assert counts.written_bytes == Amount.of(3 * 32 * 4)


@pytest.mark.parametrize("programs", [4, 10])
def test_a_pointer_into_one_of_two_tensors_is_known(programs: int) -> None:
    """Tensors of which each program reads one are as one: their rows are counted once each."""
    arguments = {"x": WHOLE, "y": WHOLE, "z": WHOLE, "first": 2, "B": 32}
    counts = counts_of(one_of_two, (programs,), arguments)
    assert not counts.unknowns
    loads = [one for one in counts.accesses if one.reads]
    assert [one.tensor for one in loads] == ["x or y"]
    assert loads[0].active.exact == programs * 32
    assert counts.unique_read_bytes == Amount.of(programs * 32 * 4)


def test_a_pointer_into_a_tensor_that_memory_chooses_is_not_known() -> None:
    """Which of two tensors is read is then an unknown, and the page says so."""
    arguments = {"x": WHOLE, "y": WHOLE, "z": WHOLE, "flags": INDEX, "B": 32}
    counts = counts_of(one_by_a_flag, (4,), arguments)
    assert "which tensor is chosen" in {one.name for one in counts.unknowns}


def test_a_tensor_that_is_read_by_itself_too_leaves_the_least_open() -> None:
    """What x and "x or y" have in common is not known: they are no less than x alone."""
    arguments = {"x": WHOLE, "y": WHOLE, "z": WHOLE, "first": 2, "B": 32}
    counts = counts_of(one_and_either, (4,), arguments)
    assert (counts.unique_read_bytes.low, counts.unique_read_bytes.high) == (4 * 128, 8 * 128)
