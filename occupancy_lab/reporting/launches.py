"""What the rows of a report hold, as values, and the numbers and words that chapters share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.files import plain_rows
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.occupancy import occupancy
from occupancy_lab.record import record_of
from occupancy_lab.sweeping.recorded import latest_launches
from occupancy_lab.text.words import count
from occupancy_lab.throughput.predict import row_config, row_problem, row_resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.values import Config, Occupancy, Problem, Resources

    Row = Mapping[Any, Any]

    Name = tuple[str, Config]


def row_record(row: Mapping[Any, Any], gpu: Gpu) -> Record:
    """Return the record of a row that was compiled and fits *gpu*."""
    return record_of(
        load_kernel(str(row["kernel"])),
        row_problem(row),
        row_config(row),
        gpu,
        row_resources(row),
        triton=str(row["triton_version"]),
    )


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration, launched with as many programs as fit."""

    kernel: str
    config: Config
    resources: Resources
    occupancy: Occupancy
    us: float
    recorded_us: float | None = None
    """Beside a predicted time: what others measured on a GPU of the kind; None for nothing."""

    @property
    def instructions(self) -> int | None:
        """Instructions that the warps of a program issue for a row; None where not counted."""
        found = self.resources.loop_instructions or self.resources.instructions
        return None if found is None else found * self.config.num_warps


def rows_of(table: pd.DataFrame, problem: Problem) -> pd.DataFrame:
    """Return the rows of *table* for *problem*, each launch once, as it was recorded last."""
    same = (table["rows"] == problem.rows) & (table["cols"] == problem.cols)
    return latest_launches(table[same & (table["dtype"] == problem.dtype)])


def variants_of(source: Source, problem: Problem) -> tuple[Variant, ...]:
    """Return the configurations of *problem* that have a time, in the order of the rows."""
    known = launches_of(source.recorded, problem)
    recorded = {name: float(row["us"]) for name, row in known.items()}
    return tuple(
        _variant(row, source.gpu, recorded.get(name))
        for name, row in launches_of(source, problem).items()
    )


def launches_of(source: Source | None, problem: Problem) -> dict[Name, Row]:
    """Return the rows of *source* for *problem* as planned, by kernel and configuration."""
    if source is None:
        return {}
    rows = plain_rows(rows_of(source.planned, problem))
    return {(str(row["kernel"]), row_config(row)): row for row in rows}


def _variant(row: Row, gpu: Gpu, recorded_us: float | None) -> Variant:
    resources = row_resources(row)
    return Variant(
        kernel=str(row["kernel"]),
        config=row_config(row),
        resources=resources,
        occupancy=occupancy(resources, gpu.architecture),
        us=float(row["us"]),
        recorded_us=recorded_us,
    )


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


def share(number: float) -> str:
    """Return 0.0314 as "3.1%"."""
    return f"{100 * number:.1f}%"


def config_words(kernel: str, config: Config) -> str:
    """Return "softmax, 8 warps, 4 stages"; stages only where there is a loop for them."""
    words = [kernel, count(config.num_warps, "warp")]
    if load_kernel(kernel).grid is Grid.PERSISTENT:
        words.append(count(config.num_stages, "stage"))
    return ", ".join(words)


def problem_words(problem: Problem) -> str:
    """Return "4096 x 781 float32"."""
    return f"{problem.rows} x {problem.cols} {problem.dtype}"
