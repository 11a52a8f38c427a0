"""A predicted time, what it would be with one thing changed, and what makes the difference."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.prediction import NOTICEABLE, PARTS
from occupancy_lab.text.words import article, change, count, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.prediction import Prediction


@dataclass(frozen=True, slots=True)
class Timing:
    """A case with its prediction, and the predictions of launches that differ in one thing."""

    case: Case
    prediction: Prediction
    more: int | None
    """Programs per multiprocessor at the next step of what limits them; None where none is."""
    more_programs: Prediction | None
    """It held so many; None where no more can fit, or there is no work for them."""
    single_stage: Prediction | None
    """num_stages 1; None where that is what it has, or there is no loop."""
    row_programs: Prediction | None
    """One program per row, as it is compiled; None where no kernel does that."""

    @property
    def title(self) -> str:
        """What the GPU is called."""
        return self.case.title

    @property
    def tutorial(self) -> Prediction | None:
        """The tutorial's num_programs; None where that is what is launched, or is refused."""
        return self.case.record.tutorial_prediction

    def change(self, other: Prediction) -> float:
        """Return how much longer than predicted *other* takes, as a share: -0.1 is 10% less."""
        return other.us / self.prediction.us - 1

    @property
    def limited(self) -> bool:
        """Whether more resident programs are predicted to be noticeably faster."""
        more = self.more_programs
        return more is not None and self.change(more) <= -self.prediction.noticeable


@functools.lru_cache(maxsize=8)
def timing(case: Case) -> Timing | None:
    """Return the timing of *case*; None where there is no prediction."""
    record = case.record
    if record.prediction is None or record.matrix is None:
        return None
    more = case.calculation.next_programs
    more_programs = None
    if more is not None and not all_at_once(case):
        more_programs = record.with_more
    single = case.single_stage if record.num_stages > 1 and case.plan.is_persistent else None
    rows = case.row_kernel
    return Timing(
        case,
        record.prediction,
        more,
        more_programs,
        None if single is None else single.prediction,
        None if rows is None else rows.prediction,
    )


def all_at_once(case: Case) -> bool:
    """Tell whether every row (or block) has a program from the start."""
    plan = case.plan
    return plan.resident_programs is not None and plan.resident_programs >= plan.work


def programs_sentences(timing: Timing) -> Iterator[str]:
    """Say whether more resident programs would help."""
    case, more = timing.case, timing.more_programs
    fits, word = case.record.occupancy, case.architecture.multiprocessor_word
    if all_at_once(case):
        yield (
            f"More resident programs would not help: each {case.piece} has a program from the"
            " start."
        )
    if timing.more is None and not all_at_once(case):
        yield (
            f"No more programs fit on {article(word)} {word}, whatever registers and"
            f" {case.architecture.shared_word} they take."
        )
    if more is None:
        return
    programs = fits.programs_per_multiprocessor
    predicted = (
        f"with {timing.more} programs per {word} instead of {programs}, {microseconds(more.us)}"
        f" would be predicted ({change(timing.change(more))})"
    )
    if timing.limited:
        limiters = limiter_words(case.calculation)
        yield f"A kernel that takes less of {limiters} would be faster: {predicted}."
    else:
        yield f"Occupancy is not the limit: {predicted}."


def rows_sentences(timing: Timing) -> Iterator[str]:
    """Say what one program per row instead of the loop would be worth, and why.

    Where both were recorded, that decides, and else the prediction.
    """
    rows = timing.row_programs
    if rows is None:
        return
    recorded = recorded_change(timing.case, "row_programs")
    difference = timing.change(rows) if recorded is None else recorded
    times = _times(timing.case, timing, "row_programs")
    least = timing.prediction.noticeable if recorded is None else NOTICEABLE
    if abs(difference) < least:
        yield f"The loop costs nothing here: with one program per row, {times}."
        return
    verdict = "is better" if difference < 0 else "is not better"
    yield f"One program per row {verdict} here: {times}.{_why_rows(timing, rows, difference)}"


def recorded_change(case: Case, field: str) -> float | None:
    """Return how much longer another launch took than this one, where both were recorded."""
    own, other = case.recorded.us, getattr(case.recorded, field)
    if own is None or other is None or other.us is None:
        return None
    share: float = other.us / own - 1
    return share


def _times(case: Case, timing: Timing | None, field: str) -> str:
    """Return what is predicted, and what was recorded, of the launch that differs in *field*.

    It is "" where neither is known.
    """
    parts = []
    other: Prediction | None = None if timing is None else getattr(timing, field)
    if timing is not None and other is not None:
        parts.append(f"{microseconds(other.us)} is predicted ({change(timing.change(other))})")
    share = recorded_change(case, field)
    if share is not None:
        recorded = microseconds(getattr(case.recorded, field).us)
        parts.append(f"{recorded} was recorded ({change(share)})")
    return ", ".join(parts)


def _why_rows(timing: Timing, rows: Prediction, difference: float) -> str:
    """Return as a sentence the part that makes half of a predicted difference; "" where none does.

    What bounds the slower of the two comes first, then the part that differs most.
    """
    sign = -1 if difference < 0 else 1
    slower = timing.prediction if sign < 0 else rows
    needed = sign * (rows.us - timing.prediction.us) / 2
    own, other = ({one.name: one.us for one in each.parts} for each in (timing.prediction, rows))
    gains = [
        (sign * (other.get(name, 0.0) - own.get(name, 0.0)), name == slower.bound, name)
        for name in PARTS
    ]
    enough = [gain for gain in gains if gain[0] >= needed > 0]
    if not enough:
        return ""
    *_, name = max(enough, key=lambda gain: (gain[1], gain[0]))
    against = " against ".join(microseconds(one.get(name, 0.0)) for one in (other, own))
    return f" What differs most by itself: {PARTS[name]}, {against}."


def stages_sentences(timing: Timing) -> Iterator[str]:
    """Say what num_stages does to the time here."""
    case, single = timing.case, timing.single_stage
    stages, shared = case.record.num_stages, case.architecture.shared_word
    copies = case.record.resources.async_copies
    if not case.plan.is_persistent or stages == 1:
        return
    times = _times(case, timing, "single_stage")
    against = "" if single is None else f" With num_stages 1, {times}."
    ahead = stages_words(stages, shared, case.piece) if copies else ""
    yield f"{ahead}{against}".strip()


def stages_words(stages: int, shared: str, word: str = "row") -> str:
    """Say when a copy starts and when it is waited for, which is the same for every kernel."""
    copied = (
        f"num_stages {stages} starts the copy of a {word} at the end of a pass and waits for it"
    )
    between = stages - 2
    if between == 0:
        return (
            f"{copied} at the beginning of the next: that hides nothing of the load, and takes the"
            f" {word} through {shared} besides."
        )
    return (
        f"{copied} at the beginning of the pass {stages - 1} later: the work on"
        f" {count(between, f'other {word}')} in between hides the load."
    )


def tutorial_sentences(case: Case, timing: Timing | None) -> Iterator[str]:
    """Say what the tutorial's num_programs costs where it is another; *timing* None: recorded."""
    times = _times(case, timing, "tutorial")
    if times:
        yield (
            f"With the tutorial's {case.record.miscount} programs instead of"
            f" {case.plan.num_programs}, {times}."
        )
