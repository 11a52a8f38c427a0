"""Compiling processes: timed out, killed, interrupted; here and on a Dask cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from occupancy_lab.compiling import Store, compile_resources
from occupancy_lab.compiling.process import CompileProcess
from occupancy_lab.compiling.request import Request
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import load_kernel
from occupancy_lab.sweeping.pool import compile_here, compile_on_cluster
from occupancy_lab.values import Config, Failure, Problem, Resources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOW_KERNEL = """
import time
from occupancy_lab.kernels import softmax_row

time.sleep({seconds})
KERNEL = softmax_row.KERNEL
"""


def request(num_warps: int = 4, kernel: str = "softmax") -> Request:
    """Return a small compile."""
    target = find_gpu("sm_90").target
    return Request(kernel, Problem(64, 100), Config(128, num_warps, 1), target, None)


def slow_request(directory: Path, seconds: float) -> Request:
    """Return a compile that takes *seconds* before it starts."""
    file = directory / "slow.py"
    file.write_text(SLOW_KERNEL.format(seconds=seconds))
    return request(kernel=str(file))


@pytest.fixture
def process() -> Iterator[CompileProcess]:
    """Return a compiling process that is gone after the test."""
    process = CompileProcess()
    yield process
    process.close()


def expected(of: Request) -> Resources:
    """Return what compiling in this process gives."""
    return compile_resources(load_kernel("softmax"), of.problem, of.config, of.target, Store(None))


def test_request_survives_its_line() -> None:
    """A request read back from its line is the same request."""
    assert Request.from_json(request().to_json()) == request()
    assert "\n" not in request().to_json()


def test_process_gives_what_this_process_gives(process: CompileProcess) -> None:
    """A compile elsewhere gives the same resources, one after the other in the same process."""
    for num_warps in (1, 2, 4):
        assert process.compile(request(num_warps), None) == expected(request(num_warps))


def test_failure_is_an_outcome(process: CompileProcess) -> None:
    """What cannot be compiled comes back as a failure with its reason, and the process goes on."""
    failure = process.compile(request(kernel="nonsense"), None)
    assert isinstance(failure, Failure)
    assert failure.status == "compile failed"
    assert "nonsense" in failure.reason
    assert isinstance(process.compile(request(), None), Resources)


def test_timeout_kills_and_the_next_compile_works(process: CompileProcess, tmp_path: Path) -> None:
    """A compile that takes too long is ended at its limit; the next has a fresh process."""
    process.compile(request(), None)
    start = time.monotonic()
    failure = process.compile(slow_request(tmp_path, 60), 1)
    assert failure == Failure("timed out", "longer than 1 s", 1)
    assert time.monotonic() - start < 30
    assert process.compile(request(), 60) == expected(request())


def test_killed_process_is_replaced(process: CompileProcess, tmp_path: Path) -> None:
    """A compile whose process is killed from outside is done again."""
    process.compile(request(), None)
    victim = process._child._process
    assert victim is not None
    threading.Timer(0.5, os.kill, (victim.pid, signal.SIGKILL)).start()
    slow = slow_request(tmp_path, 2)
    assert isinstance(process.compile(slow, 60), Resources)


def test_process_that_always_dies_is_given_up(process: CompileProcess, tmp_path: Path) -> None:
    """A compile that ends its process each time is a failure, but not one to remember."""
    file = tmp_path / "deadly.py"
    file.write_text("import os\nos.abort()\n")
    reason = "the compiling process died 3 times: Aborted"
    failure = process.compile(request(kernel=str(file)), 60)
    assert failure == Failure("compile failed", reason, lasting=False)


def test_compile_here_gives_every_outcome() -> None:
    """Each name comes back once with its own outcome, however many processes there are."""
    requests = {str(warps): request(warps) for warps in (1, 2, 4, 8)}
    outcomes = dict(compile_here(requests, jobs=2, timeout=60))
    assert outcomes == {name: expected(one) for name, one in requests.items()}


def test_nothing_to_compile_starts_nothing() -> None:
    """Without requests there is no process and no outcome."""
    assert list(compile_here({}, jobs=4, timeout=1)) == []


def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    """A caller that stops in the middle leaves no compiling process behind."""
    requests = {"fast": request(), "slow": slow_request(tmp_path, 600)}
    outcomes = compile_here(requests, jobs=2, timeout=None)
    next(outcomes)
    start = time.monotonic()
    outcomes.close()  # type: ignore[attr-defined] # it is a generator
    assert time.monotonic() - start < 30
    assert children() == []


def children() -> list[int]:
    """Return the compiling processes whose parent is this one."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat") as file:  # noqa: PTH123 - it may be gone
                parent = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{entry.name}/cmdline") as file:  # noqa: PTH123 - the same
                command = file.read()
        except OSError:
            continue
        if parent == os.getpid() and "occupancy_lab.compiling.server" in command:
            found.append(int(entry.name))
    return found


def test_cluster_survives_a_killed_worker(tmp_path: Path) -> None:
    """A real scheduler and two workers, one killed in the middle, give every outcome."""
    distributed = pytest.importorskip("distributed")
    slow = slow_request(tmp_path, 1)
    requests = {str(warps): request(warps) for warps in (1, 2, 4, 8)} | {"slow": slow}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        pids = [worker.pid for worker in cluster.workers.values()]
        threading.Timer(1.0, os.kill, (pids[0], signal.SIGKILL)).start()
        outcomes = dict(compile_on_cluster(requests, cluster.scheduler_address, 120))
    assert outcomes.keys() == requests.keys()
    assert all(isinstance(outcome, Resources) for outcome in outcomes.values())
    assert outcomes["4"] == expected(request(4))


def test_absent_scheduler_is_said() -> None:
    """An address where no scheduler answers is one clear sentence."""
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match=r"tcp://127\.0\.0\.1:9"):
        list(compile_on_cluster({"one": request()}, "tcp://127.0.0.1:9", 1))
