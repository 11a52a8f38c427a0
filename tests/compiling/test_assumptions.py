"""Given assumptions, and whether a program used them."""

import pytest

from occupancy_lab.compiling.assumptions import Assumed, given_values, not_asked_for

ASSUMED = [Assumed("/a/bench.py:12", "a value", "64")]


@pytest.mark.parametrize("word", ["int=64", "bench.py:12=64", "/a/bench.py:12=64"])
def test_what_a_program_asked_for_is_used(word: str) -> None:
    """An assumption is used by its kind, or by a line of a file's name or path."""
    assert not_asked_for(given_values([word]), ASSUMED) == []


@pytest.mark.parametrize("word", ["int=65", "ench.py:12=64", "bench.py:2=64", "bench.py:12=65"])
def test_what_nothing_asked_for_is_told(word: str) -> None:
    """Another value, or only part of a file's name or line number, is unused."""
    assert not_asked_for(given_values([word]), ASSUMED) == [word]
