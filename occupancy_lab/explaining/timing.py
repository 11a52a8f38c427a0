"""A predicted time, what it would be with one thing changed, and what makes the difference."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.occupancy import occupancy
from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.prediction import NOTICEABLE
from occupancy_lab.text.words import (
    article,
    byte_words,
    change,
    change_words,
    count,
    error_words,
    microseconds,
)
from occupancy_lab.throughput.predict import PlannedLaunch, predict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.prediction import Prediction
    from occupancy_lab.values import Resources


@dataclass(frozen=True, slots=True)
class Timing:
    """A case with its prediction, and the predictions of launches that differ in one thing."""

    case: Case
    prediction: Prediction
    more: int | None
    """Programs per multiprocessor at the next step of what limits them; None where none is."""
    more_programs: Prediction | None
    """It held so many; None where no more can fit, or there is no work for them."""
    one_fewer: Prediction | None
    """It held a program fewer; None where it holds one only."""
    single_stage: Prediction | None
    """num_stages 1; None where that is what it has, or there is no loop."""
    row_programs: Prediction | None
    """One program per row, as it is compiled or else with the loop opened; None for no loop.

    Both are None too where the prediction does not see what the stages of the launch load ahead.
    """
    tutorial: Prediction | None
    """The tutorial's num_programs; None where that is what is launched, or its formula fails."""

    @property
    def title(self) -> str:
        """What the GPU is called."""
        return self.case.title

    def basis(self, field: str) -> str:
        """Return "predicted", or "estimated" where what is in *field* is not compiled."""
        estimated = field == "row_programs" and self.case.row_kernel is None
        return "estimated" if estimated else "predicted"

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
    """Return the timing of *case*; None where there is no prediction, or it has a range."""
    prediction = case.record.prediction
    if prediction is None or prediction.low_us is not None:
        return None
    programs = case.record.occupancy.programs_per_multiprocessor
    more = case.calculation.next_programs
    seen = case.record.sees_stages
    single = case.single_stage if seen and case.record.num_stages > 1 else None
    persistent = case.plan.is_persistent
    estimated = _estimated_rows(case) if seen and case.row_kernel is None else None
    planned = {
        "more_programs": None if more is None or all_at_once(case) else case.record.resident(more),
        "one_fewer": case.record.resident(programs - 1) if programs > 1 else None,
        "row_programs": estimated,
    }
    found = dict(zip(planned, predict([*planned.values()], case.record.gpu), strict=True))
    if seen and case.row_kernel is not None:
        found["row_programs"] = case.row_kernel.prediction
    found["single_stage"] = single.prediction if single is not None and persistent else None
    return Timing(case, prediction, more, **found, tutorial=case.record.tutorial_prediction)


def all_at_once(case: Case) -> bool:
    """Tell whether every row (or block) has a program from the start."""
    plan = case.plan
    return plan.resident_programs is not None and plan.resident_programs >= plan.work


def _estimated_rows(case: Case) -> PlannedLaunch | None:
    """Return the launch with its loop opened, a program for each piece; None where it has none."""
    single = case.single_stage
    without_loop = None if single is None else opened(single.resources)
    if not case.plan.is_persistent or case.piece == "piece" or without_loop is None:
        return None
    work, gpu = case.record.launch.work, case.record.gpu
    fits = occupancy(without_loop, gpu.architecture).programs_per_multiprocessor
    return PlannedLaunch.of((case.plan.work,), work, 1, without_loop, fits, gpu)


