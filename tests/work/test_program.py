"""What a program needs of its multiprocessor: unequal programs, and cycles of accesses."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work import operations
from occupancy_lab.work.counts import Amount, Place
from occupancy_lab.work.execution import GlobalAccess, SharedAccess
from occupancy_lab.work.program import asked_lines, lsu_cycles, phases, rounds
from occupancy_lab.work.replay import BARRIER
from occupancy_lab.work.slices import Block, Code

WEIGHTS = st.lists(st.floats(0.1, 10), min_size=1, max_size=60)


@given(weights=WEIGHTS, resident=st.integers(1, 20))
def test_limits_of_the_busiest_slot(weights: list[float], resident: int) -> None:
    """The busiest slot takes at least the mean and the longest program, and at most their sum."""
    found = rounds(np.array(weights), len(weights), resident)
    even, longest = sum(weights) / min(resident, len(weights)), max(weights)
    assert max(even, longest) <= found * (1 + 1e-9)
    assert found <= even + longest + 1e-9


def test_some_programs_stand_for_all() -> None:
    """A sample of programs stands for all, with one tail."""
    weights = np.array([1.0, 3.0] * 40)
    tail = rounds(weights, 80, 8) - 80 * 2.0 / 8
    assert rounds(weights, 800, 8) == pytest.approx(800 * 2.0 / 8, abs=3.0)
    assert rounds(np.append(weights, 9.0), 81, 8) >= 80 * 2.0 / 8
    assert rounds(weights, 2**22, 8) == pytest.approx(2**22 * 2.0 / 8 + tail, abs=3.0)


def access(operation: str, thread_bytes: int, sectors: int, passes: int) -> GlobalAccess:
    """Return an access by ten warps, with *sectors* and *passes* per execution, and one lookup."""
    return GlobalAccess(
        place=Place("kernel.py", 1),
        instruction=7,
        operation=operation,
        tensor="x",
        thread_bytes=thread_bytes,
        executions=Amount.of(10),
        threads=Amount.of(320),
        sectors=Amount.of(10 * sectors),
        lines=Amount.of(10 * sectors),
        lookups=Amount.of(10),
        passes=Amount.of(10 * passes),
        is_known=True,
    )


@pytest.mark.parametrize(
    ("operation", "thread_bytes", "lines", "passes", "cycles"),
    [
        *(("load", 16, 4, 4, 5.2), ("load", 4, 1, 1, 1.3), ("load", 2, 32, 32, 41.6)),
        *(("store", 16, 4, 4, 4.0), ("copy", 4, 4, 4, 9.5), ("copy", 8, 2, 2, 5.5)),
    ],
)
def test_cycles_of_an_access(
    operation: str, thread_bytes: int, lines: int, passes: int, cycles: float
) -> None:
    """An access takes a cycle per pass; a load adds 0.3 per missed line, a copy 1 and 1.5."""
    found = lsu_cycles([access(operation, thread_bytes, lines, passes)], [])
    assert found == ({7: pytest.approx(cycles)}, {7: 1.0})
    cached = dataclasses.replace(access(operation, thread_bytes, lines, passes), cached=1.0)
    own = passes + (1.5 if operation == "copy" else 0.0)
    assert lsu_cycles([cached], []) == ({7: pytest.approx(own)}, {7: 1.0})


def test_lines_requested_from_the_l2_cache() -> None:
    """Neither L1 hits nor merged requests reach L2; unknown addresses count their fewest lines."""
    half = dataclasses.replace(access("load", 4, 32, 8), cached=0.5)
    unknown = dataclasses.replace(access("store", 4, 32, 8), lines=Amount(10, 320), is_known=False)
    assert asked_lines([half, access("copy", 16, 4, 1)], 10) == (20.0, 0.0)
    assert asked_lines([unknown, access("atomic", 4, 2, 1)], 10) == (0.0, 3.0)


def test_bank_conflicts_of_a_copy_outlast_its_lines() -> None:
    """A copy takes its time to be written, and through the L1 cache also its time to be read."""
    wide = access("copy", 16, 16, 4)
    shared = SharedAccess(
        place=wide.place,
        instruction=7,
        operation="copy",
        thread_bytes=16,
        executions=Amount.of(10),
        bytes=Amount.of(5120),
        wavefronts=Amount.of(80),
        is_known=True,
        written=Amount.of(40),
    )
    assert lsu_cycles([wide], [shared])[0] == {7: 4.0}
    narrow = dataclasses.replace(shared, thread_bytes=4, written=Amount.of(160))
    held = dataclasses.replace(access("copy", 4, 16, 4), merged=1.0)
    assert lsu_cycles([held], [narrow])[0] == {7: pytest.approx(16.8)}


LOAD, STORE = operations.LDG, operations.STG


@pytest.mark.parametrize(
    ("blocks", "found"),
    [
        ([(1.0, (LOAD, LOAD, BARRIER, STORE))], 1.0),
        ([(1.0, (LOAD,)), (20.0, (LOAD, BARRIER, STORE)), (1.0, (STORE,))], 20.0),
        ([(1.0, (LOAD, STORE, LOAD, STORE))], 0.0),
        ([(1.0, (LOAD, BARRIER, STORE, LOAD, STORE, STORE))], 0.0),
        ([(20.0, (LOAD,)), (1.0, (BARRIER, STORE))], 0.0),
        ([(1.0, (BARRIER, STORE))], 0.0),
    ],
)
def test_stores_behind_a_barrier_are_phases(
    blocks: Sequence[tuple[float, Sequence[int]]], found: float
) -> None:
    """Each pass that loads, passes a barrier and stores is a phase, if most of them do so.

    A row that is copied without a barrier has none, nor has a sum over many passes.
    """
    words: list[int] = []
    made, executions = {}, {}
    for times, opcodes in blocks:
        made[len(words)] = Block(len(words), len(words) + len(opcodes), None)
        executions[len(words)] = times
        words += opcodes
    unused: Any = None
    assert phases(Code(words, unused, made, {}), executions) == found
