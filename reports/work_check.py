"""Tries without a GPU what record_work.py needs: its kernels, its catalogue, how ncu is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import work_capture
import work_kernels
import work_launches
import work_ncu

from occupancy_lab.compiling import Store, compile_launch
from occupancy_lab.errors import OccupancyLabError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import launch_of

PRINTED = """==PROF== Connected to process 7 (/usr/bin/python3.12)
==PROF== Profiling "add_kernel" - 0: 0%....50%....100% - 9 passes
==PROF== Disconnected from process 7
"ID","Process ID","Process Name","Kernel Name","Block Size","Grid Size","CC","dram__bytes_read.sum"
"","","","","","","","byte"
"0","7","python3.12","add_kernel","(128, 1, 1)","(16,384, 1, 1)","9.0","67,108,864"
"1","7","python3.12","add_kernel","(128, 1, 1)","(32, 2, 1)","9.0","1,024.5"
"2","7","python3.12","foreign","(128, 1, 1)","(3, 1, 1)","9.0","5"
"3","7","python3.12","mul_kernel","(128, 1, 1)","(3, 1, 1)","9.0","n/a"
"""
"""What Nsight Compute prints: numbers may have commas."""


def own_launches() -> list[tuple[Any, Any]]:
    """Return the kernels of work_kernels.py with a launch of each, none of which is made."""
    from triton.runtime import JITFunction

    found = []

    def note(function: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        del warmup
        found.append((function, launch_of(function, args, keywords, grid)))

    run, JITFunction.run = JITFunction.run, note
    work_kernels.DEVICE = "cpu"
    try:
        for _, call in work_kernels.comparisons():
            call()
        a, scale = torch.zeros(128, 128, dtype=torch.int8), torch.zeros(128)
        work_kernels.int8_matmul(a, a, scale)
        a = torch.zeros(128, 128, dtype=torch.float16)
        work_kernels.descriptor_matmul(a, a)
        work_kernels.split_k(a, a)
        work_kernels.nothing_kernel[(1,)]()
    finally:
        JITFunction.run = run
    return found


def compile_own() -> list[str]:
    """Return in words which kernels of work_kernels.py do not compile for an H100."""
    wrong = []
    for function, launch in own_launches():
        try:
            compile_launch(function, launch, find_gpu("h100").target, Store(None))
        except OccupancyLabError as error:
            wrong.append(f"{function.__name__} does not compile: {error}")
    return wrong


def read_ncu() -> list[str]:
    """Return in words what of a page of Nsight Compute is misread."""
    order = [
        {"id": name, "kernel": kernel, "programs": programs}
        for name, kernel, programs in (
            *(("a", "add_kernel", 16384), ("lost", "add_kernel", 5)),
            *(("b", "add_kernel", 64), ("c", "mul_kernel", 3)),
        )
    ]
    expected = {
        "a": {"dram__bytes_read.sum": 67108864},
        "b": {"dram__bytes_read.sum": 1024.5},
        "c": {},
    }
    found = work_ncu.matched(order, work_ncu.read_counts(PRINTED))
    return [] if found == expected else [f"counts are read as {found}"]


def read_arguments() -> list[str]:
    """Return in words what of a launch's arguments is told wrongly."""
    given = (torch.zeros(4, 6)[:, 1:], 3, True, 0.5, None, (torch.zeros(2), 1))
    tuple_ = {"tuple": [work_capture.told(torch.zeros(2)), 1]}
    first = {
        "pointer": "float32",
        "storage_bytes": 96,
        "aligned": False,
        "shape": [4, 5],
        "strides": [6, 1],
    }
    found = [work_capture.told(one) for one in given]
    return [] if found == [first, 3, True, 0.5, None, tuple_] else [f"told {found}"]


def check(tutorials: Path) -> int:
    """Print what is wrong, and return 1 where anything is."""
    wrong = read_ncu() + read_arguments()
    names = [(group, name) for group, made in work_launches.GROUPS.items() for name, _ in made()]
    print(f"{len(names)} trials of {len(work_launches.GROUPS)} groups")
    wrong += [f"{one} is there twice" for one in {one for one in names if names.count(one) > 1}]
    for number in ("01", "02", "03", "04", "05", "06", "07", "08", "09", "11"):
        if len(list(tutorials.glob(f"{number}-*.py"))) != 1:
            wrong.append(f"{tutorials} has no tutorial {number}")
    wrong += compile_own()
    command = [sys.executable, str(Path(work_kernels.__file__))]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - this Python
    wrong += [] if done.returncode == 0 else [done.stdout + done.stderr[-2000:]]
    kernels = {one for one in dir(work_kernels) if one.endswith("_kernel")}
    uses = [work_capture.use_of("own", one) for one in sorted(kernels)]
    print(f"{len(kernels)} own kernels: {[(one, uses.count(one)) for one in sorted(set(uses))]}")
    print("\n".join(wrong) or "nothing is wrong")
    return bool(wrong)
