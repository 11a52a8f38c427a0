"""What the rows of a report hold, as values, and the numbers and words that chapters share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.asked import ask
from occupancy_lab.compiled_records import record_of
from occupancy_lab.files import plain_rows
from occupancy_lab.inputs import TUTORIAL_KERNEL, NamedKernel
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.sweeping.recorded import latest_launches, row_config, row_problem, row_resources
from occupancy_lab.text.words import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.record import Record
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.values import Config, Problem

    Row = Mapping[Any, Any]

    Name = tuple[str, Config]
    """A kernel and its configuration."""


def row_name(row: Row) -> Name:
    """Return the kernel of a row and its configuration."""
    return str(row["kernel"]), row_config(row)


def tutorial_name(problem: Problem, gpu: Gpu) -> Name:
    """Return the kernel and the configuration that the tutorial launches on *problem*."""
    config = load_kernel(TUTORIAL_KERNEL).default_config(problem, gpu.architecture.max_shared)
    return TUTORIAL_KERNEL, config


def row_record(row: Row, gpu: Gpu) -> Record:
    """Return the record of a row that was compiled and fits *gpu*, without a time."""
    kernel, triton = str(row["kernel"]), str(row["triton_version"])
    named = NamedKernel(kernel, load_kernel(kernel))
    asked = ask(named, row_problem(row), row_config(row), gpu)
    return record_of(asked, row_resources(row), triton=triton)


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration, launched with as many programs as fit."""

    kernel: str
    config: Config
    calculation: Calculation
    us: float

    @property
    def occupancy(self) -> float:
        """The occupancy as a share."""
        return self.calculation.occupancy.occupancy

    @property
    def instructions(self) -> int | None:
        """Instructions that the warps of a program issue for a row; None where not counted."""
        resources = self.calculation.resources
        found = resources.loop_instructions or resources.instructions
        return None if found is None else found * self.config.num_warps


def of_problem(table: pd.DataFrame, problem: Problem) -> pd.Series[bool]:
    """Return of each row of *table* whether it is for *problem*."""
    same = (table["rows"] == problem.rows) & (table["cols"] == problem.cols)
    return same & (table["dtype"] == problem.dtype)


def rows_of(table: pd.DataFrame, problem: Problem) -> pd.DataFrame:
    """Return the rows of *table* for *problem*, each launch once, as it was recorded last."""
    return latest_launches(table[of_problem(table, problem)])


def launches_of(source: Source, problem: Problem) -> dict[Name, Row]:
    """Return the rows of *source* for *problem* as planned, by kernel and configuration."""
    return {row_name(row): row for row in plain_rows(rows_of(source.planned, problem))}


def variants_of(source: Source, problem: Problem) -> dict[Name, Variant]:
    """Return the configurations of *problem* that have a time, in the order of the rows."""
    return {
        name: Variant(*name, calculate(row_resources(row), source.gpu), float(row["us"]))
        for name, row in launches_of(source, problem).items()
    }


@dataclass(frozen=True, slots=True)
class Summary:
    """How numbers are spread, such as shares of time."""

    count: int
    least: float
    median: float
    mean: float
    p90: float
    """What a tenth of them pass."""
    most: float


def summary_of(numbers: Iterable[float]) -> Summary:
    """Return the summary of *numbers*; there must be at least one."""
    import numpy as np

    found = np.array(list(numbers), dtype=float)
    return Summary(
        count=len(found),
        least=float(found.min()),
        median=float(np.median(found)),
        mean=float(found.mean()),
        p90=float(np.quantile(found, 0.9)),
        most=float(found.max()),
    )


def known_summary(numbers: Iterable[float | None]) -> Summary | None:
    """Return the summary of those of *numbers* that are known; None where none is."""
    found = [number for number in numbers if number is not None]
    return summary_of(found) if found else None


def gbs_of(problem: Problem, us: float) -> float:
    """Return the bandwidth of one read and one write of the matrix in *us*, GB/s."""
    return 2 * problem.matrix_bytes / us / 1e3


def span_words(least: str, most: str) -> str:
    """Return "4.9% to 6.8%", or one of the two where they are the same."""
    return least if least == most else f"{least} to {most}"


def config_words(kernel: str, config: Config) -> str:
    """Return "softmax, 8 warps, 4 stages"; stages only where there is a loop for them."""
    words = [kernel, count(config.num_warps, "warp")]
    if load_kernel(kernel).grid is Grid.PERSISTENT:
        words.append(count(config.num_stages, "stage"))
    return ", ".join(words)
