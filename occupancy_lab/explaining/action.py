"""The one change to a launch that brings most: what a page of many launches has of `explain`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.advice import advice
from occupancy_lab.explaining.neighbours import best_of
from occupancy_lab.explaining.tried import change_if, in_one_sentence
from occupancy_lab.text.words import microseconds, prediction_words

if TYPE_CHECKING:
    from occupancy_lab.explaining.case import Case


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

    @property
    def share(self) -> float:
        """The share of the launch's time that the change saves."""
        return 1 - self.us / self.now_us if self.now_us else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def best_action(case: Case) -> Action | None:
    """Return what brings most to a launch of any kernel, of all that `explain` says brings more.

    None where nothing was tried, and where no time with a range is predicted.
    """
    own, sentence = case.record.prediction, in_one_sentence(case)
    if own is None or not sentence:
        return None
    found = []
    best = best_of(case.record, case.neighbours)
    if best is not None and best.record is not None and best.record.prediction is not None:
        found.append((best.record.prediction, change_if(best, case.record), sentence))
    wider = None if case.padded is None else case.padded.prediction
    if wider is not None:
        found += [(wider, one.words, one.sentence) for one in advice(case) if one.words]
    if not found:
        return Action("", sentence, own.us, own.us, "")
    prediction, change, said = min(found, key=lambda one: one[0].us)
    times = f"{prediction_words(prediction)} instead of {microseconds(own.us)}"
    return Action(change, said, own.us, prediction.us, times)
