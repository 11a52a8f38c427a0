"""The predicted times of the recorded softmaxes: which launches have one, and their errors."""

from collections.abc import Sequence

import pandas as pd
import pytest
from compare_time import LEAST_US
from record_files import read_table
from records import record_of
from simple_times import timed
from softmax_times import GPUS, PREDICTED, file_of, predicted

from occupancy_lab.evaluating.score import TimeErrors, time_errors
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernels import softmax
from occupancy_lab.prediction import PARTS
from occupancy_lab.record import Record
from occupancy_lab.values import Config, Problem, Resources

USES = ("tuning", "held out", "fresh")


def errors(rows: Sequence[dict[str, str]]) -> TimeErrors:
    """Return the errors of the predicted times of *rows*."""
    return time_errors(
        *(pd.Series([float(row[name]) for row in rows]) for name in ("predicted_us", "us"))
    )


@pytest.mark.parametrize("gpu", GPUS)
def test_every_launch_with_a_time_has_a_predicted_one(gpu: str) -> None:
    """Exactly the measured rows, also those of the tutorial's num_programs, have both columns."""
    rows = read_table(file_of(gpu))
    tutorial = [row for row in rows if row["us"] and row["launched"] != row["num_programs"]]
    assert len(tutorial) > 300
    for row in rows:
        if not row["us"]:
            assert [row[name] for name in PREDICTED] == ["", ""]
            continue
        assert float(row["predicted_us"]) > 0
        assert row["bound"] in PARTS


@pytest.mark.parametrize("gpu", GPUS)
def test_softmaxes_are_met(gpu: str) -> None:
    """For longer launches the median error is below 4% and the 90th percentile below 14%.

    These are all recorded launches, including those that the model was fitted to. Launches without
    spills have smaller errors.
    """
    rows = [
        row
        for row in read_table(file_of(gpu))
        if row["use"] in USES
        and row["launched"] == row["num_programs"]
        and float(row["us"] or 0) >= LEAST_US
    ]
    alone = [row for row in rows if int(row["n_spills"]) == 0]
    assert len(alone) > 3000
    found, without = errors(rows), errors(alone)
    assert found.median <= 0.04
    assert found.p90 <= 0.14
    assert without.median <= 0.032
    assert without.p90 <= 0.11


@pytest.fixture
def record() -> Record:
    """Return a launch that the tutorial's formula miscounts, with a time for each number."""
    resources = Resources(22, 16, 64, instructions=90)
    problem, config = Problem(4096, 781), Config(1024, 16, 1)
    return record_of(softmax.KERNEL, problem, config, find_gpu("h200"), resources)


def test_the_time_is_that_of_the_programs_launched(record: Record) -> None:
    """A time is known only for as many programs as fit and for the formula's number."""
    one = timed(record)
    assert one.miscount is not None
    assert one.prediction != one.tutorial_prediction is not None
    assert predicted(one, str(one.plan.num_programs)) is one.prediction
    assert predicted(one, str(one.miscount)) is one.tutorial_prediction
    assert predicted(one, "7") is None
    assert predicted(one, "") is None
