"""Measurements on the GPU at hand: right results are timed, and all else is said."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy_lab.kernel import kernel_names
from occupancy_lab.measuring.measure import measure, summary
from occupancy_lab.measuring.providers import PROVIDERS
from occupancy_lab.measuring.request import Launch, Request
from occupancy_lab.values import Conditions, Config, Problem

if TYPE_CHECKING:
    from pathlib import Path

CONDITIONS = Conditions("a GPU", "2026-11-21", None, "2.11.0", "3.6.0", "device events", "flushed")
PROBLEM = Problem(1823, 781)
CONFIG = Config(1024, 4, 2)
CHANGED_KERNEL = """
import dataclasses

import torch

from occupancy_lab.kernels import softmax


def run(x, config, num_programs):
    y = softmax.softmax(x, config, num_programs)
    {change}
    return y


KERNEL = dataclasses.replace(softmax.KERNEL, run=run)
"""


def changed(directory: Path, change: str) -> Launch:
    """Return a softmax whose result is followed by *change*."""
    file = directory / f"changed_{abs(hash(change))}.py"
    file.write_text(CHANGED_KERNEL.format(change=change))
    return Launch(str(file), CONFIG, 100)


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=40), st.floats(1, 10))
def test_summary_is_of_all_times(times: list[float], empty_us: float) -> None:
    """The median lies between the tenths, which lie among the times; each time is a run."""
    found = summary(times, CONDITIONS, 1e-7, empty_us)
    assert found.status == "measured"
    assert found.us == statistics.median(times)
    assert found.runs == len(times)
    assert found.us_low is not None
    assert found.us_high is not None
    slack = 1e-9 * max(times)
    assert min(times) - slack <= found.us_low <= found.us + slack
    assert found.us - slack <= found.us_high <= max(times) + slack
    assert found.mostly_launch == (statistics.median(times) < 2 * empty_us)


def test_tenths_are_quantiles() -> None:
    """Of the times 0 to 10 us a tenth stays below 1 us, and a tenth passes 9 us."""
    found = summary([float(us) for us in range(11)], CONDITIONS, None, 1.0)
    assert (found.us_low, found.us, found.us_high) == (1.0, 5.0, 9.0)
    assert found.relative_error is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch.compile imports
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_kernel_and_provider_is_right(dtype: str) -> None:
    """Each kernel of the lab and each provider gives what torch gives, and is timed."""
    kernels = [Launch(name, CONFIG, 500) for name in kernel_names()]
    launches = (*kernels, *(Launch(name) for name in PROVIDERS))
    found = measure(Request(Problem(1823, 781, dtype), launches, 6))
    assert [one.status for one in found] == ["measured"] * len(launches)
    for one in found:
        assert one.us is not None
        assert 1 < one.us < 10_000
        assert one.conditions is not None


@pytest.mark.gpu
@pytest.mark.parametrize(
    "change", ["y *= 1.01", "y[-1, -1] = 0.5", "y[0, 0] = torch.nan", "y = torch.empty_like(x)"]
)
def test_wrong_result_is_said(tmp_path: Path, change: str) -> None:
    """A wrong or unwritten element gives no time but a reason, and its neighbour has its time."""
    wrong, right = measure(
        Request(PROBLEM, (changed(tmp_path, change), Launch("softmax", CONFIG, 100)), 6)
    )
    assert wrong.status == "wrong result"
    assert wrong.us is None
    assert "differs from torch" in str(wrong.reason)
    assert right.status == "measured"


@pytest.mark.gpu
def test_failing_launch_is_a_row(tmp_path: Path) -> None:
    """A launch that raises has what it raised as its reason, and its neighbour has its time."""
    bad = changed(tmp_path, "raise ValueError('no such thing')")
    failed, right = measure(Request(PROBLEM, (bad, Launch("softmax", CONFIG, 100)), 6))
    assert (failed.status, failed.reason) == ("launch failed", "ValueError: no such thing")
    assert right.status == "measured"


@pytest.mark.gpu
def test_memory_that_runs_out_is_a_row(tmp_path: Path) -> None:
    """A launch that asks for too much memory is a row, and so is a problem that no memory holds."""
    greedy = changed(tmp_path, "torch.empty(2**44, dtype=torch.int8, device=x.device)")
    failed, right = measure(Request(PROBLEM, (greedy, Launch("softmax", CONFIG, 100)), 6))
    assert failed.status == "out of memory"
    assert right.status == "measured"
    (too_large,) = measure(Request(Problem(2**30, 2**12), (Launch("copy"),), 6))
    assert too_large.status == "out of memory"
    assert too_large.conditions is not None


@pytest.mark.gpu
def test_what_does_not_fit_is_a_row() -> None:
    """Rows in flight that no GPU's shared memory holds are said not to fit."""
    found = measure(Request(Problem(64, 65536), (Launch("softmax", Config(65536, 32, 8), 64),), 6))
    assert found[0].status == "does not fit"
    assert "shared" in str(found[0].reason)


@pytest.mark.gpu
def test_tiny_matrices_are_mostly_launch() -> None:
    """7 x 257 takes little longer than an empty kernel, 65536 x 1024 much longer."""
    launch = (Launch("softmax_row", Config(512, 4, 1)),)
    (tiny,) = measure(Request(Problem(7, 257), launch, 6))
    (large,) = measure(Request(Problem(65536, 512), launch, 6))
    assert tiny.mostly_launch is True
    assert large.mostly_launch is False


@pytest.mark.gpu
def test_what_cannot_be_compared_is_timed() -> None:
    """A kernel that computes nothing has a time, and no error to be told."""
    from occupancy_lab.calibrating import kernels

    launch = Launch(f"{kernels.__file__}:empty", Config(16, 1, 1))
    (empty,) = measure(Request(Problem(16, 16), (launch,), 6))
    assert empty.status == "measured"
    assert empty.relative_error is None
    assert empty.mostly_launch is True
    assert not math.isnan(empty.us or math.nan)
