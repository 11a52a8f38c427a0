"""A kernel's launches, summed over processes and grids, measured or predicted."""

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced_kernels import BYTES, traced_kernel, worked

from occupancy_lab.explaining.advice import Action
from occupancy_lab.record import Record
from occupancy_lab.tracing.traced import (
    MOST_COUNTED,
    GridLaunches,
    TracedKernel,
    counted_grids,
    merged,
    order,
)


@given(
    st.lists(
        st.builds(
            GridLaunches,
            grid=st.sampled_from([(1,), (2, 3), None]),
            launches=st.integers(0, 100),
            tuning=st.integers(0, 100),
            samples=st.integers(1, 9),
            us=st.floats(0, 1e6),
        )
    )
)
def test_grids_of_processes_are_summed(found: list[GridLaunches]) -> None:
    """Nothing is lost, each grid is there once, and its mean lies between those of its parts.

    The time of all launches is the sum over the processes that launched any.
    """
    together = merged(found)
    launched = [one for one in found if one.launches >= one.samples]
    assert sum(one.total_us or 0.0 for one in merged(launched)) == pytest.approx(
        sum(one.total_us or 0.0 for one in launched)
    )
    assert len({one.grid for one in together}) == len(together)
    for name in ("launches", "tuning", "samples"):
        assert sum(getattr(one, name) for one in together) == sum(
            getattr(one, name) for one in found
        )
    for one in together:
        parts = [other.us or 0.0 for other in found if other.grid == one.grid]
        assert min(parts) * 0.999999 <= one.us <= max(parts) * 1.000001


def test_what_is_lost_is_the_time_above_the_bytes_at_the_data_sheets_rate() -> None:
    """Lost time is above each byte moved once at 3352.3 GB/s."""
    work = worked()
    least = BYTES / 3352.3e3
    assert work.speed_of_light.us == pytest.approx(least)
    grids = (
        GridLaunches((8,), 30, samples=5, us=150.0, record=work),
        GridLaunches((4,), 10, samples=5, us=140.0, record=work),
    )
    row = traced_kernel("swiglu", grids).row()
    assert row["lost_us"] == pytest.approx(30 * (150 - least) + 10 * (140 - least))
    assert row["lost_of"] == "measured"


def test_a_measured_time_and_a_predicted_one_are_in_no_sum() -> None:
    """If a grid was timed others have no time, else all are predicted."""
    work = worked()
    timed = GridLaunches((8,), 30, samples=5, us=50.0, record=work)
    other = GridLaunches((4,), 10, record=work)
    time = traced_kernel("swiglu", (timed, other)).time
    assert (time.basis, time.launches, time.us) == ("measured", 30, 1500)
    time = traced_kernel("swiglu", (other, dataclasses.replace(timed, us=None))).time
    assert (time.basis, time.launches) == ("predicted", 40)
    assert time.us == pytest.approx(40 * work.prediction.us)
    assert time.low_us < time.us < time.high_us


def test_a_launch_that_is_faster_than_its_bytes_loses_nothing() -> None:
    """A launch faster than its bytes does not reduce others' lost time."""
    fast = GridLaunches((8,), 30, samples=5, us=1e-3, record=worked())
    slow = dataclasses.replace(fast, grid=(4,), us=1000.0)
    alone, both = (traced_kernel("swiglu", grids).time for grids in ((slow,), (fast, slow)))
    assert both.lost_us == alone.lost_us


def of_time(us: float) -> Record:
    """Return a launch with that predicted time."""
    work = worked()
    assert work.prediction is not None
    found = dataclasses.replace(work.prediction, us=us, low_us=us, high_us=us)
    return dataclasses.replace(work, prediction=found)


def test_a_kernel_is_described_by_the_grid_that_takes_most_time() -> None:
    """The action's saving is that of the described grid's launches."""
    often = GridLaunches((8,), 11, record=of_time(1.0))
    long = GridLaunches((1 << 16,), 10, record=of_time(50.0))
    kernel = dataclasses.replace(
        traced_kernel("scale", (often, long)), action=Action("x", "x.", 50.0, 40.0, "40 us")
    )
    assert kernel.longest == long
    assert kernel.prediction == of_time(50.0).prediction
    row = kernel.row()
    assert (row["grid"], row["num_programs"], row["predicted_us"]) == ("65536", 1 << 16, 50.0)
    assert row["saved_us"] == pytest.approx(0.2 * 10 * 50.0)
    measured = tuple(
        dataclasses.replace(one, samples=5, us=us) for one, us in ((often, 9.0), (long, 2.0))
    )
    assert dataclasses.replace(kernel, grids=measured).main_grid == (8,)
    untold = tuple(dataclasses.replace(one, record=None) for one in (often, long))
    assert dataclasses.replace(kernel, grids=untold).main_grid == (8,)


def test_the_grids_that_are_counted_take_most_time() -> None:
    """Without times, the grids with most programs are counted."""
    small = [GridLaunches((one,), 100) for one in range(1, MOST_COUNTED + 1)]
    long = GridLaunches((1 << 16,), 1)
    assert counted_grids([*small, long]) == [long, *reversed(small[1:])]
    timed = [dataclasses.replace(one, samples=1, us=9.0) for one in small]
    short = dataclasses.replace(long, samples=1, us=1.0)
    assert counted_grids([*timed, short]) == [*reversed(timed)]


def test_a_time_of_another_gpu_has_no_speed_of_light() -> None:
    """A time measured on an H200 is not compared with an H100's rates."""
    grid = GridLaunches((8,), 30, samples=5, us=50.0, record=worked())
    time = dataclasses.replace(traced_kernel("swiglu", (grid,)), elsewhere=True).time
    assert (time.us, time.lost_us) == (1500, None)


def names(kernels: Sequence[TracedKernel]) -> list[str]:
    """Return the names of the kernels in `order`."""
    return [one.kernel for one in order(kernels)]


def test_the_kernel_that_loses_most_is_first() -> None:
    """Kernels are ordered by lost time, then time, then launches."""
    work = worked()
    us = work.speed_of_light.us or 0.0
    near = GridLaunches((8,), 1000, samples=5, us=1.2 * us, record=work)
    far = dataclasses.replace(near, launches=10, us=100 * us)
    assert near.total_us > far.total_us
    unknown = dataclasses.replace(near, us=1e6, record=None)
    kernels = [
        traced_kernel(name, (grid,))
        for name, grid in (
            ("rare", GridLaunches((8,), 1)),
            ("often", GridLaunches((8,), 9)),
            ("predicted", dataclasses.replace(near, us=None)),
            ("unknown", unknown),
            ("near", near),
            ("far", far),
        )
    ]
    assert names(kernels) == ["far", "near", "unknown", "predicted", "often", "rare"]
