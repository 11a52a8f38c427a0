"""Counts of launches whose size, tensors or operations random kernels do not have."""

from typing import Any

import pytest
from counted_kernels import (
    by_the_largest,
    copy,
    in_step,
    multiply,
    one_and_either,
    one_by_a_flag,
    one_of_two,
    paged,
    renamed,
    waiting,
    windows,
)
from first_texts import first_text

from occupancy_lab.arguments import Pointer
from occupancy_lab.work.counts import Amount, Counts
from occupancy_lab.work.passed import parameters_of
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

HALF, WHOLE, INDEX, PAGES = (
    Pointer("float16", 1 << 30),
    Pointer("float32", 1 << 30),
    Pointer("int32", 4096),
    Pointer("int32", 1 << 18),
)


def counts_of(
    function: Any, grid: tuple[int, ...], arguments: dict[str, Any], **more: Any
) -> Counts:
    """Return the counts of a launch."""
    return count(read_ttir(first_text(function, arguments)), arguments, grid, **more)


def test_an_8192_cubed_matmul_is_counted_whole() -> None:
    """A matmul with half a million iterations is counted exactly."""
    size = 8192
    arguments = {"a": HALF, "b": HALF, "c": HALF, "m": size, "n": size, "k": size, "stride": size}
    counts = counts_of(multiply, (64, 64), {**arguments, "M": 128, "N": 128, "K": 64}, resident=264)
    assert counts.dot_flops == {"fp16": Amount.of(2 * size**3)}
    assert counts.unique_read_bytes == Amount.of(2 * 2 * size**2)
    assert counts.read_bytes == Amount.of(64 * 64 * 128 * (128 * 64 * 2 * 2))
    (loop,) = counts.loops
    assert (loop.trips.exact, loop.least, loop.most) == (64 * 64 * 128, 128, 128)


@pytest.mark.parametrize("programs", [3 * 2**20, 2**24 - 1])
def test_too_many_programs_are_sampled(programs: int) -> None:
    """A launch of millions of programs is counted from a sample in proportion."""
    tensor = Pointer("float32", programs * 256)
    arguments = {"x": tensor, "y": tensor, "n": programs * 64, "B": 64}
    counts = counts_of(copy, (programs,), arguments)
    assert 0 < counts.walked < counts.programs == programs
    assert counts.read_bytes == counts.unique_read_bytes == Amount.of(programs * 256)


@pytest.mark.parametrize("programs", [4, 10])
def test_a_pointer_into_one_of_two_tensors_is_known(programs: int) -> None:
    """Two tensors of which each program reads one count as one tensor, exactly."""
    arguments = {"x": WHOLE, "y": WHOLE, "z": WHOLE, "first": 2, "B": 32}
    counts = counts_of(one_of_two, (programs,), arguments)
    assert not counts.unknowns
    loads = [one for one in counts.accesses if one.reads]
    assert [one.tensor for one in loads] == ["x or y"]
    assert loads[0].active.exact == programs * 32
    assert counts.unique_read_bytes == Amount.of(programs * 32 * 4)


def test_a_choice_by_a_value_from_memory_is_unknown() -> None:
    """A choice between tensors by a value from memory is reported as unknown."""
    arguments = {"x": WHOLE, "y": WHOLE, "z": WHOLE, "flags": INDEX, "B": 32}
    counts = counts_of(one_by_a_flag, (4,), arguments)
    assert "which tensor is chosen" in {one.name for one in counts.unknowns}


def test_a_number_found_in_a_tile_is_one_unknown_number() -> None:
    """A load at the place of a tile's largest element touches one element, wherever that is."""
    arguments = {"x": WHOLE, "table": INDEX, "y": INDEX, "B": 64}
    counts = counts_of(by_the_largest, (5,), arguments)
    assert not counts.not_counted
    (load,) = (one for one in counts.accesses if one.tensor == "table")
    assert (load.bytes, load.sectors) == (Amount.of(5 * 4), Amount.of(5))
    assert load.unique_bytes == Amount(0, 5 * 4)
    assert {one.name for one in counts.unknowns} == {"values of x"}


def test_a_tensor_and_a_choice_with_it_may_overlap() -> None:
    """A tensor that is also read through a choice of tensors keeps only a lower limit."""
    arguments = {"x": WHOLE, "y": WHOLE, "z": WHOLE, "first": 2, "B": 32}
    counts = counts_of(one_and_either, (4,), arguments)
    assert (counts.unique_read_bytes.low, counts.unique_read_bytes.high) == (4 * 128, 8 * 128)


