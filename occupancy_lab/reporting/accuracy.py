"""Predicted times beside measured ones, of shapes the model was made with and of others."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.evaluating import evaluate
from occupancy_lab.reporting.source import ALL
from occupancy_lab.sweeping.recorded import CHECK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.evaluating.evaluation import Evaluation, Result
    from occupancy_lab.reporting.source import Source

USES: Mapping[str, str] = {
    "held out": "that the model was not made with",
    "tuning": "that the model was made with",
    CHECK: "that were measured on one",
    ALL: "of these rows",
}
"""What the shapes of a use are, those first that say the most of predictions."""
BY = "bound"
"""What launches are told apart by."""


@dataclass(frozen=True, slots=True)
class Point:
    """One launch."""

    bound: str
    predicted_us: float
    measured_us: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How good predictions are, by use: shapes that were held out first."""

    evaluation: Evaluation
    points: tuple[tuple[Point, ...], ...]
    """The launches behind each result of the evaluation."""

    @property
    def results(self) -> tuple[Result, ...]:
        """The results, one a use."""
        return self.evaluation.results


def make_accuracy(source: Source) -> Accuracy | None:
    """Return the evaluation of the shapes that were recorded for it; None where there are none.

    Where uses are not told apart, every launch counts.
    """
    if source.claims_for(*USES).empty:
        return None
    table = source.table[source.table["use"].isin(set(USES))]
    evaluation = evaluate(table, basis_of=lambda _gpu: source.basis)
    results = sorted(evaluation.results, key=lambda result: list(USES).index(result.use))
    shown = tuple(
        dataclasses.replace(
            result, groups=tuple(group for group in result.groups if group.by == BY)
        )
        for result in results
    )
    return Accuracy(
        dataclasses.replace(evaluation, results=shown),
        tuple(_points(source, result.use) for result in shown),
    )


def _points(source: Source, use: str) -> tuple[Point, ...]:
    claims = source.claims[source.claims["use"] == use]
    columns = zip(claims["bound"], claims["predicted_us"], claims["us"], strict=True)
    return tuple(Point(str(bound), float(said), float(us)) for bound, said, us in columns)
