"""What is given for values that only a GPU could tell, and which of it a program asks for."""

import pytest

from occupancy_lab.compiling.assumptions import Assumed, given_values, not_asked_for

ASSUMED = [Assumed("/a/bench.py:12", "a value", "64")]


@pytest.mark.parametrize("word", ["int=64", "bench.py:12=64", "/a/bench.py:12=64"])
def test_what_a_program_asked_for_is_used(word: str) -> None:
    """A value is asked for by its kind, or at the line of a file's name or path."""
    assert not_asked_for(given_values([word]), ASSUMED) == []


@pytest.mark.parametrize("word", ["int=65", "ench.py:12=64", "bench.py:2=64", "bench.py:12=65"])
def test_what_nothing_asked_for_is_told(word: str) -> None:
    """Another value, the end of a file's name and the end of a line's number are none of it."""
    assert not_asked_for(given_values([word]), ASSUMED) == [word]
