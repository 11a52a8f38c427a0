"""Runs in a traced program: counts each launch of a Triton kernel, and times some.

This file imports only the standard library. The program's own Python loads it when the program
imports Triton. Each process has a folder in the folder of the records: `kernels.jsonl` gets a line
for each kernel at its first launch, with the kernel's files beside it, and `counts.json` is
rewritten once a second and at the end. Errors here never reach the program: they are written to the
record.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from . import launchers
from .noted import (
    MOST_COPIED,
    Kernel,
    Memory,
    Timer,
    by_parameter,
    clock,
    copies,
    counts,
    device_facts,
    keep,
    passed,
    places,
    process_facts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SAMPLE = 20
"""One in this many launches of a kernel over a grid is timed."""
UNTIMED = 200
"""Without timing, one in this many launches is looked at, so that counts are written in time."""
FIRST = 5
"""The first launches of a grid that are all timed, before only one in `sample` is."""
FLUSH_NS, NEW_NS = 1_000_000_000, 50_000_000
"""The greatest age of the written counts at a launch that is looked at, and at a new kernel."""
MOST_ERRORS = 20
COPIES = ("Memcpy", "Memset")
"""The beginnings of CUPTI's names for copies and for setting memory."""
OWN = "spin_kernel"
"""The kernel of torch.cuda._sleep, which keeps the GPU busy for a launch that is timed."""


