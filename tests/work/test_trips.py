"""Loops of machine code whose trips are assumed."""

import inspect
from collections.abc import Mapping
from typing import Any

import pytest
from counted_kernels import add_alone, escape, sum_blocks, sum_most, sum_to_longest, sum_while
from first_texts import compiled_texts

from occupancy_lab.arguments import Pointer
from occupancy_lab.assumed import trips_at
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.errors import BinaryError
from occupancy_lab.launch import Launch
from occupancy_lab.values import Target
from occupancy_lab.work.counts import NO_WAIT, Amount, Counts
from occupancy_lab.work.executed import execute
from occupancy_lab.work.execution import Executed
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

H100, MI300X = Target("cuda", "90", 32), Target("hip", "gfx942", 64)
X, NUMBERS = Pointer("float32", 1 << 30), Pointer("int32", 1 << 20)
SUMS = {"x": X, "lengths": NUMBERS, "y": X, "B": 1024}
ESCAPE = {"x": X, "y": X, "B": 1024}
PROGRAMS = 64


def line_of(kernel: Any, words: str | tuple[str, ...]) -> int:
    """Return the line of a kernel's file that begins with one of *words*."""
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(n for n, line in enumerate(lines) if line.strip().startswith(words))


def both(
    texts: Texts, arguments: Mapping[str, Any], assume: Mapping[str, int]
) -> tuple[Counts, Executed]:
    """Return what a launch does according to its source and to its binary, as *assume* says."""
    counts = count(read_ttir(texts.ttir), arguments, (PROGRAMS,), assume=assume)
    given = {"values": counts.held, "loops": counts.loops}
    return counts, execute(texts, arguments, (PROGRAMS,), **given)


@pytest.mark.parametrize("kernel", [sum_while, sum_blocks])
@pytest.mark.parametrize("target", [H100, MI300X], ids=str)
def test_assumed_trips_execute_what_the_numbers_in_memory_make_them(
    kernel: Any, target: Target
) -> None:
    """A loop with assumed trips executes what it does where loaded numbers give these trips."""
    texts = compiled_texts(kernel, Launch((), SUMS), target)
    name = trips_at(line_of(kernel, ("while", "for")))
    for trips in (0, 1, 2, 37, 1000):
        counts, executed = both(texts, SUMS, {name: trips})
        assert counts.flops == Amount.of(trips * 1024 * PROGRAMS)
        (unknown,) = (one for one in counts.unknowns if one.steers == "loop")
        assert unknown.assumed == ("1 trip" if trips == 1 else f"{trips} trips")
        values = {"lengths": (trips,) * PROGRAMS}
        assert executed == execute(texts, SUMS, (PROGRAMS,), values=values)


@pytest.mark.parametrize("target", [H100, MI300X], ids=str)
def test_a_limit_of_the_source_limits_the_trips(target: Target) -> None:
    """A loop with `step < 50` in its condition does what 0 to 50 trips do."""
    texts = compiled_texts(escape, Launch((), ESCAPE), target)
    name = trips_at(line_of(escape, "while"))
    counts, executed = both(texts, ESCAPE, {})
    (loop,) = counts.loops
    assert (loop.allowed, loop.least, loop.most) == (Amount(0, 50), 0, 50)
    assert loop.trips == Amount(0, 50 * PROGRAMS)
    assert counts.limits == [{name: 0}, {name: 50}]
    (least, fewest), (most, often) = (both(texts, ESCAPE, one) for one in counts.limits)
    assert counts.flops.high == most.flops.exact
    assert counts.flops.low <= (least.flops.exact or 0)
    assert executed.instructions == Amount(fewest.instructions.low, often.instructions.low)
    assert not executed.unknowns


def test_a_loop_that_the_compiler_divided_is_not_followed() -> None:
    """Where the passes of a loop were unrolled, its parts run an unknown number of times."""
    trips = {trips_at(line_of(sum_most, "for")): 10}
    texts = compiled_texts(sum_most, Launch((), SUMS), H100)
    with pytest.raises(BinaryError, match=r"divided the loop at line \d+, so that it is not known"):
        both(texts, SUMS, trips)
    texts = compiled_texts(sum_most, Launch((), SUMS), MI300X)
    counts, executed = both(texts, SUMS, trips)
    loaded = [one for one in executed.accesses if one.operation == "load"]
    asked = sum(one.threads.low * one.thread_bytes for one in loaded)
    assert asked == counts.read_bytes.exact == PROGRAMS * 4096 * (1 + 10)


def test_programs_do_not_wait_on_amd_either() -> None:
    """A loop that waits for a lock ends at once in AMD's code, which does not tell of itself."""
    arguments = {"x": X, "y": X, "lock": Pointer("int32", 4), "B": 1024}
    texts = compiled_texts(add_alone, Launch((), arguments), MI300X)
    counts, executed = both(texts, arguments, {})
    assert [one.waits for one in counts.loops] == [True]
    assert {one.assumed for one in counts.unknowns} == {NO_WAIT}
    assert executed.instructions.exact is not None


def test_trips_that_only_the_source_tells_are_their_mean() -> None:
    """Where a reduction gives a loop's trips, the source's counts know them, and the binary not."""
    arguments = {**SUMS, "N": 256}
    longest = [7 + program % 2 for program in range(PROGRAMS)]
    values = {"lengths": tuple(one for most in longest for one in (3,) * 255 + (most,))}
    texts = compiled_texts(sum_to_longest, Launch((), arguments))
    counts = count(read_ttir(texts.ttir), arguments, (PROGRAMS,), values=values)
    assert counts.unknowns == ()
    assert [one.trips.exact for one in counts.loops] == [sum(longest)]
    alone, found = (
        execute(texts, arguments, (PROGRAMS,), values=values, loops=loops)
        for loops in ((), counts.loops)
    )
    assert alone.instructions.high is None
    assert found.unknowns == ()
    assert [one.trips.exact for one in found.loops] == [8 * PROGRAMS * 4]


def test_trips_that_only_the_source_tells_are_not_divided() -> None:
    """Where the compiler has unrolled such a loop, its machine code is not followed."""
    values = {"lengths": (10,) * 1024}
    texts = compiled_texts(sum_most, Launch((), SUMS))
    counts = count(read_ttir(texts.ttir), SUMS, (PROGRAMS,), values=values)
    with pytest.raises(BinaryError, match="divided the loop"):
        execute(texts, SUMS, (PROGRAMS,), values=values, loops=counts.loops)
