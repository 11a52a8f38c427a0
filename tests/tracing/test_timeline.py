"""The timeline of a trace: launches in their order, one after another, each as long as it takes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from in_process import run as run_here
from run_trace import run
from traced_kernels import traced_kernel, worked

from occupancy_lab.tracing.timeline import timeline
from occupancy_lab.tracing.trace import Trace
from occupancy_lab.tracing.traced import GridLaunches, Launched, Traced

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = Path(__file__).with_name("traced_program.py")
STEP = Path(__file__).parents[2] / "examples" / "step.py"
SLOW = GridLaunches((8,), 3, samples=3, us=150.0, work=worked())
FAST = GridLaunches((4,), 2, samples=2, us=100.0, work=worked())
UNTIMED = GridLaunches((2,), 1, work=worked())
KERNEL = traced_kernel("swiglu", (SLOW, FAST, UNTIMED))


def launched(*launches: GridLaunches, pid: int = 1) -> list[Launched]:
    """Return launches of the kernel in that order."""
    return [Launched(KERNEL, one, pid) for one in launches]


def drawn(found: dict[str, Any]) -> list[tuple[float, float]]:
    """Return when each launch begins and ends."""
    return [(one["ts"], one["ts"] + one["dur"]) for one in found["traceEvents"] if one["ph"] == "X"]


def check_one_after_another(spans: Sequence[tuple[float, float]]) -> None:
    """Each launch begins where the one before ends."""
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert start == pytest.approx(end)


def test_launches_are_in_their_order_and_last_as_long_as_measured() -> None:
    """Each process has its own line, which begins at 0."""
    recent = [*launched(SLOW, FAST, SLOW), *launched(FAST, pid=2)]
    found = timeline(Trace(Traced((KERNEL,), (), tuple(recent))))
    assert drawn(found) == [(0, 150), (150, 250), (250, 400), (0, 100)]
    assert [one["pid"] for one in found["traceEvents"] if one["ph"] == "X"] == [1, 1, 1, 2]
    assert {one["cat"] for one in found["traceEvents"] if one["ph"] == "X"} == {"measured"}
    assert found["otherData"]["order"] == "as launched"


def test_a_launch_that_was_not_timed_is_a_mark_beside_measured_ones() -> None:
    """It has no predicted time there; where nothing was measured all have predicted times."""
    found = timeline(Trace(Traced((KERNEL,), (), tuple(launched(SLOW, UNTIMED, FAST)))))
    assert drawn(found) == [(0, 150), (150, 250)]
    (mark,) = [one for one in found["traceEvents"] if one["ph"] == "i"]
    assert (mark["ts"], mark["name"]) == (150, "swiglu: no time is known")
    found = timeline(Trace(Traced((KERNEL,), (), tuple(launched(UNTIMED, UNTIMED)))))
    prediction = worked().prediction
    assert prediction is not None
    us = prediction.us
    assert drawn(found) == [(0, pytest.approx(us)), (pytest.approx(us), pytest.approx(2 * us))]
    assert found["otherData"]["times"].startswith("predicted")


def test_where_nobody_noted_the_order_it_says_so() -> None:
    """Of a process that was killed there are its launches, kernel after kernel."""
    timed = dataclasses.replace(KERNEL, grids=(SLOW, FAST))
    found = timeline(Trace(Traced((timed,), ())))
    assert [end - start for start, end in drawn(found)] == [150, 150, 150, 100, 100]
    assert found["otherData"]["order"] == "not known: kernel after kernel"


@pytest.mark.slow
def test_a_program_that_launches_has_a_timeline(tmp_path: Path) -> None:
    """All its launches are there in their order, over their grids."""
    path = tmp_path / "step.json"
    done = run([sys.executable, str(PROGRAM), "some"], ["--timeline", str(path)])
    assert done.returncode == 0
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    grids = [one["args"]["grid"] for one in events if one["ph"] == "X"]
    assert grids == ["528"] * 5 + ["4"] * 2 + ["1"]


@pytest.mark.slow
def test_a_dry_run_has_a_timeline(tmp_path: Path) -> None:
    """Its steps follow each other, an autotuned kernel in the configuration predicted fastest."""
    path = tmp_path / "step.json"
    words = ("trace", "--dry-run", "--gpu", "h100", "--timeline", str(path))
    done = run_here(*words, "--", sys.executable, str(STEP), "2")
    assert done.returncode == 0
    found = json.loads(path.read_text("utf-8"))
    launches = [one for one in found["traceEvents"] if one["ph"] == "X"]
    assert [one["name"] for one in launches] == ["layer_norm", "matmul"] * 2
    assert launches[1]["dur"] == pytest.approx(54.5, abs=0.05)
    check_one_after_another(drawn(found))
