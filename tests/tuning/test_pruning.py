"""The hook for Triton's autotuner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton

from occupancy_lab import config_pruner
from occupancy_lab.tuning import tune
from occupancy_lab.values import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest
    from stand_ins import Launches

CONFIGS = [
    triton.Config({}, num_warps=warps, num_stages=stages)
    for warps in (4, 8)
    for stages in (1, 2, 3, 4)
]


def problem_of(named: Mapping[str, Any]) -> Problem:
    """Return the problem of a launch of `softmax_kernel`."""
    return Problem(named["n_rows"], named["n_cols"])


NAMED = {"n_rows": 4096, "n_cols": 781}


def test_the_best_predicted_stay(launches: Launches) -> None:
    """What stays are the autotuner's own objects, those that `tune` ranks first."""
    prune = config_pruner("softmax", problem_of, top=3)
    kept = prune(CONFIGS, NAMED, BLOCK_SIZE=1024, grid=None)
    ranked = tune(781, kernel="softmax", num_warps=(4, 8)).table.head(3)
    assert [(one.num_warps, one.num_stages) for one in kept] == list(
        zip(ranked["num_warps"], ranked["num_stages"], strict=True)
    )
    assert all(one in CONFIGS for one in kept)
    assert launches.asked == []


def test_block_size_may_be_a_configuration(launches: Launches) -> None:
    """A configuration's own BLOCK_SIZE is what is compiled; one that is too small goes last."""
    configs = [triton.Config({"BLOCK_SIZE": size}, num_warps=4) for size in (512, 1024)]
    assert config_pruner("softmax_row", problem_of, top=1)(configs, NAMED) == configs[1:]
    assert launches.asked == []


def test_without_a_prediction_the_first_stay(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no time can be predicted the first configurations stay, so that something is tuned."""
    monkeypatch.setattr("occupancy_lab.throughput.calibrations._calibrations", dict)
    assert config_pruner("softmax", problem_of, top=2)(CONFIGS, NAMED) == CONFIGS[:2]
    assert launches.asked == []
