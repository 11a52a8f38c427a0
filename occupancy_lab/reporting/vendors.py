"""One kernel on GPUs of both vendors: what each configuration takes there, worked out from rows.

The rows say what was read of the binaries; everything else is worked out of them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from occupancy_lab.gpus import find_gpu
from occupancy_lab.reporting.rows import row_record
from occupancy_lab.sweeping.recorded import read_rows
from occupancy_lab.throughput.predict import row_config, row_problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.values import Config, Problem

FILE = "vendors.csv"
"""What reports/record_vendors.py writes, a row a configuration and GPU."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One configuration on one GPU."""

    gpu: Gpu
    problem: Problem
    config: Config
    status: str
    """ok, or why there is no record."""
    record: Record | None


@dataclass(frozen=True, slots=True)
class Vendors:
    """Every configuration on every GPU, in the order of the rows."""

    triton: str
    every: tuple[Compiled, ...]

    @property
    def records(self) -> tuple[Record, ...]:
        """Those that a GPU holds."""
        return tuple(one.record for one in self.every if one.record is not None)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs, each once."""
        return tuple({one.gpu.key: one.gpu for one in self.every}.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems, each once."""
        return tuple(dict.fromkeys(one.problem for one in self.every))

    @property
    def num_warps(self) -> tuple[int, ...]:
        """The warps a program that were tried."""
        return tuple(sorted({one.config.num_warps for one in self.every}))

    @property
    def num_stages(self) -> tuple[int, ...]:
        """The stages that were tried."""
        return tuple(sorted({one.config.num_stages for one in self.every}))

    def of(self, gpu: Gpu) -> tuple[Record, ...]:
        """Return the records of one GPU."""
        return tuple(record for record in self.records if record.gpu.key == gpu.key)

    def at(self, gpu: Gpu, problem: Problem, num_warps: int, num_stages: int) -> Record | None:
        """Return one configuration on one GPU; None where the GPU has no such thing."""
        wanted = (problem, num_warps, num_stages)
        for record in self.of(gpu):
            config = record.config
            if (record.problem, config.num_warps, config.num_stages) == wanted:
                return record
        return None


def recorded_vendors() -> Vendors:
    """Return what was recorded with Triton and comes with the lab."""
    return make_vendors(read_rows(files("occupancy_lab.recorded") / FILE).to_dict("records"))


def make_vendors(rows: list[dict[Any, Any]]) -> Vendors:
    """Return the configurations of *rows*, which one version of Triton compiled.

    Raises DoesNotFitError for a row that is "ok" where the GPU holds not one such program.
    """
    (version,) = {str(row["triton_version"]) for row in rows}
    return Vendors(version, tuple(_compiled(row) for row in rows))


def _compiled(row: Mapping[Any, Any]) -> Compiled:
    gpu, problem, config = find_gpu(str(row["gpu"])), row_problem(row), row_config(row)
    status, record = str(row["status"]), None
    if status == "ok":
        record = row_record(row, gpu)
    return Compiled(gpu, problem, config, status, record)
