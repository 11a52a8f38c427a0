"""The occupancy of every configuration of the tutorial's kernel on one problem."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.occupancy import occupancy
from occupancy_lab.reporting.variants import rows_of, variants_of
from occupancy_lab.throughput.predict import row_resources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.reporting.times import Times
    from occupancy_lab.reporting.variants import Variant
    from occupancy_lab.values import Problem


@dataclass(frozen=True, slots=True)
class Occupancies:
    """The grid of one problem: what has a time, and the rows that a heat map takes."""

    problem: Problem
    times: Times
    """What the times of the variants are."""
    variants: tuple[Variant, ...]
    table: pd.DataFrame = field(compare=False, repr=False)
    """One row a configuration, those that failed too, with `limiter`."""

    def of(self, *, full: bool) -> tuple[Variant, ...]:
        """Return the configurations with the highest occupancy there is, or those with less."""
        return tuple(one for one in self.variants if (one.held.occupancy == self.highest) == full)

    @property
    def highest(self) -> float:
        """The highest occupancy there is."""
        return max(variant.held.occupancy for variant in self.variants)


def make_occupancies(source: Source, problem: Problem) -> Occupancies:
    """Return the grid of *problem*, of which something must have a time."""
    import pandas as pd

    table = source.table[source.table["kernel"] == TUTORIAL_KERNEL]
    launched = table["launched"].isna() | (table["launched"] == table["num_programs"])
    table = rows_of(table[launched], problem).reset_index(drop=True)
    limiters = [_limiter(row, source.gpu) for row in table.to_dict("records")]
    variants = variants_of(source, problem)
    return Occupancies(
        problem,
        source.times,
        tuple(variant for variant in variants if variant.kernel == TUTORIAL_KERNEL),
        table.assign(limiter=pd.Series(limiters, dtype=object)),
    )


def _limiter(row: Mapping[Any, Any], gpu: Gpu) -> str | None:
    """Return the limiters of a row as a sweep has them, None where it has no occupancy."""
    if row["status"] != "ok":
        return None
    return "+".join(occupancy(row_resources(row), gpu.architecture).limiters)
