"""What holds of predicted times whatever the constants are."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from guesses import CONSTANTS, H200, GuessedLaunch, guessed_launches
from hypothesis import assume, given
from hypothesis import strategies as st
from records import record_of

from occupancy_lab.kernels import softmax, softmax_row
from occupancy_lab.sweeping.recorded import recorded_table
from occupancy_lab.throughput import model
from occupancy_lab.throughput.calibrations import Constants
from occupancy_lab.throughput.features import stack
from occupancy_lab.throughput.model import (
    LaunchTimes,
    cycle_times,
    launch_times,
    overfull_us,
    row_rate,
    row_times,
)
from occupancy_lab.throughput.predict import row_config, row_problem, row_resources
from occupancy_lab.values import Config, Problem, Resources

if TYPE_CHECKING:
    from occupancy_lab.prediction import Prediction

ROUNDING = 1e-6
"""The relative error that rounding and a finite search for the rate may make."""
TAIL = 0.04
"""How much longer the ends of a launch may be taken to be where a faster memory leaves less to
share; 0.027 is the most that was found."""
BANDWIDTHS = [name for name in Constants.names() if name.endswith("_gbs")]


def total(launch: GuessedLaunch, constants: Constants = CONSTANTS) -> float:
    """Return the predicted time of *launch*, us."""
    return float(launch_times(launch.features, constants).total)


def larger(launch: GuessedLaunch, rows: int) -> GuessedLaunch:
    """Return *launch* with *rows* rows more."""
    problem = dataclasses.replace(launch.problem, rows=launch.problem.rows + rows)
    return dataclasses.replace(launch, problem=problem)


@given(guessed_launches())
def test_every_part_is_a_time(launch: GuessedLaunch) -> None:
    """Each part is finite and not below 0, and the whole is no less than any that bounds it."""
    found = launch_times(launch.features, CONSTANTS)
    for field in dataclasses.fields(LaunchTimes):
        part = float(getattr(found, field.name))
        assert np.isfinite(part)
        assert part >= 0
    assert found.total >= found.fixed >= CONSTANTS.launch_us
    assert found.total * (1 + ROUNDING) >= found.bandwidth
    assert found.total * (1 + ROUNDING) >= found.issue
    assert found.total * (1 + ROUNDING) >= found.dispatch


@given(guessed_launches(), st.sampled_from(BANDWIDTHS), st.floats(1, 4))
def test_more_bandwidth_is_never_slower(launch: GuessedLaunch, name: str, factor: float) -> None:
    """A memory that gives more takes no launch longer."""
    faster = CONSTANTS.replace(**{name: factor * getattr(CONSTANTS, name)})
    assert total(launch, faster) <= total(launch) * (1 + TAIL)


@given(guessed_launches(), st.integers(1, 10_000))
def test_more_rows_are_never_faster(launch: GuessedLaunch, rows: int) -> None:
    """A taller matrix takes no less time, but where a second round begins, which ends one lockstep.

    The last rows then share a little more, too: 0.014 % at the most was found.
    """
    steady = CONSTANTS.replace(at_once_share=0.0)
    assert total(larger(launch, rows), steady) >= total(launch, steady) * (1 - 0.001)
    assert total(larger(launch, rows)) >= total(launch) * (1 - 0.05)


@given(guessed_launches(), st.integers(1, 30))
def test_more_programs_never_pass_fewer_rows(launch: GuessedLaunch, more: int) -> None:
    """More resident programs that spill nothing into a shared cache pass rows no more slowly.

    Where the schedulers are full, they also wait for more others: 0.1 % at the most was found. So
    do those of a launch whose second round they take away, which then compute together: 5 %.
    """
    few = dataclasses.replace(launch.features, local_bytes=0)
    many = dataclasses.replace(few, programs=few.programs + more)
    for constants, allowed in ((CONSTANTS.replace(at_once_share=0.0), 0.002), (CONSTANTS, 0.1)):
        rates = (row_rate(some, constants, row_times(some, constants)) for some in (few, many))
        slow, fast = rates
        assert fast >= slow * (1 - allowed)


@given(guessed_launches())
def test_rows_pass_no_faster_than_memory_and_issue_let_them(launch: GuessedLaunch) -> None:
    """The rate is above 0 and within what the memory and the schedulers allow."""
    row = row_times(launch.features, CONSTANTS)
    rate = row_rate(launch.features, CONSTANTS, row)
    assert 0 < rate * max(row.memory, row.issue) <= 1 + ROUNDING


@given(guessed_launches(), st.integers(1, 4))
def test_a_larger_cache_is_never_slower(launch: GuessedLaunch, factor: int) -> None:
    """What the instruction cache holds is not fetched again."""
    found = launch.features
    larger_cache = factor * found.instruction_cache_bytes
    roomier = dataclasses.replace(found, instruction_cache_bytes=larger_cache)
    slow, fast = (row_rate(f, CONSTANTS, row_times(f, CONSTANTS)) for f in (found, roomier))
    assert fast >= slow * (1 - ROUNDING)


@given(st.lists(guessed_launches(), min_size=1, max_size=5))
def test_many_launches_are_each_alone(launches: list[GuessedLaunch]) -> None:
    """A column of launches has the times that each has by itself."""
    together = launch_times(stack([launch.features for launch in launches]), CONSTANTS)
    alone = [launch_times(launch.features, CONSTANTS) for launch in launches]
    for field in dataclasses.fields(LaunchTimes):
        expected = [getattr(times, field.name) for times in alone]
        assert getattr(together, field.name) == pytest.approx(expected, rel=1e-9)


@given(guessed_launches())
def test_one_resident_program_is_a_launch_too(launch: GuessedLaunch) -> None:
    """A multiprocessor that holds one program does a row after the other."""
    single = dataclasses.replace(launch, programs=1)
    row = row_times(single.features, CONSTANTS)
    assert total(single) > 0
    assert row_rate(single.features, CONSTANTS, row) * row.issue <= 1 + ROUNDING


@given(guessed_launches(), st.integers(1, 131))
def test_work_for_a_part_of_the_gpu(launch: GuessedLaunch, rows: int) -> None:
    """Up to a row a multiprocessor, more rows cost bandwidth alone: no round begins."""
    small = dataclasses.replace(
        launch, problem=dataclasses.replace(launch.problem, rows=rows), programs=1
    )
    full = larger(small, 132 - rows)
    faster = CONSTANTS.replace(**dict.fromkeys(BANDWIDTHS, 1e9))
    assert total(small) <= total(full) * (1 + ROUNDING)
    assert total(small, faster) == pytest.approx(total(full, faster), rel=0.02)


@given(guessed_launches(), st.integers(1, 4))
def test_exchanges_are_waited_for(launch: GuessedLaunch, exchanges: int) -> None:
    """Each exchange lengthens a program's pass over a row by what one takes."""
    found = launch.features
    sharing = dataclasses.replace(found, exchanges=exchanges)
    row = row_times(found, CONSTANTS)
    alone, together = (float(cycle_times(f, CONSTANTS, row)(0.0)) for f in (found, sharing))
    # What is loaded ahead is there when others answer: copies hide no exchange, and need no more.
    waits = exchanges * CONSTANTS.exchange_us
    assert alone <= together <= alone + waits * (1 + ROUNDING)
    if found.num_stages <= 2:
        assert together == pytest.approx(alone + waits)


