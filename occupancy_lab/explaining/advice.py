"""What to launch instead: the best change of a launch, and arguments that let loads get wider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from occupancy_lab.arguments import ALIGNMENT, Pointer
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.duration import not_measured
from occupancy_lab.explaining.neighbours import predicted_us
from occupancy_lab.explaining.tried import (
    change_if,
    in_one_sentence,
    neighbour_tables,
    of_neighbours,
)
from occupancy_lab.prediction import CHOSEN_WORDS, Prediction
from occupancy_lab.record import Record
from occupancy_lab.text.document import Section, literal, spans
from occupancy_lab.text.words import (
    change,
    listed,
    microseconds,
    prediction_words,
    said_of_each,
)


@dataclass(frozen=True, slots=True)
class Action:
    """A change of a launch that was tried, as its explanation words it."""

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
    is_faster: bool = True
    """Whether the change is predicted to be noticeably faster."""

    @classmethod
    def of(cls, change: str, sentence: str, now: Prediction, then: Record, **others: Any) -> Self:
        """Return the *change* of a launch that takes *now* into *then*, said in a *sentence*."""
        times, us = microseconds(now.us), predicted_us(then)
        if then.prediction is not None:
            times = f"{prediction_words(then.prediction.as_chosen)} instead of {times}"
        return cls(change, sentence, now.us, us, times, record=then, **others)

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


def wider_loads(case: Case) -> Action | None:
    """Return how much wider loads get with multiples of 16, and what the launch then takes.

    None if they do not get wider, or if the launch then spills more.
    """
    record, other = case.record, case.padded
    own, found = record.prediction, None if other is None else other.prediction
    if own is None or other is None or found is None:
        return None
    loads = record.resources.load_bytes or 0, other.resources.load_bytes or 0
    spills = record.resources.local_bytes or 0, other.resources.local_bytes or 0
    if loads[1] <= loads[0] or spills[1] > spills[0]:
        return None
    now = record.arguments
    rounded = [
        f"{literal(name)} at a multiple of {ALIGNMENT} bytes"
        if isinstance(value, Pointer)
        else f"{literal(name)} {value} instead of {now[name]}"
        for name, value in other.arguments.items()
        if value != now[name]
    ]
    words = listed(rounded)
    return Action.of(
        f"{words} (if the launch can pass that)",
        f"If the launch can pass {words} (if its results stay right), a thread's loads are up to"
        f" {loads[1]} B wide instead of {loads[0]}, because Triton then knows that {ALIGNMENT}"
        " divides each:"
        f" {prediction_words(found.as_chosen)} predicted instead of {microseconds(own.us)}.",
        own,
        other,
        is_faster=found.us <= own.us * (1 - own.noticeable),
    )


def actions(case: Case) -> list[Action]:
    """Return what was found near a launch and, where it is noticeably faster, what wider loads do.

    The fastest comes first; the list is empty if nothing was tried or no time is predicted.
    """
    own, best, sentence = case.record.prediction, case.best, in_one_sentence(case)
    found = [one for one in (wider_loads(case),) if one is not None and one.is_faster]
    if own is not None and sentence:
        near = Action("", sentence, own.us, own.us, "")
        if best is not None and best.record is not None and best.prediction is not None:
            change = change_if(best, case.record)
            near = Action.of(change, sentence, own, best.record, changes=best.changes)
        found.insert(0, near)
    return sorted(found, key=lambda one: one.us)


def best_action(case: Case) -> Action | None:
    """Return the best change of a launch; None if none was tried or no time is predicted."""
    return next(iter(actions(case)), None)


def first_advice(case: Case) -> Iterator[str]:
    """Say first what was measured, then what helps the launch most, and then what else helps."""
    said = (*measured_in_short(case), *(one.sentence for one in actions(case)))
    yield from (f"**{case.title}**: {one}" for one in said)


def measured_in_short(case: Case) -> Iterator[str]:
    """Say what the launch and its best change took on the GPU here, if they were measured."""
    record, best = case.record, case.best
    now = record.measurement
    if now is None:
        return
    if now.us is None:
        yield not_measured(now)
        return
    words = f"{microseconds(now.us)} measured"
    if record.prediction is not None:
        words += f", {prediction_words(record.prediction)} predicted"
    then = None if best is None or best.record is None else best.record.measurement
    if best is not None and then is not None and then.us is not None:
        share = change(then.us / now.us - 1)
        words += f"; with {literal(best.words)} {microseconds(then.us)} measured ({share})"
    yield f"{words}."


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
        wider = wider_loads(case) if full else None
        if wider is not None and not wider.is_faster:
            yield wider.sentence

    return Section("What to try", neighbour_tables(cases), (*said_of_each(cases, sentences), *more))
