"""The benchmark where nothing was launched: predictions, and beside them what was measured."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.kernel import load_kernel
from occupancy_lab.reporting.benchmark import (
    FASTEST,
    TUTORIAL,
    Benchmark,
    launches_of_widths,
    others_of,
    width_of,
)
from occupancy_lab.reporting.rows import row_record
from occupancy_lab.reporting.summary import summary_of
from occupancy_lab.reporting.variants import launches_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.reporting.benchmark import Width
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.reporting.summary import Summary
    from occupancy_lab.values import Problem


@dataclass(frozen=True, slots=True)
class Recorded:
    """A number of columns of which something was measured."""

    width: Width
    """What is predicted of it."""
    us: Mapping[str, float]
    """The measured times, of FASTEST, TUTORIAL and the providers."""

    def gbs(self, name: str) -> float:
        """Return the bandwidth of *name* as it was measured, GB/s; KeyError where it was not."""
        return self.width.total_bytes / self.us[name] / 1e3


@dataclass(frozen=True, slots=True)
class Forecast:
    """A benchmark of predicted times, of all configurations and of the tutorial's launch."""

    benchmark: Benchmark
    recorded: tuple[Recorded, ...]
    """In ascending order of the columns; not all of them need be the benchmark's."""

    @property
    def every(self) -> tuple[Width, ...]:
        """Every width of which something is predicted."""
        return (*self.benchmark.widths, *(one.width for one in self.recorded))

    @property
    def names(self) -> tuple[str, ...]:
        """What was measured at any width, in a fixed order."""
        return tuple(dict.fromkeys(name for one in self.recorded for name in one.us))

    def against_fastest(self, name: str) -> Summary | None:
        """Return the measured times of *name* over the fastest; None where both never were."""
        both = [one.us for one in self.recorded if {name, FASTEST} <= set(one.us)]
        return summary_of(us[name] / us[FASTEST] for us in both) if both else None


def make_forecast(source: Source) -> Forecast | None:
    """Return the benchmark as predicted; None where fewer than two numbers of columns are."""
    problems = tuple(launches_of_widths(source))
    if not problems:
        return None
    first = problems[0]
    widths = tuple(_width(source, problem) for problem in problems)
    recorded = _recorded(source.recorded, first)
    shapes = (dataclasses.replace(first, cols=cols) for cols in sorted(recorded))
    return Forecast(
        Benchmark(first.rows, first.dtype, widths),
        tuple(
            Recorded(_width(source, problem), recorded[problem.cols])
            for problem in shapes
            if launches_of(source, problem)
        ),
    )


def _width(source: Source, problem: Problem) -> Width:
    rows = list(launches_of(source, problem).values())
    tutorial = _tutorial_us(source, problem)
    return width_of(problem, rows, {} if tutorial is None else {TUTORIAL: tutorial})


def _tutorial_us(source: Source, problem: Problem) -> float | None:
    """Return the predicted time of the tutorial's launch, with its own number of programs.

    None where it was not compiled, its formula fails, or nothing is predicted of it.
    """
    kernel = load_kernel(TUTORIAL_KERNEL)
    config = kernel.default_config(problem, source.gpu.architecture.max_shared)
    row = launches_of(source, problem).get((TUTORIAL_KERNEL, config))
    if row is None:
        return None
    record = row_record(row, source.gpu)
    if record.tutorial_plan.num_programs is None:
        return None
    prediction = record.prediction_of(record.tutorial_plan)
    return None if prediction is None else prediction.us


def _recorded(recorded: Source | None, problem: Problem) -> dict[int, dict[str, float]]:
    """Return by columns what was measured on matrices with the rows and dtype of *problem*."""
    if recorded is None:
        return {}
    found, launches = others_of(recorded, problem), recorded.planned
    same = launches[(launches["rows"] == problem.rows) & (launches["dtype"] == problem.dtype)]
    for row in same.to_dict("records"):
        us = found.setdefault(int(row["cols"]), {})
        us[FASTEST] = min(float(row["us"]), us.get(FASTEST, float("inf")))
    return found
