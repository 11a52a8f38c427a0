"""The tutorial's benchmark: one matrix after the other, each wider than the last."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.choosing import TUTORIAL_KERNEL
from occupancy_lab.kernel import load_kernel
from occupancy_lab.planning import traffic
from occupancy_lab.reporting.source import ALL
from occupancy_lab.reporting.summary import summary_of
from occupancy_lab.throughput.table import row_config, row_problem
from occupancy_lab.tuning.search import choice_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import pandas as pd

    from occupancy_lab.reporting.source import Source
    from occupancy_lab.reporting.summary import Summary
    from occupancy_lab.tuning.choice import Choice
    from occupancy_lab.values import Problem

    Row = Mapping[Any, Any]

USE = "benchmark"
CHOSEN, FASTEST, TUTORIAL, COPY = "chosen", "fastest", "tutorial", "copy"
"""What is set side by side, beside the names of providers, of which `copy` is one."""


@dataclass(frozen=True, slots=True)
class Width:
    """What was measured of one number of columns."""

    cols: int
    total_bytes: int
    """Of one read and one write of the matrix."""
    configurations: int
    """Those that were measured as planned, all of both kernels."""
    chosen: Choice
    """The one with the least predicted time."""
    fastest: Choice
    """The one with the least measured time."""
    us: Mapping[str, float]
    """Median times of CHOSEN, FASTEST, TUTORIAL and the providers, those that were measured."""

    def gbs(self, name: str) -> float:
        """Give the bandwidth of *name*, GB/s; KeyError where it was not measured."""
        return self.total_bytes / self.us[name] / 1e3

    def lost(self, name: str = CHOSEN) -> float:
        """Give how much longer *name* takes than the fastest, as a share of that."""
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
        """What was measured of any width, in a fixed order, the providers last."""
        return tuple(dict.fromkeys(name for width in self.widths for name in width.us))

    def with_name(self, name: str) -> tuple[Width, ...]:
        """Give the widths at which *name* was measured."""
        return tuple(width for width in self.widths if name in width.us)

    def lost(self, name: str = CHOSEN) -> Summary:
        """Give how much longer *name*, one of `names`, takes than the fastest."""
        return summary_of(width.lost(name) for width in self.with_name(name))

    def against_chosen(self, name: str) -> Summary:
        """Give the times of *name*, one of `names`, over those of the chosen."""
        return summary_of(width.us[name] / width.us[CHOSEN] for width in self.with_name(name))

    @property
    def most_configurations(self) -> int:
        """The most configurations that were measured at one width."""
        return max(width.configurations for width in self.widths)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The widths, neighbours with the same choice together."""
        groups = itertools.groupby(self.widths, lambda width: knobs(width.chosen))
        return tuple(Span(tuple(widths)) for _, widths in groups)


def knobs(choice: Choice) -> tuple[str, int, int]:
    """Give what is chosen beside a BLOCK_SIZE that follows from the columns."""
    return choice.kernel, choice.config.num_warps, choice.config.num_stages


def make_benchmark(source: Source) -> Benchmark | None:
    """Give the benchmark of *source*, of the rows and the dtype with the most numbers of columns.

    None where fewer than two numbers of columns were measured and predicted.
    """
    rows = source.claims_for(USE).to_dict("records")
    of_problem: dict[Problem, list[Row]] = {}
    for row in rows:
        of_problem.setdefault(row_problem(row), []).append(row)
    widths = Counter((problem.rows, problem.dtype) for problem in of_problem)
    if not widths:
        return None
    (shape, number), *_ = widths.most_common(1)
    if number == 1:
        return None
    others = _others(source, *shape)
    problems = sorted(
        (one for one in of_problem if (one.rows, one.dtype) == shape), key=lambda one: one.cols
    )
    return Benchmark(
        *shape, tuple(_width(one, of_problem[one], others.get(one.cols, {})) for one in problems)
    )


def _width(problem: Problem, rows: Sequence[Row], others: Mapping[str, float]) -> Width:
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


def _others(source: Source, rows: int, dtype: str) -> dict[int, dict[str, float]]:
    """Give by columns the times of the tutorial's launch and of the providers."""
    found: dict[int, dict[str, float]] = {}
    for table in (_tutorial_launches(source).assign(provider=TUTORIAL), source.providers):
        if table.empty:
            continue
        same = table[(table["rows"] == rows) & (table["dtype"] == dtype)]
        for row in same.to_dict("records"):
            found.setdefault(int(row["cols"]), {})[str(row["provider"])] = float(row["us"])
    return found


def _tutorial_launches(source: Source) -> pd.DataFrame:
    """Give the launches of the tutorial's own configuration with its own num_programs."""
    kernel, most = load_kernel(TUTORIAL_KERNEL), source.gpu.architecture.max_shared
    table = source.measured
    table = table[
        (table["kernel"] == TUTORIAL_KERNEL)
        & (table["launched"] == table["tutorial_num_programs"])
        & table["use"].isin((USE, ALL))
    ]
    own = [
        row_config(row) == kernel.default_config(row_problem(row), most)
        for row in table.to_dict("records")
    ]
    return table.loc[own]
