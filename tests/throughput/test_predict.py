"""A prediction: a time, the bandwidth it comes to, what takes it, and what it rests on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from guesses import BASIS, CONSTANTS, H200, GuessedLaunch, calibration, guessed_launches
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernels import softmax
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.throughput.model import launch_times
from occupancy_lab.throughput.predict import (
    PlannedLaunch,
    predict,
    predictions,
    row_launch,
    row_resources,
)
from occupancy_lab.values import Config, Problem, Resources, Traffic, Work

if TYPE_CHECKING:
    from typing import Any

    from conftest import Shelves

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.prediction import Prediction

PROBLEM, CONFIG = Problem(4096, 781), Config(1024, 8, 4)
COMPILED = Resources(
    n_regs=32, num_warps=8, shared=12320, instructions=60, loop_instructions=90, async_copies=4
)


def predicted(gpu: Gpu, resources: Resources = COMPILED) -> Prediction | None:
    """Return the prediction of the tutorial's example on *gpu*."""
    occupancy = calculate(resources, gpu).occupancy
    programs = occupancy.programs_per_multiprocessor
    work = softmax.KERNEL.launched_work(PROBLEM, CONFIG)
    launch = PlannedLaunch.of(None, work, CONFIG.num_stages, resources, programs, gpu)
    return predict([launch], gpu)[0]


@given(st.lists(guessed_launches(), min_size=1, max_size=4))
def test_predictions_say_what_the_model_says(launches: list[GuessedLaunch]) -> None:
    """Each launch has its own time and parts, of which the largest is what it is bound by."""
    moved = [launch.total_bytes for launch in launches]
    found = predictions([launch.features for launch in launches], moved, H200, BASIS)
    for one, launch, total in zip(found, launches, moved, strict=True):
        alone = launch_times(launch.features, CONSTANTS)
        assert one.us == pytest.approx(float(alone.total))
        assert [part.name for part in one.parts] == [
            "launch",
            "latency",
            "issue",
            "bandwidth",
            "tail",
        ]
        assert one.part(one.bound).us == max(part.us for part in one.parts)
        assert one.gbs == pytest.approx(total / one.us / 1e3)
        assert one.part("bandwidth").us == pytest.approx(float(alone.bandwidth))


@given(guessed_launches())
def test_a_copy_moves_as_many_bytes(launch: GuessedLaunch) -> None:
    """A copy is of as many bytes, and the share of it is the copy's time over the launch's."""
    total = launch.total_bytes
    (found,) = predictions([launch.features], [total], H200, BASIS)
    copy_us = total / found.copy_gbs / 1e3
    assert found.share_of_copy == pytest.approx(copy_us / found.us)
    assert copy_us > CONSTANTS.launch_us + total / CONSTANTS.row_bandwidth_gbs / 1e3


def test_no_launches_have_no_predictions() -> None:
    """Nothing asked, nothing said."""
    assert predictions([], [], H200, BASIS) == []


def test_prediction_says_what_it_rests_on(shelves: Shelves) -> None:
    """A calibrated GPU's prediction is of its calibration, another's of its data sheet."""
    shelves.record(calibration())
    own, other = predicted(H200), predicted(find_gpu("mi300x"))
    assert own is not None
    assert other is not None
    assert (own.calibrated, other.calibrated) == (True, False)
    assert own.basis.startswith("calibrated on NVIDIA H200")
    assert "data sheet" in other.basis


def test_what_is_not_known_is_not_predicted(shelves: Shelves) -> None:
    """Without constants, without a size or without a binary that was read there is no time."""
    assert predicted(H200) is None
    shelves.record(calibration())
    assert predicted(H200) is not None
    assert predicted(find_gpu("sm_90")) is None
    assert predicted(H200, COMPILED.replace(instructions=None)) is None


def row(launch: GuessedLaunch) -> dict[str, Any]:
    """Return the row of a sweep's table that describes *launch*."""
    return {
        "gpu": "h200",
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
    found = row_launch(values, launch.kernel, H200)
    assert found is not None
    assert found.plan == launch.plan
    assert found.features(H200) == launch.features


@given(guessed_launches())
def test_row_without_an_occupancy_has_no_launch(launch: GuessedLaunch) -> None:
    """What did not compile, or does not fit, is not predicted."""
    values = row(launch) | {"programs_per_multiprocessor": pd.NA}
    assert row_launch(values, launch.kernel, H200) is None


SIMPLE = Resources(32, 4, 0, instructions=90, load_bytes=16, store_bytes=16)


def launched(resources: Resources, moved: Traffic, gpu: str = "h100") -> Prediction | None:
    """Return the prediction of a launch of 4096 programs."""
    found, work = find_gpu(gpu), Work(moved.read_bytes, moved.written_bytes)
    programs = calculate(resources, found).occupancy.programs_per_multiprocessor
    return predict([PlannedLaunch.of((4096,), work, 1, resources, programs, found)], found)[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"loop_instructions": 9},
        {"tensor_instructions": 4},
        {"num_ctas": 2},
        {"instructions": None},
    ],
)
def test_what_is_not_modelled_has_no_prediction(changes: dict[str, Any]) -> None:
    """A launch with a loop, tensor cores, clusters or an unread binary has no predicted time."""
    moved = Traffic(2**24, 2**24)
    assert launched(SIMPLE, moved) is not None
    assert launched(SIMPLE.replace(**changes), moved) is None


@pytest.mark.parametrize(("gpu", "moved"), [("sm_90", 2**24), ("gfx942", 2**24), ("h100", 0)])
def test_a_launch_of_unknown_extent_has_no_prediction(gpu: str, moved: int) -> None:
    """Neither a bare architecture nor a launch that moves nothing has a predicted time."""
    assert launched(SIMPLE, Traffic(moved, 0), gpu) is None


@given(
    st.integers(0, 2**45),
    st.integers(1, 2**45),
    st.builds(
        Resources,
        n_regs=st.integers(16, 255),
        num_warps=st.sampled_from([1, 2, 4, 8]),
        shared=st.integers(0, 60_000),
        instructions=st.integers(1, 10_000),
        load_bytes=st.sampled_from([None, 1, 4, 16]),
    ),
    st.sampled_from(["h100", "h200", "a100", "rtx4090", "mi300x", "rx7900xtx"]),
)
def test_no_launch_is_faster_than_memory(
    read: int, written: int, resources: Resources, gpu: str
) -> None:
    """Whatever the launch, its bytes take no less than at the bandwidth of the data sheet."""
    found = launched(resources, Traffic(read, written), gpu)
    bandwidth = find_gpu(gpu).bandwidth_gbs
    assert found is not None
    assert bandwidth is not None
    assert found.us >= (read + written) / bandwidth / 1e3
    assert found.gbs <= bandwidth * (1 + 1e-9)
