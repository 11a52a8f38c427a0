"""The worked example: which launch it is, what stands beside it, and whose words it has."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from small_table import H200, row, table_of

from occupancy_lab.explaining.case import Recorded
from occupancy_lab.explaining.compiled import stage_sentences
from occupancy_lab.explaining.duration import the_duration
from occupancy_lab.explaining.limits import the_limits, the_next_step
from occupancy_lab.reporting.chapters.example import the_example
from occupancy_lab.reporting.example import Example, fastest, make_example
from occupancy_lab.reporting.source import PREDICTED, make_source
from occupancy_lab.text.document import Section
from occupancy_lab.text.words import microseconds
from occupancy_lab.values import Config

if TYPE_CHECKING:
    from occupancy_lab.reporting.source import Source


@pytest.fixture
def example(small: Source) -> Example:
    """Return the example of the small table."""
    found = make_example(small)
    assert found is not None
    return found


def sections(example: Example) -> dict[str, Section]:
    """Return the parts of the chapter by their titles."""
    blocks = the_example(example).blocks
    return {block.title: block for block in blocks if isinstance(block, Section)}


def test_example_is_the_tutorials_launch(example: Example) -> None:
    """It is the tutorial's configuration as the rows say that it was compiled and measured."""
    record = example.case.record
    assert (record.problem.cols, record.config) == (781, Config(1024, 8, 4))
    assert (record.resources.n_regs, record.triton_version) == (40, "3.6.0")
    assert example.case.single_stage.n_regs == 29
    launch, single, rows = (
        example.case.recorded.launch,
        example.case.recorded.single_stage,
        example.case.recorded.row_programs,
    )
    assert launch is not None
    assert single is not None
    assert (launch.us, launch.runs, single.us, rows) == (14.0, 30, 12.5, None)


def test_what_it_is_compared_with(example: Example) -> None:
    """Only launches of the same problem with as many programs as fit count."""
    assert len(example.variants) == 7
    assert (example.tutorial.us, example.single_stage.us) == (14.0, 12.5)
    assert (fastest(example.variants).us, fastest(example.variants, "softmax").us) == (11.0, 11.5)
    assert example.predicted_best is not None
    assert example.predicted_best.us == 11.0
    assert [one.config.num_stages for one in example.over_stages] == [1, 2, 4]
    assert fastest(example.over_warps).config == Config(1024, 4, 4)
    assert example.num_warps == (4, 8, 16)


def test_predicted_times_that_are_close_rank_no_warps(example: Example) -> None:
    """Where predictions differ by less than they may be off, no number of warps is the fastest."""
    alike = dataclasses.replace(example.tutorial, us=13.5)
    variants = tuple(alike if one == example.tutorial else one for one in example.variants)
    close = dataclasses.replace(example, variants=variants, times=PREDICTED)
    (first, second) = sections(close)["What warps cost and bring"].sentences
    assert "4 and 8 warps are predicted to take 13.0 us to 13.5 us" in first
    assert "8 warps issue 1280 instructions per row, and 4 warps 320" in second


def test_predicted_times_that_are_close_judge_no_stages(example: Example) -> None:
    """Whether stages cost more than they bring is said where the times can tell."""
    close = dataclasses.replace(example.tutorial, us=12.6)
    variants = tuple(close if one == example.tutorial else one for one in example.variants)
    measured = dataclasses.replace(example, variants=variants)
    predicted = dataclasses.replace(measured, times=PREDICTED)
    said = {
        one.times.word: " ".join(sections(one)["What num_stages costs and brings"].sentences)
        for one in (measured, predicted)
    }
    assert "it costs more than it brings" in said["measured"]
    assert "that is too close to say" in said["predicted"]


def test_instructions_are_those_of_all_warps(example: Example) -> None:
    """Each of 8 warps issues its loop's 160, and each of 4 warps of the row kernel all of its."""
    assert example.tutorial.instructions == 8 * 160
    rows = example.with_rows(4)
    assert rows is not None
    assert rows.instructions == 4 * 90


def test_another_problem_where_781_was_not_measured() -> None:
    """The first problem with the tutorial's configuration and one stage is taken instead."""
    table = table_of([row(cols=300), row(cols=256), row(cols=256, num_stages=1)])
    found = make_example(make_source(H200, table))
    assert found is not None
    assert found.case.record.problem.cols == 256


def test_without_one_stage_there_is_no_example() -> None:
    """What num_stages costs cannot be said of rows that have one num_stages."""
    found = make_example(make_source(H200, table_of([row()])))
    assert found is None
    (words,) = the_example(found).blocks
    assert str(words).startswith("Left out: ")


def test_words_are_the_explanations_own(example: Example) -> None:
    """Limits, next step and duration are explain's own sections."""
    found, case = sections(example), example.case
    for own in (
        the_limits((case.calculation,)),
        the_next_step((case.calculation,)),
        the_duration((case,)),
    ):
        assert found[own.title] == own
    costs = found["What num_stages costs and brings"].sentences
    assert set(stage_sentences(case)) <= set(costs)


def test_predicted_example_has_recorded_times_beside(predicted: Source) -> None:
    """Times are predictions; what others measured stands beside them and is named so."""
    found = make_example(predicted)
    assert found is not None
    prediction = found.case.record.prediction
    assert prediction is not None
    assert (found.times, found.tutorial.recorded_us) == (PREDICTED, 16.0)
    assert found.tutorial.us == pytest.approx(prediction.us)
    assert [one.recorded_us for one in found.recorded] == [12.0, 16.0]
    launch = found.case.recorded.launch
    assert launch is not None
    assert (launch.us, launch.runs, found.case.recorded.single_stage) == (16.0, None, None)


def test_copy_of_the_matrix_is_predicted_where_nobody_timed_one(predicted: Source) -> None:
    """What a copy of this matrix takes is predicted, and says so."""
    found = make_example(predicted)
    assert found is not None
    case = dataclasses.replace(found.case, recorded=Recorded())
    unknown = dataclasses.replace(found, case=case)
    words = sections(unknown)["What to launch instead"].sentences[-1]
    prediction = case.record.prediction
    assert prediction is not None
    us = microseconds(prediction.us * prediction.share_of_copy)
    assert words.startswith(f"A plain copy of this matrix, predicted: {us}, ")


def test_time_of_the_naive_softmax_is_said_where_known(example: Example) -> None:
    """What its five operations take stands after what they move."""
    timed = dataclasses.replace(example, naive=example.case.recorded.copy)
    assert (
        sections(timed)["What the naive softmax moves"].sentences[0].endswith("Measured: 10.5 us.")
    )


def test_a_sentence_names_few_of_many_recorded_launches(example: Example) -> None:
    """Of all that others recorded, the three fastest are named beside the tutorial's."""
    recorded = tuple(dataclasses.replace(one, recorded_us=one.us + 1.0) for one in example.variants)
    of_others = dataclasses.replace(example, variants=recorded, times=PREDICTED)
    words = sections(of_others)["What to launch instead"].sentences[1]
    assert words.startswith("Of 7 recorded launches the tutorial's took 15.0 us, and the fastest")
    assert words.count(" us for ") == 3
