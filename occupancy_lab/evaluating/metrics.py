"""The numbers that an evaluation is about, what they should be, and which are not."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from occupancy_lab.evaluating.evaluation import Evaluation
    from occupancy_lab.evaluating.score import Score


def percent(share: float) -> str:
    """Return 0.0314 as "3.1%": measured times are not known better than that."""
    return f"{100 * share:.1f}%"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a score: how it is called, read and written, and what it should be."""

    words: str
    read: Callable[[Score], float | None]
    goal: float | None
    form: Callable[[float], str] = percent
    least: bool = False
    """Whether the goal is the least that will do, not the most."""

    def write(self, score: Score) -> str:
        """Return the number of *score* as text, a dash where there is none."""
        value = self.read(score)
        return "-" if value is None else self.form(value)

    def keeps(self, score: Score, limit: float) -> bool:
        """Whether the number of *score* is known and within *limit*."""
        value = self.read(score)
        return value is not None and (value >= limit if self.least else value <= limit)


def _error(name: str) -> Callable[[Score], float | None]:
    return lambda score: None if score.errors is None else float(getattr(score.errors, name))


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "median": Metric("median error", _error("median"), 0.03),
        "mean": Metric("mean error", _error("mean"), None),
        "p90": Metric("90th percentile of the error", _error("p90"), 0.10),
        "mean_loss": Metric(
            "time lost by the first choice, mean",
            lambda one: one.mean_loss,
            0.01,
        ),
        "worst_loss": Metric(
            "time lost by the first choice, worst",
            lambda one: one.worst_loss,
            0.05,
        ),
        "rank": Metric(
            "rank correlation",
            lambda one: one.rank_correlation,
            0.9,
            "{:.2f}".format,
            least=True,
        ),
    }
)
"""The numbers of a score by name; the goals are what the prediction is meant to reach."""


def broken_limits(evaluation: Evaluation, limits: Mapping[str, float]) -> Iterator[str]:
    """Return a sentence for each of *limits*, by the names of METRICS, that a prediction breaks."""
    for result in evaluation.results:
        for name, limit in limits.items():
            metric = METRICS[name]
            if not metric.keeps(result.score, limit):
                value = metric.read(result.score)
                found = "not known" if value is None else f"{value:.4g}"
                edge = "least" if metric.least else "most"
                yield (
                    f"{result.title}, {result.use}: the {metric.words} is {found}, "
                    f"and may be {limit:g} at {edge}"
                )
