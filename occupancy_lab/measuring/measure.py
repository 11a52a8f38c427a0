"""Times launches side by side on the GPU at hand, each checked first."""

from __future__ import annotations

import datetime as dt
import statistics
import sys
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import DriverError
from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring.clocks import read_clocks
from occupancy_lab.measuring.correctness import operands, poisoned, relative_error, tolerance
from occupancy_lab.measuring.providers import PROVIDERS
from occupancy_lab.measuring.timer import L2_STATE, TIMER, Timer
from occupancy_lab.values import Conditions, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from occupancy_lab.measuring.request import Launch, Request
    from occupancy_lab.values import Problem


class DeviceLostError(DriverError):
    """The GPU answers this process no more."""


def measure(request: Request) -> list[Measurement]:
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

    def __init__(self, launch: Launch, problem: Problem) -> None:
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
