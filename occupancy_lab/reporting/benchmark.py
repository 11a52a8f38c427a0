"""The tutorial's benchmark: one matrix after the other, each wider than the last."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.kernel import load_kernel
from occupancy_lab.occupancy.planning import traffic
from occupancy_lab.reporting.fresh import USE
from occupancy_lab.reporting.source import ALL
from occupancy_lab.reporting.summary import summary_of
from occupancy_lab.sweeping.recorded import CHECK
from occupancy_lab.throughput.predict import row_config, row_problem
from occupancy_lab.tuning.choice import choice_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import pandas as pd

    from occupancy_lab.reporting.source import Source
    from occupancy_lab.reporting.summary import Summary
    from occupancy_lab.tuning.choice import Choice
    from occupancy_lab.values import Problem

    Row = Mapping[Any, Any]

CHOSEN, FASTEST, TUTORIAL, COPY = "chosen", "fastest", "tutorial", "copy"
"""What is set side by side, beside the names of providers, of which `copy` is one."""


@dataclass(frozen=True, slots=True)
class Width:
    """What was measured, or else is predicted, of one number of columns."""

    cols: int
    total_bytes: int
    """Of one read and one write of the matrix."""
    configurations: int
    """Those that have a time as planned, all of both kernels."""
    chosen: Choice
    """The one with the least predicted time."""
    fastest: Choice
    """The one with the least time."""
    us: Mapping[str, float]
    """Times of CHOSEN, FASTEST, TUTORIAL and the providers, those that are known."""

    def gbs(self, name: str) -> float:
        """Return the bandwidth of *name*, GB/s; KeyError where it has no time."""
        return self.total_bytes / self.us[name] / 1e3

    def lost(self, name: str = CHOSEN) -> float:
        """Return how much longer *name* takes than the fastest, as a share of that."""
        return self.us[name] / self.us[FASTEST] - 1.0

    @property
    def is_right(self) -> bool:
        """Whether the chosen is the fastest."""
        return self.chosen == self.fastest


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring widths for which the same was chosen."""

    widths: tuple[Width, ...]

    @property
    def chosen(self) -> Choice:
        """What was chosen, for the first of them."""
        return self.widths[0].chosen


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Widths in ascending order, all of as many rows and one dtype."""

    rows: int
    dtype: str
    widths: tuple[Width, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What has a time at any width, in a fixed order, the providers last."""
        return tuple(dict.fromkeys(name for width in self.widths for name in width.us))

    def with_name(self, name: str) -> tuple[Width, ...]:
        """Return the widths at which *name* has a time."""
        return tuple(width for width in self.widths if name in width.us)

    def lost(self, name: str = CHOSEN) -> Summary:
        """Return how much longer *name*, one of `names`, takes than the fastest."""
        return summary_of(width.lost(name) for width in self.with_name(name))

    def against_chosen(self, name: str) -> Summary:
        """Return the times of *name*, one of `names`, over those of the chosen."""
        return summary_of(width.us[name] / width.us[CHOSEN] for width in self.with_name(name))

    @property
    def most_configurations(self) -> int:
        """The most configurations that have a time at one width."""
        return max(width.configurations for width in self.widths)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The widths, neighbours with the same choice together."""
        groups = itertools.groupby(self.widths, lambda width: knobs(width.chosen))
        return tuple(Span(tuple(widths)) for _, widths in groups)


def knobs(choice: Choice) -> tuple[str, int, int]:
    """Return what is chosen beside a BLOCK_SIZE that follows from the columns."""
    return choice.kernel, choice.config.num_warps, choice.config.num_stages


def make_benchmark(source: Source) -> Benchmark | None:
    """Return the benchmark of *source*, of the rows and the dtype with the most numbers of columns.

    None where fewer than two numbers of columns were measured and predicted.
    """
    launches = launches_of_widths(source)
    if not launches:
        return None
    first = next(iter(launches))
    others = others_of(source, first)
    widths = (width_of(one, rows, others.get(one.cols, {})) for one, rows in launches.items())
    return Benchmark(first.rows, first.dtype, tuple(widths))


def launches_of_widths(source: Source) -> dict[Problem, list[Row]]:
    """Return the launches of the benchmark by problem, in ascending order of the columns.

    Its problems have the rows and the dtype for which there are the most numbers of columns; it
    is empty where there is not more than one.
    """
    rows = source.claims_for(USE).to_dict("records")
    of_problem: dict[Problem, list[Row]] = {}
    for row in rows:
        of_problem.setdefault(row_problem(row), []).append(row)
    widths = Counter((problem.rows, problem.dtype) for problem in of_problem)
    shape, number = max(widths.items(), key=lambda item: item[1], default=(None, 0))
    if number <= 1:
        return {}
    problems = (one for one in of_problem if (one.rows, one.dtype) == shape)
    return {one: of_problem[one] for one in sorted(problems, key=lambda one: one.cols)}


def width_of(problem: Problem, rows: Sequence[Row], others: Mapping[str, float]) -> Width:
    """Return what the launches *rows* of *problem* and the times of *others* come to."""
    chosen = min(rows, key=lambda row: float(row["predicted_us"]))
    fastest = min(rows, key=lambda row: float(row["us"]))
    kernel = load_kernel(str(chosen["kernel"]))
    return Width(
        cols=problem.cols,
        total_bytes=traffic(kernel.memory_steps(problem), problem).total_bytes,
        configurations=len(rows),
        chosen=choice_of(chosen),
        fastest=choice_of(fastest),
        us={CHOSEN: float(chosen["us"]), FASTEST: float(fastest["us"]), **others},
    )


def others_of(source: Source, problem: Problem) -> dict[int, dict[str, float]]:
    """Return by columns the times of the tutorial's launch and of the providers.

    They are those measured on matrices of as many rows as *problem* and of its dtype.
    """
    found: dict[int, dict[str, float]] = {}
    for table in (_tutorial_launches(source).assign(provider=TUTORIAL), source.providers):
        if table.empty:
            continue
        same = table[(table["rows"] == problem.rows) & (table["dtype"] == problem.dtype)]
        for row in same.to_dict("records"):
            found.setdefault(int(row["cols"]), {})[str(row["provider"])] = float(row["us"])
    return found


def _tutorial_launches(source: Source) -> pd.DataFrame:
    """Return the launches of the tutorial's own configuration with its own num_programs."""
    kernel, most = load_kernel(TUTORIAL_KERNEL), source.gpu.architecture.max_shared
    table = source.measured
    table = table[
        (table["kernel"] == TUTORIAL_KERNEL)
        & (table["launched"] == table["tutorial_num_programs"])
        & table["use"].isin((USE, ALL, CHECK))
    ]
    own = [
        row_config(row) == kernel.default_config(row_problem(row), most)
        for row in table.to_dict("records")
    ]
    return table.loc[own]
