"""Times launches side by side on this machine's GPU, and first checks each against torch."""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import DriverError, refuse
from occupancy_lab.kernel import OPTIONS, innermost, load_kernel
from occupancy_lab.measuring.driver import read_clock
from occupancy_lab.measuring.process import DEFAULT_RUNS, Batch, TimedLaunch
from occupancy_lab.values import Conditions, Measurement
from occupancy_lab.workers.child import serve
from occupancy_lab.workers.messages import from_line, to_line

if TYPE_CHECKING:
    import torch

    Operation = Callable[..., torch.Tensor]

Call = Callable[[], object]

ROWS_AT_ONCE_BYTES = 2**30
"""Bytes of float64 rows whose reference is computed at once, to limit memory on the GPU."""
LEAST_TOLERANCE = 1e-5
"""The least relative error that is allowed: 70 times the largest error of the 6301 launches in
float32 that were recorded on an H200, which is 1.4e-7."""


def operands(rows: int, cols: int, dtype: str, count: int) -> tuple[torch.Tensor, ...]:
    """Return *count* matrices of normal random numbers on the current GPU, always the same ones."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(0)
    kind = getattr(torch, dtype)
    return tuple(
        torch.empty((rows, cols), dtype=kind, device="cuda").normal_(generator=generator)
        for _ in range(count)
    )


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Make torch fill allocated memory with NaN, so that unwritten elements are noticed.

    torch.utils.deterministic.fill_uninitialized_memory, on by default, does this in deterministic
    mode.
    """
    import torch

    # torch.use_deterministic_algorithms would import torch's compiler first, which takes seconds.
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


@dataclass(frozen=True, slots=True)
class Difference:
    """The error of a result against a reference, and the largest allowed error."""

    error: float
    """|output - reference| / |reference| (2-norms); NaN if an element of the output is NaN, such as
    an unwritten one."""
    allowed: float
    """The error that rounding explains: two units of the inputs' dtype, or slightly more, and half
    a step between its smallest numbers in each element."""


