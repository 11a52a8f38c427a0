"""Registers of threads, against a list with a number per thread."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.work.operations import PREDICATES, TRUE, ZERO
from occupancy_lab.work.registers import Registers

THREADS = 4
masks = st.lists(st.booleans(), min_size=THREADS, max_size=THREADS)
writes = st.tuples(
    st.integers(0, 1),
    st.one_of(st.none(), st.integers(0, 9), st.lists(st.integers(0, 9), min_size=4, max_size=4)),
    st.one_of(st.none(), masks),
    st.one_of(st.none(), masks),
)


def array(values: Any) -> Any:
    """Return numbers as the registers take them, or None."""
    return None if values is None else np.atleast_2d(np.array(values))


@settings(max_examples=100)
@given(st.lists(writes, min_size=2, max_size=5), masks)
def test_threads_read_what_they_wrote(written: list[Any], asking: list[bool]) -> None:
    """Threads read what they wrote last, or nothing where any of them does not know it."""
    registers = Registers(0)
    model: list[list[int | None]] = [[0] * THREADS for _ in range(2)]
    for register, value, unknown, where in written:
        registers.write(register, array(value), array(unknown), array(where))
        for thread in range(THREADS):
            if where is None or where[thread]:
                is_unknown = value is None or (unknown is not None and unknown[thread])
                new = value[thread] if isinstance(value, list) else value
                model[register][thread] = None if is_unknown else new
    mask = array(asking)
    for register, expected in enumerate(model):
        asked = [expected[thread] for thread in range(THREADS) if asking[thread]]
        found = registers.read(register, mask)
        lanes = registers.unknown_of([register], mask)
        if None in asked:
            assert found is None or not asked
            assert lanes is None or [bool(x) for x in lanes[0]] == [
                asking[thread] and expected[thread] is None for thread in range(THREADS)
            ]
        elif asked:
            assert lanes is None
            assert list(np.broadcast_to(found, (1, THREADS))[mask]) == asked


def test_constant_registers_are_not_written() -> None:
    """Writes to RZ and PT have no effect."""
    registers, everyone = Registers(0), np.ones((1, 1), bool)
    registers.write(ZERO, np.full((1, 1), 5, np.uint32), None, None)
    registers.write(TRUE, ~everyone, None, None)
    assert registers.read(ZERO, everyone) == 0
    assert registers.read(TRUE, everyone)
    assert not registers.read(PREDICATES, everyone)
