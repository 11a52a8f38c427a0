"""Compiled rows planned anew for another GPU of their target."""

from __future__ import annotations

import pandas as pd
import pytest
from small_table import FROM_BINARY, H100, H200, row, rows, table_of

from occupancy_lab.gpus import find_gpu
from occupancy_lab.reporting.source import NAME, replanned
from occupancy_lab.sweeping.recorded import recorded_table
from occupancy_lab.table.columns import MEASURED_COLUMNS

PLANS = [
    *("programs_per_multiprocessor", "occupancy", "num_programs"),
    *("tutorial_programs", "tutorial_num_programs"),
]
CONFIGURATION = [name for name in NAME if name != "use"]


def plans(table: pd.DataFrame) -> pd.DataFrame:
    """Return the plans of *table* as floats, by what was launched, each configuration once."""
    once = table.drop_duplicates(CONFIGURATION).set_index(CONFIGURATION)
    return once[PLANS].astype("Float64").astype(float)


@pytest.fixture(scope="module")
def recorded() -> pd.DataFrame:
    """Return every launch that comes with the lab."""
    return recorded_table()


def test_same_gpu_gets_its_own_plans(recorded: pd.DataFrame) -> None:
    """Planned for the GPU that they were recorded on, rows have the plans that they had."""
    own = recorded[recorded["gpu"] == "h200"].iloc[::3]
    found = replanned(own, H200)
    pd.testing.assert_frame_equal(plans(found), plans(own))
    assert found["status"].value_counts().to_dict() == (
        own.drop_duplicates(NAME)["status"].value_counts().to_dict()
    )


def test_another_gpu_gets_the_plans_that_were_launched_there(recorded: pd.DataFrame) -> None:
    """Kernels of the H200 planned for an H100 are launched as those with their registers were."""
    launched = recorded[(recorded["gpu"] == "h100") & (recorded["use"] == "held out")].iloc[::5]
    same = [*CONFIGURATION, "n_regs", "shared"]
    own = recorded[recorded["gpu"] == "h200"].merge(launched[same].drop_duplicates(), on=same)
    alike = launched.merge(own[same].drop_duplicates(), on=same)
    found = plans(replanned(own, H100))
    expected = plans(alike)
    assert len(expected) > 150
    pd.testing.assert_frame_equal(found.loc[expected.index], expected)


def test_fewer_multiprocessors_get_fewer_programs() -> None:
    """As many fit on one of them; a persistent kernel fills 114, and a row's programs are rows."""
    pcie = find_gpu("h100-pcie")
    loop, by_row = replanned(table_of([row(), row("softmax_row", num_stages=1)]), pcie).to_dict(
        "records"
    )
    assert (loop["gpu"], loop["programs_per_multiprocessor"]) == ("h100-pcie", 6)
    assert (loop["num_programs"], loop["launched"], loop["tutorial_num_programs"]) == (684,) * 3
    assert by_row["num_programs"] == 4096


def test_nothing_is_measured() -> None:
    """A time of another GPU never becomes one of this; its Triton and its use stay."""
    table = replanned(table_of(rows()), H100)
    measured = [name for name in MEASURED_COLUMNS if name != "launched"]
    assert table[measured].isna().all(axis=None)
    assert set(table["use"]) == {"benchmark", "tuning", "held out"}
    assert set(table["triton_version"]) == {"3.6.0"}


def test_each_configuration_once() -> None:
    """What was launched with two numbers of programs was compiled once."""
    twice = [row(num_warps=16, n_regs=22), row(num_warps=16, n_regs=22, as_tutorial=True)]
    assert len(replanned(table_of(twice), H100)) == 1


def test_what_was_not_compiled_says_why() -> None:
    """A compile that failed is a row with its reason; one that fits nowhere is found anew."""
    failed = row() | dict.fromkeys(FROM_BINARY) | {"status": "timed out", "reason": "120 s"}
    large = row(num_stages=3, shared=262144) | {"status": "does not fit", "reason": "on H200 SXM"}
    found = replanned(table_of([failed, large]), H100)
    assert found["status"].tolist() == ["timed out", "does not fit"]
    assert found["reason"][0] == "120 s"
    assert "H100 SXM" in found["reason"][1]
    assert found["num_programs"].isna().all()
