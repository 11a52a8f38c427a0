"""Launches with the tutorial's num_programs if it is wrong."""

import pytest
from small_table import H200, predicted_of, row, rows, table_of

from occupancy_lab.reporting.chapters.miscount import Miscounts, make_miscounts, the_miscounts
from occupancy_lab.reporting.source import Source, make_source

WRONG = {"num_warps": 16, "num_stages": 1, "n_regs": 22}
"""A configuration of which 4 programs fit, and the formula gives 5."""


def miscounts(source: Source) -> Miscounts:
    """Return the miscounts of *source*."""
    found = make_miscounts(source)
    assert found is not None
    return found


def test_right_and_failing_configurations_are_counted() -> None:
    """Configurations that the formula gets right, and those it divides by zero for, are counted."""
    launches = (
        row(**WRONG),
        row(**WRONG, as_tutorial=True),
        row(),
        row(num_warps=1, num_stages=1, shared=0),
        row("softmax_row", num_stages=1),
    )
    found = miscounts(make_source(H200, table_of(list(launches))))
    assert (found.right, found.failing, len(found.launches)) == (1, 1, 1)


def test_a_launch_is_paired_within_its_use() -> None:
    """Only launches that were measured in the same part of the run are compared."""
    launches = (
        row(**WRONG, us=10.0),
        row(**WRONG, us=12.0, as_tutorial=True),
        row(**WRONG, us=20.0, use="benchmark"),
        row(**WRONG, us=22.0, use="benchmark", as_tutorial=True),
    )
    found = miscounts(make_source(H200, table_of(list(launches))))
    assert [launch.lost for launch in found.launches] == [pytest.approx(0.2), pytest.approx(0.1)]


@pytest.mark.parametrize("without", [{"planned"}, {"tutorial"}, {"planned", "tutorial"}])
@pytest.mark.usefixtures("no_times")
def test_what_is_not_predicted_is_not_said(without: set[str]) -> None:
    """Without predicted times the chapter has only the measured ones."""
    launches = [
        one | ({"predicted_us": None} if name in without else {})
        for one in rows()
        for name in ["planned" if one["launched"] == one["num_programs"] else "tutorial"]
    ]
    found = miscounts(make_source(H200, table_of(launches)))
    assert len(found.launches) == 4
    assert {one.predicted_lost for one in found.launches} == {None}
    assert "Predicted" not in str(the_miscounts(found).blocks[0])


@pytest.mark.usefixtures("no_times")
def test_a_file_need_not_say_what_is_predicted() -> None:
    """Rows without a column of predicted times have only measured ones."""
    found = miscounts(make_source(H200, table_of(rows()).drop(columns=["predicted_us", "bound"])))
    assert len(found.launches) == 4
    assert {one.predicted_lost for one in found.launches} == {None}


def test_where_the_formula_is_right_there_is_nothing_to_tell() -> None:
    """A right formula and launches with as many programs as fit are no miscounts."""
    assert make_miscounts(make_source(H200, table_of([row(), row(num_stages=1)]))) is None
    right = [row(), row(num_warps=1, num_stages=1, shared=0)]
    assert make_miscounts(predicted_of(table_of(right))) is None
