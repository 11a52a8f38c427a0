"""Measuring processes: one launch that ends its process costs no other launch its time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from occupancy_lab.measuring import process as process_module
from occupancy_lab.measuring.process import MeasuringProcess, measure_launches
from occupancy_lab.measuring.request import Launch, Request
from occupancy_lab.values import Config, Problem
from occupancy_lab.workers.child import Child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

SERVER = """
import os
import time

from occupancy_lab.workers.child import serve
from occupancy_lab.measuring.request import Request, measurements_to_json
from occupancy_lab.values import Measurement


def measured(problem, launch):
    if launch.kernel == "deadly":
        os._exit(1)
    if launch.kernel == "babbling":
        return "no measurement"
    if launch.kernel == "endless":
        time.sleep(600)
    if launch.kernel == "lost":
        return Measurement("device lost", None, "illegal memory access")
    where = f"{os.getpid()} on {os.environ.get('CUDA_VISIBLE_DEVICES')}"
    return Measurement("measured", None, where, us=float(problem.rows + launch.num_programs))


def answer(line):
    request = Request.from_json(line)
    found = [measured(request.problem, one) for one in request.launches]
    return "[" if "no measurement" in found else measurements_to_json(found)


def main():
    serve(answer)
"""
PROBLEM = Problem(100, 781)
CONFIG = Config(1024, 4, 1)
WILD_KERNEL = """
import dataclasses

import triton
import triton.language as tl

from occupancy_lab.kernels import softmax_row


@triton.jit
def wild_kernel(output_ptr, BLOCK_SIZE: tl.constexpr):
    tl.store(output_ptr + (1 << 44) + tl.arange(0, BLOCK_SIZE), 0.0)


def run(x, config, num_programs):
    wild_kernel[(1,)](x, BLOCK_SIZE=config.block_size, num_warps=config.num_warps)
    return x


KERNEL = dataclasses.replace(softmax_row.KERNEL, run=run)
"""
"""Writes where the GPU has no memory."""


@pytest.fixture(autouse=True)
def stand_in(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have processes run a server that times nothing, unless the test needs a GPU."""
    if request.node.get_closest_marker("gpu") is not None:
        return
    (tmp_path / "stand_in.py").write_text(SERVER)

    def child(server: str, *, environment: dict[str, str]) -> Child:
        assert server == "occupancy_lab.measuring.server"
        return Child("stand_in", environment=environment | {"PYTHONPATH": str(tmp_path)})

    monkeypatch.setattr(process_module, "Child", child)


@pytest.fixture
def process() -> Iterator[MeasuringProcess]:
    """A measuring process that is gone after the test."""
    process = MeasuringProcess(timeout=60)
    yield process
    process.close()


def request_of(*kernels: str) -> Request:
    """Return a request of *kernels*, each launched with as many programs as its place says."""
    launches = tuple(Launch(kernel, CONFIG, place) for place, kernel in enumerate(kernels))
    return Request(PROBLEM, launches)


def test_measurements_are_in_order(process: MeasuringProcess) -> None:
    """Each launch has its measurement, all from one process, which the next request has too."""
    first = process.measure(request_of("a", "b", "c"))
    assert [one.us for one in first] == [100, 101, 102]
    assert len({one.reason for one in [*first, *process.measure(request_of("d"))]}) == 1


def test_deadly_launch_is_lost_alone(process: MeasuringProcess) -> None:
    """Where one launch ends the process, the others are measured, and it is lost."""
    found = process.measure(request_of("a", "deadly", "c"))
    assert [one.status for one in found] == ["measured", "device lost", "measured"]
    assert [one.us for one in found] == [100, None, 102]
    assert found[1].reason == "the process died: exit status 1"
    assert found[0].reason != found[2].reason


def test_endless_launch_is_lost_at_its_limit() -> None:
    """A launch without an end is lost after as long as a request may take."""
    process = MeasuringProcess(timeout=3)
    (measured, lost) = process.measure(request_of("a", "endless"))
    process.close()
    assert measured.status == "measured"
    assert lost.status == "device lost"
    assert lost.reason == "no end in 3 s"


def test_process_whose_gpu_is_lost_is_replaced(process: MeasuringProcess) -> None:
    """After an answer that the GPU is lost the next request has a fresh process."""
    (before,) = process.measure(request_of("a"))
    (lost,) = process.measure(request_of("lost"))
    (after,) = process.measure(request_of("a"))
    assert lost.reason == "illegal memory access"
    assert after.status == "measured"
    assert after.reason != before.reason


def test_an_answer_that_is_none_is_told(process: MeasuringProcess) -> None:
    """Where a process answers what is no measurement, each launch says so, and it is replaced."""
    found = process.measure(request_of("a", "babbling"))
    assert [one.status for one in found] == ["launch failed"] * 2
    assert found[0].reason == "the measuring process answers what is no answer: '['"
    assert process.measure(request_of("a"))[0].status == "measured"


def test_closed_process_measures_no_more(process: MeasuringProcess) -> None:
    """Closed from another thread, each launch of the request is interrupted, and soon."""
    start = time.monotonic()
    threading.Timer(0.5, process.close).start()
    found = process.measure(request_of("a", "endless"))
    assert {one.reason for one in found} == {"interrupted"}
    assert {one.status for one in found} == {"launch failed"}
    assert time.monotonic() - start < 30


def test_launches_come_back_in_their_order() -> None:
    """Launches on several problems are measured problem by problem, and come in their order."""
    launches = [(Problem(rows, 8), Launch("a", CONFIG, rows)) for rows in (5, 3, 5, 4, 3)]
    counts: list[tuple[int, int]] = []
    found = measure_launches(launches, progress=lambda done, of: counts.append((done, of)))
    assert [one.us for one in found] == [10, 6, 10, 8, 6]
    assert counts == [(0, 5), (2, 5), (4, 5), (5, 5)]


def test_each_device_has_a_process() -> None:
    """Problems are spread over the devices, each with a process that sees its device alone."""
    launches = [(Problem(rows, 8), Launch("a", CONFIG)) for rows in (1, 2, 3, 4)]
    found = measure_launches(launches, devices=("0", "3"))
    where = {str(one.reason) for one in found}
    assert {one.rpartition(" ")[2] for one in where} == {"0", "3"}
    assert len(where) == 2


def test_nothing_to_measure_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without launches there is no process."""

    def start(*_: Any) -> None:
        pytest.fail("a process was started")

    monkeypatch.setattr(Child, "_start", start)
    assert measure_launches([]) == []


@pytest.mark.gpu
def test_wild_write_is_lost_alone(tmp_path: Path, process: MeasuringProcess) -> None:
    """A kernel that writes where no memory is loses its own time, and no other launch's."""
    file = tmp_path / "wild.py"
    file.write_text(WILD_KERNEL)
    launches = tuple(Launch(kernel, CONFIG, 100) for kernel in ("softmax", str(file), "softmax"))
    found = process.measure(Request(PROBLEM, launches, 6))
    assert [one.status for one in found] == ["measured", "device lost", "measured"]
    assert "illegal" in str(found[1].reason)
