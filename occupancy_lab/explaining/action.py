"""The one change to a launch that brings most: what a page of many launches has of `explain`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.advice import advice
from occupancy_lab.explaining.neighbours import best_of, predicted_us
from occupancy_lab.explaining.tried import change_if, in_one_sentence
from occupancy_lab.text.document import spans
from occupancy_lab.text.words import microseconds, prediction_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.record import Record


@dataclass(frozen=True, slots=True)
class Action:
    """What came of trying launches near one, in the words of its explanation."""

    change: str
    """num_warps 4 instead of 8, with the condition where there is one: "(if the kernel allows it)".

    "" where none is faster by what predictions tell apart."""
    sentence: str
    """What `explain` says first of the launch."""
    now_us: float
    """The predicted time of the launch."""
    us: float
    """The predicted time with the change; `now_us` where there is none."""
    times: str
    """Both in words: "61 us (55 to 68) instead of 83 us"; "" where there is no change."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """The settings that differ, and their values."""
    record: Record | None = field(default=None, compare=False, repr=False)
    """The launch with the change; None where there is none."""

    @property
    def plain(self) -> str:
        """The sentence without marks, as a cell of a table has it."""
        return "".join(one.text for one in spans(self.sentence))

    @property
    def share(self) -> float:
        """The share of the launch's time that the change saves."""
        return 1 - self.us / self.now_us if self.now_us else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        names = ("change", "sentence", "now_us", "us", "times")
        return {name: getattr(self, name) for name in names}


def best_action(case: Case) -> Action | None:
    """Return what brings most to a launch of any kernel, of all that `explain` says brings more.

    None where nothing was tried, and where no time with a range is predicted.
    """
    own, sentence = case.record.prediction, in_one_sentence(case)
    if own is None or not sentence:
        return None
    found: list[tuple[Record, str, str, Mapping[str, Any]]] = []
    best = best_of(case.record, case.neighbours)
    if best is not None and best.record is not None and best.record.prediction is not None:
        found.append((best.record, change_if(best, case.record), sentence, best.changes))
    if (wider := case.padded) is not None and wider.prediction is not None:
        found += [(wider, one.words, one.sentence, {}) for one in advice(case) if one.words]
    if not found:
        return Action("", sentence, own.us, own.us, "")
    record, change, said, changes = min(found, key=lambda one: predicted_us(one[0]))
    times = f"{microseconds(own.us)}"
    if record.prediction is not None:
        times = f"{prediction_words(record.prediction)} instead of {times}"
    return Action(change, said, own.us, predicted_us(record), times, changes, record)
