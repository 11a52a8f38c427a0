"""Shared memory, against a model with single bytes."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work.shared import SharedMemory

Access = tuple[str, list[int], list[bool], int, int]
ACCESSES = st.lists(
    st.tuples(
        st.sampled_from(("store", "load", "unknown")),
        st.lists(st.integers(0, 12), min_size=32, max_size=32),
        st.lists(st.booleans(), min_size=32, max_size=32),
        st.sampled_from((1, 2, 4, 8)),
        st.integers(0, 2**32 - 1),
    ),
    max_size=8,
)


@given(ACCESSES)
def test_what_is_written_is_read(
    accesses: list[Access],
) -> None:
    """Threads read what was last written, or nothing where that is not known."""
    memory = SharedMemory(200)
    model: dict[int, int | None] = {}
    for what, places, asks, size, number in accesses:
        address = np.array([places]) * 8
        mask = np.array([asks])
        lanes = [lane for lane in range(32) if asks[lane]]
        values = [np.uint32(number) + np.arange(32, dtype=np.uint32)[None, :] for _ in range(2)]
        if what == "load":
            found, unknown = memory.load(address, size, mask, signed=False)
            for lane in lanes:
                read = [model.get(8 * places[lane] + one) for one in range(size)]
                known = unknown is None or not unknown[0, lane]
                is_known = found[0] is not None and known
                assert is_known == all(one is not None for one in read)
                if is_known:
                    got = b"".join(int(one[0, lane]).to_bytes(4, "little") for one in found)
                    assert list(got[:size]) == read
            continue
        known_values = values if what == "store" else [None, None]
        memory.store(address, known_values, size, mask, None)
        for lane in lanes:
            for one in range(size):
                byte = int(values[0][0, lane]) >> 8 * (one % 4) & 255
                model[8 * places[lane] + one] = byte if what == "store" else None
    memory.forget()
    found, _ = memory.load(np.zeros((1, 32), int), 4, np.ones((1, 32), bool), signed=False)
    assert found == [None]


@given(ACCESSES, st.lists(st.tuples(*[st.integers(0, 1)] * 3), min_size=8, max_size=8))
def test_programs_share_a_row_only_while_they_do_the_same(
    accesses: list[Access], differences: list[tuple[int, int, int]]
) -> None:
    """Two programs read what each reads alone, whether addresses, masks or values differ."""
    together, alone = SharedMemory(200), [SharedMemory(200), SharedMemory(200)]
    for (what, places, asks, size, number), differs in zip(accesses, differences, strict=False):
        address, mask = np.array([places]) * 8, np.array([asks])
        value = np.uint32(number) + np.arange(32, dtype=np.uint32)[None, :]
        moved, asked, values = (
            np.concatenate([one, other]) if differ else one
            for one, other, differ in zip(
                (address, mask, value), (address + 8, ~mask, value + 1), differs, strict=True
            )
        )
        rows = [
            [one[min(own, len(one) - 1)][None] for one in (moved, asked, values)] for own in (0, 1)
        ]
        if what != "load":
            known = what == "store"
            together.store(moved, [values if known else None] * 2, size, asked, None)
            for memory, (at, threads, own) in zip(alone, rows, strict=True):
                memory.store(at, [own if known else None] * 2, size, threads, None)
            continue
        found, unknown = together.load(moved, size, asked, signed=False)
        for place, (memory, (at, threads, _)) in enumerate(zip(alone, rows, strict=True)):
            expected, missing = memory.load(at, size, threads, signed=False)
            for lane in np.flatnonzero(threads[0]):
                own = [_read(one, lane, place) for one in (found[0], unknown)]
                other = [_read(one, lane, 0) for one in (expected[0], missing)]
                is_known = own[0] is not None and not own[1]
                assert is_known == (other[0] is not None and not other[1])
                assert not is_known or own[0] == other[0]


def _read(values: Any, lane: int, place: int) -> Any:
    return None if values is None else values[min(place, len(values) - 1), lane]