def test_accesses_that_a_mask_leaves_out_take_no_time() -> None:
    """A row of 600 in a block of 1024 keeps the memory pipe 600 / 1024 as long as a full one.

    Elements that threads hold once more, as a block of less than a warp's, are moved all the same.
    """

    def issued(cols: int, accesses: int) -> float:
        resources = Resources(32, 4, 0, load_bytes=4, instructions=1, global_accesses=accesses)
        config = Config(1024, 4, 1)
        launch = GuessedLaunch(softmax_row.KERNEL, Problem(4096, cols), config, resources, 8)
        return float(row_times(launch.features, CONSTANTS).issue)

    def piped(cols: int, accesses: int) -> float:
        return issued(cols, accesses) - issued(cols, 0)

    assert piped(600, 16) == pytest.approx(piped(1024, 16) * 600 / 1024)
    assert piped(600, 32) == pytest.approx(piped(1024, 32) * 600 / 1024)
    assert piped(16, 16) == pytest.approx(piped(1024, 16))


@given(guessed_launches())
def test_waiting_and_issuing_cover_each_other(launch: GuessedLaunch) -> None:
    """A warp waits while others issue: both take no less than the longer, and less than in turn."""
    row = row_times(launch.features, CONSTANTS)
    with mock.patch.object(model, "OVERLAP", 1.0):
        alone = row_times(launch.features, CONSTANTS).compute
    assert row.compute <= alone
    assert row.compute + row.issue >= max(row.issue, alone) * (1 - ROUNDING)


