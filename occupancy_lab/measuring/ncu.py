"""What Nsight Compute counts for a launch: NVIDIA's own limits, occupancies and DRAM traffic.

The command line and the raw page follow NVIDIA's manual:
https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html
"""

from __future__ import annotations

import csv
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from occupancy_lab.errors import DriverError, refuse
from occupancy_lab.inputs import chosen_kernel
from occupancy_lab.kernel import load_kernel
from occupancy_lab.measuring.measure import operands
from occupancy_lab.measuring.process import Batch, TimedLaunch
from occupancy_lab.values import Problem
from occupancy_lab.workers import child
from occupancy_lab.workers.messages import from_line, to_line

TIMEOUT = 120.0
"""Seconds that one launch may take under Nsight Compute; it takes about 3."""
PLACES = ("usr/local/cuda*/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
"""Patterns of the paths of NVIDIA's installers, relative to the root."""

FRACTIONS = frozenset({"theoretical_occupancy", "achieved_occupancy"})
"""The fields that are not integers."""
SCALES: Mapping[str, float] = MappingProxyType(
    {"%": 0.01, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
)
"""The factor for each unit; other units have the factor 1."""

NO_PERMISSION = "ERR_NVGPUCTRPERM"
NO_METRIC = "Failed to find metric"
NO_KERNEL = "No kernels were profiled"


def _metric(name: str) -> Any:
    return field(metadata={"metric": name})


@dataclass(frozen=True, slots=True)
class NcuProfile:
    """A launch as Nsight Compute describes it; None for what it does not report.

    A limit counts programs per multiprocessor.
    """

    num_programs: int | None
    """Programs launched."""
    limit_registers: int | None = _metric("launch__occupancy_limit_registers")
    limit_shared: int | None = _metric("launch__occupancy_limit_shared_mem")
    """The limit by the carve-out that the driver chose, not by the largest shared memory."""
    limit_warps: int | None = _metric("launch__occupancy_limit_warps")
    limit_programs: int | None = _metric("launch__occupancy_limit_blocks")
    """Program slots."""
    theoretical_occupancy: float | None = _metric("sm__maximum_warps_per_active_cycle_pct")
    """Warps that can be resident over the most that a multiprocessor holds, 0 to 1."""
    achieved_occupancy: float | None = _metric("sm__warps_active.avg.pct_of_peak_sustained_active")
    """Warps that were resident over the same, averaged over the cycles with any."""
    read_bytes: int | None = _metric("dram__bytes_read.sum")
    """Bytes read from DRAM, with caches emptied beforehand."""
    n_regs: int | None = _metric("launch__registers_per_thread")
    """Registers per thread."""
    carveout: int | None = _metric("launch__shared_mem_config_size")
    """Shared memory per multiprocessor, bytes, as the driver carved it out of the L1 cache."""


METRICS: Mapping[str, str] = MappingProxyType(
    {one.name: one.metadata["metric"] for one in fields(NcuProfile) if one.metadata}
)
"""Nsight Compute's names for the fields of an NcuProfile."""


def find_ncu(root: Path = Path("/")) -> Path | None:
    """Return the ncu on $PATH, or else the newest that NVIDIA's installers left, or None."""
    on_path = shutil.which("ncu")
    if on_path is not None:
        return Path(on_path)
    for place in PLACES:
        found = [path for path in root.glob(place) if os.access(path, os.X_OK)]
        if found:
            return max(found, key=lambda one: [*map(int, re.findall(r"\d+", f"{one.parent}"))])
    return None


def profile(problem: Problem, launch: TimedLaunch, *, timeout: float = TIMEOUT) -> NcuProfile:
    """Run *launch* once under Nsight Compute and return its profile.

    Clocks are unchanged, and caches are emptied beforehand. Raises DriverError without Nsight
    Compute, if it may not count or measures nothing, and after *timeout* seconds.
    """
    path = find_ncu()
    if path is None:
        refuse(
            "Nsight Compute is not installed: there is no ncu on the PATH, nor beside CUDA",
            DriverError,
        )
    function: Any = chosen_kernel(launch.kernel).kernel.function
    command = [
        str(path),
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--clock-control", "none", "--cache-control", "all"),
        *("--target-processes", "application-only"),  # no compiler that Triton starts
        *("--kernel-name", f"regex:^{re.escape(function.__name__)}$", "--launch-count", "1"),
        *("--metrics", ",".join(sorted(METRICS.values()))),
        *child.command("occupancy_lab.measuring.ncu", to_line(Batch(problem, (launch,)))),
    ]
    try:
        # Nsight Compute formats numbers by the locale.
        done = child.run(command, timeout, {"LC_ALL": "C.UTF-8"})
    except OSError as error:
        refuse(f"{command[0]} cannot be started: {error.strerror}", DriverError)
    except subprocess.TimeoutExpired:
        refuse(f"Nsight Compute took longer than {timeout:g} s for one launch", DriverError)
    return read_profile(done.stdout)


def read_profile(printed: str) -> NcuProfile:
    """Return the report of the first kernel in a raw CSV page.

    Raises DriverError, with Nsight Compute's message, if there is no kernel.
    """
    units, kernels = read_page(printed)
    if not kernels:
        raise DriverError(_complaint(printed))
    kernel = kernels[0]
    numbers: dict[str, Any] = {
        name: number_in(kernel.get(metric), units.get(metric)) for name, metric in METRICS.items()
    }
    for name in numbers.keys() - FRACTIONS:
        numbers[name] = None if numbers[name] is None else round(numbers[name])
    return NcuProfile(num_programs=programs_of(kernel), **numbers)


def read_page(printed: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the units of the columns of a raw CSV page, and a row for each kernel.

    The first row names the columns; other lines around the page are ignored.
    """
    lines = [line for line in printed.splitlines() if not line.startswith("==")]
    header = next((n for n, line in enumerate(lines) if line.startswith('"ID",')), len(lines))
    rows = list(csv.DictReader(lines[header:]))
    kernels = [row for row in rows if (row["ID"] or "").isdecimal()]
    return rows[0] if rows and rows[0]["ID"] == "" else {}, kernels


def programs_of(kernel: Mapping[str, str]) -> int | None:
    """Return the programs that were launched of a *kernel* of a page, if they are told."""
    grid = (kernel.get("Grid Size") or "").strip("() ")
    sides = [int(side.replace(",", "")) for side in grid.split(", ") if side]
    return math.prod(sides) if sides else None


def number_in(text: str | None, unit: str | None = None) -> float | None:
    """Return the number in a cell of a page, or None if it has none."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value * SCALES.get(unit or "", 1) if math.isfinite(value) else None


def _complaint(printed: str) -> str:
    if NO_PERMISSION in printed:
        return (
            f"Nsight Compute may not read the GPU's counters ({NO_PERMISSION}); run as root, or"
            " load NVIDIA's kernel module with NVreg_RestrictProfilingToAdminUsers=0"
        )
    if match := re.search(rf"{NO_METRIC} (?:regex:\^)?([\w.]+)", printed):
        return f"this Nsight Compute has no metric {match[1]} for this GPU; another version may"
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("==")]
    errors = [line.removeprefix("==ERROR== ") for line in lines if line.startswith("==ERROR==")]
    warnings = [line.removeprefix("==WARNING== ") for line in lines if NO_KERNEL in line]
    reason = (errors or warnings or own[-1:] or ["it printed nothing"])[0]
    if own and "application returned an error" in reason:
        reason = own[-1]
    return f"Nsight Compute measured nothing: {reason}"


def launch_once(problem: Problem, launch: TimedLaunch) -> None:
    """Run *launch* once on the current GPU, on random numbers, and wait for its end."""
    import torch

    kernel = load_kernel(launch.kernel)
    first, *others = operands(problem.rows, problem.cols, problem.dtype, kernel.operands)
    kernel.run_on(first, launch.config, launch.num_programs, *others)
    torch.cuda.synchronize()


def main() -> None:
    """Run the launch given on the command line."""
    batch: Batch = from_line(Batch, sys.argv[1])
    launch_once(batch.problem, *batch.launches)
