"""The occupancy grid: one row a configuration, limiters, and times beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.occupancy.points import evaluate_points
from occupancy_lab.reporting.chapters.occupancies import make_occupancies, the_occupancies
from occupancy_lab.values import Problem

if TYPE_CHECKING:
    from occupancy_lab.reporting.source import Source

EXAMPLE = Problem(4096, 781)


def test_each_configuration_is_there_once(small: Source) -> None:
    """A configuration that failed is there; a second launch of one and another kernel are not."""
    table = make_occupancies(small, EXAMPLE).table
    assert not table.duplicated(["num_warps", "num_stages"]).any()
    assert set(table["kernel"]) == {"softmax"}
    assert table["status"].value_counts().to_dict() == {"ok": 6, "timed out": 1}


def test_limiters_are_those_of_a_sweep(small: Source) -> None:
    """The limiters are the ones that the table's own formula gives, none where nothing compiled."""
    table = make_occupancies(small, EXAMPLE).table
    fine = table[table["status"] == "ok"]
    amounts = fine[["n_regs", "shared", "num_warps", "static_shared"]].astype("int64")
    points = evaluate_points(amounts.assign(target="h200"))
    assert list(fine["limiter"]) == list(points["limiter"])
    assert table.loc[table["status"] != "ok", "limiter"].isna().all()


def test_times_of_the_highest_occupancy_stand_beside_the_others(small: Source) -> None:
    """16 warps of 22 registers fill an SM and take the longest: occupancy does not say it."""
    grid = make_occupancies(small, EXAMPLE)
    assert grid.highest == 1.0
    assert {one.us for one in grid.of(full=True)} == {11.5, 12.5, 18.0}
    assert {one.us for one in grid.of(full=False)} == {13.0, 13.5, 14.0}


def test_left_out_without_an_example() -> None:
    """Without a problem the chapter is one sentence."""
    (words,) = the_occupancies(None).blocks
    assert str(words).startswith("Left out: ")
