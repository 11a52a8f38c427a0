"""The worked example as values: the tutorial's launch of one problem, and what else has a time."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.explaining.case import Case, Recorded
from occupancy_lab.files import plain_rows
from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.kernel import load_kernel
from occupancy_lab.reporting.launches import launches_of, row_record, rows_of, variants_of
from occupancy_lab.reporting.source import COPY, NAIVE, PROBLEM, ROW_KERNEL
from occupancy_lab.sweeping.recorded import row_measurement
from occupancy_lab.throughput.predict import row_config, row_problem, row_resources
from occupancy_lab.values import Config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.reporting.launches import Name, Row, Variant
    from occupancy_lab.reporting.source import Source, TimeWords
    from occupancy_lab.values import Measurement, Problem


@dataclass(frozen=True, slots=True)
class Example:
    """One launch explained, and the others of its problem that have a time."""

    case: Case
    times: TimeWords
    """What the times of the variants are."""
    variants: tuple[Variant, ...]
    predicted_best: Variant | None
    """None where nothing is predicted."""
    naive: Measurement | None
    """Of softmax_naive on the matrix; None where it was not measured."""

    @property
    def tutorial(self) -> Variant:
        """The tutorial's configuration, launched with as many programs as fit."""
        config = self.case.record.config
        return next(one for one in self.over_stages if one.config == config)

    @property
    def single_stage(self) -> Variant:
        """The same with one stage."""
        return next(one for one in self.over_stages if one.config.num_stages == 1)

    @property
    def over_stages(self) -> tuple[Variant, ...]:
        """The tutorial's configuration with every number of stages, in ascending order."""
        stages = sorted({variant.config.num_stages for variant in self.variants})
        return tuple(found for number in stages if (found := self.with_stages(number)))

    @property
    def num_warps(self) -> tuple[int, ...]:
        """The warps that have a time."""
        return tuple(sorted({variant.config.num_warps for variant in self.variants}))

    @property
    def over_warps(self) -> tuple[Variant, ...]:
        """The tutorial's configuration with every number of warps, in ascending order."""
        stages = self.case.record.config.num_stages
        return tuple(one for number in self.num_warps if (one := self.with_stages(stages, number)))

    @property
    def alike_warps(self) -> tuple[Variant, ...]:
        """Those of `over_warps` of which the times cannot tell that they are slower."""
        best = fastest(self.over_warps)
        return tuple(one for one in self.over_warps if self.are_alike(one, best))

    @property
    def recorded(self) -> tuple[Variant, ...]:
        """Those whose times others measured, the fastest first."""
        found = [variant for variant in self.variants if variant.recorded_us is not None]
        return tuple(sorted(found, key=lambda variant: variant.recorded_us or 0.0))

    def with_stages(self, num_stages: int, num_warps: int | None = None) -> Variant | None:
        """Return the tutorial's configuration with other stages, and other warps if given."""
        return self._variant(TUTORIAL_KERNEL, num_warps, num_stages)

    def with_rows(self, num_warps: int) -> Variant | None:
        """Return one program per row, with *num_warps* warps."""
        return self._variant(ROW_KERNEL, num_warps, 1)

    def _variant(self, kernel: str, num_warps: int | None, num_stages: int) -> Variant | None:
        """Return *kernel* with BLOCK_SIZE, and for None warps, as the tutorial has them."""
        own = self.case.record.config
        config = Config(own.block_size, num_warps or own.num_warps, num_stages)
        found = (one for one in self.variants if (one.kernel, one.config) == (kernel, config))
        return next(found, None)

    def are_alike(self, one: Variant, other: Variant) -> bool:
        """Tell whether the times of two launches are too close to say which is the faster."""
        low, high = sorted((one.us, other.us))
        return high <= low * (1.0 + self.times.alike)


def fastest(variants: tuple[Variant, ...], kernel: str | None = None) -> Variant:
    """Return the fastest of *variants*, or of those of *kernel*."""
    return min(
        (one for one in variants if kernel in {None, one.kernel}), key=lambda variant: variant.us
    )


def make_example(source: Source) -> Example | None:
    """Return the example for PROBLEM, or else for the first problem with the rows it takes.

    It takes the tutorial's configuration and the same with one stage; None where no problem has
    both.
    """
    kernel, most = load_kernel(TUTORIAL_KERNEL), source.gpu.architecture.max_shared
    own = source.planned[source.planned["kernel"] == TUTORIAL_KERNEL]
    problems = dict.fromkeys((PROBLEM, *map(row_problem, own.to_dict("records"))))
    for problem in problems:
        config = kernel.default_config(problem, most)
        rows = launches_of(source, problem)
        single = dataclasses.replace(config, num_stages=1)
        if {(TUTORIAL_KERNEL, config), (TUTORIAL_KERNEL, single)} <= set(rows):
            variants = variants_of(source, problem)
            return Example(
                _case(source, rows, problem, config),
                source.times,
                variants,
                _best(source, problem, variants),
                _provider(source, problem, NAIVE),
            )
    return None


def _case(source: Source, rows: Mapping[Name, Row], problem: Problem, config: Config) -> Case:
    single = dataclasses.replace(config, num_stages=1)
    row, one_stage = rows[TUTORIAL_KERNEL, config], rows[TUTORIAL_KERNEL, single]
    record = row_record(row, source.gpu)
    measured = rows if not source.is_predicted else launches_of(source.recorded, problem)

    def found(kernel: str, config: Config) -> Measurement | None:
        row = measured.get((kernel, config))
        return None if row is None else row_measurement(row)

    recorded = Recorded(
        found(TUTORIAL_KERNEL, config),
        found(TUTORIAL_KERNEL, single),
        found(ROW_KERNEL, single),
        copy=_provider(source, problem, COPY),
    )
    return Case(record, row_resources(one_stage), recorded=recorded)


def _provider(source: Source, problem: Problem, name: str) -> Measurement | None:
    measured = source.recorded if source.is_predicted else source
    if measured is None or measured.providers.empty:
        return None
    table = measured.providers
    table = table[
        (table["provider"] == name)
        & (table["rows"] == problem.rows)
        & (table["cols"] == problem.cols)
        & (table["dtype"] == problem.dtype)
    ]
    return None if table.empty else row_measurement(plain_rows(table)[-1])


def _best(source: Source, problem: Problem, variants: tuple[Variant, ...]) -> Variant | None:
    predicted = rows_of(source.predictions, problem).to_dict("records")
    best = min(predicted, key=lambda row: float(row["predicted_us"]), default=None)
    if best is None:
        return None
    name = str(best["kernel"]), row_config(best)
    return next(one for one in variants if (one.kernel, one.config) == name)
