"""What a launch does by source line."""

import dataclasses
import json

import pytest
from hand_made import FILE, access, executed, matmul, place, rows

from occupancy_lab.explaining.source import by_line
from occupancy_lab.gpus import find_gpu
from occupancy_lab.work.counts import Amount, Arithmetic, Place
from occupancy_lab.work.memory import memory, speed_of_light

H100 = find_gpu("h100")


def test_the_line_that_costs_most_comes_first() -> None:
    """The slowest line is the dot of a large product, and the accesses of a copy of rows."""
    counts = matmul(4096, 128, 132)
    moved = memory(counts, H100)
    lines = by_line(counts, moved, H100)
    assert [one.number for one in lines][:1] == [10]
    light = speed_of_light(counts, moved, H100)
    assert lines[0].least_us == pytest.approx(light.us)
    assert lines[0].flops == Amount.of(2 * 4096**3)
    assert {one.number: one.trips for one in lines}[7] == Amount.of(1024 * 64)
    counts = rows(4096, 4096, 132)
    lines = by_line(counts, memory(counts, H100), H100)
    assert {one.number for one in lines[:2]} == {3, 20}


def test_the_bytes_of_memory_are_shared_out() -> None:
    """The least times of lines that move bytes add up to that of all bytes."""
    counts = rows(4096, 4096, 132, passes=3)
    moved = memory(counts, H100)
    lines = [one for one in by_line(counts, moved, H100) if one.bytes.low]
    assert len(lines) == 4
    whole = speed_of_light(counts, moved, H100).part_us("memory")
    assert sum(one.least_us for one in lines) == pytest.approx(whole)


def test_what_is_executed_counts_at_its_line() -> None:
    """Lines have their instructions and share of cycles, even if they move nothing."""
    counts = rows(64, 4096, 132)
    moved = memory(counts, H100)
    run = executed([place(3), place(4), place(20)], 100)
    lines = {one.number: one for one in by_line(counts, moved, H100, run)}
    assert {number: one.instructions for number, one in lines.items() if number != 5} == {
        3: Amount.of(1000),
        4: Amount.of(1000),
        20: Amount.of(1000),
    }
    assert [lines[number].stall_share for number in (3, 4, 20)] == pytest.approx(
        [1 / 9, 1 / 9, 7 / 9]
    )
    assert {one.instructions for one in by_line(counts, moved, H100)} == {None}
    assert {number: one.thread_bytes for number, one in lines.items() if one.thread_bytes} == {
        3: (16,)
    }
    assert {one.local_bytes for one in by_line(counts, moved, H100)} == {None}


def test_spills_count_at_their_line() -> None:
    """Local memory that a helper function moves counts where the helper is called."""
    counts = rows(64, 4096, 132)
    run = executed([Place("helpers.py", 12, called_from=(place(3),)), place(3)], 100)
    run = dataclasses.replace(
        run, lines=tuple(dataclasses.replace(one, local_bytes=Amount.of(7)) for one in run.lines)
    )
    lines = by_line(counts, memory(counts, H100), H100, run)
    assert {one.number: one.local_bytes for one in lines}[3] == Amount.of(14)


def test_a_helper_counts_where_it_is_called() -> None:
    """What a helper function does counts on the kernel's line, however deep the call."""
    counts = rows(64, 64, 8)
    call = Place(FILE, 12, called_from=(Place("other.py", 45), Place(FILE, 9)))
    call = dataclasses.replace(call, file="folder/helpers.py")
    inside = dataclasses.replace(access("x", 1, 100, 200), place=call)
    flops = Arithmetic(call, "exp", "fp32", Amount.of(7), Amount.of(1))
    counts = dataclasses.replace(
        counts, accesses=(*counts.accesses, inside), arithmetic=(*counts.arithmetic, flops)
    )
    lines = by_line(counts, memory(counts, H100), H100)
    (line,) = (one for one in lines if one.number == 9)
    assert (line.file, line.read, line.flops) == (FILE, Amount.of(200), Amount.of(7))
    assert line.helpers == ("helpers.py:12",)
    assert not {12, 45} & {one.number for one in lines}
    assert json.loads(json.dumps(line.to_dict()))["helpers"] == ["helpers.py:12"]


def test_helpers_are_in_the_order_of_their_lines() -> None:
    """Helper functions are sorted by file and line."""
    counts, call = rows(64, 64, 8), (Place(FILE, 9),)
    places = (
        Place("b.py", 9, called_from=call),
        *(Place("a.py", n, called_from=call) for n in (10, 9)),
    )
    inside = tuple(dataclasses.replace(access("x", 1, 100, 200), place=one) for one in places)
    counts = dataclasses.replace(counts, accesses=(*counts.accesses, *inside))
    lines = by_line(counts, memory(counts, H100), H100)
    (line,) = (one for one in lines if one.number == 9)
    assert line.helpers == ("a.py:9", "a.py:10", "b.py:9")
