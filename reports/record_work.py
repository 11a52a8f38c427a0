"""Records public Triton launches: everything that determines their work, ncu's counters, and times.

`python reports/record_work.py --output FOLDER --tutorials FOLDER` runs the groups of
work_launches.py on the NVIDIA GPU at hand, each in its own process. In the first of three phases
they write every launch with its arguments and its kernel's texts, and time it with an empty and
with a warm L2 cache. In the second they repeat each launch once under Nsight Compute, which counts,
and in the third one launch of each kernel of SAMPLED, of which Nsight Compute samples each
instruction. Groups call their launches at the same time; then they measure one after the other.
keep_work.py makes the committed files of FOLDER.

A launch has the same `id` in all files: a digest of its kernel's binary, arguments and grid. `use`
divides kernels, not launches, into tuning, held out and fresh, by a digest of their names
(work_capture.use_of).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import json
import os
import signal
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foreign_kernels
import torch
import work_launches
from record_files import append, group_arguments, path_of, read_lines, run_groups, write_json
from work_capture import Capture, Captured, time_launch
from work_kernels import nothing_kernel
from work_ncu import CORE, OPTIONS, SAMPLING_OPTIONS, SHARES

from occupancy_lab.measuring.ncu import find_ncu

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TIMING, COUNTING = 0.5, 0.9
"""The shares of the time at which timing and counting end."""
WORKERS = 16
"""Processes that call their launches at the same time."""
SMALL_BYTES = 1 << 20
"""Launches with smaller tensors are not sampled."""
SAMPLED = (
    *("triton: 3, fp16", "triton: 6, head 64", "own: reductions", "own: memory", "liger: norms"),
    *("triton: 5", "liger: losses", "triton: 9, fp16", "triton: simple"),
)
"""The groups whose kernels are sampled instruction by instruction, one launch each."""
MOST_SAMPLED = 60
REPORT = ".ncu-rep"
"""How the names of Nsight Compute's reports of sampled launches end."""
LONGEST_TRIAL = 80.0
"""Seconds."""
CONFIGURATIONS = {"triton: 6": 5, "triton: 9": 3, "fla": 2}
"""How many of an autotuner's configurations are launched, by the beginning of the group's name."""
GIB = 1 << 30
COUNTED_BYTES, LARGE_BYTES, BYTES = GIB, 9 * GIB // 4, 5 * GIB // 4
"""The most bytes of tensors that a process keeps for the launches it repeats: under Nsight Compute,
of large groups, and of others. Nsight Compute saves and restores all of them in every pass: with
4 GiB a launch took 0.25 to 0.9 s on an H100 (2026-11-23)."""


def record(chosen: argparse.Namespace) -> None:
    """Run the phases."""
    began, ncu = time.time(), find_ncu()
    folder: Path = chosen.output
    groups = [
        one for one in work_launches.GROUPS if one.startswith(tuple(chosen.groups.split(",")))
    ]
    (folder / "texts").mkdir(parents=True, exist_ok=True)
    timed = began + TIMING * chosen.seconds
    run_groups(groups, folder, "time", timed, WORKERS)
    if ncu is None:
        print("Nsight Compute is not found, and nothing is counted")
        return
    metrics = (*CORE, *SHARES) if chosen.shares else CORE
    groups = [one for one in groups if read_lines(path_of(folder, one, ".launches.jsonl"))]
    counted = began + COUNTING * chosen.seconds
    counting = (str(ncu), *OPTIONS, "--metrics", ",".join(metrics))
    run_groups(groups, folder, "count", counted, WORKERS, lambda _: counting)
    sampled = choose_sampled(folder, groups)

    def sampling(group: str) -> tuple[str, ...]:
        return str(ncu), *SAMPLING_OPTIONS, "--export", str(path_of(folder, group, REPORT))

    run_groups(sampled, folder, "sample", began + chosen.seconds, WORKERS, sampling)


def choose_sampled(folder: Path, groups: Sequence[str]) -> list[str]:
    """Write which launches are sampled, one of each kernel, and return their groups."""
    chosen: dict[str, str] = {}
    kept = []
    for group in [one for one in groups if one in SAMPLED]:
        for line in read_lines(path_of(folder, group, ".launches.jsonl")):
            large = line["tensor_bytes"] >= SMALL_BYTES
            if large and line["kernel"] not in chosen and len(chosen) < MOST_SAMPLED:
                chosen[line["kernel"]] = line["id"]
                kept.append(group)
    write_json(folder / "sampled.json", [*chosen.values()])
    return [*dict.fromkeys(kept)]


# In the process of a group


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


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__, parents=[group_arguments()])
    parser.add_argument("--output", type=Path, default=Path("work-recorded"))
    parser.add_argument("--seconds", type=float, default=1800.0, help="of all")
    parser.add_argument("--tutorials", type=Path, default=Path("tutorials"))
    parser.add_argument("--groups", default="", help="beginnings of names, with commas between")
    parser.add_argument(
        "--shares", action="store_true", help="count the busiest unit too, in many more passes"
    )
    chosen = parser.parse_args()
    foreign_kernels.TUTORIALS = chosen.tutorials.resolve()
    if chosen.group:
        work(chosen.output, chosen.group, chosen.phase, chosen.until)
        return
    with tempfile.TemporaryDirectory(prefix="work-") as caches:
        os.environ |= {
            "TRITON_CACHE_DIR": f"{caches}/triton",
            "TRITON_CACHE_AUTOTUNING": "0",
            "FLA_CACHE_RESULTS": "0",
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
            "LC_ALL": "C.UTF-8",
        }
        record(chosen)


if __name__ == "__main__":
    main()
