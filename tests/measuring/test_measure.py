"""Measurements: outputs are compared with torch, launches timed in turns, failures reported."""

import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import Waiting

from occupancy_lab.kernel import kernel_names
from occupancy_lab.measuring import measure as measure_module
from occupancy_lab.measuring.measure import (
    BURST,
    HOLD_CYCLES,
    PROVIDERS,
    Timer,
    difference,
    measure,
    poisoned,
    summary,
)
from occupancy_lab.measuring.process import Batch, TimedLaunch
from occupancy_lab.values import Conditions, Config, Problem


def matrix(rows: int, cols: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return normally distributed elements, always the same ones."""
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(rows)).to(dtype)


def double(x: torch.Tensor) -> torch.Tensor:
    """Return twice *x*."""
    return 2 * x


@given(st.integers(1, 40), st.integers(1, 40), st.floats(-0.5, 0.5))
def test_error_is_the_part_that_is_wrong(rows: int, cols: int, wrong: float) -> None:
    """A result that is too large by a share has that share as its error."""
    x = matrix(rows, cols).double()
    assert difference(2 * x * (1 + wrong), double, [x]).error == pytest.approx(
        abs(wrong), abs=1e-12
    )


def test_reference_has_float64() -> None:
    """The reference runs in float64, whatever the dtype."""
    seen = []

    def reference(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.dtype)
        return x.softmax(dim=1)

    x = matrix(9, 100, torch.bfloat16)
    found = difference(x.softmax(dim=1), reference, [x])
    assert seen == [torch.float64]
    assert 1e-5 < found.error < found.allowed


def test_reference_has_every_operand() -> None:
    """A reference of two matrices gets both."""
    x, y = matrix(3, 5), matrix(4, 5)[:3]
    assert difference(x + y, torch.add, [x, y]).error < 1e-6
    assert difference(x - y, torch.add, [x, y]).error > 0.1


def test_large_matrices_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared in parts, a matrix has the same error."""
    x = matrix(50, 8)
    output = double(x)
    output[-1] += 1
    whole = difference(output, double, [x])
    monkeypatch.setattr(measure_module, "ROWS_AT_ONCE_BYTES", 3 * 8 * 8)
    assert difference(output, double, [x]).error == pytest.approx(whole.error)
    assert whole.error > 0


@pytest.mark.parametrize(("row", "col"), [(0, 0), (6, 256)])
def test_unwritten_element_shows(row: int, col: int) -> None:
    """One unwritten element makes the error NaN, which no tolerance allows."""
    x = matrix(7, 257)
    with poisoned():
        output = torch.empty_like(x)
    assert output.isnan().all()
    written = torch.ones_like(x, dtype=torch.bool)
    written[row, col] = False
    output[written] = double(x)[written]
    assert math.isnan(difference(output, double, [x]).error)


@pytest.mark.parametrize("before", ["default", "warn", "error"])
def test_poison_ends(before: str) -> None:
    """After the poisoned run, torch's determinism settings are restored."""
    torch.set_deterministic_debug_mode(before)
    try:
        mode = torch.get_deterministic_debug_mode()
        with pytest.raises(ZeroDivisionError), poisoned():
            1 / 0  # noqa: B018 - it is there to raise
        assert torch.get_deterministic_debug_mode() == mode
    finally:
        torch.set_deterministic_debug_mode("default")


def test_poison_imports_no_compiler() -> None:
    """Poisoning does not import torch's compiler, which is slow."""
    code = "import sys; from occupancy_lab.measuring.measure import poisoned"
    code += "\nwith poisoned(): import torch; torch.empty(3)"
    code += "\nprint(*{'torch._dynamo', 'torch._inductor'} & {*sys.modules})"
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, check=True, capture_output=True, text=True).stdout == "\n"


def test_zeros_are_right_only_as_zeros() -> None:
    """If all should be 0, 0 has no error and anything else an infinite one."""
    zeros = torch.zeros(2, 3)
    assert difference(zeros, double, [zeros]).error == 0.0
    assert difference(zeros + 1e-9, double, [zeros]).error == math.inf


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("rows", "cols", "share"), [(50, 781, 0.5), (2, 300_000, 1.0)])
def test_tolerance_allows_rounding_alone(dtype: str, rows: int, cols: int, share: float) -> None:
    """The right result, rounded to its dtype, is within the tolerance, and one 2% off is not.

    That is so of rows so long that float16 has only its least numbers for them, too.
    """
    x = matrix(rows, cols).to(getattr(torch, dtype))
    right = x.double().softmax(dim=1)
    found, wrong = (
        difference((right * part).to(x.dtype), lambda x: x.softmax(dim=1), [x])
        for part in (1, 1.02)
    )
    assert found.error <= share * found.allowed
    assert wrong.error > wrong.allowed


