"""What launching more programs than fit costs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from guesses import CONSTANTS, H200, GuessedLaunch, guessed_launches
from hypothesis import assume, given
from hypothesis import strategies as st

from occupancy_lab.kernels import softmax
from occupancy_lab.record import record_of
from occupancy_lab.sweeping.recorded import recorded_table
from occupancy_lab.throughput.model import times
from occupancy_lab.throughput.overfull import overfull_us
from occupancy_lab.throughput.table import row_config, row_problem, row_resources

if TYPE_CHECKING:
    from occupancy_lab.values import Prediction

LOOPING = guessed_launches((softmax.KERNEL,))
EVERY = 7
"""One in so many recorded launches is looked at."""


@given(LOOPING)
def test_a_program_a_place_costs_nothing(launch: GuessedLaunch) -> None:
    """As many programs as there are places take no longer than planned."""
    found = launch.features
    places = int(found.programs * found.multiprocessors)
    assert overfull_us(found, CONSTANTS, places) == 0


@given(LOOPING, st.integers(1, 131))
def test_programs_that_do_not_fit_win_no_more_than_a_row(launch: GuessedLaunch, more: int) -> None:
    """With more programs the rows may come out more evenly, by a row a program, and no better."""
    found = launch.features
    places = int(found.programs * found.multiprocessors)
    rows = found.work / places
    assume(rows > 10)
    longer = overfull_us(found, CONSTANTS, places + more)
    assert longer > -float(times(found, CONSTANTS).total) * 1.5 / rows


def recorded_excesses() -> pd.DataFrame:
    """Return recorded launches with more programs than fit, with the time of those that fit."""
    table = recorded_table()
    table = table[(table["gpu"] == "h200") & (table["measured"] == "measured")]
    name = ["kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages", "use"]
    fitting = table[table["launched"] == table["num_programs"]]
    over = table[table["launched"] > table["num_programs"]]
    return over.merge(fitting[[*name, "us"]], on=name, suffixes=("", "_fit")).iloc[::EVERY]


def planned_and_over(row: dict[Any, Any]) -> tuple[Prediction, Prediction]:
    """Return what is predicted with as many programs as fit, and with as many as were launched."""
    record = record_of(
        softmax.KERNEL,
        row_problem(row),
        row_config(row),
        H200,
        row_resources(row),
        triton=row["triton_version"],
    )
    more = dataclasses.replace(record.plan, num_programs=int(row["launched"]))
    planned, over = record.prediction, record.prediction_of(more)
    assert planned is not None
    assert over is not None
    return planned, over


def test_recorded_losses_are_met() -> None:
    """What programs that do not fit cost on an H200 is met within 4 % of the time by half."""
    off = []
    for row in recorded_excesses().to_dict("records"):
        planned, over = planned_and_over(row)
        off.append(abs((over.us / planned.us) / (row["us"] / row["us_fit"]) - 1))
    assert pd.Series(off).median() < 0.04


def test_the_tail_holds_the_loss() -> None:
    """The parts of a launch with too many programs differ in the tail alone."""
    planned, over = planned_and_over(recorded_excesses().to_dict("records")[0])
    assert over.us - planned.us == pytest.approx(over.part("tail").us - planned.part("tail").us)
    assert [part for part in over.parts if part.name != "tail"] == [
        part for part in planned.parts if part.name != "tail"
    ]
