"""The worked example: its launch, the rows beside it, and the sentences."""

import dataclasses

import pytest
from small_table import H200, row, table_of

from occupancy_lab.reporting.chapters.example import Example, make_example, the_example
from occupancy_lab.reporting.source import PREDICTED, Source, make_source
from occupancy_lab.text.document import Section


@pytest.fixture
def example(small: Source) -> Example:
    """Return the example of the small table."""
    found = make_example(small)
    assert found is not None
    return found


def sentences(example: Example, title: str) -> str:
    """Return the sentences beside the table of a part of the chapter."""
    (found,) = (
        block
        for block in the_example(example).blocks
        if isinstance(block, Section) and block.title == title
    )
    return " ".join(found.sentences)


def test_predicted_times_that_are_close_judge_no_stages(example: Example) -> None:
    """Predicted times that are close together do not judge the gain of stages."""
    close = dataclasses.replace(example.tutorial, us=12.6)
    measured = dataclasses.replace(example, tutorial=close)
    predicted = dataclasses.replace(measured, times=PREDICTED)
    title = "Costs and gains of num_stages"
    assert "it costs more than it gains" in sentences(measured, title)
    assert "the times are too close to say" in sentences(predicted, title)


def test_another_problem_where_781_was_not_measured() -> None:
    """Without 781 columns, the first problem with the tutorial's settings and one stage is used."""
    table = table_of([row(cols=300), row(cols=256), row(cols=256, num_stages=1)])
    found = make_example(make_source(H200, table))
    assert found.problem.cols == 256


def test_without_one_stage_there_is_no_example() -> None:
    """Rows with a single num_stages have no example."""
    assert make_example(make_source(H200, table_of([row()]))) is None
