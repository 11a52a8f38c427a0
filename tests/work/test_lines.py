"""What a launch does by source line."""

import dataclasses

import pytest
from hand_made import FILE, access, executed, place, rows

from occupancy_lab.explaining.source import by_line
from occupancy_lab.gpus import find_gpu
from occupancy_lab.work.counts import Amount, Arithmetic, Place
from occupancy_lab.work.memory import memory
from occupancy_lab.work.speed_of_light import speed_of_light

H100 = find_gpu("h100")


def test_the_bytes_of_memory_are_shared_out() -> None:
    """The least times of lines that move bytes add up to that of all bytes."""
    counts = rows(4096, 4096, 132, passes=3)
    moved = memory(counts, H100)
    lines = [one for one in by_line(counts, moved, H100) if one.bytes.low]
    assert len(lines) == 4
    whole = speed_of_light(counts, moved, H100).part_us("memory")
    assert sum(one.least_us for one in lines) == pytest.approx(whole)


def test_lines_that_move_nothing_have_their_instructions() -> None:
    """Every executed line has its instructions and its share of the cycles."""
    counts = rows(64, 4096, 132)
    run = executed([place(3), place(4), place(20)], 100)
    lines = {one.number: one for one in by_line(counts, memory(counts, H100), H100, run)}
    assert [lines[number].instructions for number in (3, 4, 20)] == [Amount.of(1000)] * 3
    shares = [lines[number].stall_share for number in (3, 4, 20)]
    assert shares == pytest.approx([1 / 9, 1 / 9, 7 / 9])


def test_spills_count_at_their_line() -> None:
    """Local memory that a helper function moves counts where the helper is called."""
    counts = rows(64, 4096, 132)
    run = executed([Place("helpers.py", 12, called_from=(place(3),)), place(3)], 100)
    run = dataclasses.replace(
        run, lines=tuple(dataclasses.replace(one, local_bytes=Amount.of(7)) for one in run.lines)
    )
    lines = by_line(counts, memory(counts, H100), H100, run)
    assert {one.number: one.local_bytes for one in lines}[3] == Amount.of(14)


def test_helpers_count_where_they_are_called() -> None:
    """What helper functions do counts on the kernel's line, however deep the call, in order."""
    counts, call = rows(64, 64, 8), Place(FILE, 9)
    places = (
        Place("folder/b.py", 12, called_from=(Place("other.py", 45), call)),
        *(Place("a.py", number, called_from=(call,)) for number in (10, 9)),
    )
    inside = (dataclasses.replace(access("x", 1, 100, 200), place=one) for one in places)
    flops = Arithmetic(places[0], "exp", "fp32", Amount.of(7), Amount.of(1))
    counts = dataclasses.replace(
        counts, accesses=(*counts.accesses, *inside), arithmetic=(*counts.arithmetic, flops)
    )
    lines = by_line(counts, memory(counts, H100), H100)
    (line,) = (one for one in lines if one.number == 9)
    assert (line.file, line.read, line.flops) == (FILE, Amount.of(600), Amount.of(7))
    assert not {10, 12, 45} & {one.number for one in lines}
    assert line.to_dict()["helpers"] == ["a.py:9", "a.py:10", "b.py:12"]
