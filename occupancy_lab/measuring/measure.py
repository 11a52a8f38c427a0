"""Times launches side by side on the GPU at hand, each checked against torch first."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import statistics
import sys
import time
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import DriverError
from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring.driver import read_clocks
from occupancy_lab.measuring.process import TimedLaunches, measurements_to_json
from occupancy_lab.values import Conditions, Measurement
from occupancy_lab.workers.child import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

    from occupancy_lab.measuring.process import TimedLaunch
    from occupancy_lab.values import Problem

    Operation = Callable[..., torch.Tensor]
    Launch = Callable[[], object]

ROWS_AT_ONCE_BYTES = 2**30
"""The float64 reference is made of as many rows as take this, so that it never takes the GPU."""


def operands(rows: int, cols: int, dtype: str, count: int) -> tuple[torch.Tensor, ...]:
    """Return *count* matrices of random normal numbers on the current GPU, the same every time."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    shape = (rows, cols)
    kind = getattr(torch, dtype)
    return tuple(
        torch.empty(shape, dtype=kind, device="cuda").normal_(generator=generator)
        for _ in range(count)
    )


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Have torch fill what it allocates with NaN, so that an unwritten element shows.

    That is what torch.utils.deterministic.fill_uninitialized_memory, on by default, asks for.
    """
    import torch

    # torch.use_deterministic_algorithms would import torch's compiler first, which takes seconds.
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def relative_error(
    output: torch.Tensor, reference: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> float:
    """Return |output - reference| / |reference| (2-norms) with *reference* run in float64.

    NaN where an element of *output* is NaN, as one that was never written is.
    """
    rows, cols = output.shape
    step = max(ROWS_AT_ONCE_BYTES // (8 * cols), 1)
    wrong = total = 0.0
    for first in range(0, rows, step):
        part = slice(first, first + step)
        expected = reference(*(tensor[part].double() for tensor in inputs))
        wrong += float((output[part].double() - expected).square().sum())
        total += float(expected.square().sum())
    return float("inf") if total == 0.0 and wrong > 0.0 else (wrong / (total or 1.0)) ** 0.5


def tolerance(dtype: str) -> float:
    """Return the relative error that rounding explains: two units of *dtype*, 1e-5 at the least."""
    import torch

    return max(2 * torch.finfo(getattr(torch, dtype)).eps, 1e-5)


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """Return PyTorch's softmax of each row of *x*."""
    import torch

    return torch.softmax(x, dim=1)


def identity(x: torch.Tensor) -> torch.Tensor:
    """Return *x* itself, what a copy must equal."""
    return x


