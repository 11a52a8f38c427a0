"""The measured shapes: the drawn ones follow from their rule."""

from dataclasses import astuple

from record_measurements import DRAWN, SEEDS, drawn_shapes, shapes

FOUND = drawn_shapes(SEEDS["fresh"])


def test_fresh_shapes_are_what_the_rule_draws() -> None:
    """The recorded fresh shapes are exactly those of the rule, in its order."""
    assert [astuple(one) for one in shapes()["fresh"]] == [astuple(one) for one in FOUND]


def test_shapes_of_an_earlier_draw_are_held_out() -> None:
    """Shapes of an earlier draw stay recorded as held out."""
    earlier = drawn_shapes(SEEDS["held out"])
    assert {astuple(one) for one in earlier} <= {astuple(one) for one in shapes()["held out"]}


def test_fresh_shapes_are_new() -> None:
    """No fresh shape is drawn twice or has another use."""
    others = {one for use, problems in shapes().items() if use != "fresh" for one in problems}
    assert len(set(FOUND)) == DRAWN
    assert not others & set(FOUND)