def test_renamed_parameters_are_told_apart() -> None:
    """Parameters that are set to each other, and those of a tuple, keep their own bytes."""
    arguments = {"x": WHOLE, "q": WHOLE, "y": WHOLE, "n": 3, "pair": (WHOLE, 50, WHOLE), "B": 64}
    text = first_text(renamed, arguments)
    counts = count(read_ttir(text), arguments, (1,))
    assert parameters_of(text, "renamed") == ["x", "q", "y", "n", *["pair"] * 3]
    read = {one.tensor: one.read.exact for one in counts.footprints}
    assert read == {"x": 256, "q": 256, "pair[0]": 200, "pair[2]": 256, "y": 0}


def test_unknown_operations_may_touch_everything() -> None:
    """An unknown operation may touch all bytes at an address; inline assembly is only listed."""
    arguments = {"x": WHOLE, "flags": INDEX, "y": WHOLE, "B": 64}
    text, name = first_text(waiting, arguments), "tt.elementwise_inline_asm"
    named = count(read_ttir(text), arguments, (2,))
    assert named.not_counted == {name: 1}
    assert named.read_bytes == Amount(512, 512)
    counts = count(read_ttir(text.replace(name, "tt.fetch")), arguments, (2,))
    assert counts.not_counted == {"tt.fetch": 1}
    assert len(counts.unknowns) == 1
    (flags,) = (one for one in counts.footprints if one.tensor == "flags")
    assert flags.read == flags.written == Amount(0, INDEX.storage_bytes)
    assert counts.read_bytes == Amount(512, None)


@pytest.mark.parametrize("wrap", [0, 20_000_003])
def test_sequences_of_different_lengths_are_counted_for_all_programs(wrap: int) -> None:
    """Tiles at rows that a table gives are counted whole; with wider ones, at least the loops are.

    The addresses modulo a number are no sum of rows and columns, so that a sample has to do.
    """
    most, width, block, parts = 1024, 512, 32, 2
    lengths = [1 + 37 * place % most for place in range(64)]
    pages = [40503 * place % (64 * most) for place in range(64 * most)]
    tensors = {"x": HALF, "pages": PAGES, "lengths": INDEX, "y": WHOLE}
    counts = counts_of(
        paged,
        (64, parts),
        {**tensors, "most": most, "D": width, "B": block, "wrap": wrap},
        values={"lengths": lengths, "pages": pages},
    )
    assert (counts.walked == counts.programs) == (not wrap)
    trips = sum(-(-one // block) for one in lengths)
    assert counts.dot_flops == {"fp16": Amount.of(trips * 2 * block * block * width)}
    (loop,) = counts.loops
    assert (loop.trips.exact, loop.least, loop.most) == (trips, 0, most // block // parts)
    (rows,) = (one for one in counts.accesses if one.tensor == "x")
    assert rows.executions == Amount.of(trips)
    asked = sum(lengths) * width * 2
    assert rows.bytes == Amount.of(asked)


@pytest.mark.parametrize(("size", "exact"), [(None, True), (1 << 20, False)])
def test_bytes_that_neighbours_share_are_read_once(size: int | None, *, exact: bool) -> None:
    """Programs of a sample lie apart; what their neighbours read too counts once all the same.

    No more is read than the tensor has, which is so for a range too.
    """
    programs, block = 3 << 20, 64
    elements = programs * block
    tensor = Pointer("float32", 4 * (elements if exact else 2 * elements))
    arguments = {"x": tensor, "y": WHOLE, "size": size or elements, "B": block}
    counts = counts_of(windows, (programs,), arguments)
    assert counts.walked < counts.programs
    (read,) = (one.read for one in counts.footprints if one.tensor == "x")
    assert read.is_exact == exact
    assert read.low <= 4 * (size or elements) <= read.most <= tensor.storage_bytes


def test_a_barrier_is_nothing_to_count() -> None:
    """A barrier, as Triton's versions write it, leaves nothing uncounted."""
    arguments = {"x": WHOLE, "y": WHOLE, "B": 64}
    text = first_text(in_step, arguments)
    (line,) = (one.strip() for one in text.splitlines() if "barrier" in one and "%" not in one)
    for name in ("ttg.barrier local", "ttg.local_barrier", "gpu.barrier"):
        other = text.replace(line, line.replace(line.partition(" loc")[0], name))
        counts = count(read_ttir(other), arguments, (2,))
        assert not counts.not_counted
        assert counts.read_bytes == counts.written_bytes == Amount.of(2 * 64 * 4)
