"""Tries the parts of record_work.py that need no GPU: its kernels and its catalogue."""

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

from occupancy_lab.compiling import Store, compile_launch
from occupancy_lab.errors import OccupancyLabError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.launch import launch_of


def own_launches() -> list[tuple[Any, Any]]:
    """Return the kernels of work_kernels.py, each with a launch that is not made."""
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
    """Return a message for each kernel of work_kernels.py that does not compile for an H100."""
    wrong = []
    for function, launch in own_launches():
        try:
            compile_launch(function, launch, find_gpu("h100").target, Store(None))
        except OccupancyLabError as error:
            wrong.append(f"{function.__name__} does not compile: {error}")
    return wrong


def check(tutorials: Path) -> int:
    """Print the problems, and return 1 if there are any."""
    wrong = compile_own()
    names = [(group, name) for group, made in work_launches.GROUPS.items() for name, _ in made()]
    print(f"{len(names)} trials of {len(work_launches.GROUPS)} groups")
    wrong += [f"{one} is there twice" for one in {one for one in names if names.count(one) > 1}]
    for number in ("01", "02", "03", "04", "05", "06", "07", "08", "09", "11"):
        if len(list(tutorials.glob(f"{number}-*.py"))) != 1:
            wrong.append(f"{tutorials} has no tutorial {number}")
    command = [sys.executable, str(Path(work_kernels.__file__))]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - this Python
    wrong += [] if done.returncode == 0 else [done.stdout + done.stderr[-2000:]]
    kernels = {one for one in dir(work_kernels) if one.endswith("_kernel")}
    uses = [work_capture.use_of("own", one) for one in sorted(kernels)]
    print(f"{len(kernels)} own kernels: {[(one, uses.count(one)) for one in sorted(set(uses))]}")
    print("\n".join(wrong) or "nothing is wrong")
    return bool(wrong)