def opened(resources: Resources) -> Resources | None:
    """Return what a kernel takes without its loop: one pass, and half of what is around the loop.

    The other half sets the loop up. None where the instructions are not known or there is no loop.
    """
    around, in_loop = resources.instructions, resources.loop_instructions
    if around is None or in_loop is None:
        return None
    return resources.replace(instructions=in_loop + around // 2, loop_instructions=None)


def bound_sentence(timing: Timing) -> str:
    """Say what bounds the launch, and why."""
    part = timing.prediction.part(timing.prediction.bound)
    reason = {
        "launch": _launch_reason,
        "latency": _latency_reason,
        "issue": _issue_reason,
        "bandwidth": _bandwidth_reason,
        "tail": _tail_reason,
    }[part.name]
    return reason(timing, microseconds(part.us))


def _launch_reason(timing: Timing, us: str) -> str:
    programs = count(timing.case.plan.num_programs or 0, "program")
    return (
        f"The launch bounds it: starting {programs}, setting them up and coming to an end takes"
        f" {us} by itself, whatever they do. The more work in one launch, the less that matters."
    )


def _latency_reason(timing: Timing, us: str) -> str:
    case = timing.case
    mp, fits = case.architecture.multiprocessor_word, case.record.occupancy
    if all_at_once(case):
        return (
            f"Latency bounds it: every {case.piece} is under way from the start, and what is"
            f" left is one after the other, a load, the work on it and a store: {us} by itself."
        )
    programs = f"with {count(fits.programs_per_multiprocessor, 'program')} per {mp}"
    if timing.limited or timing.more_programs is None:
        programs = f"{programs} too little is under way to fill that time"
    return (
        f"Latency bounds it: a program waits for its load, then for its own instructions, and"
        f" {programs}: {us} by itself."
    )


def _issue_reason(timing: Timing, us: str) -> str:
    case = timing.case
    record, mp = case.record, case.architecture.multiprocessor_word
    resources, warps = record.resources, count(record.num_warps, case.architecture.warp_word)
    looped = case.plan.is_persistent and resources.loop_instructions is not None
    instructions = resources.loop_instructions if looped else resources.instructions
    return (
        f"Issue bounds it: {article(mp)} {mp} issues {instructions} instructions for each of"
        f" {warps} a {case.piece}; that and moving their data inside the {mp} take {us}"
        " by themselves."
    )


def _bandwidth_reason(timing: Timing, us: str) -> str:
    traffic = timing.case.record.traffic
    moved = "what it moves" if traffic is None else byte_words(traffic.total_bytes)
    ever = "" if timing.limited else ", however many programs ask for them"
    return f"Bandwidth bounds it: {moved} through the device memory take {us} by themselves{ever}."


def _tail_reason(timing: Timing, us: str) -> str:
    case = timing.case
    plan, mps = case.plan, case.record.gpu.multiprocessors
    mp, word = case.architecture.multiprocessor_word, case.piece
    return (
        f"The tail bounds it: with {count(plan.work, word)} on {mps} {mp}s, the first loads before"
        f" anything can be computed, the last {word}s while the memory is idle, and the {mp}s that"
        f" wait for those with a {word} more cost {us} by themselves."
    )


BUSY = {
    "launch": ", the launch itself is",
    "issue": ", the instructions are",
    "bandwidth": ", the device memory is",
}
"""What is the limit instead of occupancy, by what bounds the launch."""


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
        f"with {timing.more} programs per {word} instead of {programs},"
        f" {microseconds(more.us)} would be predicted"
        f" ({change_words(timing.change(more), timing.prediction.error)})"
    )
    error = timing.prediction.error
    if timing.limited:
        limiters = limiter_words(case.calculation)
        yield f"A kernel that takes less of {limiters} would be faster: {predicted}."
    elif error is not None and abs(timing.change(more)) < error:
        yield f"Times of{error_words(error)} do not tell whether occupancy is a limit: {predicted}."
    else:
        yield f"Occupancy is not the limit{BUSY.get(timing.prediction.bound, '')}: {predicted}."


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
    error = timing.prediction.error if recorded is None else None
    if abs(difference) < (error or NOTICEABLE):
        verdict = "The loop costs nothing here"
        if error is not None:
            verdict = f"Times of{error_words(error)} do not tell whether the loop costs anything"
        yield f"{verdict}: with one program per row, {times}."
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
        basis = timing.basis(field)
        predicted = change_words(timing.change(other), timing.prediction.error)
        parts.append(f"{microseconds(other.us)} is {basis} ({predicted})")
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
    gains = [
        (sign * (changed.us - part.us), part.name == slower.bound, part, changed)
        for part, changed in zip(timing.prediction.parts, rows.parts, strict=True)
    ]
    enough = [gain for gain in gains if gain[0] >= needed > 0]
    if not enough:
        return ""
    _, _, part, changed = max(enough, key=lambda gain: (gain[1], gain[0]))
    against = f"{microseconds(changed.us)} against {microseconds(part.us)}"
    return f" {ROWS_REASONS[part.name, sign]}: {part.name} {against}."


ROWS_REASONS = {
    ("launch", -1): "A program sets up no loop",
    ("launch", 1): "The GPU starts as many programs as there are rows, one after the other",
    ("latency", -1): "More programs wait for their loads at the same time",
    ("latency", 1): "No program loads a row while it works on another",
    ("issue", -1): "A row takes fewer instructions without the loop and its copies",
    ("issue", 1): "Every program begins anew what the loop sets up once",
    ("bandwidth", -1): (
        "Programs that stride over the rows, each at its own pace, get less from the device memory"
        " than programs that start in the order of the rows"
    ),
    ("bandwidth", 1): "The device memory gives more to the loop",
    ("tail", -1): "The first and the last rows leave a part of the GPU idle for less time",
    ("tail", 1): "The first and the last rows leave a part of the GPU idle for more time",
}
"""Why the part that differs most is less (-1) or more (1) with one program per row."""


def unseen_stages(case: Case) -> Iterator[str]:
    """Say where the prediction does not see what num_stages does."""
    stages, shared = case.record.num_stages, case.architecture.shared_word
    seen = case.record.sees_stages
    if case.record.prediction is not None and not seen:
        yield (
            f"The prediction does not see what num_stages {stages} loads ahead: the loop has no"
            f" copy to {shared} that runs by itself."
        )


def stages_sentences(timing: Timing) -> Iterator[str]:
    """Say what num_stages does to the time here."""
    case, single = timing.case, timing.single_stage
    stages, shared = case.record.num_stages, case.architecture.shared_word
    if not case.plan.is_persistent or stages == 1:
        return
    if not case.record.sees_stages:
        yield from unseen_stages(case)
        return
    times = _times(case, timing, "single_stage")
    against = "" if single is None else f" With num_stages 1, {times}."
    yield stages_words(stages, shared, case.piece) + against


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
