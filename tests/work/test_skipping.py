"""Skipped passes of loops, against executing each of them."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from occupancy_lab.work import arithmetic, operations
from occupancy_lab.work.operations import TRUE, ZERO
from occupancy_lab.work.registers import Registers
from occupancy_lab.work.skipping import Skipping
from occupancy_lab.work.threads import Step

WORD = 1 << 32
COUNTER, LIMIT, GROWTH, ADDRESS, STRIDE, OTHER, PLACE = range(7)
HEADER, THREADS, MOST = 7, 32, 400
LESS, LESS_OR_EQUAL, GREATER, NOT_EQUAL = 1, 3, 4, 5
near_zero = st.integers(-40, 40)


class Loop(NamedTuple):
    """A loop that continues while its counter compares with its limit as given."""

    starts: Sequence[int]
    """The counter of each thread."""
    growth: int
    limit: int
    how: int
    signed: int
    name: str = "lop3"
    makes: int = 0xF0 << 72 | 7 << 81
    """The word of the instruction that makes the compared number of the counter and *other*."""
    other: int = 0

    def made(self, sources: Sequence[Any]) -> Any:
        """Return the compared number for the counter, *other*, 0 and a true predicate."""
        made = getattr(arithmetic, self.name)(self.makes, sources[: 3 + (self.name == "lop3")])
        return made[0]

    @property
    def word(self) -> int:
        """The encoding of the comparison (Mesa's sm70_encode.rs)."""
        return 0x00C | 1 << 9 | self.how << 76 | self.signed << 73 | 7 << 87 | 7 << 68

    def passes(self, start: int) -> int:
        """Return how many passes a thread makes, at most MOST."""
        counters = (start + self.growth * np.arange(1, MOST)) % WORD
        numbers = [np.atleast_2d(one % WORD).astype(np.uint32) for one in (counters, self.other, 0)]
        kind = np.int32 if self.signed else np.uint32
        left = self.made([*numbers, np.ones((1, 1), bool)]).astype(np.uint32).view(kind)
        right = np.asarray(self.limit % WORD, np.uint32).view(kind)
        goes_on = {
            LESS: left < right,
            LESS_OR_EQUAL: left <= right,
            GREATER: left > right,
            NOT_EQUAL: left != right,
        }[self.how].reshape(-1)
        return MOST if goes_on.all() else 1 + int(goes_on.argmin())


def followed(
    loop: Loop,
    stride: int = 12,
    *,
    loads: bool = False,
    threads: int = THREADS,
    others: Sequence[Any] = (),
) -> tuple[list[int], Any, int]:
    """Return each thread's passes, the sum of its strides, and how many passes were followed.

    With *loads* the sum is an address in global memory. Passes take *others* in turn, if given, for
    the loop's other number.
    """
    registers = Registers(0)
    values = {
        COUNTER: np.array([loop.starts]),
        LIMIT: np.full((1, 1), loop.limit),
        GROWTH: np.full((1, 1), loop.growth),
        ADDRESS: np.zeros((1, threads)),
        STRIDE: np.full((1, 1), stride),
        OTHER: np.full((1, 1), loop.other),
        PLACE: np.array([loop.starts]),
    }
    for register, value in values.items():
        registers.write(register, value.astype(np.int64).astype(np.uint32), None, None)
    plus, compares = partial(arithmetic.viadd, 0), partial(arithmetic.isetp, loop.word)
    steps = [
        Step(1, 0, plus, (COUNTER, GROWTH), (COUNTER,), None, negated=False, name="viadd"),
        Step(2, 0, plus, (ADDRESS, STRIDE), (ADDRESS,), None, negated=False, name="viadd"),
        Step(
            *(5, loop.makes, lambda sources: [loop.made(sources)]),
            *((COUNTER, OTHER, ZERO, TRUE), (PLACE,), None),
            negated=False,
            name=loop.name,
        ),
        Step(
            *(3, loop.word, compares, (PLACE, LIMIT, TRUE, TRUE), (), None),
            negated=False,
            name="isetp",
        ),
    ]
    if loads:
        steps.append(Step(4, operations.LDG, None, (ADDRESS,), (), None, negated=False))
    skipping = Skipping({HEADER: {HEADER}}, {HEADER: sum(1 << one for one in values)})
    mask: Any = np.ones((1, threads), bool)
    found, times = np.zeros(threads, int), 0
    while mask.any():
        skipping.arrive(HEADER, registers, mask, ())
        times += 1
        found += mask[0] * skipping.repeat
        if others:
            registers.values[OTHER] = others[times % len(others)]
        for step in steps:
            sources = [registers.values[one] for one in step.sources]
            if skipping.notes:
                skipping.note(step, sources)
            if step.compute is None:
                continue
            made = step.compute(sources)[0]
            if step.results:
                registers.write(step.results[0], made, None, mask)
            else:
                mask = mask & made
    return found.tolist(), registers.values[ADDRESS][0].tolist(), times


@given(
    near_zero,
    st.integers(0, 3),
    st.integers(-5, 5).filter(bool),
    st.integers(-300, 300),
    st.tuples(st.sampled_from((LESS, LESS_OR_EQUAL, GREATER, NOT_EQUAL)), st.integers(0, 1)),
)
def test_each_thread_makes_as_many_passes(
    start: int, apart: int, growth: int, limit: int, how: tuple[int, int]
) -> None:
    """With skipped passes, threads make as many passes and have the same sums."""
    loop = Loop([start + apart * thread for thread in range(THREADS)], growth, limit, *how)
    expected = [loop.passes(one) for one in loop.starts]
    assume(max(expected) < MOST)
    found, addresses, _ = followed(loop)
    assert found == expected
    assert addresses == [12 * one for one in expected]


@given(
    st.integers(0, 255),
    st.integers(0, WORD - 1) | st.integers(0, 255) | st.integers(-256, -1),
    st.integers(0, 8).map(lambda one: 1 << one) | st.integers(-96, 96).filter(bool),
    st.integers(-300, 300),
    st.sampled_from((LESS, LESS_OR_EQUAL, GREATER, NOT_EQUAL)),
)
def test_bits_of_a_counter_are_looked_up_as_in_each_pass(
    table: int, other: int, growth: int, limit: int, how: int
) -> None:
    """Loops that end by bits of their counter and another number make as many passes."""
    word = table << 72 | 7 << 81
    loop = Loop([64 * one for one in range(THREADS)], growth, limit, how, 1, "lop3", word, other)
    expected = [loop.passes(one) for one in loop.starts]
    assume(max(expected) < MOST)
    assert followed(loop)[0] == expected


@given(
    st.integers(0, 31),
    st.tuples(st.integers(0, 3), st.booleans(), st.booleans()),
    st.integers(0, 8).map(lambda one: 1 << one) | st.integers(-96, 96).filter(bool),
    st.integers(-300, 300),
    st.sampled_from((LESS, LESS_OR_EQUAL, GREATER, NOT_EQUAL)),
)
def test_a_shifted_counter_is_compared_as_in_each_pass(
    amount: int, kind: tuple[int, bool, bool], growth: int, limit: int, how: int
) -> None:
    """Loops that end by their shifted counter make as many passes."""
    word = kind[0] << 73 | kind[1] << 76 | kind[2] << 80
    starts = [4096 + 64 * one for one in range(THREADS)]
    loop = Loop(starts, growth, limit, how, 1, "shf", word, amount)
    expected = [loop.passes(one) for one in loop.starts]
    assume(max(expected) < MOST)
    assert followed(loop)[0] == expected


def test_passes_with_constant_low_bits_are_skipped() -> None:
    """Passes of `counter | 3` are skipped where the counter grows by 4, but not by 2."""
    either = 0xFC << 72 | 7 << 81
    assert followed(Loop([0] * THREADS, 4, 1200, LESS, 1, "lop3", either, 3))[2] < 20
    assert followed(Loop([0] * THREADS, 2, 600, LESS, 1, "lop3", either, 3))[2] == 300


def test_most_passes_are_skipped() -> None:
    """Of 300 equal passes fewer than 20 are followed."""
    found, _, times = followed(Loop([0] * THREADS, 1, 300, LESS, 1))
    assert found == [300] * THREADS
    assert times < 20


def test_passes_that_ask_for_other_sectors_are_followed() -> None:
    """Passes are skipped where addresses move by whole sectors, and not otherwise."""
    loop = Loop([0] * THREADS, 1, 300, LESS, 1)
    assert followed(loop, 64, loads=True)[2] < 20
    assert followed(loop, 12, loads=True)[2] == 300


def test_passes_with_a_single_address_are_skipped() -> None:
    """Passes of an access to a single address are skipped, whatever its stride."""
    loop = Loop([0], 1, 300, LESS, 1)
    assert followed(loop, 12, loads=True, threads=1)[2] < 20


def test_a_number_that_only_changes_its_shape_stays_the_same() -> None:
    """A value for all threads that becomes one per thread does not grow: its passes are skipped."""
    for_all, each = (np.full((1, size), 3, np.uint32) for size in (1, THREADS))
    either = 0xFC << 72 | 7 << 81
    loop = Loop([0] * THREADS, 4, 1200, LESS, 1, "lop3", either, 3)
    assert followed(loop, others=(for_all, each))[2] < 20
    assert followed(loop, others=(for_all, each))[:2] == followed(loop)[:2]