class Clockwork(Timer):
    """A timer without a GPU: a burst takes the time that its launch names."""

    def __init__(self) -> None:
        self.order: list[object] = []
        self.kept: list[object] = []
        self._flush = self.kept.append  # type: ignore[assignment] # it notes what it is called with

    def _warm_up(self, launches: object) -> None:
        """Do nothing."""

    def _burst(self, launch: object, kept: object) -> list[float]:
        self.order.append(launch)
        self.kept.append(kept)
        return [float(launch())] * BURST  # type: ignore[operator] # the tests' launches give a number


@given(st.integers(1, 5), st.integers(1, 40))
def test_every_launch_is_timed_as_often(count: int, runs: int) -> None:
    """Each launch has at least as many times as asked for, and less than a burst more."""
    launches = [lambda place=place: place for place in range(count)]
    times = Clockwork().time(launches, runs=runs)
    assert [set(some) for some in times] == [{float(place)} for place in range(count)]
    assert {len(some) for some in times} == {-(-runs // BURST) * BURST}


def test_what_is_to_stay_is_flushed_before_every_launch_and_at_the_end() -> None:
    """Every burst gets the kept tensors, and the end flushes them."""
    timer = Clockwork()
    timer.time([lambda: 0, lambda: 1], ["x"], runs=1)
    assert timer.kept == [["x"]] * 3
    assert Clockwork().time([lambda: 0], runs=1) == [[0.0] * BURST]


@pytest.mark.gpu
def test_times_are_the_launches_own() -> None:
    """A copy of 64 times the data takes 20 to 80 times as long."""
    small, large = (torch.empty(mib * 2**20, dtype=torch.int8, device="cuda") for mib in (64, 4096))
    timer = Timer()
    (short, long) = timer.time([small.clone, large.clone], runs=12)
    assert len(short) == len(long) == 12
    assert 20 < statistics.median(long) / statistics.median(short) < 80


@pytest.mark.parametrize(
    ("needed", "waited", "us"),
    [(1, [1, 1], 1), (3, [1, 2, 4, 4], 1), (1000, [1, 2, 4, 8, 16, 16], 2)],
)
def test_launches_that_were_queued_late_are_launched_again(
    needed: int, waited: list[int], us: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU waits twice as long for the processor until nothing is late, within a limit."""
    waiting = Waiting(needed * HOLD_CYCLES)
    waiting.put(monkeypatch)
    monkeypatch.setattr(Timer, "_warm_up", lambda *_: None)
    assert Timer().time([lambda: None], runs=2 * BURST) == [[us] * 2 * BURST]
    assert waiting.waited == [cycles * HOLD_CYCLES for cycles in waited]


@pytest.mark.gpu
def test_a_slow_processor_does_not_lengthen_the_times() -> None:
    """A launch that Python queues in half a millisecond takes no longer than the same at once."""
    source = torch.empty(2**20, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)

    def slowly() -> None:
        end = time.perf_counter() + 5e-4
        while time.perf_counter() < end:
            pass
        target.copy_(source)

    (at_once, slow) = Timer().time([lambda: target.copy_(source), slowly], runs=12)
    assert statistics.median(slow) < 1.5 * statistics.median(at_once)


CONDITIONS = Conditions("a GPU", "2026-11-21", None, "2.11.0", "3.6.0", "device events", "flushed")
CONFIG = Config(1024, 4, 2)
CHANGED_KERNEL = """
import dataclasses

import torch

from occupancy_lab.kernels import softmax


def run(x, config, num_programs):
    y = x.softmax(dim=1)
    {change}
    return y


KERNEL = dataclasses.replace(softmax.KERNEL, run=run)
"""
EMPTY_KERNEL = """
import dataclasses

from occupancy_lab.calibrating.unit_kernels import empty_kernel
from occupancy_lab.kernels import softmax


def run(x, config, num_programs):
    empty_kernel[(1,)](x)
    return x


KERNEL = dataclasses.replace(softmax.KERNEL, run=run, reference=None)
"""


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=40), st.floats(1, 10))
def test_summary_is_of_all_times(times: list[float], empty_us: float) -> None:
    """The median lies between the deciles, which lie within the times."""
    found = summary(times, CONDITIONS, 1e-7, empty_us)
    assert found.status == "measured"
    assert found.us == statistics.median(times)
    assert found.runs == len(times)
    slack = 1e-9 * max(times)
    assert min(times) - slack <= found.us_low <= found.us + slack
    assert found.us - slack <= found.us_high <= max(times) + slack
    assert found.mostly_launch == (statistics.median(times) < 2 * empty_us)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat launches on the CPU as launches on a GPU."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(measure_module, "conditions", lambda: CONDITIONS)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("provider", ["torch", "naive", "copy"])
def test_providers_equal_their_reference(provider: str) -> None:
    """Each provider equals its reference, and can then be timed."""
    candidate = measure_module._Candidate(TimedLaunch(provider))
    x = matrix(50, 781)
    candidate.check([x, x])
    assert candidate.failure is None
    assert candidate.relative_error is not None
    assert torch.equal(candidate.call(), x) == (provider == "copy")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ("y *= 1.01", "wrong result", "differs from torch by 0.01, more than 1e-05"),
        ("y[0, 0] = torch.nan", "wrong result", "differs from torch by nan, more than 1e-05"),
        ("raise ValueError('no such\\nthing')", "launch failed", "ValueError: no such"),
        ("raise torch.cuda.OutOfMemoryError('all gone')", "out of memory", "all gone"),
    ],
)
def test_failures_are_told(tmp_path: Path, change: str, status: str, reason: str) -> None:
    """A launch that is wrong or raises is not timed, and has a reason."""
    file = tmp_path / "failing.py"
    file.write_text(CHANGED_KERNEL.format(change=change))
    candidate = measure_module._Candidate(TimedLaunch(str(file), CONFIG, 100))
    candidate.check([matrix(5, 9)])
    assert (candidate.failure.status, candidate.failure.reason) == (status, reason)
    assert candidate.failure.conditions == CONDITIONS


def test_lost_gpu_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch after which the GPU does not answer ends the process."""

    def lost() -> None:
        msg = "an illegal memory access was encountered"
        raise RuntimeError(msg)

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    candidate = measure_module._Candidate(TimedLaunch("torch"))
    with pytest.raises(measure_module.DeviceLostError, match="RuntimeError: an illegal memory"):
        candidate.check([matrix(5, 9)])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from modules that torch.compile imports
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_kernel_and_provider_is_right(dtype: str) -> None:
    """Each kernel and provider equals torch, and is timed."""
    kernels = [TimedLaunch(name, CONFIG, 500) for name in kernel_names()]
    launches = (*kernels, *(TimedLaunch(name) for name in PROVIDERS))
    found = measure(Batch(Problem(1823, 781, dtype), launches, 6))
    assert [one.status for one in found] == ["measured"] * len(launches)
    for one in found:
        assert 1 < one.us < 10_000
        assert one.conditions is not None


@pytest.mark.gpu
def test_a_problem_that_no_memory_holds_is_a_row() -> None:
    """A matrix larger than the GPU's memory is a row with its conditions."""
    (too_large,) = measure(Batch(Problem(2**30, 2**12), (TimedLaunch("copy"),), 6))
    assert too_large.status == "out of memory"
    assert too_large.conditions is not None


@pytest.mark.gpu
def test_what_does_not_fit_is_a_row() -> None:
    """A launch with too much shared memory does not fit."""
    found = measure(
        Batch(Problem(64, 65536), (TimedLaunch("softmax", Config(65536, 32, 8), 64),), 6)
    )
    assert found[0].status == "does not fit"
    assert "shared" in str(found[0].reason)


@pytest.mark.gpu
def test_tiny_matrices_are_mostly_launch() -> None:
    """7 x 257 takes little longer than an empty kernel, 65536 x 1024 much longer."""
    launch = (TimedLaunch("softmax_row", Config(512, 4, 1)),)
    (tiny,) = measure(Batch(Problem(7, 257), launch, 6))
    (large,) = measure(Batch(Problem(65536, 512), launch, 6))
    assert tiny.mostly_launch is True
    assert large.mostly_launch is False


@pytest.mark.gpu
def test_what_cannot_be_compared_is_timed(tmp_path: Path) -> None:
    """A kernel without a reference has a time, and no error."""
    path = tmp_path / "empty.py"
    path.write_text(EMPTY_KERNEL, encoding="utf-8")
    launch = TimedLaunch(str(path), Config(16, 1, 1), 1)
    (empty,) = measure(Batch(Problem(16, 16), (launch,), 6))
    assert empty.status == "measured"
    assert empty.relative_error is None
    assert empty.mostly_launch is True
    assert not math.isnan(empty.us or math.nan)
