"""Rows of a table as records, planned for their own GPU and for others with the same target."""

from typing import Any

import pandas as pd
import pytest
from small_table import H100, H200, row, table_of

from occupancy_lab.gpus import Gpu, find_gpu
from occupancy_lab.record import Record
from occupancy_lab.reporting.source import NAME, row_record
from occupancy_lab.sweeping.recorded import recorded_table

PLANS = [
    *("programs_per_multiprocessor", "occupancy", "num_programs"),
    *("tutorial_programs", "tutorial_num_programs"),
]
CONFIGURATION = [name for name in NAME if name != "use"]


def plans(table: pd.DataFrame) -> pd.DataFrame:
    """Return the plans of *table* as floats by launch, each configuration once."""
    once = table.drop_duplicates(CONFIGURATION).set_index(CONFIGURATION)
    return once[PLANS].astype("Float64").astype(float)


def records(table: pd.DataFrame, gpu: Gpu) -> list[Record]:
    """Return the records of *table* on *gpu*."""
    return [row_record(one, gpu) for one in table.to_dict("records")]


def planned_again(table: pd.DataFrame, gpu: Gpu) -> pd.DataFrame:
    """Return the plans of *table* on *gpu*, recalculated from each row's resources."""
    found: list[Any] = [one.row() for one in records(table.drop_duplicates(CONFIGURATION), gpu)]
    return plans(pd.DataFrame(found))


@pytest.fixture(scope="module")
def recorded() -> pd.DataFrame:
    """Return every recorded launch that fits its GPU."""
    table = recorded_table()
    return table[table["status"] == "ok"]


def test_same_gpu_gets_its_own_plans(recorded: pd.DataFrame) -> None:
    """Rows planned for their own GPU have their recorded plans."""
    own = recorded[recorded["gpu"] == "h200"].iloc[::3]
    pd.testing.assert_frame_equal(planned_again(own, H200), plans(own))


def test_another_gpu_gets_the_plans_that_were_launched_there(recorded: pd.DataFrame) -> None:
    """The H200's kernels planned for an H100 get the plans of its rows with equal registers."""
    launched = recorded[(recorded["gpu"] == "h100") & (recorded["use"] == "held out")].iloc[::5]
    same = [*CONFIGURATION, "n_regs", "shared"]
    own = recorded[recorded["gpu"] == "h200"].merge(launched[same].drop_duplicates(), on=same)
    alike = launched.merge(own[same].drop_duplicates(), on=same)
    found, expected = planned_again(own, H100), plans(alike)
    assert len(expected) > 150
    pd.testing.assert_frame_equal(found.loc[expected.index], expected)


def test_fewer_multiprocessors_get_fewer_programs() -> None:
    """On fewer multiprocessors only a persistent kernel has fewer programs."""
    rows = table_of([row(), row("softmax_row", num_stages=1)])
    loop, by_row = records(rows, find_gpu("h100-pcie"))
    assert loop.occupancy.programs_per_multiprocessor == 6
    assert (loop.plan.num_programs, loop.miscount) == (684, None)
    assert by_row.plan.num_programs == 4096
