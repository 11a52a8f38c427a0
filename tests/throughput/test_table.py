"""Predictions of a table's rows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from guesses import BASIS, H200, GuessedLaunch, calibration, guessed_launches
from hypothesis import given

from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernels import softmax, softmax_row
from occupancy_lab.occupancy.planning import traffic
from occupancy_lab.throughput.predict import predictions
from occupancy_lab.throughput.table import add_predictions, row_features, row_resources
from occupancy_lab.values import Config, Problem, Resources

if TYPE_CHECKING:
    from typing import Any

    from conftest import Shelves

KERNELS = {kernel.name: kernel for kernel in (softmax.KERNEL, softmax_row.KERNEL)}

CONFIG = Config(1024, 8, 4)
COMPILED = Resources(
    n_regs=32, num_warps=8, shared=12320, instructions=60, loop_instructions=90, async_copies=4
)


def guessed(rows: int) -> GuessedLaunch:
    """Return the tutorial's example with *rows* rows."""
    return GuessedLaunch(softmax.KERNEL, Problem(rows, 781), CONFIG, COMPILED, 8)


def row(launch: GuessedLaunch, gpu: str = "h200") -> dict[str, Any]:
    """Return the row of a sweep's table that describes *launch*."""
    return {
        "gpu": gpu,
        "kernel": launch.kernel.name,
        **dataclasses.asdict(launch.problem),
        "BLOCK_SIZE": launch.config.block_size,
        "num_stages": launch.config.num_stages,
        **dataclasses.asdict(launch.resources),
        "programs_per_multiprocessor": launch.programs,
    }


@given(guessed_launches())
def test_row_says_what_the_launch_is(launch: GuessedLaunch) -> None:
    """A row, even one of floats only, has the launch's resources and features."""
    values = {
        name: float(value) if isinstance(value, int) else value
        for name, value in row(launch).items()
    }
    assert row_resources(values) == launch.resources
    assert row_features(values, launch.kernel, H200) == launch.features


@given(guessed_launches())
def test_row_without_an_occupancy_has_no_features(launch: GuessedLaunch) -> None:
    """What did not compile, or does not fit, is not predicted."""
    values = row(launch) | {"programs_per_multiprocessor": pd.NA}
    assert row_features(values, launch.kernel, H200) is None


@pytest.mark.parametrize("gpu", ["h200", "sm_90"])
def test_predicted_columns_are_filled(shelves: Shelves, gpu: str) -> None:
    """Each row has the prediction of its own launch, where its GPU can be predicted."""
    shelves.record(calibration())
    launches = [guessed(rows) for rows in (7, 4096, 100_000)]
    table = pd.DataFrame([row(launch, gpu) for launch in launches])
    for name in ("predicted_us", "predicted_gbs", "bound", "basis"):
        table[name] = pd.Series([None] * len(table), dtype=object)
    add_predictions(table, KERNELS, {gpu: find_gpu(gpu)})
    if gpu == "sm_90":
        assert table["predicted_us"].isna().all()
        return
    moved = [traffic(one.kernel.memory_steps(one.problem), one.problem) for one in launches]
    features = [one.features for one in launches]
    expected = predictions(features, [one.total_bytes for one in moved], BASIS)
    assert table["predicted_us"].tolist() == [one.us for one in expected]
    assert table["predicted_gbs"].tolist() == [one.gbs for one in expected]
    assert table["bound"].tolist() == [one.bound for one in expected]
    assert table["basis"].str.contains("NVIDIA H200").all()
