"""Times launches on the GPU at hand: events around each, the L2 cache flushed before it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Launch = Callable[[], object]

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
