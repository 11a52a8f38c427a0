"""How far the measured times can be trusted: their spread, what repeats, and the clocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.reporting.excess import NAME
from occupancy_lab.reporting.summary import summary_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from occupancy_lab.reporting.source import Source
    from occupancy_lab.reporting.summary import Summary


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of the measured times, as shares of their medians."""

    launches: int
    """Medians that there are."""
    runs: Summary | None
    """Launches behind each median; None where nobody knows, as for what follows."""
    within: Summary | None
    """The range that eight in ten launches of one kind keep to."""
    between: Summary | None
    """The longest over the shortest median, minus 1, of what was measured several times."""
    mostly_launch: int | None
    """Launches that take less than twice an empty kernel."""
    clocks: Summary | None
    """The multiprocessors' clock, MHz."""
    throttled: tuple[str, ...]
    """Why the clock was held down, where it was."""
    relative_errors: Mapping[str, float]
    """By dtype, the greatest difference of a result from torch's in float64."""


def make_spread(source: Source) -> Spread | None:
    """Return the spread of the times of *source*; None where nothing was measured."""
    measured = source.measured
    if measured.empty:
        return None
    within = (measured["us_high"] - measured["us_low"]) / measured["us"]
    times = measured.groupby([name for name in (*NAME, "launched") if name != "use"])["us"]
    several = times.agg(["min", "max", "count"]).query("count > 1")
    return Spread(
        launches=len(measured),
        runs=_summary(measured["runs"]),
        within=_summary(within),
        between=_summary(several["max"] / several["min"] - 1.0),
        mostly_launch=_true(measured["mostly_launch"]),
        clocks=_summary(measured["sm_mhz"]),
        throttled=tuple(sorted(measured["throttled"].dropna().astype(str).unique())),
        relative_errors={
            str(dtype): float(errors.max())
            for dtype, errors in measured.groupby("dtype", sort=False)["relative_error"]
            if errors.notna().any()
        },
    )


def _true(column: pd.Series[Any]) -> int | None:
    return int(column.eq(other=True).sum()) if column.notna().any() else None


def _summary(column: pd.Series[Any]) -> Summary | None:
    known = column.dropna()
    return summary_of(known) if len(known) else None
