"""How good one way of predicting is: its errors in time, what its choices cost, and the goals."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of times; a launch's error is |predicted / measured - 1|."""

    launches: int
    median: float
    mean: float
    p90: float
    """The error that a tenth of the launches pass."""
    bias: float
    """Median of predicted / measured - 1: above 0 where the predicted times are too long."""


@dataclass(frozen=True, slots=True)
class Score:
    """How good one way of predicting is on some shapes; None is what it does not say."""

    name: str
    errors: Errors | None
    """None for a way that ranks without a time."""
    mean_loss: float
    """Time lost by launching a shape's first choice: its time over the fastest's, minus 1."""
    worst_loss: float
    rank_correlation: float | None
    """Mean over the shapes of Spearman's rank correlation with the measured times; None where no
    shape has two launches that are ranked."""


def errors(claimed_us: pd.Series[Any], measured_us: pd.Series[Any]) -> Errors:
    """Return the errors of *claimed_us*; there must be at least one."""
    ratio = claimed_us / measured_us - 1.0
    size = ratio.abs()
    return Errors(
        launches=len(size),
        median=float(size.median()),
        mean=float(size.mean()),
        p90=float(size.quantile(0.9)),
        bias=float(ratio.median()),
    )


def score(name: str, rows: pd.DataFrame, claims: pd.Series[Any], *, times: bool = True) -> Score:
    """Return the score of *claims*, a number for each of *rows*, the least for the first choice.

    *rows* are in the grid's order, which settles ties, and have a `shape` and a measured `us`.
    Without *times* the claims are not times and have no errors.
    """
    shape = rows["shape"]
    first = claims.groupby(shape, sort=False).idxmin()
    fastest = rows.groupby("shape", sort=False)["us"].min()
    loss = rows["us"].loc[first].to_numpy() / fastest.to_numpy() - 1.0
    return Score(
        name=name,
        errors=errors(claims, rows["us"]) if times else None,
        mean_loss=float(loss.mean()),
        worst_loss=float(loss.max()),
        rank_correlation=_rank_correlation(rows, claims),
    )


def _rank_correlation(rows: pd.DataFrame, claims: pd.Series[Any]) -> float | None:
    """Return the mean of Spearman's correlation: Pearson's of ranks, ties sharing their mean."""
    shape = rows["shape"]
    ranks = rows[["us"]].assign(claim=claims).groupby(shape).rank()
    apart = ranks - ranks.groupby(shape).transform("mean")
    together = (apart["us"] * apart["claim"]).groupby(shape).sum()
    squares = (apart**2).groupby(shape).sum()
    size = (squares["us"] * squares["claim"]) ** 0.5
    ranked = size > 0.0
    return float((together[ranked] / size[ranked]).mean()) if ranked.any() else None


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
