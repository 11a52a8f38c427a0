"""Many numbers in a few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Summary:
    """How numbers are spread, such as shares of time."""

    count: int
    least: float
    median: float
    mean: float
    p90: float
    """What a tenth of them pass."""
    most: float


def summary_of(numbers: Iterable[float]) -> Summary:
    """Return the summary of *numbers*; there must be at least one."""
    import numpy as np

    found = np.array(list(numbers), dtype=float)
    return Summary(
        count=len(found),
        least=float(found.min()),
        median=float(np.median(found)),
        mean=float(found.mean()),
        p90=float(np.quantile(found, 0.9)),
        most=float(found.max()),
    )
