"""What to launch instead: the best change of a launch, and arguments that let loads get wider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from occupancy_lab.arguments import ALIGNMENT, Pointer
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.neighbours import predicted_us
from occupancy_lab.explaining.tried import (
    change_if,
    in_one_sentence,
    neighbour_tables,
    of_neighbours,
)
from occupancy_lab.prediction import CHOSEN_WORDS
from occupancy_lab.record import Record
from occupancy_lab.text.document import Section, literal, spans
from occupancy_lab.text.words import listed, microseconds, prediction_words, said_of_each


@dataclass(frozen=True, slots=True)
class Advice:
    """Other arguments to try, and what they change."""

    sentence: str
    words: str
    """The arguments to change and the condition: "stride 2064 instead of 2050 (if the launch can
    pass that)"."""
    record: Record
    """The launch with these arguments."""
    is_faster: bool
    """Whether it is predicted to be noticeably faster."""


def wider_loads(case: Case) -> Iterator[Advice]:
    """Say how much wider loads get with multiples of 16, and what the launch then takes."""
    record, other = case.record, case.padded
    own, found = record.prediction, None if other is None else other.prediction
    if own is None or other is None or found is None:
        return
    loads = record.resources.load_bytes or 0, other.resources.load_bytes or 0
    spills = record.resources.local_bytes or 0, other.resources.local_bytes or 0
    if loads[1] <= loads[0] or spills[1] > spills[0]:
        return
    now = record.arguments
    rounded = [
        f"{literal(name)} at a multiple of {ALIGNMENT} bytes"
        if isinstance(value, Pointer)
        else f"{literal(name)} {value} instead of {now[name]}"
        for name, value in other.arguments.items()
        if value != now[name]
    ]
    words = listed(rounded)
    yield Advice(
        f"If the launch can pass {words} (if its results stay right), a thread's loads are up to"
        f" {loads[1]} B wide instead of {loads[0]}, because Triton then knows that {ALIGNMENT}"
        " divides each:"
        f" {prediction_words(found.as_chosen)} predicted instead of {microseconds(own.us)}.",
        f"{words} (if the launch can pass that)",
        other,
        found.us <= own.us * (1 - own.noticeable),
    )


def first_advice(case: Case) -> Iterator[str]:
    """Say first what helps the launch most, and then what else helps."""
    action = best_action(case)
    said = ["" if action is None else action.sentence, in_one_sentence(case)]
    said += [one.sentence for one in wider_loads(case) if one.is_faster]
    yield from (f"**{case.title}**: {one}" for one in dict.fromkeys(said) if one)


def what_to_try(cases: Sequence[Case], *more: str, full: bool = False) -> Section:
    """Return the section on other settings; the sentences of *more* come last.

    In *full* it also has how loads get wider where that is not noticeably faster.
    """

    def sentences(case: Case) -> Iterator[str]:
        yield from of_neighbours(case)
        prediction, best = case.record.prediction, case.best
        if prediction is not None and case.neighbours:
            yield prediction.noticeable_words
            if best is not None or prediction.is_chosen:
                yield CHOSEN_WORDS
        yield from (one.sentence for one in wider_loads(case) if full and not one.is_faster)

    return Section("What to try", neighbour_tables(cases), (*said_of_each(cases, sentences), *more))


@dataclass(frozen=True, slots=True)
class Action:
    """The best change of a launch among those that were tried, as its explanation words it."""

    change: str
    """The change and its condition: "BLOCK 128 instead of 64 (if its results stay right)".

    "" if no change is noticeably faster."""
    sentence: str
    """The first sentence that `explain` prints of the launch."""
    now_us: float
    """The predicted time of the launch."""
    us: float
    """The predicted time with the change; `now_us` without a change."""
    times: str
    """Both times in words: "61 us (55 to 68) instead of 83 us"; "" without a change."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """The new value of each setting that changes."""
    record: Record | None = field(default=None, compare=False, repr=False)
    """The changed launch; None without a change."""

    @property
    def plain(self) -> str:
        """The sentence without markup, for a cell of a table."""
        return "".join(one.text for one in spans(self.sentence))

    @property
    def share(self) -> float:
        """The share of the launch's time that the change saves."""
        return 1 - self.us / self.now_us if self.now_us else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the words and the times as plain values."""
        names = ("change", "sentence", "now_us", "us", "times")
        return {name: getattr(self, name) for name in names}


def best_action(case: Case) -> Action | None:
    """Return the best change of a launch; None if none was tried or no time is predicted."""
    own, sentence = case.record.prediction, in_one_sentence(case)
    if own is None or not sentence:
        return None
    found: list[tuple[Record, str, str, Mapping[str, Any]]] = []
    best = case.best
    if best is not None and best.record is not None and best.prediction is not None:
        found.append((best.record, change_if(best, case.record), sentence, best.changes))
    wider = (one for one in wider_loads(case) if one.is_faster)
    found += [(one.record, one.words, one.sentence, {}) for one in wider]
    if not found:
        return Action("", sentence, own.us, own.us, "")
    record, change, said, changes = min(found, key=lambda one: predicted_us(one[0]))
    times = microseconds(own.us)
    if record.prediction is not None:
        times = f"{prediction_words(record.prediction.as_chosen)} instead of {times}"
    return Action(change, said, own.us, predicted_us(record), times, changes, record)
