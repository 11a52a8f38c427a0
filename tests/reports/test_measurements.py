"""The shapes that are measured: those that are drawn are what their rule gives."""

import collections
from dataclasses import astuple

import pytest
from record_measurements import DRAWN, SEEDS, drawn_shapes, shapes

from occupancy_lab.values import Problem

FOUND = drawn_shapes(SEEDS["fresh"])


def kind(problem: Problem) -> str:
    """Return which kind of width *problem* has."""
    if problem.cols & (problem.cols - 1) == 0:
        return "power of two"
    if problem.cols % 2:
        return "odd"
    return "64" if problem.cols % 64 == 0 else "8" if problem.cols % 8 == 0 else "other"


def test_fresh_shapes_are_what_the_rule_draws() -> None:
    """The recorded file has the shapes that the rule gives, in its order, and no others."""
    assert [astuple(one) for one in shapes()["fresh"]] == [astuple(one) for one in FOUND]


def test_shapes_of_an_earlier_draw_are_held_out() -> None:
    """What was drawn once stays recorded: no shape is left out once it is measured."""
    earlier = drawn_shapes(SEEDS["held out"])
    assert {astuple(one) for one in earlier} <= {astuple(one) for one in shapes()["held out"]}


def test_fresh_shapes_are_new() -> None:
    """No fresh shape is another's, drawn twice or of another use."""
    others = {one for use, problems in shapes().items() if use != "fresh" for one in problems}
    assert len(set(FOUND)) == DRAWN
    assert not others & set(FOUND)


def test_widths_are_of_every_kind() -> None:
    """Odd widths, multiples of 8 and of 64, and powers of two come as often, in each dtype."""
    assert set(collections.Counter(map(kind, FOUND)).values()) == {DRAWN // 4}
    kinds = {(kind(one), one.dtype) for one in FOUND}
    assert len(kinds) == 4 * 3
    assert "other" not in {name for name, _ in kinds}


@pytest.mark.parametrize("problem", FOUND, ids=str)
def test_fresh_shapes_are_within_their_bounds(problem: Problem) -> None:
    """A width is from 64 to 200,001 and a matrix from 1 to 512 MiB, to half a row."""
    assert 64 <= problem.cols <= 200_001
    half = problem.cols * problem.item_bytes / 2
    assert 2**20 - half <= problem.matrix_bytes <= 2**29 + half