def difference(
    output: torch.Tensor, reference: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> Difference:
    """Return the error of *output* against *reference* of *inputs*, computed in float64."""
    import torch

    rows, cols = output.shape
    step = max(ROWS_AT_ONCE_BYTES // (8 * cols), 1)
    wrong = total = 0.0
    for first in range(0, rows, step):
        part = slice(first, first + step)
        expected = reference(*(tensor[part].double() for tensor in inputs))
        wrong += float((output[part].double() - expected).square().sum())
        total += float(expected.square().sum())
    error = float("inf") if total == 0.0 and wrong > 0.0 else (wrong / (total or 1.0)) ** 0.5
    kind = torch.finfo(inputs[0].dtype)
    least = kind.smallest_normal * kind.eps / 2 * output.numel() ** 0.5 / (total**0.5 or math.inf)
    return Difference(error, max(2 * kind.eps, LEAST_TOLERANCE) + least)


NAIVE_KERNEL = "softmax_naive"
"""The softmax with one torch operation per step."""
PROVIDERS = ("torch", "torch.compile", "naive", "copy")
"""What a kernel is compared with: PyTorch's softmax, torch.compile's, a softmax of five operations
through global memory, and a copy, which computes nothing."""


def _operation(launch: TimedLaunch) -> tuple[Operation, Operation | None]:
    """Return the timed operation, and its reference for float64 if that is known."""
    if launch.config is None:
        return provider(launch.kernel)
    kernel, config, num_programs = load_kernel(launch.kernel), launch.config, launch.num_programs
    return lambda x, *others: kernel.run_on(x, config, num_programs, *others), kernel.reference


@cache
def provider(name: str) -> tuple[Operation, Operation]:
    """Return a provider's operation, and its reference for float64."""
    import torch

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=1)

    match name:
        case "torch":
            return softmax, softmax
        case "torch.compile":
            return torch.compile(softmax, dynamic=False), softmax
        case "naive":
            naive = load_kernel(NAIVE_KERNEL)
            return lambda x: naive.run_on(x, None, 1), softmax
        case "copy":
            return lambda x: torch.empty_like(x).copy_(x), lambda x: x
        case "liger":
            from liger_kernel.ops.softmax import LigerSoftmaxFunction  # type: ignore[import-not-found, import-untyped, unused-ignore] # installed for recordings alone

            return LigerSoftmaxFunction.apply, softmax
        case "quack":
            from quack.softmax import softmax as quack_softmax  # type: ignore[import-not-found, import-untyped, unused-ignore] # installed for recordings alone

            return quack_softmax, softmax
    raise KeyError(name)


TIMER = "device events"
L2_STATE = "flushed"
BURST = 6
"""Launches of one kind in a row, after an uncounted one: as usual when a kernel is loaded into the
instruction caches once and run many times."""
HOLD_CYCLES = 600_000
"""Clock cycles for which the GPU waits before a burst, 300 us at 2 GHz, while Python queues all of
it. For a cooperative launch Python takes longer than the GPU takes to empty the L2 cache; on an
H200, 3% of the launches recorded without waiting had a 90th percentile half as long again."""
MOST_HOLD_CYCLES = 16 * HOLD_CYCLES
"""The longest such wait, for processors that are slow or shared. A call that reads a result back is
late however long the GPU waits."""
WARMUP_MS = 25.0
"""Time for which all launches take turns before any is timed, as in triton.testing.do_bench, but at
least once each."""
EMPTY_FACTOR = 2
"""A launch of less than this many times an empty one is mostly launch, and its time says little."""


class Timer:
    """Times launches on the current CUDA (or HIP) device."""

    def __init__(self) -> None:
        from occupancy_lab.measuring.l2 import Flush

        self._flush = Flush()
        self._hold_cycles = HOLD_CYCLES

    def time(
        self, calls: Sequence[Call], kept: Sequence[torch.Tensor] = (), *, runs: int
    ) -> list[list[float]]:
        """Return the times in us of *runs* runs (or a few more) of each of *calls*.

        A call may have loaded *kept* with evict_last. Launches take turns, one burst each, and
        every round starts with another launch, so that clock drift affects all equally.
        """
        self._warm_up(calls)
        times: list[list[float]] = [[] for _ in calls]
        for turn in range(-(-runs // BURST)):
            for place in range(len(calls)):
                index = (place + turn) % len(calls)
                times[index] += self._burst(calls[index], kept)
        if kept:  # the next batch may have its operands in the same memory
            self._flush(kept)
        return times

    def _warm_up(self, calls: Sequence[Call]) -> None:
        import torch

        end = time.perf_counter() + WARMUP_MS / 1e3
        while True:
            for call in calls:
                call()
            torch.cuda.synchronize()
            if time.perf_counter() > end:
                return

    def _burst(self, call: Call, kept: Sequence[torch.Tensor]) -> list[float]:
        """Return the times in us of BURST launches that were queued before the GPU came to them.

        A launch that was queued later would be timed with the wait for it: then all of them are
        launched again, with twice the hold.
        """
        import torch

        def event() -> torch.cuda.Event:
            return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

        while True:
            events, late = [(event(), event()) for _ in range(BURST + 1)], False
            torch.cuda._sleep(self._hold_cycles)  # type: ignore[no-untyped-call] # noqa: SLF001 - no public one
            for start, end in events:
                self._flush(kept)
                start.record()
                call()
                end.record()
                late = start.query() or late  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            if not late or self._hold_cycles >= MOST_HOLD_CYCLES:
                return [start.elapsed_time(end) * 1e3 for start, end in events[1:]]
            self._hold_cycles *= 2


class DeviceLostError(DriverError):
    """The GPU no longer answers this process."""


def measure(batch: Batch) -> list[Measurement]:
    """Return a measurement for each launch of *batch*, in order.

    Every launch runs once on poisoned memory and is compared with torch in float64. Correct
    launches are then timed in turns.

    Raises DeviceLostError if a launch leaves the GPU unusable for this process.
    """
    import torch

    problem = batch.problem
    candidates = [_Candidate(launch) for launch in batch.launches]
    try:
        most = max(candidate.operands for candidate in candidates)
        inputs = operands(problem.rows, problem.cols, problem.dtype, most)
        for candidate in candidates:
            candidate.check(inputs)
        kept = inputs if any(keeps_lines(launch) for launch in batch.launches) else ()
        right = [candidate for candidate in candidates if candidate.failure is None]
        calls = [candidate.call for candidate in right]
        errors = [candidate.relative_error for candidate in right]
        times = dict(zip(right, timed(calls, kept, runs=batch.runs, errors=errors), strict=True))
        return [candidate.failure or times[candidate] for candidate in candidates]
    except torch.cuda.OutOfMemoryError as error:
        failure = Measurement("out of memory", conditions(), _first_line(error))
        return [candidate.failure or failure for candidate in candidates]
    finally:
        torch.cuda.empty_cache()
        # Otherwise torch.compile gives up after 8 shapes, and runs the ninth uncompiled.
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()


KEEPS = "evict_last"
"""Triton's eviction policy for data that is to stay in the L2 cache."""


def keeps_lines(launch: TimedLaunch) -> bool:
    """Return whether *launch* may ask the L2 cache to keep what it reads.

    torch.compile's softmax does, and a kernel whose file mentions it.
    """
    if launch.config is None:
        return launch.kernel == "torch.compile"
    function = innermost(load_kernel(launch.kernel).function)
    return function is not None and may_keep_lines(function)


def may_keep_lines(function: Any) -> bool:
    """Return whether the file of *function*, a JITFunction, mentions the policy."""
    file = inspect.getsourcefile(function.fn)
    return file is not None and KEEPS in Path(file).read_text(encoding="utf-8")


class _Candidate:
    """A launch to be timed: the function to call, or why it cannot be called."""

    def __init__(self, launch: TimedLaunch) -> None:
        self._launch = launch
        self.operands = 1 if launch.config is None else load_kernel(launch.kernel).operands
        self.call: Call = lambda: None
        self.failure: Measurement | None = None
        self.relative_error: float | None = None

    def check(self, inputs: Sequence[torch.Tensor]) -> None:
        """Launch once, compare, and set the function to call or the failure."""
        import torch

        tensors = inputs[: self.operands]
        try:
            operation, reference = _operation(self._launch)
            with poisoned():
                output = operation(*tensors)
            torch.cuda.synchronize()
            if reference is not None:
                found = difference(output, reference, tensors)
                self.relative_error = found.error
                if not found.error <= found.allowed:  # NaN is not
                    known = f"differs from torch by {found.error:.2g}"
                    self._fail("wrong result", f"{known}, more than {found.allowed:.2g}")
        except Exception as error:  # noqa: BLE001 - any error of a launch is its row's reason
            self._fail(*why_failed(error))
        else:
            self.call = lambda: operation(*tensors)

    def _fail(self, status: str, reason: str) -> None:
        self.failure = Measurement(status, conditions(), reason, relative_error=self.relative_error)


def why_failed(error: Exception) -> tuple[str, str]:
    """Return the status and the reason of a launch that raised *error*.

    Raises DeviceLostError if the GPU no longer answers.
    """
    import torch
    from triton.runtime.errors import OutOfResources

    if isinstance(error, OutOfResources):
        return "does not fit", _first_line(error)
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory", _first_line(error)
    reason = f"{type(error).__name__}: {_first_line(error)}"
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        refuse(f"the GPU no longer answers after {reason}", DeviceLostError)
    return "launch failed", reason


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def timed(
    calls: Sequence[Call],
    kept: Sequence[torch.Tensor],
    *,
    runs: int,
    errors: Sequence[float | None],
) -> list[Measurement]:
    """Return a measurement of each of *calls*, which are timed in turns.

    *kept* and *runs* are as `Timer.time` takes them; *errors* are relative errors found before.
    """
    samples = _timer().time(calls, kept, runs=runs)
    sm_mhz, throttled = read_clock()
    taken = replace(conditions(), sm_mhz=sm_mhz, throttled=throttled)
    return [
        summary(times, taken, error, _empty_us())
        for times, error in zip(samples, errors, strict=True)
    ]


def summary(
    times: Sequence[float], taken: Conditions, error: float | None, empty_us: float
) -> Measurement:
    """Return the measurement of launches with *times* us, if an empty launch takes *empty_us*."""
    us = statistics.median(times)
    tenths = statistics.quantiles(times, n=10, method="inclusive")
    return Measurement(
        status="measured",
        conditions=taken,
        us=us,
        us_low=tenths[0],
        us_high=tenths[-1],
        runs=len(times),
        relative_error=error,
        mostly_launch=us < EMPTY_FACTOR * empty_us,
    )


@cache
def _timer() -> Timer:
    return Timer()


@cache
def _empty_us() -> float:
    from occupancy_lab.compiling.compile import smallest_kernel

    kernel = smallest_kernel()
    (times,) = _timer().time([lambda: kernel[(1,)](**OPTIONS)], runs=DEFAULT_RUNS)
    return statistics.median(times)


@cache
def conditions() -> Conditions:
    """Return where, when and with what this process measures, without reading clocks."""
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
    """Return the version of NVIDIA's driver, or None if it is not loaded."""
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    except OSError:
        return None


def answer(line: str) -> str:
    """Return the measurements of the batch *line*.

    A lost GPU ends the process: at once if several launches may be the cause, after the answer if
    there was only one.
    """
    batch: Batch = from_line(Batch, line)
    try:
        return to_line(measure(batch))
    except DeviceLostError as error:
        if len(batch.launches) > 1:
            os._exit(1)
        return to_line([Measurement("device lost", conditions(), str(error))])


def main() -> None:
    """Serve requests once torch has found the GPU."""
    conditions()
    serve(answer)
