"""Counters that programs share, and loops in which they wait for each other."""

import functools
from typing import Any

import pytest
from counted_kernels import add_alone, add_to_next, first_zero, last_sums, take_pieces
from first_texts import compiled_texts
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.arguments import Pointer
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.launch import Launch
from occupancy_lab.values import Target
from occupancy_lab.work.counts import IN_TURN, NO_WAIT, Amount, Counts
from occupancy_lab.work.executed import execute
from occupancy_lab.work.execution import Executed
from occupancy_lab.work.ttir import read_ttir
from occupancy_lab.work.walk import count

X, COUNTER = Pointer("float32", 1 << 30), Pointer("int32", 4)
PIECES = {"x": X, "y": X, "counter": COUNTER}
SUMS = {"x": X, "sums": X, "y": X, "counter": COUNTER, "P": 64, "B": 128}
ALONE = {"x": X, "y": X, "lock": COUNTER, "B": 1024}
ARCHES = ("75", "80", "90", "100", "120")


@functools.cache
def taking(arch: str) -> Texts:
    """Return the texts of the kernel whose programs take pieces."""
    return compiled(take_pieces, {**PIECES, "pieces": 100, "B": 1024}, arch)


def compiled(function: Any, arguments: dict[str, Any], arch: str) -> Texts:
    """Return the texts of a kernel with 4 warps."""
    launch = Launch((), {**arguments, "num_warps": 4})
    return compiled_texts(function, launch, Target("cuda", arch, 32))


def both(texts: Texts, arguments: dict[str, Any], programs: int) -> tuple[Counts, Executed]:
    """Return what a launch does according to its source, and to its binary."""
    counts = count(read_ttir(texts.ttir), arguments, (programs,))
    return counts, execute(texts, arguments, (programs,))


@pytest.mark.parametrize("arch", ARCHES)
@settings(max_examples=5, deadline=None)
@given(pieces=st.integers(2, 900), programs=st.integers(1, 200))
def test_each_piece_that_programs_take_is_done_once(arch: str, pieces: int, programs: int) -> None:
    """Programs that take pieces from a counter do each piece once, and report the assumption."""
    arguments = {**PIECES, "pieces": pieces, "B": 1024}
    counts, executed = both(taking(arch), arguments, programs)
    stored = next(one for one in counts.accesses if one.tensor == "y")
    assert stored.active == stored.elements == Amount.of(1024 * pieces)
    assert stored.unique_bytes == Amount.of(4096 * pieces)
    written = [one for one in executed.accesses if one.operation == "store"]
    assert sum(one.sectors.low for one in written) == pieces * 4096 // 32
    assert all(one.sectors.high == one.sectors.low for one in written)
    (loop,) = counts.loops
    assert loop.trips == Amount.of(pieces)
    assert [one.assumed for one in counts.unknowns] == [IN_TURN]
    assert not executed.unknowns


@pytest.mark.parametrize("arch", ARCHES)
def test_one_program_comes_last(arch: str) -> None:
    """Of programs that count how many have finished, exactly one is the last."""
    texts = compiled(last_sums, SUMS, arch)
    counts, executed = both(texts, SUMS, 64)
    (branch,) = counts.branches
    assert (branch.reached, branch.taken) == (Amount.of(64), Amount.of(1))
    sums, atomics = Amount.of(64 * 4), Amount.of(64 * 4)  # an atomic operation reads and writes
    assert counts.read_bytes == Amount.of(64 * 128 * 4) + atomics + sums
    assert counts.written_bytes == sums + atomics + Amount.of(4)
    more = execute(texts, SUMS, (65,)).instructions.low
    others = more - executed.instructions.low
    assert executed.instructions.low > 64 * others
    assert executed.instructions.low < 64.9 * others


@pytest.mark.parametrize("arch", ARCHES)
def test_nobody_waits_for_a_lock(arch: str) -> None:
    """Programs are assumed not to wait for a lock, and the assumption is reported."""
    texts = compiled(add_alone, ALONE, arch)
    counts, executed = both(texts, ALONE, 10)
    taken = next(one for one in counts.accesses if one.tensor == "lock")
    assert taken.executions == Amount.of(10)
    assert [one.assumed for one in counts.unknowns] == [NO_WAIT]
    assert executed.instructions.exact is not None
    assert {one.assumed for one in executed.unknowns} == {NO_WAIT}
    assert executed.program is not None
    assert executed.program.waits == 1


@pytest.mark.parametrize("arch", ARCHES)
def test_nobody_waits_for_another_program(arch: str) -> None:
    """A loop that polls a place which it computes anew is one in which programs wait."""
    arguments = {"x": X, "y": X, "flags": Pointer("int32", 4 * 11), "B": 1024}
    counts, executed = both(compiled(add_to_next, arguments, arch), arguments, 10)
    assert [one.assumed for one in counts.unknowns] == [NO_WAIT]
    assert executed.instructions.exact is not None
    assert executed.program is not None
    assert executed.program.waits == 1


def test_a_search_is_not_a_wait() -> None:
    """A loop that polls another place in each pass has an unknown number of passes."""
    arguments = {"x": Pointer("int32", 1 << 20), "y": Pointer("int32", 1 << 20), "B": 128}
    counts, executed = both(compiled(first_zero, arguments, "90"), arguments, 4)
    (loop,) = counts.loops
    assert loop.trips == Amount(0, None)
    assert executed.instructions.high is None


def test_a_maximum_is_not_a_counter() -> None:
    """A maximum instead of an addition to a counter has an unknown result."""
    changed = {**SUMS, "counter": X}
    texts = compiled(last_sums, SUMS, "90")
    assert count(read_ttir(texts.ttir), SUMS, (64,)).branches[0].taken == Amount.of(1)
    apart = texts.ttir.replace("tt.atomic_rmw add", "tt.atomic_rmw max")
    assert apart != texts.ttir
    assert count(read_ttir(apart), changed, (64,)).branches[0].taken == Amount(0, 64)