def test_last_rows_have_the_memory_for_themselves() -> None:
    """28 rows of 128 KB more than an H200 has SMs take less than another round of all."""
    resources = Resources(100, 16, 0, load_bytes=16, instructions=200, global_accesses=64)

    def us(rows: int) -> float:
        config = Config(32768, 16, 1)
        return total(GuessedLaunch(softmax_row.KERNEL, Problem(rows, 32768), config, resources, 1))

    assert us(132) < us(160) < us(132) + 0.6 * (us(264) - us(132))


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
    assert longer > -float(launch_times(found, CONSTANTS).total) * 1.5 / rows


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


@given(guessed_launches(), st.integers(2, 40))
def test_all_of_one_round_compute_at_once(launch: GuessedLaunch, rounds: int) -> None:
    """In a launch of one round a program waits for a share of what all others issue."""
    found = dataclasses.replace(launch.features, num_stages=1, read_bytes=0, written_bytes=0)
    work = found.programs * found.multiprocessors
    once, often = (dataclasses.replace(found, work=work * times) for times in (1, rounds))
    row = row_times(once, CONSTANTS)
    alone, together = (cycle_times(some, CONSTANTS, row)(0.0) for some in (often, once))
    waiting = CONSTANTS.at_once_share * (found.programs - 1) * row.issue
    assert together - alone == pytest.approx(waiting, abs=1e-9)


@given(guessed_launches(), st.integers(1, 4))
def test_a_pass_that_hides_a_load_is_longer(launch: GuessedLaunch, num_stages: int) -> None:
    """From 3 stages on a pass takes its program pass_us more, and with fewer nothing."""
    found = dataclasses.replace(launch.features, num_stages=num_stages)
    row = row_times(found, CONSTANTS)
    none, some = (cycle_times(found, CONSTANTS.replace(pass_us=us), row)(0.0) for us in (0.0, 9.0))
    if num_stages > 2:
        assert 9.0 / (num_stages - 1) <= (some - none) * (1 + ROUNDING) <= 9.0 * (1 + 2 * ROUNDING)
    else:
        assert some == none


def test_few_multiprocessors_share_the_l2() -> None:
    """The fewer load local memory, the more the L2 cache gives each, up to what its port takes."""
    spilling = Resources(32, 4, 0, load_bytes=4, instructions=1, local_traffic=80_000)

    def local_us(rows: int) -> float:
        config = Config(1024, 4, 1)
        launch = GuessedLaunch(softmax_row.KERNEL, Problem(rows, 1024), config, spilling, 1)
        return float(row_times(launch.features, CONSTANTS).issue)

    moved = 80_000 * 128
    assert local_us(4096) == pytest.approx(moved / CONSTANTS.l2_gbs / 1e3)
    assert local_us(66) == pytest.approx(moved / (2 * CONSTANTS.l2_gbs) / 1e3)
    assert local_us(1) == local_us(2) > local_us(66) / 4
