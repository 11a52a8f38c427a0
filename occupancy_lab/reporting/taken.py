"""What was run, where and when, and what could not be."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.kernel import load_kernel
from occupancy_lab.values import Conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.reporting.source import Source


LATE = "compile timed out"
"""What a compile that timed out is called, beside launches that did."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What was measured of one GPU, and under which conditions."""

    gpu: Gpu
    file: str | None
    """Where the rows are from; None for what comes with the lab."""
    kernels: tuple[Kernel, ...]
    conditions: Mapping[str, tuple[str, ...]]
    """By the field of Conditions, the values that occur; none where nobody knows."""
    measured: Mapping[str, int]
    """Launches with a time, by use."""
    untimed: Mapping[str, int]
    """Launches without one, by what came of them."""
    reasons: Mapping[str, str]
    """The first reason of each, where one was given."""
    providers: Mapping[str, int]
    """What else was timed, and how often."""


def make_taken(source: Source) -> Taken:
    """Return what was run to make *source*."""
    measured, table = source.measured, source.table
    untimed = table[table["measured"] != "measured"]
    came_of = untimed["measured"].where(untimed["measured"].notna(), untimed["status"])
    # A row that is ok and was not launched is one for another GPU, or was interrupted.
    came_of = came_of.replace("ok", "not launched")
    late = untimed["measured"].isna() & (untimed["status"] == "timed out")
    came_of = came_of.mask(late, LATE)
    given = untimed["why_not"].dropna()
    reasons = given.groupby(came_of[given.index], sort=False).first()
    providers = source.providers
    return Taken(
        gpu=source.gpu,
        file=source.file,
        kernels=tuple(load_kernel(name) for name in measured["kernel"].unique()),
        conditions={
            field.name: _values(measured[field.name]) for field in dataclasses.fields(Conditions)
        },
        measured=_counts(measured["use"]),
        untimed=_counts(came_of),
        reasons={str(name): str(why) for name, why in reasons.items()},
        providers={} if providers.empty else _counts(providers["provider"]),
    )


def _values(column: pd.Series[str]) -> tuple[str, ...]:
    """Return the values that occur, in order; numbers without a fraction."""
    values = sorted(column.dropna().unique())
    return tuple(f"{one:.0f}" if isinstance(one, float) else str(one) for one in values)


def _counts(column: pd.Series[str]) -> dict[str, int]:
    """Return how often each value occurs, the commonest first."""
    return {str(value): int(number) for value, number in column.value_counts().items()}