def copy(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of *x*: the time that moving the matrix alone takes, the practical limit."""
    import torch

    return torch.empty_like(x).copy_(x)


def naive(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax in five operations, each through global memory."""
    from occupancy_lab.kernel import load_kernel

    kernel = load_kernel("softmax_naive")
    result: torch.Tensor = kernel.run(x, None, 1)
    return result


@cache
def _compiled() -> Any:
    import torch

    return torch.compile(softmax_reference, dynamic=False)


def compiled(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax that torch.compile makes for this shape."""
    result: torch.Tensor = _compiled()(x)
    return result


PROVIDERS: Mapping[str, tuple[Operation, Operation]] = MappingProxyType(
    {
        "torch": (softmax_reference, softmax_reference),
        "torch.compile": (compiled, softmax_reference),
        "naive": (naive, softmax_reference),
        "copy": (copy, identity),
    }
)
"""By name: the operation that is timed, and what it must equal when run in float64."""


TIMER = "device events"
L2_STATE = "flushed"
FLUSH_BYTES = 256 * 1024**2
"""What is written between launches: more than any GPU's L2 cache holds."""
BURST = 6
"""Launches of one kind in a row, after one that is not counted: as often as a kernel is loaded
into the instruction caches once and run many times."""

WARMUP_MS = 25.0
"""Time for which all launches take turns before any is timed: at least once each."""


class Timer:
    """Times launches on the current CUDA (or HIP) device."""

    def __init__(self) -> None:
        """Take the memory that flushing needs."""
        import torch

        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def time(
        self, launches: Sequence[Launch], *, runs: int, warmup_ms: float = WARMUP_MS
    ) -> list[list[float]]:
        """Return the times in us of *runs* runs (or a few more) of each of *launches*.

        Launches take turns, a burst each, and every round starts with another one, so that a
        drift of the clocks is everybody's.
        """
        self._warm_up(launches, warmup_ms)
        times: list[list[float]] = [[] for _ in launches]
        for turn in range(-(-runs // BURST)):
            for place in range(len(launches)):
                index = (place + turn) % len(launches)
                times[index] += self._burst(launches[index])
        return times

    def _warm_up(self, launches: Sequence[Launch], warmup_ms: float) -> None:
        import torch

        end = time.perf_counter() + warmup_ms / 1e3
        while True:
            for launch in launches:
                launch()
            torch.cuda.synchronize()
            if time.perf_counter() > end:
                return

    def _burst(self, launch: Launch) -> list[float]:
        import torch

        def event() -> torch.cuda.Event:
            return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

        events = [(event(), event()) for _ in range(BURST + 1)]
        for start, end in events:
            self._flush.zero_()
            start.record()
            launch()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events[1:]]


class DeviceLostError(DriverError):
    """The GPU answers this process no more."""


def measure(request: TimedLaunches) -> list[Measurement]:
    """Return a measurement for each launch of *request*, in their order.

    Every launch runs once on poisoned memory and is compared with torch in float64; those that
    are right are then timed in turns.

    Raises DeviceLostError where a launch leaves the GPU unusable for this process.
    """
    import torch

    problem = request.problem
    checks = [_Check(launch, problem) for launch in request.launches]
    try:
        most = max(check.operands for check in checks)
        inputs = operands(problem.rows, problem.cols, problem.dtype, most)
        for check in checks:
            check.run(inputs)
        return _timed(checks, request.runs)
    except torch.cuda.OutOfMemoryError as error:
        failure = Measurement("out of memory", conditions(), _first_line(error))
        return [check.failure or failure for check in checks]
    finally:
        torch.cuda.empty_cache()
        # Otherwise torch.compile gives up after 8 shapes and runs the ninth without compiling.
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()


class _Check:
    """A launch on its way to be timed: what to call, or why there is nothing to call."""

    def __init__(self, launch: TimedLaunch, problem: Problem) -> None:
        self.call: Callable[[], object] | None = None
        self.failure: Measurement | None = None
        self.relative_error: float | None = None
        self._tolerance = tolerance(problem.dtype)
        self.operands = 1
        if launch.config is None:
            self._run, self._reference = PROVIDERS[launch.kernel]
            return
        kernel = load_kernel(launch.kernel)
        self.operands = kernel.operands
        self._reference = kernel.reference  # type: ignore[assignment] # None: nothing to compare
        self._run = lambda x, *rest: kernel.run(x, launch.config, launch.num_programs, *rest)

    def run(self, inputs: Sequence[Any]) -> None:
        """Launch once, compare, and set what to call or why not."""
        import torch
        from triton.runtime.errors import OutOfResources

        tensors = inputs[: self.operands]
        try:
            with poisoned():
                output = self._run(*tensors)
            torch.cuda.synchronize()
            if self._reference is not None:
                self.relative_error = relative_error(output, self._reference, tensors)
        except OutOfResources as error:
            self._fail("does not fit", _first_line(error))
        except torch.cuda.OutOfMemoryError as error:
            self._fail("out of memory", _first_line(error))
        except Exception as error:  # noqa: BLE001 - whatever a launch raises is its row's reason
            _raise_if_lost(error)
            self._fail("launch failed", f"{type(error).__name__}: {_first_line(error)}")
        else:
            self._judge()
            self.call = lambda: self._run(*tensors)

    def _judge(self) -> None:
        error = self.relative_error
        if error is not None and not error <= self._tolerance:
            reason = f"differs from torch by {error:.2g}, more than {self._tolerance:.2g}"
            self._fail("wrong result", reason)

    def _fail(self, status: str, reason: str) -> None:
        self.failure = Measurement(status, conditions(), reason, relative_error=self.relative_error)


def _raise_if_lost(error: Exception) -> None:
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        msg = f"the GPU answers no more after {type(error).__name__}: {_first_line(error)}"
        raise DeviceLostError(msg) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _timed(checks: Sequence[_Check], runs: int) -> list[Measurement]:
    right = [check for check in checks if check.failure is None and check.call is not None]
    samples = _timer().time([check.call for check in right if check.call], runs=runs)
    now = _with_clocks(conditions())
    times = {id(check): of_check for check, of_check in zip(right, samples, strict=True)}
    return [
        check.failure or summary(times[id(check)], now, check.relative_error) for check in checks
    ]


def summary(
    times: Sequence[float], taken: Conditions, error: float | None, empty_us: float | None = None
) -> Measurement:
    """Return the measurement of launches that took *times* us."""
    us = statistics.median(times)
    tenths = statistics.quantiles(times, n=10, method="inclusive")
    floor = _empty_us() if empty_us is None else empty_us
    return Measurement(
        status="measured",
        conditions=taken,
        us=us,
        us_low=tenths[0],
        us_high=tenths[-1],
        runs=len(times),
        relative_error=error,
        mostly_launch=us < 2 * floor,
    )


@cache
def _timer() -> Timer:
    return Timer()


@cache
def _empty_us() -> float:
    """Return the time of a kernel that does nothing, which the timer cannot go below."""
    from occupancy_lab.compiling.compile import smallest_kernel
    from occupancy_lab.kernel import OPTIONS

    kernel = smallest_kernel()
    (times,) = _timer().time([lambda: kernel[(1,)](**OPTIONS)], runs=30)
    return statistics.median(times)


@cache
def conditions() -> Conditions:
    """Return where, when and how this process measures; the clocks are not read."""
    import torch

    return Conditions(
        device=torch.cuda.get_device_name(),
        date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        driver=driver_version(),
        torch=version("torch"),
        triton=version("triton"),
        timer=TIMER,
        l2=L2_STATE,
    )


def driver_version() -> str | None:
    """Return the version of NVIDIA's driver; None where it is not loaded."""
    from pathlib import Path

    try:
        text = Path("/sys/module/nvidia/version").read_text(encoding="ascii")
    except OSError:
        return None
    return text.strip()


def _with_clocks(now: Conditions) -> Conditions:
    clocks = read_clocks(0)
    if clocks is None:
        return now
    reasons = ", ".join(clocks.throttle_reasons or ()) or None
    return replace(now, sm_mhz=clocks.sm_mhz, throttled=reasons)


def answer(line: str) -> str:
    """Return the measurements of the request *line*.

    A lost GPU ends the process: at once where several launches could be the cause, after the
    answer where it was the only one.
    """
    request = TimedLaunches.from_json(line)
    try:
        return measurements_to_json(measure(request))
    except DeviceLostError as error:
        if len(request.launches) > 1:
            os._exit(1)
        return measurements_to_json([Measurement("device lost", conditions(), str(error))])


def main() -> None:
    """Serve, once torch has found the GPU."""
    conditions()
    serve(answer)
