"""Every configuration of one problem that has a time: what it takes, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.occupancy import occupancy
from occupancy_lab.throughput.predict import row_config, row_resources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.values import Config, Occupancy, Problem, Resources

    Row = Mapping[Any, Any]
    Name = tuple[str, Config]


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration, launched with as many programs as fit."""

    kernel: str
    config: Config
    resources: Resources
    held: Occupancy
    us: float
    recorded_us: float | None = None
    """Beside a predicted time: what others measured on a GPU of the kind; None for nothing."""

    @property
    def instructions(self) -> int | None:
        """Instructions that the warps of a program issue for a row; None where not counted."""
        found = self.resources.loop_instructions or self.resources.instructions
        return None if found is None else found * self.config.num_warps


def rows_of(table: pd.DataFrame, problem: Problem) -> pd.DataFrame:
    """Return the rows of *table* for *problem*, each configuration once."""
    same = (table["rows"] == problem.rows) & (table["cols"] == problem.cols)
    names = ["kernel", "BLOCK_SIZE", "num_warps", "num_stages"]
    return table[same & (table["dtype"] == problem.dtype)].drop_duplicates(names)


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
    rows = rows_of(source.planned, problem).to_dict("records")
    return {(str(row["kernel"]), row_config(row)): row for row in rows}


def _variant(row: Row, gpu: Gpu, recorded_us: float | None) -> Variant:
    resources = row_resources(row)
    return Variant(
        kernel=str(row["kernel"]),
        config=row_config(row),
        resources=resources,
        held=occupancy(resources, gpu.architecture),
        us=float(row["us"]),
        recorded_us=recorded_us,
    )
