"""Measuring processes: a launch that ends its process does not affect others."""

import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from stand_ins import put_here

from occupancy_lab.errors import InputError
from occupancy_lab.measuring import process as process_module
from occupancy_lab.measuring.journal import measure_launches
from occupancy_lab.measuring.process import Batch, MeasuringProcess, TimedLaunch, chosen_devices
from occupancy_lab.values import Config, Measurement, Problem
from occupancy_lab.workers.child import Child
from occupancy_lab.workers.signals import UnfinishedError


@pytest.mark.parametrize(
    ("here", "visible", "asked", "key", "names"),
    [
        pytest.param("h200 h100", None, None, "h200", (None,), id="the first, as it is seen"),
        pytest.param("h200 h100 h200", None, "all", "h200", ("0", "2"), id="all that are alike"),
        pytest.param(
            "h200 h200", "5, GPU-0123", "1,0", "h200", ("GPU-0123", "5"), id="places in the list"
        ),
        pytest.param("mi300x mi300x", "7", [1], "mi300x", ("1",), id="AMD's own numbers"),
    ],
)
def test_devices_are_named_as_a_process_sees_them(  # noqa: PLR0913, PLR0917 - and what is expected
    monkeypatch: pytest.MonkeyPatch,
    here: str,
    visible: str | None,
    asked: str | list[int] | None,
    key: str,
    names: tuple[str | None, ...],
) -> None:
    """Devices are of one kind, named as in CUDA_VISIBLE_DEVICES."""
    put_here(monkeypatch, *here.split())
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpu, found = chosen_devices("measure", asked)
    assert (gpu.key, found) == (key, names)


@pytest.mark.parametrize(
    ("here", "asked", "word"),
    [
        ((), None, "measure needs a GPU of this machine; none was found"),
        (("h200", "h100"), "0,1", "differ: measure takes GPUs of one kind"),
        (("h200", "h200"), "2", "no GPU 2 here; there is 0, 1"),
        (("h200",), "first", "names no GPUs"),
        (("h200",), "", "names no GPUs"),
        (("h200",), "0,,1", "names no GPUs"),
    ],
)
def test_what_cannot_be_had_is_said(
    monkeypatch: pytest.MonkeyPatch, here: tuple[str, ...], asked: str | None, word: str
) -> None:
    """A missing GPU, different GPUs and nonsense are errors that say so."""
    put_here(monkeypatch, *here)
    with pytest.raises(InputError, match=word):
        chosen_devices("measure", asked)


def test_torch_without_the_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that torch cannot use is an error with torch's version."""
    put_here(monkeypatch, "h200")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=re.escape(torch.__version__)):
        chosen_devices("measure")


SERVER = """
import os
import time

from occupancy_lab.workers.child import serve
from occupancy_lab.workers.messages import from_line, to_line
from occupancy_lab.measuring.process import Batch
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
    request = from_line(Batch, line)
    found = [measured(request.problem, one) for one in request.launches]
    return "[" if "no measurement" in found else to_line(found)


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
"""A kernel that writes where the GPU has no memory."""


@pytest.fixture(autouse=True)
def stand_in(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make processes run a server that times nothing, unless the test needs a GPU."""
    if request.node.get_closest_marker("gpu") is not None:
        return
    (tmp_path / "stand_in.py").write_text(SERVER)

    def child(server: str, *, environment: dict[str, str]) -> Child:
        assert server == "occupancy_lab.measuring.measure"
        return Child("stand_in", environment=environment | {"PYTHONPATH": str(tmp_path)})

    monkeypatch.setattr(process_module, "Child", child)


@pytest.fixture
def process() -> Iterator[MeasuringProcess]:
    """Return a measuring process that ends with the test."""
    process = MeasuringProcess(timeout=60)
    yield process
    process.close()


def request_of(*kernels: str) -> Batch:
    """Return a request of *kernels*, each launched with its index as num_programs."""
    launches = tuple(TimedLaunch(kernel, CONFIG, place) for place, kernel in enumerate(kernels))
    return Batch(PROBLEM, launches)


def test_measurements_are_in_order(process: MeasuringProcess) -> None:
    """Each launch has its measurement, and the process serves the next request."""
    first = process.measure(request_of("a", "b", "c"))
    assert [one.us for one in first] == [100, 101, 102]
    assert len({one.reason for one in [*first, *process.measure(request_of("d"))]}) == 1