class Session:
    """Notes launches in a folder, until `close`."""

    def __init__(
        self,
        folder: str,
        *,
        times: bool = True,
        sample: int = SAMPLE,
        profile: float = 0.0,
        whole: bool = False,
    ) -> None:
        self.folder = folder
        self.profile = Profile(profile) if profile else None
        self.whole = whole
        self.sample = sample
        self.timer = Timer() if times else None
        self.kernels: list[Kernel] = []
        self.recent: deque[Any] = deque(maxlen=launchers.RECENT)
        """The cells of the last launches."""
        self._memory = Memory()
        self._copies: list[Any] = []
        self._room = MOST_COPIED
        """For first launches: the kernel's number, the grid, and copies of small tensors."""
        self.launchers = launchers.Launchers(self)
        self._begin()
        # The registered function stays for good, and must not keep the session alive.
        reference = weakref.ref(self)

        def forked() -> None:
            session = reference()
            if session is not None:
                session.forked()

        os.register_at_fork(after_in_child=forked)

    @classmethod
    def of_process(cls, folder: str) -> Any:
        """Return the session of a whole process, which ends with the process."""
        settings = json.loads(Path(folder, "settings.json").read_text("utf-8"))
        session = cls(folder, **settings, whole=True)
        atexit.register(session.close)
        leave = os._exit

        @functools.wraps(leave)
        def leave_noted(status: int) -> None:
            session.close(patient=False)
            leave(status)

        # multiprocessing's children end by os._exit, without atexit.
        os._exit = leave_noted  # type: ignore[assignment] # it does not return either
        return session

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self.place: Path | None = None
        self.start = self.flushed = clock()
        self.first = self.last = 0
        """When the first launch was made, and the last one that was looked at."""
        self.began = time.time()
        self.replays = self.spent = 0
        self.errors: list[str] = []
        self.closed = False
        self._last: Any = None, None
        """The kernel and the cell of the last launch that was a grid's first."""
        self.recent.clear()
        self._copies.clear()
        self._room = MOST_COPIED
        for kernel in self.kernels:
            kernel.cells.clear()
            kernel.others = None

    def forked(self) -> None:
        """Begin anew in a child, because the counts so far belong to the parent."""
        if self.closed or not self.whole:
            self.closed = True
            self.launchers.restore()
            return
        if self.timer is not None:
            self.timer = Timer()
        self.profile = None
        self._begin()

    def launch_unusual(self, kernel: Any, run: Any, args: Any) -> Any:
        """Make a launch that is a grid's first, is due, or is not the program's own."""
        before = clock()
        cell: Any = None
        kind, pair = "", None
        with self.guarded():
            grid = tuple(map(int, args[:3]))
            if all(grid):  # a grid with a 0 launches nothing
                cell, kind = self._cell(kernel, grid), self._kind()
                self._tell(kernel, cell, kind, args[3:])
            if kind == "count" and cell.count >= cell.due:
                pair = self._due(kernel, cell, args[3:])
        ran = clock()
        result = run(*args)
        after = clock()
        with self.guarded():
            if pair is not None and self.timer is not None:
                self.timer.end(kernel, cell, pair)
            # Each statement changes one attribute, so that no other thread can interfere.
            if kind == "count":
                cell.count += 1
                self.recent.append(cell)
            elif kind == "tuning":
                cell.tuning += 1
            elif kind == "captured":
                cell.captured += 1
            if after - self.flushed > FLUSH_NS:
                self.flush()
        self.spent += ran - before + clock() - after
        return result

    def _cell(self, kernel: Any, grid: Any) -> Any:
        if callable(kernel.described):
            describe, kernel.described = kernel.described, {}
            kernel.described = {**describe(), **device_facts()}
        if self.place is None or not kernel.cells:
            self._write(kernel)
        return kernel.cell(grid)

    def _kind(self) -> Any:
        """Return the name of the counter for a launch of this thread."""
        if launchers.is_tuning():
            return "tuning"
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return "captured" if torch.cuda.is_current_stream_capturing() else "count"
        return "count"

    def _due(self, kernel: Any, cell: Any, rest: Any) -> Any:
        """Return the events that time a launch that is due, or None if it is not timed."""
        if self.profile is not None and not launchers.unusual:
            self.spent -= self.profile.look()  # it takes seconds to start
        self.last = clock()
        self.first = self.first or self.last
        first = cell.count < FIRST
        # Even without time left, a timed launch stands for at most a third of all before it.
        asked = first or cell.count - cell.timed >= max(self.sample, cell.count / 3)
        # Layers of a network make equal launches at a fixed distance.
        cell.due = cell.count + (1 if first else self.sample + cell.samples % 3)
        if self.timer is None:
            cell.due = cell.count + UNTIMED
        # While a graph is captured, events may not be queried.
        if self.timer is None or launchers.unusual:
            return None
        return self.timer.begin(kernel, rest) if self.timer.has_time() or asked else None

    # The record

    def _write(self, kernel: Any) -> None:
        """Append a line about *kernel* to this process's record, and keep its files."""
        with self._lock:
            if self.place is None:
                number = f"{os.getpid()}-{time.time_ns():x}"
                self.place = Path(self.folder, number)
                self.place.mkdir()
                self._append(process_facts())
            described = {**kernel.described, "kernel": kernel.number}
            source = described.pop("files", None)
            if source:
                described["kept"] = keep(source, Path(self.folder, "files"), described)
            self._append(described)
            if clock() - self.flushed > NEW_NS:
                self.flush()

    def _tell(self, kernel: Any, cell: Any, kind: str, rest: Any) -> None:
        """Append a line about the arguments of the program's first launch of a cell."""
        if cell.told or kind == "tuning":
            return
        cell.told = True
        given = by_parameter(kernel.described.get("parameters"), rest)
        if given is None:
            self._last = None, None
            return
        told = {"kernel": kernel.number, "grid": cell.grid, "passed": passed(given)}
        before, last = self._last
        if last is not None and self.recent and self.recent[-1] is last:
            told["after"] = before.number, last.grid
        self._last = kernel, cell
        with self._lock:
            self._append({**told, "memory": self._memory.numbers(given)})
        if kind == "count" and not launchers.unusual and self._room:
            copied = copies(given, rest[0], self._room)
            if copied:
                self._copies.append((kernel.number, cell.grid, copied))
                self._room -= sum(map(len, copied.values()))

    def _append(self, values: Any) -> None:
        assert self.place is not None  # noqa: S101 - for the type checker
        with (self.place / "kernels.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values, default=str) + "\n")

    def flush(self, *, ended: bool = False) -> None:
        """Write the counts so far."""
        if self.place is None:
            return
        with self._lock:
            self.flushed = clock()
            if self.timer is not None and not launchers.unusual:
                self.timer.collect()
            counted = {
                "ended": ended,
                "began": self.began,
                "seconds": (self.flushed - self.start) / 1e9,
                "launching_seconds": (self.last - self.first) / 1e9,
                "replays": self.replays,
                "errors": self.errors,
                "spent_ns": self.spent,
                "kernels": {kernel.number: counts(kernel) for kernel in self.kernels},
                **({} if self.timer is None else self.timer.facts()),
            }
            if ended:
                counted["hot_ns"] = launchers.hot_ns()
                counted["recent"] = places(self.kernels, self.recent)
                counted["profile"] = self.profile and self.profile.facts
            part = self.place / "counts.part"
            part.write_text(json.dumps(counted, default=str), "utf-8")
            part.replace(self.place / "counts.json")

    def close(self, *, patient: bool = True) -> None:
        """Write the last counts and put everything back."""
        if self.closed:
            return
        self.closed = True
        with self.guarded():
            if self.profile is not None and patient:
                self.profile.end()
        with self.guarded():
            if self.timer is not None and patient:
                self.timer.wait()
            self.flush(ended=True)
        with self.guarded():
            if patient:
                for number, grid, copied in self._copies:
                    values = {name: list(map(int, one.tolist())) for name, one in copied.items()}
                    self._append({"kernel": number, "grid": grid, "values": values})
                self._copies.clear()
        if not self.whole:
            self.launchers.restore()

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Swallow errors in the block, and write each once into the record."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no error may reach the program
            words = f"{type(error).__name__}: {error}"[:300]
            if words not in self.errors and len(self.errors) < MOST_ERRORS:
                self.errors.append(words)


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
