"""A process of record_work.py: it runs groups of launches, waits for its turn, and repeats them.

Files in its folder show its state: `ready` lists what it can repeat, `turn` tells it to begin and
until when, and `done` is written at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from record_files import append, write_json

LONGEST_TRIAL = 80.0
"""Seconds."""
CONFIGURATIONS = {"triton: 6": 5, "triton: 9": 3, "fla": 2}
"""How many of an autotuner's configurations are launched, by the beginning of the group's name."""
GIB = 1 << 30
BUDGETS = {"time": (9 * GIB // 4, 5 * GIB // 4), "ncu": (GIB, GIB)}
"""The bytes of tensors that a process keeps for the launches it repeats, for large and for other
groups. Nsight Compute saves and restores all of them in every pass: with 4 GiB a launch took 0.25
to 0.9 s on an H100 (2026-11-23)."""


class TimeUpError(BaseException):
    """Raised when the time of a trial is over; not to be caught."""


def work(chosen: argparse.Namespace) -> None:
    """Run the groups of this process, wait for its turn, and repeat the launches."""
    folder: Path = chosen.work / chosen.name
    log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    print(f"{time.strftime('%X')} started", flush=True)
    import torch
    import triton  # noqa: F401 - imported before the turn to launch comes
    import work_launches
    from foreign_kernels import few_configurations

    given = json.loads((folder / "given.json").read_text(encoding="utf-8"))
    if any(group.startswith("inductor") for group in given["groups"]):
        import torch._inductor.compile_fx
        import torch._inductor.config as settings

        for name in ("use_static_cuda_launcher", "use_static_triton_launcher"):
            with contextlib.suppress(AttributeError):
                setattr(settings, name, False)  # it would bypass Triton's
    wait_for(chosen.work / "go" if chosen.worker == "ncu" and given["waits"] else None, chosen.end)
    from work_capture import Capture

    torch.set_num_threads(1)
    torch.cuda.set_per_process_memory_fraction(0.25)
    wanted = given["wanted"]
    large = any(one.startswith(work_launches.LARGE) for one in given["groups"])
    budget = BUDGETS[chosen.worker][0 if large else 1]
    capture = Capture(
        folder, chosen.work / "texts", None if wanted is None else set(wanted), budget
    )
    capture.install()
    signal.signal(signal.SIGALRM, _time_up)
    for group in given["groups"]:
        most = next((n for name, n in CONFIGURATIONS.items() if group.startswith(name)), 4)
        with few_configurations(most):
            try_group(capture, group, given["trials"], chosen.until)
    capture.paused = True
    order = list(capture.captured.values())
    if wanted is not None:
        rank = {key: place for place, key in enumerate(wanted)}
        order.sort(key=lambda one: rank[one.key])
    state = {"count": len(order), "pid": os.getpid(), "bytes": torch.cuda.memory_allocated()}
    write_json(folder / "ready", state)
    print(f"{time.strftime('%X')} ready: {state}", flush=True)
    wait_for(folder / "turn", chosen.end)
    until = json.loads((folder / "turn").read_text(encoding="utf-8"))["until"]
    (time_all if chosen.worker == "time" else count_all)(capture, order, folder, until)
    torch.cuda.synchronize()
    write_json(folder / "done", {"at": time.time()})
    print(f"{time.strftime('%X')} done", flush=True)


def _time_up(*_: Any) -> None:
    raise TimeUpError


def try_group(capture: Any, group: str, trials: list[list[str]] | None, until: float) -> None:
    """Call the trials of a group, or only *trials*, and record the result of each."""
    import work_launches

    capture.group, log = group, capture.folder / "trials.jsonl"
    for trial, call in every_trial(work_launches, group):
        if time.time() > until:
            append(log, group=group, trial=trial, why="no time was left")
        elif trials is None or [group, trial] in trials:
            capture.trial = trial
            began = time.time()
            why = try_one(call, until)
            append(log, group=group, trial=trial, why=why, seconds=round(time.time() - began, 2))
            if "CUDA error" in why or "illegal" in why:
                raise RuntimeError(why)


def every_trial(catalogue: Any, group: str) -> list[tuple[str, Any]]:
    """Return the trials of a group."""
    if group == "first try":
        return list(catalogue.first_try())
    return list(catalogue.GROUPS[group]())


def try_one(call: Any, until: float) -> str:
    """Call a trial until *until* at the latest; return why it failed, or ""."""
    import torch

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


def wait_for(path: Path | None, end: float) -> None:
    """Wait until a file exists; exit if it does not exist at *end*."""
    while path is not None and not path.exists():
        if time.time() > end:
            os._exit(3)
        time.sleep(0.02)


def time_all(capture: Any, order: list[Any], folder: Path, until: float) -> None:
    """Time each launch until *until*."""
    from work_capture import Captured, time_launch
    from work_kernels import nothing_kernel

    from occupancy_lab.measuring.l2 import Flush

    flush = Flush()
    compiled = nothing_kernel[(1,)]()
    empty = Captured("empty", "nothing_kernel", 1, False, nothing_kernel[(1,)], (), [])  # noqa: FBT003
    flush([])
    print(compiled.name, flush=True)
    append(folder / "times.jsonl", id="empty", **time_launch(capture, empty, flush))
    for one in order:
        if time.time() > until:
            break
        try:
            began = time.time()
            times: dict[str, Any] = time_launch(capture, one, flush)
            seconds = round(time.time() - began, 3)
            append(folder / "times.jsonl", id=one.key, sm_mhz=clock(), seconds=seconds, **times)
        except Exception as error:
            append(folder / "problems.jsonl", id=one.key, why=f"not timed: {error}"[:300])
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


def count_all(capture: Any, order: list[Any], folder: Path, until: float) -> None:
    """Repeat each launch once under Nsight Compute until *until*."""
    import torch

    torch.cuda.empty_cache()  # Nsight Compute keeps a copy of everything that is allocated
    runtime = torch.cuda.cudart()
    for one in order:
        if time.time() > until:
            break
        began = time.time()
        one.restore()
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        try:
            capture.repeat(one)
            torch.cuda.synchronize()
        finally:
            runtime.cudaProfilerStop()
        seconds = round(time.time() - began, 3)
        columns = {"id": one.key, "kernel": one.kernel, "programs": one.programs}
        append(folder / "order.jsonl", **columns, seconds=seconds)


def main() -> None:
    """Run one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", choices=("time", "ncu"), required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tutorials", type=Path, required=True)
    parser.add_argument("--until", type=float, required=True)
    parser.add_argument("--end", type=float, required=True)
    chosen = parser.parse_args()
    import foreign_kernels

    foreign_kernels.TUTORIALS = chosen.tutorials
    try:
        work(chosen)
    except BaseException:  # noqa: BLE001 - it is in the log
        traceback.print_exc()
        os._exit(1)
    ending = threading.Timer(5.0, os._exit, (0,))  # a thread that hangs at the end
    ending.daemon = True
    ending.start()


if __name__ == "__main__":
    main()
