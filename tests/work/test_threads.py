"""Instructions that depend on other threads, against the PTX manual."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.work import operations
from occupancy_lab.work.operations import PREDICATES
from occupancy_lab.work.threads import Launched, special

THREADS = 64
numbers = st.lists(st.integers(0, 2**32 - 1), min_size=THREADS, max_size=THREADS)
truths = st.lists(st.booleans(), min_size=THREADS, max_size=THREADS)
RESULT, HOLDS = 3, PREDICATES


@dataclass
class Warps:
    """Two followed warps, of the program (5, 0, 2)."""

    launched: Launched
    mask: Any


def made(word: int, results: tuple[int, ...], values: list[Any], mask: Any = None) -> list[Any]:
    """Return the results of an instruction for *values*, as lists over the threads."""
    places = [np.full((1, 1), one, np.uint32) for one in (5, 0, 2)]
    launched = Launched(places, THREADS, 1024, lambda *_: None, lambda *_, **__: ())
    everyone = np.ones((1, THREADS), bool) if mask is None else mask
    _, compute = special(word, results, Warps(launched, everyone))
    return [
        np.broadcast_to(one, (1, THREADS))[0].tolist()
        for one in compute([np.array([one]) for one in values])
    ]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0x21, list(range(THREADS))),
        (0x00, [one % 32 for one in range(THREADS)]),
        (0x25, [5] * THREADS),
        (0x26, [0] * THREADS),
        (0x27, [2] * THREADS),
        (0x38, [1 << one % 32 for one in range(THREADS)]),
        (0x39, [(1 << one % 32) - 1 for one in range(THREADS)]),
    ],
)
def test_special_registers(number: int, expected: list[int]) -> None:
    """SR_TID.X, SR_LANEID, SR_CTAID, SR_EQMASK and SR_LTMASK have a thread's position."""
    assert made(operations.S2R | number << 72, (RESULT,), [])[0] == expected


@given(numbers, st.integers(0, 31), st.sampled_from(("idx", "up", "down", "bfly")))
def test_shuffles(values: list[int], amount: int, how: str) -> None:
    """A shuffle returns the value of the lane that PTX's shfl.sync selects, or else its own."""
    mode = ("idx", "up", "down", "bfly").index(how)
    word = operations.SHFL | 4 << 9 | amount << 53 | mode << 58
    found, inside = made(word, (RESULT, HOLDS), [np.array(values, np.uint32)])
    for thread in range(THREADS):
        lane = thread % 32
        other = {"idx": amount, "up": lane - amount, "down": lane + amount, "bfly": lane ^ amount}
        is_inside = 0 <= other[how] < 32
        assert inside[thread] == is_inside
        assert found[thread] == values[thread - lane + other[how] if is_inside else thread]


@given(truths, truths, st.sampled_from(("any", "all")), st.integers(0, 1))
def test_votes(values: list[bool], asked: list[bool], how: str, negated: int) -> None:
    """A vote returns the ballot of a warp's active threads, and its outcome."""
    word = operations.VOTE | (how == "any") << 72 | negated << 90
    ballots, outcomes = made(word, (RESULT, HOLDS), [values], np.array([asked]))
    for warp in (0, 32):
        there = [one for one in range(warp, warp + 32) if asked[one]]
        yes = [one for one in there if values[one] != negated]
        assert ballots[warp : warp + 32] == [sum(1 << one - warp for one in yes)] * 32
        expected = bool(yes) if how == "any" else yes == there
        assert outcomes[warp : warp + 32] == [expected] * 32


@given(st.integers(0, 2**32 - 1), st.integers(0, 127), st.integers(0, 3))
def test_predicates_become_bits_and_bits_predicates(number: int, chosen: int, byte: int) -> None:
    """R2P unpacks predicates from a byte of a number, and P2R packs them again."""
    places = [one for one in range(7) if chosen >> one & 1]
    results = tuple(PREDICATES + one for one in places)
    word = operations.R2P | chosen << 32 | byte << 76
    predicates = [one[0] for one in made(word, results, [[np.uint32(number)] * THREADS])]
    assert predicates == [bool(number >> 8 * byte + one & 1) for one in places]
    word = operations.P2R | chosen << 32 | byte << 76
    values = [[one] * THREADS for one in predicates]
    packed = made(word, (RESULT,), [[np.uint32(number)] * THREADS, *values])
    assert packed[0][0] == number
