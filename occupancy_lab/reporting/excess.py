"""Launches with the tutorial's num_programs where that is not what fits, beside those that fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.calculator import calculate
from occupancy_lab.reporting.summary import summary_of
from occupancy_lab.throughput.table import row_config, row_problem, row_resources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from occupancy_lab.calculator import Calculation
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.reporting.summary import Summary
    from occupancy_lab.values import Config, Problem

NAME = ["kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages", "use"]
"""The columns that two launches share which differ in their num_programs alone."""


@dataclass(frozen=True, slots=True)
class Excess:
    """One configuration, launched with the tutorial's num_programs and with what fits."""

    kernel: str
    problem: Problem
    config: Config
    calculation: Calculation
    tutorial_programs: int
    programs: int
    tutorial_us: float
    us: float

    @property
    def lost(self) -> float:
        """How much longer the tutorial's takes, as a share of what fits."""
        return self.tutorial_us / self.us - 1.0

    @property
    def missing(self) -> str:
        """The terms that the tutorial's formula lacks for this kernel, joined by "and"."""
        return " and ".join(self.calculation.tutorial.missing_terms)

    @property
    def rows_a_program(self) -> float:
        """Rows that a program does where as many are launched as fit."""
        return self.problem.rows / self.programs


@dataclass(frozen=True, slots=True)
class Excesses:
    """All such launches, those that lose the most first."""

    launches: tuple[Excess, ...]
    right: int
    """Launches for which the tutorial's formula gives the number that fits."""
    failing: int
    """Launches for which it divides by zero."""

    @property
    def lost(self) -> Summary:
        """How much longer the tutorial's take, over all of them."""
        return summary_of(launch.lost for launch in self.launches)

    def by_term(self) -> dict[str, tuple[Excess, ...]]:
        """Give the launches by what the formula misses, the commonest first."""
        found: dict[str, list[Excess]] = {}
        for launch in self.launches:
            found.setdefault(launch.missing, []).append(launch)
        ranked = sorted(found.items(), key=lambda item: -len(item[1]))
        return {term: tuple(launches) for term, launches in ranked}


def make_excesses(source: Source) -> Excesses | None:
    """Give the launches of *source* that differ in num_programs alone; None where there are none.

    Only launches count whose number of programs the kernel leaves open.
    """
    measured, planned = source.measured, source.planned
    said = planned["tutorial_num_programs"]
    tutorial = measured[
        (measured["launched"] == measured["tutorial_num_programs"])
        & (measured["launched"] != measured["num_programs"])
    ]
    pairs = tutorial.merge(planned[[*NAME, "us"]], on=NAME, suffixes=("", "_planned"))
    if pairs.empty:
        return None
    launches = [_excess(row, source.gpu) for row in pairs.to_dict("records")]
    looping = planned["kernel"].isin(set(pairs["kernel"]))
    return Excesses(
        tuple(sorted(launches, key=lambda launch: -launch.lost)),
        right=int((looping & (said == planned["num_programs"])).sum()),
        failing=int((looping & said.isna()).sum()),
    )


def _excess(row: Mapping[Any, Any], gpu: Gpu) -> Excess:
    return Excess(
        kernel=str(row["kernel"]),
        problem=row_problem(row),
        config=row_config(row),
        calculation=calculate(row_resources(row), gpu),
        tutorial_programs=int(row["launched"]),
        programs=int(row["num_programs"]),
        tutorial_us=float(row["us"]),
        us=float(row["us_planned"]),
    )
