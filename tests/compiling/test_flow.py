"""Counting the instructions that a warp issues, against the definitions."""

import pytest
from compiling import sample
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.compiling.flow import KINDS, Issued, Jump, count_issued, natural_loops
from occupancy_lab.table.columns import COLUMNS, SWEEP_COLUMNS
from occupancy_lab.values import COUNTERS

END = Jump(None, always=True)


def back(target: int) -> Jump:
    """Return a conditional branch to *target*."""
    return Jump(target, always=False)


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, dict[int, Jump]]:
    """Draw a few instructions, many of them jumps, some to nowhere."""
    length = draw(st.integers(1, 14))
    targets = st.none() | st.integers(0, length - 1) | st.integers(-1, length)
    jumps = st.dictionaries(
        st.integers(0, length - 1), st.builds(Jump, targets, st.booleans()), max_size=9
    )
    return length, draw(jumps) | ({length - 1: END} if draw(st.booleans()) else {})


@given(
    program=programs(),
    local=st.dictionaries(st.integers(0, 13), st.sampled_from([4, 16])),
    kinds=st.dictionaries(st.integers(0, 13), st.sampled_from(KINDS)),
    stalls=st.none() | st.lists(st.integers(0, 15), min_size=14, max_size=14),
)
def test_counts_are_those_of_the_definitions(
    program: tuple[int, dict[int, Jump]],
    local: dict[int, int],
    kinds: dict[int, str],
    stalls: list[int] | None,
) -> None:
    """For any jumps, counts follow the definitions of dominance and loops."""
    length, jumps = program
    following = [[number + 1] for number in range(length)]
    for number, jump in jumps.items():
        following[number] = [] if jump.always else [number + 1]
        following[number] += [] if jump.target is None else [jump.target]
    said = sample.issued_by_definition(following, local, kinds, stalls)
    expected = Issued(**dict.fromkeys(KINDS, 0) | said) if said else Issued()
    assert count_issued(length, jumps, local, kinds, stalls) == expected


def test_every_counter_is_counted_and_is_a_column() -> None:
    """The counts of a kernel are the counters of Resources, each a sweep's column."""
    assert count_issued(1, {0: END}, {}, {}).keys() == COUNTERS.keys()
    assert set(COUNTERS) <= set(SWEEP_COLUMNS)
    for name, meaning in COUNTERS.items():
        assert (COLUMNS[name].meaning, COLUMNS[name].whole) == (meaning, True)


DEEP = 800


def nested(depth: int) -> Issued:
    """Return the counts of loops in each other: the first half begins one each, the second ends."""
    loops = {depth + level: back(depth - 1 - level) for level in range(depth)}
    return count_issued(2 * depth + 1, loops | {2 * depth: END}, {}, {})


@pytest.mark.usefixtures("bounded")
def test_loops_of_any_sensible_depth_are_counted() -> None:
    """The outermost of 800 nested loops is found; of 20,000 nothing is known."""
    found = nested(DEEP)
    assert (found["instructions"], found["loop_instructions"]) == (1, 2 * DEEP)
    assert nested(20_000) == Issued()


@pytest.mark.usefixtures("bounded")
def test_too_many_loops_with_two_ways_in_are_not_known() -> None:
    """Hundreds of loops with two entries are given up."""
    loops = {
        place: jump
        for n in range(0, 3 * DEEP, 3)
        for place, jump in ((n, back(n + 2)), (n + 2, back(n + 1)))
    }
    assert count_issued(3 * DEEP + 1, loops | {3 * DEEP: END}, {}, {}) == Issued()


def test_natural_loops_are_found_with_the_loops_in_them() -> None:
    """A loop contains its inner loops; unreachable code is in none."""
    nested = {0: [1], 1: [2, 5], 2: [3], 3: [2, 4], 4: [1], 5: [], 6: [6]}
    assert natural_loops(nested) == {1: {1, 2, 3, 4}, 2: {2, 3}}
    assert natural_loops({0: [1, 2], 1: [2], 2: [1]}) == {}
    assert natural_loops({}) == {}
