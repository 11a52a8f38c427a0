"""What else a traced program's GPU does: sums of what torch.profiler records.

Like hook.py, this file is loaded by the program's own Python, and imports only the standard
library.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

COPIES = ("Memcpy", "Memset")
"""The beginnings of CUPTI's names for copies and for setting memory."""
OWN = "spin_kernel"
"""The kernel of torch.cuda._sleep, which keeps the GPU busy for a launch that is timed."""
clock = time.perf_counter_ns


class Profile:
    """Makes torch.profiler record what the GPU does for some seconds from the first launch on.

    It starts and stops in the main thread, because a profiler must stop in the thread that started
    it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.facts: Any = None
        """The result of `summed`, once the profiler has stopped."""
        self._profiler: Any = None
        self._until = 0.0

    def look(self) -> Any:
        """Start at the first launch, and stop when the time is over; return what that took, ns."""
        before = clock()
        if self.facts is not None or threading.current_thread() is not threading.main_thread():
            return 0
        torch = sys.modules.get("torch")
        if self._profiler is not None:
            if clock() > self._until:
                self.end()
        elif torch is not None and torch.cuda.is_initialized():
            self.facts = {}  # where it fails it is not tried again
            from torch import profiler

            self._profiler = profiler.profile(activities=[profiler.ProfilerActivity.CUDA])
            self._profiler.start()
            self._until = clock() + self.seconds * 1e9
            self.facts = None
        return clock() - before

    def end(self) -> None:
        """Stop the profiler, and sum what it recorded."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        self.facts = {}
        profiler.stop()
        self.facts = summed(profiler.profiler.kineto_results.events())


def summed(events: Any) -> Any:
    """Return the sums of Kineto's *events* on GPUs: of kernels, of copies, and of both.

    `busy_ns` counts time once in which two things run; `span_ns` is from the first to the last.
    """
    kernels: dict[str, list[int]] = {}
    intervals: dict[Any, list[Any]] = {}
    copies = 0
    for event in events:
        kind = event.activity_type() if hasattr(event, "activity_type") else "kernel"
        on_gpu = str(event.device_type()).endswith("CUDA")
        if not on_gpu or kind not in {"kernel", "gpu_memcpy", "gpu_memset"}:
            continue
        name, start, took = event.name(), event.start_ns(), event.duration_ns()
        if OWN in name:
            continue
        intervals.setdefault(event.device_index(), []).append((start, start + took))
        if name.startswith(COPIES):
            copies += took
        else:
            found = kernels.setdefault(name, [0, 0])
            found[0] += 1
            found[1] += took
    return {
        "kernels": kernels,
        "copies_ns": copies,
        "busy_ns": sum(_covered(one) for one in intervals.values()),
        "span_ns": sum(max(end for _, end in one) - min(one)[0] for one in intervals.values()),
    }


def _covered(intervals: Any) -> Any:
    covered = until = 0
    for start, end in sorted(intervals):
        covered += max(0, end - max(start, until))
        until = max(until, end)
    return covered