def test_deadly_launch_is_lost_alone(process: MeasuringProcess) -> None:
    """If one launch ends the process, only that one is lost."""
    found = process.measure(request_of("a", "deadly", "c"))
    assert [one.status for one in found] == ["measured", "device lost", "measured"]
    assert [one.us for one in found] == [100, None, 102]
    assert found[1].reason == "the process died: exit status 1"
    assert found[0].reason != found[2].reason


def test_endless_launch_is_lost_at_its_limit() -> None:
    """An endless launch is lost at the request's time limit."""
    process = MeasuringProcess(timeout=3)
    (measured, lost) = process.measure(request_of("a", "endless"))
    process.close()
    assert measured.status == "measured"
    assert lost.status == "device lost"
    assert lost.reason == "no answer within 3 s"


def test_process_whose_gpu_is_lost_is_replaced(process: MeasuringProcess) -> None:
    """After a lost GPU the next request has a new process."""
    (before,) = process.measure(request_of("a"))
    (lost,) = process.measure(request_of("lost"))
    (after,) = process.measure(request_of("a"))
    assert lost.reason == "illegal memory access"
    assert after.status == "measured"
    assert after.reason != before.reason


def test_an_answer_that_is_none_is_told(process: MeasuringProcess) -> None:
    """An invalid answer is each launch's reason, and the process is replaced."""
    found = process.measure(request_of("a", "babbling"))
    assert [one.status for one in found] == ["launch failed"] * 2
    assert found[0].reason == "the measuring process sent an invalid answer: '['"
    assert process.measure(request_of("a"))[0].status == "measured"


def test_closed_process_measures_no_more(process: MeasuringProcess) -> None:
    """Closing from another thread interrupts each launch of the request quickly."""
    start = time.monotonic()
    threading.Timer(0.5, process.close).start()
    found = process.measure(request_of("a", "endless"))
    assert {one.reason for one in found} == {"interrupted"}
    assert {one.status for one in found} == {"launch failed"}
    assert time.monotonic() - start < 30


def test_launches_come_back_in_their_order() -> None:
    """Launches are measured by problem, and returned in order."""
    launches = [(Problem(rows, 8), TimedLaunch("a", CONFIG, rows)) for rows in (5, 3, 5, 4, 3)]
    counts: list[tuple[int, int]] = []
    found = measure_launches(launches, progress=lambda done, of: counts.append((done, of)))
    assert [one.us for one in found] == [10, 6, 10, 8, 6]
    assert counts == [(0, 5), (2, 5), (4, 5), (5, 5)]


def test_each_device_has_a_process() -> None:
    """Problems are spread over the devices, each with its own process."""
    launches = [(Problem(rows, 8), TimedLaunch("a", CONFIG)) for rows in (1, 2, 3, 4)]
    found = measure_launches(launches, devices=("0", "3"))
    where = {str(one.reason) for one in found}
    assert {one.rpartition(" ")[2] for one in where} == {"0", "3"}
    assert len(where) == 2


FIRST, SECOND = Problem(8, 100), Problem(8, 200)
DONE = Measurement("measured", None, us=3.0)


def test_what_is_finished_comes_with_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C raises an error with the finished measurements."""

    def interrupted(
        requests: Mapping[Problem, Batch], *_others: object
    ) -> Iterator[tuple[Problem, list[Measurement]]]:
        assert list(requests) == [FIRST, SECOND]
        yield FIRST, [DONE, DONE]
        raise KeyboardInterrupt

    monkeypatch.setattr("occupancy_lab.measuring.journal.distribute", interrupted)
    told: list[tuple[int, int]] = []
    launches = [(problem, TimedLaunch("copy")) for problem in (FIRST, SECOND, FIRST)]
    with pytest.raises(KeyboardInterrupt) as caught:
        measure_launches(launches, progress=lambda done, of: told.append((done, of)))
    assert isinstance(caught.value, UnfinishedError)
    assert caught.value.finished == {0: DONE, 2: DONE}
    assert told == [(0, 3), (2, 3)]


@pytest.mark.gpu
def test_wild_write_is_lost_alone(tmp_path: Path, process: MeasuringProcess) -> None:
    """A kernel that writes to invalid memory loses only its own time."""
    file = tmp_path / "wild.py"
    file.write_text(WILD_KERNEL)
    launches = tuple(
        TimedLaunch(kernel, CONFIG, 100) for kernel in ("softmax", str(file), "softmax")
    )
    found = process.measure(Batch(PROBLEM, launches, 6))
    assert [one.status for one in found] == ["measured", "device lost", "measured"]
    assert "illegal" in str(found[1].reason)
