"""Reads the configurations of one kernel compiled for GPUs of both vendors, for amd-nvidia.md.

The rows have the resources of the binaries and the predicted times; everything else is calculated
from them again.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab import sweep
from occupancy_lab.gpus import find_gpu
from occupancy_lab.reporting.source import row_record, tutorial_name
from occupancy_lab.sweeping.recorded import read_rows, row_config, row_problem
from occupancy_lab.table.columns import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.values import Problem

    Name = tuple[str, Problem, int, int]
    """The key of a record: GPU, problem, num_warps and num_stages."""

FILE = Path(__file__).with_name("data") / "vendors.csv"
"""The file that `compile_rows` writes, with a row per configuration and GPU."""
GPUS = ("mi300x", "mi350x", "rx7900xtx", "h100", "b200", "rtx5090")
ROWS, COLS = 4096, (781, 4096)
NUM_WARPS, NUM_STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4)
CONFIGURATION = ("gpu", "kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages")
READ = tuple(name for name in RESOURCES if name != "n_spills")
"""The columns that come from the binary; n_spills is local_bytes in words."""
TIMES = ("predicted_us", "predicted_gbs", "bound", "basis")


def compile_rows() -> None:
    """Compile and count every configuration for every GPU; write a row even if that fails."""
    table = sweep(COLS, rows=ROWS, gpu=GPUS, num_warps=NUM_WARPS, num_stages=NUM_STAGES)
    columns = [*CONFIGURATION, "status", "reason", *READ, *TIMES, "triton_version"]
    rounded = table[columns].round({"predicted_us": 3, "predicted_gbs": 1})
    rounded.to_csv(FILE, index=False, lineterminator="\n")
    print(f"{len(table)} rows in {FILE}")


@dataclass(frozen=True, slots=True)
class Time:
    """The predicted time of a configuration."""

    us: float
    gbs: float
    """The bandwidth that the traffic and this time amount to."""
    bound: str
    basis: str
    """What the predicted time is based on."""


@dataclass(frozen=True, slots=True)
class Vendors:
    """Every configuration on every GPU, in the order of the rows."""

    triton: str
    statuses: Mapping[str, int]
    """How many rows have each status."""
    names: tuple[Name, ...]
    records: Mapping[Name, Record]
    """The configurations that fit on their GPU."""
    times: Mapping[Name, Time]
    """The times of the records that have one."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs, each once."""
        return tuple(find_gpu(key) for key in dict.fromkeys(name[0] for name in self.names))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems, each once."""
        return tuple(dict.fromkeys(name[1] for name in self.names))

    @property
    def num_warps(self) -> tuple[int, ...]:
        """The numbers of warps per program that were tried."""
        return tuple(sorted({name[2] for name in self.names}))

    @property
    def num_stages(self) -> tuple[int, ...]:
        """The numbers of stages that were tried."""
        return tuple(sorted({name[3] for name in self.names}))

    def of(self, gpu: Gpu) -> tuple[Record, ...]:
        """Return the records of one GPU."""
        return tuple(record for name, record in self.records.items() if name[0] == gpu.key)

    def at(self, gpu: Gpu, problem: Problem, num_warps: int, num_stages: int) -> Record | None:
        """Return the record of one configuration on one GPU, or None if there is none."""
        return self.records.get((gpu.key, problem, num_warps, num_stages))

    def time(self, gpu: Gpu, problem: Problem, num_warps: int, num_stages: int) -> Time | None:
        """Return the predicted time of one configuration on one GPU, or None if there is none."""
        return self.times.get((gpu.key, problem, num_warps, num_stages))

    def tutorials(self, gpu: Gpu, problem: Problem) -> Record | None:
        """Return the record with the tutorial's settings for *gpu*, or None if there is none."""
        _, config = tutorial_name(problem, gpu)
        return self.at(gpu, problem, config.num_warps, config.num_stages)

    def tutorials_time(self, gpu: Gpu, problem: Problem) -> Time | None:
        """Return the predicted time of the tutorial's settings on *gpu*; None if unknown."""
        _, config = tutorial_name(problem, gpu)
        return self.time(gpu, problem, config.num_warps, config.num_stages)


def recorded_vendors() -> Vendors:
    """Return the recorded configurations of the CSV file beside this module."""
    return make_vendors(read_rows(FILE).to_dict("records"))


def make_vendors(rows: list[dict[Any, Any]]) -> Vendors:
    """Return the configurations of *rows*, which one version of Triton compiled.

    Raise DoesNotFitError for a row with the status "ok" although no program fits on the GPU.
    """
    (version,) = {str(row["triton_version"]) for row in rows}
    named = {_name(row): row for row in rows}
    records = {
        name: row_record(row, find_gpu(name[0]))
        for name, row in named.items()
        if row["status"] == "ok"
    }
    times = {name: time for name in records if (time := _time(named[name])) is not None}
    statuses = Counter(str(row["status"]) for row in rows)
    return Vendors(version, statuses, tuple(named), records, times)


def _time(row: Mapping[Any, Any]) -> Time | None:
    us, gbs = float(row["predicted_us"]), float(row["predicted_gbs"])
    return None if math.isnan(us) else Time(us, gbs, str(row["bound"]), str(row["basis"]))


def _name(row: Mapping[Any, Any]) -> Name:
    config = row_config(row)
    return str(row["gpu"]), row_problem(row), config.num_warps, config.num_stages
