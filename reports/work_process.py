"""What a process of record_work.py does: it calls a group's launches, and measures them.

Processes call their launches at the same time, and one of them measures when no other uses the GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import signal
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import foreign_kernels
import torch
import work_launches
from record_files import append, path_of, read_lines
from work_capture import Capture, Captured, time_launch
from work_kernels import nothing_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST_TRIAL = 80.0
"""Seconds."""
CONFIGURATIONS = {"triton: 6": 5, "triton: 9": 3, "fla": 2}
"""How many of an autotuner's configurations are launched, by the beginning of the group's name."""
GIB = 1 << 30
COUNTED_BYTES, LARGE_BYTES, BYTES = GIB, 9 * GIB // 4, 5 * GIB // 4
"""The most bytes of tensors that a process keeps for the launches it repeats: under Nsight Compute,
of large groups, and of others. Nsight Compute saves and restores all of them in every pass: with
4 GiB a launch took 0.25 to 0.9 s on an H100 (2026-11-23)."""


class TimeUpError(BaseException):
    """Raised when the time of a trial is over; not to be caught."""


def work(folder: Path, group: str, phase: str, until: float) -> None:
    """Call the launches of a group, and measure them as *phase* says: time, count or sample."""
    lines = path_of(folder, group, ".launches.jsonl")
    if phase == "time":
        lines.unlink(missing_ok=True)
    timed = LARGE_BYTES if group.startswith(work_launches.LARGE) else BYTES
    budget = timed if phase == "time" else COUNTED_BYTES
    wanted = wanted_of(folder, read_lines(lines), phase)
    capture = Capture(lines, folder / "texts", wanted, budget)
    with held(folder / "lock", fcntl.LOCK_SH):
        called = (time.time() + until) / 2
        timer = end_at(called + LONGEST_TRIAL)
        call_all(capture, group, called)
        timer.cancel()
    timer = end_at(until + 5)
    with held(folder / "lock", fcntl.LOCK_EX):
        path = path_of(folder, group, f".{phase}.jsonl")
        path.unlink(missing_ok=True)
        (time_all if phase == "time" else count_all)(capture, path, until)
    timer.cancel()
    end_at(time.time() + 5)  # a thread may hang at the end


def wanted_of(folder: Path, launches: list[dict[str, Any]], phase: str) -> set[str] | None:
    """Return which of a group's *launches* are measured; None for all, which are then written."""
    if phase == "time":
        return None
    ids = {one["id"] for one in launches}
    if phase == "sample":
        ids &= {*json.loads((folder / "sampled.json").read_text("utf-8"))}
    return ids


@contextlib.contextmanager
def held(path: Path, how: int) -> Iterator[None]:
    """Hold a lock in the block, exclusively or shared with others."""
    with path.open("w") as file:
        fcntl.flock(file, how)
        yield


def end_at(end: float) -> threading.Timer:
    """End this process at *end*, whatever hangs, unless the returned timer is cancelled."""
    timer = threading.Timer(max(end - time.time(), 0.0), os._exit, (3,))
    timer.daemon = True
    timer.start()
    return timer


def _time_up(*_: Any) -> None:
    raise TimeUpError


def call_all(capture: Capture, group: str, until: float) -> None:
    """Call the trials of a group until *until*, and print why some fail."""
    if group.startswith("inductor"):
        from torch._inductor import config as settings

        for name in ("use_static_cuda_launcher", "use_static_triton_launcher"):
            with contextlib.suppress(AttributeError):
                setattr(settings, name, False)  # it would bypass Triton's
    torch.cuda.set_per_process_memory_fraction(0.25)
    capture.group = group
    capture.install()
    signal.signal(signal.SIGALRM, _time_up)
    most = next((n for name, n in CONFIGURATIONS.items() if group.startswith(name)), 4)
    with foreign_kernels.few_configurations(most):
        for trial, call in work_launches.GROUPS[group]():
            if time.time() > until:
                print("no time was left", flush=True)
                break
            capture.trial = trial
            why = try_one(call, until)
            print(f"{trial}: {why or 'done'}", flush=True)
            if "CUDA error" in why or "illegal" in why:
                raise RuntimeError(why)
    capture.paused = True


def try_one(call: Any, until: float) -> str:
    """Call a trial until *until* at the latest; return why it failed, or ""."""
    why = ""
    torch.manual_seed(0)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(0.5, min(LONGEST_TRIAL, until - time.time())))
        try:
            call()
            torch.cuda.synchronize()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeUpError:
        why = "its time was over"
    except Exception as error:  # noqa: BLE001 - it is named
        traceback.print_exc()
        why = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"[:300]
    try:
        gc.collect()
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > GIB // 2:
            torch.cuda.empty_cache()
    except RuntimeError as error:
        why = why or f"CUDA error: {error}"[:300]
    return why


def time_all(capture: Capture, path: Path, until: float) -> None:
    """Time each launch until *until*."""
    from occupancy_lab.measuring.l2 import Flush

    flush = Flush()
    nothing_kernel[(1,)]()
    empty = Captured("empty", "nothing_kernel", 1, False, nothing_kernel[(1,)], (), [])  # noqa: FBT003
    flush([])
    append(path, id="empty", **time_launch(capture, empty, flush))
    for one in capture.captured.values():
        if time.time() > until:
            break
        try:
            times: dict[str, Any] = time_launch(capture, one, flush)
            append(path, id=one.key, sm_mhz=clock(), **times)
        except Exception as error:
            print(f"{one.key} is not timed: {error}", flush=True)
            if "CUDA error" in str(error):
                raise


def clock() -> int | None:
    """Return the clock of the multiprocessors in MHz, or None if it is not available."""
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
    return None


def count_all(capture: Capture, path: Path, until: float) -> None:
    """Repeat each launch once under Nsight Compute until *until*."""
    torch.cuda.empty_cache()  # Nsight Compute keeps a copy of everything that is allocated
    runtime = torch.cuda.cudart()
    for one in capture.captured.values():
        if time.time() > until:
            break
        one.restore()
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        try:
            capture.repeat(one)
            torch.cuda.synchronize()
        finally:
            runtime.cudaProfilerStop()
        append(path, id=one.key, kernel=one.kernel, programs=one.programs)
