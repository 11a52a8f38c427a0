"""The quality of one way of predicting: errors in time, and the cost of choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from occupancy_lab.text.words import difference, formatted

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class TimeErrors:
    """Errors of times; a launch's error is |predicted / measured - 1|."""

    launches: int
    median: float
    mean: float
    p90: float
    """The 90th percentile of the errors."""
    bias: float
    """Median of predicted / measured - 1: above 0 if predicted times are too long."""


@dataclass(frozen=True, slots=True)
class Score:
    """The quality of one way of predicting on some shapes; None for what it does not predict."""

    name: str
    errors: TimeErrors | None
    """None for a way that ranks without predicting times."""
    mean_loss: float
    """Time lost by launching a shape's first choice: its time over the fastest's, minus 1."""
    worst_loss: float
    rank_correlation: float | None
    """Mean over the shapes of Spearman's rank correlation with the measured times; None if no shape
    has two launches with different ranks."""


def time_errors(predicted_us: pd.Series[Any], measured_us: pd.Series[Any]) -> TimeErrors:
    """Return the errors of *predicted_us*; there must be at least one."""
    off = difference(predicted_us, measured_us)
    size = off.abs()
    return TimeErrors(
        launches=len(size),
        median=float(size.median()),
        mean=float(size.mean()),
        p90=float(size.quantile(0.9)),
        bias=float(off.median()),
    )


def score(name: str, rows: pd.DataFrame, costs: pd.Series[Any], *, times: bool = True) -> Score:
    """Return the score of *costs*, a number for each of *rows*; the lowest is the first choice.

    *rows* are in the grid's order, which settles ties, and have a `shape` and a measured `us`.
    Without *times* the costs are not times and have no errors.
    """
    shape = rows["shape"]
    first = costs.groupby(shape, sort=False).idxmin()
    fastest = rows.groupby("shape", sort=False)["us"].min()
    loss = rows["us"].loc[first].to_numpy() / fastest.to_numpy() - 1.0
    return Score(
        name=name,
        errors=time_errors(costs, rows["us"]) if times else None,
        mean_loss=float(loss.mean()),
        worst_loss=float(loss.max()),
        rank_correlation=_rank_correlation(rows, costs),
    )


def _rank_correlation(rows: pd.DataFrame, costs: pd.Series[Any]) -> float | None:
    """Return the mean of Spearman's correlation: Pearson's of ranks, ties sharing their mean."""
    shape = rows["shape"]
    ranks = rows[["us"]].assign(cost=costs).groupby(shape).rank()
    apart = ranks - ranks.groupby(shape).transform("mean")
    together = (apart["us"] * apart["cost"]).groupby(shape).sum()
    squares = (apart**2).groupby(shape).sum()
    size = (squares["us"] * squares["cost"]) ** 0.5
    ranked = size > 0.0
    return float((together[ranked] / size[ranked]).mean()) if ranked.any() else None


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a score: its name, and how it is read and written."""

    words: str
    read: Callable[[Score], float | None]
    form: str = ".1%"
    """Measured times are accurate to a tenth of a percent at best."""
    least: bool = False
    """Whether a limit of it is a minimum, not a maximum."""

    def write(self, score: Score) -> str:
        """Return the number of *score* as text, or a dash if there is none."""
        return formatted(self.read(score), self.form)

    def keeps(self, score: Score, limit: float) -> bool:
        """Return whether the number of *score* is known and within *limit*."""
        value = self.read(score)
        return value is not None and (value >= limit if self.least else value <= limit)


def _error(name: str) -> Callable[[Score], float | None]:
    return lambda score: None if score.errors is None else float(getattr(score.errors, name))


METRICS: Mapping[str, Metric] = {
    "median": Metric("median error", _error("median")),
    "mean": Metric("mean error", _error("mean")),
    "p90": Metric("90th percentile of the error", _error("p90")),
    "mean_loss": Metric("time lost by the first choice, mean", attrgetter("mean_loss")),
    "worst_loss": Metric("time lost by the first choice, worst", attrgetter("worst_loss")),
    "rank": Metric("rank correlation", attrgetter("rank_correlation"), ".2f", least=True),
}
"""The numbers of a score by name. The measured times themselves are known to some 3%: half of the
recorded launches spread by as much."""
