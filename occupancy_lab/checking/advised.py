"""What `explain` says first of a launch, and `trace` of a kernel: the change that brings most."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.checking.rows import TIMES, TOTALS, Row, make_rows
from occupancy_lab.text.words import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.asked import Asked
    from occupancy_lab.explaining.explanation import Explanation

_KEPT = ("kernel", "gpu", "target", "status", "expected", "launches", "grids")
"""The columns of a trace that the change leaves; of others, but for times, nothing is known."""
_RANGE = ("predicted_low_us", "predicted_high_us")


@dataclass(frozen=True, slots=True)
class Advised:
    """The change of a launch that brings most, in the words of its explanation."""

    sentence: str
    words: str = ""
    """The change: "num_warps 4 instead of 8"; "" where none is noticeably faster."""
    row: Row | None = None
    """The launch with the change, as far as it is known; None where there is none."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """The settings that differ, as far as they are known by name."""


def of_trace(row: Row) -> Advised | None:
    """Return what a trace says of *row*; None where it was not asked, and of rows of no trace."""
    change, saved = row.values.get("action"), row.number("saved_us")
    said = row.values.get("advice")
    time = next((time for time in TIMES if row.total(time)), None)
    if not change or not saved or time is None:
        return None if said is None else Advised(f"{said}")
    share = 1 - saved / (row.total(time) or saved)
    values = {name: row.values[name] for name in _KEPT if name in row.values}
    for name in (*TIMES, *TOTALS.values(), *_RANGE):
        number = row.number(name)
        values[name] = None if number is None else number * share
    lost = row.number("lost_us")
    values["lost_us"] = None if lost is None else max(lost - saved, 0.0)
    sentence = f"{change}: {duration(saved)} less in all are predicted."
    changed = dataclasses.replace(row, values=values)
    return Advised(sentence if said is None else f"{said}", f"{change}", changed)


def of_launch(row: Row, asked: Asked, explained: Explanation) -> Advised | None:
    """Return what `explain` says of a launch, near which others are compiled; None: nothing."""
    from occupancy_lab.explaining.action import best_action
    from occupancy_lab.explaining.explanation import make_cases

    if row.record is None or asked.matrix is not None:
        return None
    others: dict[str, Any] = {"triton": explained.triton, "assume": explained.assume}
    (case,) = make_cases([asked], [row.record], explained.compiler, **others)
    action = best_action(case)
    if action is None:
        return None
    if action.record is None:
        return Advised(action.plain)
    (changed,) = make_rows([action.record.to_dict()], "compiled to see")
    return Advised(action.plain, action.change, changed, action.changes)
