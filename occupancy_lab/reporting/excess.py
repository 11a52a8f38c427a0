"""Launches for which the tutorial's num_programs is not what fits, and what that costs.

What it costs is a share of the time with as many programs as fit, measured and predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.reporting.rows import row_record
from occupancy_lab.reporting.summary import summary_of
from occupancy_lab.text.words import difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.reporting.summary import Summary
    from occupancy_lab.values import Config, Prediction, Problem

NAME = ["kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages", "use"]
"""The columns that two launches share which differ in their num_programs alone."""


@dataclass(frozen=True, slots=True)
class Miscount:
    """One configuration for which the tutorial's formula gives another num_programs than fits."""

    kernel: str
    problem: Problem
    config: Config
    calculation: Calculation
    tutorial_programs: int
    programs: int
    tutorial_prediction: Prediction | None
    """What is predicted of a launch with the tutorial's number."""
    prediction: Prediction | None
    """What is predicted with as many programs as fit."""

    @property
    def missing(self) -> str:
        """The terms that the tutorial's formula lacks for this kernel, joined by "and"."""
        return " and ".join(self.calculation.tutorial.missing_terms)

    @property
    def is_tutorials_own(self) -> bool:
        """Whether it is the configuration that the tutorial itself takes."""
        most = self.calculation.architecture.max_shared
        own = load_kernel(TUTORIAL_KERNEL).default_config(self.problem, most)
        return (self.kernel, self.config) == (TUTORIAL_KERNEL, own)

    @property
    def surplus(self) -> float:
        """Programs launched beyond those that fit, as a share of these."""
        return self.tutorial_programs / self.programs - 1.0

    @property
    def predicted_lost(self) -> float | None:
        """How much longer the tutorial's is predicted to take; None where nothing is predicted."""
        if self.tutorial_prediction is None or self.prediction is None:
            return None
        return self.tutorial_prediction.us / self.prediction.us - 1.0


@dataclass(frozen=True, slots=True)
class Excess(Miscount):
    """One of them, launched with the tutorial's num_programs and with what fits."""

    tutorial_us: float
    us: float

    @property
    def lost(self) -> float:
        """How much longer the tutorial's takes, as a share of what fits."""
        return self.tutorial_us / self.us - 1.0

    @property
    def off(self) -> float | None:
        """How far the predicted time with the tutorial's number is off, as a share of its own."""
        said = self.tutorial_prediction
        return None if said is None else abs(difference(said.us, self.tutorial_us))

    @property
    def rows_a_program(self) -> float:
        """Rows that a program does where as many are launched as fit."""
        return self.problem.rows / self.programs


Launch = TypeVar("Launch", bound=Miscount)


@dataclass(frozen=True, slots=True)
class Miscounts(Generic[Launch]):
    """All such configurations, the worst first."""

    launches: tuple[Launch, ...]
    right: int
    """Configurations for which the tutorial's formula gives the number that fits."""
    failing: int
    """Configurations for which it divides by zero."""

    @property
    def too_many(self) -> int:
        """Those for which it launches more than fit."""
        return sum(launch.tutorial_programs > launch.programs for launch in self.launches)

    def by_term(self) -> dict[str, tuple[Launch, ...]]:
        """Return the configurations by what the formula misses, the commonest first."""
        found: dict[str, list[Launch]] = {}
        for launch in self.launches:
            found.setdefault(launch.missing, []).append(launch)
        ranked = sorted(found.items(), key=lambda item: -len(item[1]))
        return {term: tuple(launches) for term, launches in ranked}

    @property
    def predicted_lost(self) -> Summary | None:
        """How much longer the tutorial's are predicted to take; None where nothing is predicted."""
        return predicted_lost(self.launches)


@dataclass(frozen=True, slots=True)
class Excesses(Miscounts[Excess]):
    """All that were launched both ways, those that lose the most first."""

    @property
    def lost(self) -> Summary:
        """How much longer the tutorial's take, over all of them."""
        return summary_of(launch.lost for launch in self.launches)

    @property
    def off(self) -> Summary | None:
        """How far the predicted times with the tutorial's number are off; None for none."""
        return _known(launch.off for launch in self.launches)


def predicted_lost(launches: Iterable[Miscount]) -> Summary | None:
    """Return what is predicted to be lost over *launches*; None where nothing is predicted."""
    return _known(launch.predicted_lost for launch in launches)


def _known(numbers: Iterable[float | None]) -> Summary | None:
    found = [number for number in numbers if number is not None]
    return summary_of(found) if found else None


def make_excesses(source: Source) -> Excesses | None:
    """Return the launches of *source* that differ in num_programs alone; None where there are none.

    Only launches count whose number of programs the kernel leaves open.
    """
    measured, planned = source.measured, source.planned
    tutorial = measured[
        (measured["launched"] == measured["tutorial_num_programs"])
        & (measured["launched"] != measured["num_programs"])
    ]
    pairs = tutorial.merge(planned[[*NAME, "us"]], on=NAME, suffixes=("", "_planned"))
    if pairs.empty:
        return None
    launches = [_excess(row, source.gpu) for row in pairs.to_dict("records")]
    looping = planned[planned["kernel"].isin(set(pairs["kernel"]))]
    return Excesses(
        tuple(sorted(launches, key=lambda launch: -launch.lost)),
        right=_right(looping),
        failing=_failing(looping),
    )


def make_miscounts(source: Source) -> Miscounts[Miscount] | None:
    """Return the configurations of *source* whose num_programs the tutorial's formula miscounts.

    None where there are none. Those come first that are predicted to lose the most.
    """
    planned = source.planned
    looping = planned[[load_kernel(name).grid is Grid.PERSISTENT for name in planned["kernel"]]]
    said = looping["tutorial_num_programs"]
    wrong = looping[said.notna() & (said != looping["num_programs"])]
    if wrong.empty:
        return None
    launches = [Miscount(**_count(row, source.gpu)) for row in wrong.to_dict("records")]
    return Miscounts(
        tuple(sorted(launches, key=_worst_first)),
        right=_right(looping),
        failing=_failing(looping),
    )


def _worst_first(launch: Miscount) -> tuple[bool, float, float]:
    lost = launch.predicted_lost
    return lost is None, -(lost or 0.0), -launch.surplus


def _right(looping: pd.DataFrame) -> int:
    return int((looping["tutorial_num_programs"] == looping["num_programs"]).sum())


def _failing(looping: pd.DataFrame) -> int:
    return int(looping["tutorial_num_programs"].isna().sum())


def _excess(row: Mapping[Any, Any], gpu: Gpu) -> Excess:
    return Excess(**_count(row, gpu), tutorial_us=float(row["us"]), us=float(row["us_planned"]))


def _count(row: Mapping[Any, Any], gpu: Gpu) -> dict[str, Any]:
    record = row_record(row, gpu)
    return {
        "kernel": str(row["kernel"]),
        "problem": record.problem,
        "config": record.config,
        "calculation": record.calculation,
        "tutorial_programs": int(row["tutorial_num_programs"]),
        "programs": int(row["num_programs"]),
        "tutorial_prediction": record.tutorial_prediction,
        "prediction": record.prediction,
    }
