"""A tuning's cost, counted as the timer counts, and its words."""

import dataclasses
from collections.abc import Callable
from functools import partial

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import CONDITIONS, Waiting

from occupancy_lab.gpus import find_gpu
from occupancy_lab.measuring import measure
from occupancy_lab.prediction import NOT_FOLLOWED
from occupancy_lab.sweeping.recorded import RecordedLaunch
from occupancy_lab.tuning.choice import Choice, Tuning, cost_of
from occupancy_lab.values import Measurement, Problem


class Clock:
    """Stands in for the module time; only launches advance it."""

    def __init__(self) -> None:
        self.us = 0.0
        self.launches = 0

    def perf_counter(self) -> float:
        """Return the simulated time in seconds."""
        return self.us / 1e6

    def launch(self, us: float) -> None:
        """Advance by *us*."""
        self.us += us
        self.launches += 1


@given(
    predicted=st.lists(st.floats(1.1, 9e4), min_size=1, max_size=9),
    runs=st.sampled_from([1, 6, 7, 30]),
)
def test_launches_are_counted_as_the_timer_makes_them(predicted: list[float], runs: int) -> None:
    """The count is one check each and all launches of the timer, with warm-up."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        Waiting(0).put(patch)
        patch.setattr(measure, "time", clock)
        measure.Timer().time([partial(clock.launch, us) for us in predicted], runs=runs)
    counted = cost_of(predicted, runs).launches
    assert counted == pytest.approx(len(predicted) + clock.launches, abs=len(predicted))


BEST = Choice(
    "softmax",
    (("BLOCK_SIZE", 1024), ("num_warps", 4), ("num_stages", 2)),
    num_programs=2112,
    predicted_us=9.81,
    bound="bandwidth",
    predicted_low_us=8.83,
    predicted_high_us=11.8,
)
DEFAULT = Choice(
    "softmax",
    (("BLOCK_SIZE", 1024), ("num_warps", 8), ("num_stages", 4)),
    num_programs=1056,
    predicted_us=10.2,
    bound="issue",
)


SHEET = "the data sheet and launches of public kernels on an NVIDIA H100"
BASES = {"h200": SHEET, "mi300x": f"what the source does, {NOT_FOLLOWED}, {SHEET}"}


def tuning(
    gpu: str,
    *,
    us: tuple[float | None, float | None] | None = None,
    recorded_us: tuple[float, float] | None = None,
) -> Tuning:
    """Return a tuning of two configurations, measured and recorded if their times are given."""
    rows = [
        {
            "kernel": one.kernel,
            **dict(one.settings),
            "num_programs": one.num_programs,
            "predicted_us": one.predicted_us,
            "predicted_low_us": 0.9 * one.predicted_us,
            "predicted_high_us": 1.2 * one.predicted_us,
            "bound": one.bound,
            "basis": BASES[gpu],
            "gpu": gpu,
            "status": "ok",
            "reason": None,
            "triton_version": "3.7.1",
            "ranked": True,
        }
        for one in (BEST, DEFAULT)
    ]
    table = pd.DataFrame(rows)
    best = BEST
    if us is not None:
        table["us"] = pd.array(us, dtype="Float64")
        best = dataclasses.replace(BEST, us=us[0])
    recorded = None
    if recorded_us is not None:
        table["recorded_us"] = recorded_us
        measurement = Measurement("measured", CONDITIONS, us=recorded_us[0])
        recorded = RecordedLaunch(
            *(BEST.kernel, BEST.config, BEST.num_programs),
            as_compiled=True,
            measurement=measurement,
        )
    return Tuning(
        gpu=find_gpu(gpu),
        launched="4096 x 781 float32",
        problem=Problem(4096, 781),
        best=best,
        best_predicted=best,
        best_recorded=recorded,
        faster={},
        compared=dict.fromkeys(("default of softmax", "tutorial"), DEFAULT),
        exhaustive=cost_of([BEST.predicted_us, DEFAULT.predicted_us], 30),
        spent=cost_of([] if us is None else [BEST.predicted_us, DEFAULT.predicted_us], 30),
        table=table,
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("predicted.md", tuning("mi300x")),
        ("measured.md", tuning("h200", us=(9.72, None), recorded_us=(10.1, 11.2))),
    ],
)
def test_words_of_a_tuning(
    check_golden: Callable[[str, str], None], name: str, found: Tuning
) -> None:
    """Golden files have the choice, its reasons, the next ones and the cost."""
    check_golden(name, found.to_document(5).to_markdown())


@pytest.mark.parametrize(
    ("gpu", "bound", "error"),
    [("h200", "bandwidth", 0.05), ("h200", "l2", 0.1), ("mi300x", "bandwidth", 0.2)],
)
def test_what_is_close_to_the_best_is_counted(gpu: str, bound: str, error: float) -> None:
    """The page says how many configurations are too close to decide."""
    found = tuning(gpu)
    best = dataclasses.replace(BEST, bound=bound)
    for share, is_close in ((error - 0.01, True), (error + 0.01, False)):
        us = [best.predicted_us, best.predicted_us * (1 + share)]
        other = dataclasses.replace(
            found, best_predicted=best, table=found.table.assign(predicted_us=us)
        )
        said = f"1 other is within {error:.0%} of that: which is the fastest, only a measurement"
        assert other.error == error
        assert (said in other.to_markdown()) is is_close


def test_what_was_measured_is_not_called_close() -> None:
    """Measured configurations are not called undecided."""
    close = "1 other, without a measured time, is within 5% of that:"
    assert close in tuning("h200", us=(9.72, None)).to_markdown()
    assert "only a measurement" not in tuning("h200", us=(9.72, 9.9)).to_markdown()


def test_one_configuration_is_not_all_of_them() -> None:
    """The cost speaks of "the only configuration" if there is one."""
    found = tuning("h200")
    one = dataclasses.replace(
        found, exhaustive=dataclasses.replace(found.exhaustive, configurations=1)
    )
    assert "Measuring the only configuration takes about" in one.to_markdown()
