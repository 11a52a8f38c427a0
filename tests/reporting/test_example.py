"""The worked example: which launch it is, what stands beside it, and what is said of it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from small_table import H200, row, table_of

from occupancy_lab.reporting.chapters.example import Example, make_example, the_example
from occupancy_lab.reporting.source import PREDICTED, make_source
from occupancy_lab.text.document import Section
from occupancy_lab.values import Config

if TYPE_CHECKING:
    from occupancy_lab.reporting.source import Source


@pytest.fixture
def example(small: Source) -> Example:
    """Return the example of the small table."""
    found = make_example(small)
    assert found is not None
    return found


def sentences(example: Example, title: str) -> str:
    """Return what a part of the chapter says beside its table."""
    (found,) = (
        block
        for block in the_example(example).blocks
        if isinstance(block, Section) and block.title == title
    )
    return " ".join(found.sentences)


def test_example_is_the_tutorials_launch(example: Example) -> None:
    """It is the tutorial's configuration as the rows say that it was compiled and measured."""
    own = example.tutorial
    assert (example.problem.cols, own.config) == (781, Config(1024, 8, 4))
    assert (own.calculation.resources.n_regs, own.us, example.triton) == (40, 14.0, "3.6.0")


def test_what_it_is_compared_with(example: Example) -> None:
    """Only launches of the same problem with as many programs as fit count."""
    assert len(example.variants) == 7
    assert (example.fastest().us, example.fastest("softmax").us) == (11.0, 11.5)
    assert example.predicted_best is not None
    assert example.predicted_best.us == 11.0
    assert [(one.config.num_stages, one.us) for one in example.over_stages] == [
        (1, 12.5),
        (2, 13.5),
        (4, 14.0),
    ]
    assert example.num_warps == (4, 8, 16)
    assert example.copy_us == 10.5


def test_predicted_times_that_are_close_judge_no_stages(example: Example) -> None:
    """Whether stages cost more than they bring is said where the times can tell."""
    close = dataclasses.replace(example.tutorial, us=12.6)
    measured = dataclasses.replace(example, tutorial=close)
    predicted = dataclasses.replace(measured, times=PREDICTED)
    title = "What num_stages costs and brings"
    assert "it costs more than it brings" in sentences(measured, title)
    assert "that is too close to say" in sentences(predicted, title)


def test_instructions_are_those_of_all_warps(example: Example) -> None:
    """Each of 8 warps issues its loop's 160, and each of 4 warps of the row kernel all of its."""
    assert example.tutorial.instructions == 8 * 160
    rows = example.found("softmax_row", 4, 1)
    assert rows is not None
    assert rows.instructions == 4 * 90


def test_occupancy_does_not_say_which_is_the_fastest(example: Example) -> None:
    """16 warps of 22 registers fill an SM and take the longest."""
    said = sentences(example, "What occupancy and warps bring")
    assert "3 have the highest occupancy, 100%, and take 11.5 us to 18.0 us." in said
    assert "The other 3 take 13.0 us to 14.0 us. So occupancy alone does not say" in said


def test_another_problem_where_781_was_not_measured() -> None:
    """The first problem with the tutorial's configuration and one stage is taken instead."""
    table = table_of([row(cols=300), row(cols=256), row(cols=256, num_stages=1)])
    found = make_example(make_source(H200, table))
    assert found is not None
    assert found.problem.cols == 256


def test_without_one_stage_there_is_no_example() -> None:
    """What num_stages costs cannot be said of rows that have one num_stages."""
    assert make_example(make_source(H200, table_of([row()]))) is None


def test_predicted_example_has_no_measured_time(predicted: Source) -> None:
    """Times are predictions, and no copy stands beside them that was measured elsewhere."""
    found = make_example(predicted)
    assert found is not None
    assert (found.times, found.copy_us) == (PREDICTED, None)
