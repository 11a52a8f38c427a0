"""Why a launch takes as long as predicted: its bound, its programs, its loop and its stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.launch import work_word
from occupancy_lab.explaining.memory import megabytes
from occupancy_lab.explaining.timing import all_at_once
from occupancy_lab.kernel import Grid
from occupancy_lab.text.words import article, change, count, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.explaining.timing import Timing
    from occupancy_lab.values import Prediction

NOTICEABLE = 0.02
"""Changes of a time below this are called none."""


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
    programs = count(timing.case.record.plan.num_programs or 0, "program")
    return (
        f"The launch bounds it: starting {programs}, setting them up and coming to an end takes"
        f" {us} by itself, whatever they do. The more work in one launch, the less that matters."
    )


def _latency_reason(timing: Timing, us: str) -> str:
    case = timing.case
    mp, held = case.architecture.multiprocessor_word, case.record.occupancy
    if all_at_once(case):
        return (
            f"Latency bounds it: every {work_word(case)} is under way from the start, and what is"
            f" left is one after the other, a load, the work on it and a store: {us} by itself."
        )
    return (
        f"Latency bounds it: a program waits for its load, then for its own instructions, and with"
        f" {count(held.programs_per_multiprocessor, 'program')} {article(mp)} {mp} too little is"
        f" under way to fill that time: {us} by itself."
    )


def _issue_reason(timing: Timing, us: str) -> str:
    case = timing.case
    record, mp = case.record, case.architecture.multiprocessor_word
    resources, warps = record.resources, count(record.config.num_warps, case.architecture.warp_word)
    looped = record.kernel.grid is Grid.PERSISTENT and resources.loop_instructions is not None
    instructions = resources.loop_instructions if looped else resources.instructions
    return (
        f"Issue bounds it: {article(mp)} {mp} issues {instructions} instructions for each of"
        f" {warps} a {work_word(case)}, and that, or moving their data inside the {mp}, takes {us}"
        " by itself."
    )


def _bandwidth_reason(timing: Timing, us: str) -> str:
    moved = megabytes(timing.case.record.traffic.total_bytes)
    return (
        f"Bandwidth bounds it: {moved} through the device memory take {us} by themselves, however"
        " many programs ask for them."
    )


def _tail_reason(timing: Timing, us: str) -> str:
    case = timing.case
    plan, mps = case.record.plan, case.record.gpu.multiprocessors
    mp, word = case.architecture.multiprocessor_word, work_word(case)
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
    held, word = case.record.occupancy, case.architecture.multiprocessor_word
    if all_at_once(case):
        yield (
            f"More resident programs would not help: each {work_word(case)} has a program from the"
            " start."
        )
    if more is None:
        return
    programs = held.programs_per_multiprocessor
    predicted = (
        f"with {timing.more} programs {article(word)} {word} instead of {programs},"
        f" {microseconds(more.us)} would be predicted ({change(timing.change(more))})"
    )
    if timing.change(more) > -NOTICEABLE:
        yield f"Occupancy is not the limit{BUSY.get(timing.prediction.bound, '')}: {predicted}."
    elif "warps" in held.limiters:
        warps = count(held.num_warps, case.architecture.warp_word)
        yield f"Programs at once are a limit: {predicted}, but {warps} a program leave no room."
    else:
        yield f"Occupancy is a limit: {predicted}."


def rows_sentences(timing: Timing) -> Iterator[str]:
    """Say what one program a row instead of the loop would be worth, and why.

    Where both were recorded, that decides, and else the prediction.
    """
    rows = timing.row_programs
    if rows is None:
        return
    recorded = recorded_change(timing.case, "row_programs")
    difference = timing.change(rows) if recorded is None else recorded
    times = _times(timing.case, timing, "row_programs")
    if abs(difference) < NOTICEABLE:
        yield f"The loop costs nothing here: with one program a row, {times}."
        return
    verdict = "is better" if difference < 0 else "is not better"
    yield f"One program a row {verdict} here: {times}.{_why_rows(timing, rows, difference)}"


def recorded_change(case: Case, field: str) -> float | None:
    """Return how much longer another launch took than this one, where both were recorded."""
    own, other = case.recorded.launch, getattr(case.recorded, field)
    if own is None or other is None or own.us is None or other.us is None:
        return None
    share: float = other.us / own.us - 1
    return share


def _times(case: Case, timing: Timing | None, field: str) -> str:
    """Return what is predicted, and what was recorded, of the launch that differs in *field*.

    It is "" where neither is known.
    """
    said = []
    other: Prediction | None = None if timing is None else getattr(timing, field)
    if timing is not None and other is not None:
        said.append(f"{microseconds(other.us)} is predicted ({change(timing.change(other))})")
    share = recorded_change(case, field)
    if share is not None:
        recorded = microseconds(getattr(case.recorded, field).us)
        said.append(f"{recorded} was recorded ({change(share)})")
    return ", ".join(said)


def _why_rows(timing: Timing, rows: Prediction, difference: float) -> str:
    """Return the part that makes at least half of a predicted difference; "" where none does.

    What bounds the slower of the two comes first, then the part that differs most.
    """
    sign = -1 if difference < 0 else 1
    slower = timing.prediction if sign < 0 else rows
    needed = sign * (rows.us - timing.prediction.us) / 2
    gains = [
        (sign * (other.us - part.us), part.name == slower.bound, part, other)
        for part, other in zip(timing.prediction.parts, rows.parts, strict=True)
    ]
    enough = [gain for gain in gains if gain[0] >= needed > 0]
    if not enough:
        return ""
    _, _, part, other = max(enough, key=lambda gain: (gain[1], gain[0]))
    against = f"{microseconds(other.us)} against {microseconds(part.us)}"
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
"""Why the part that differs most is less (-1) or more (1) with one program a row."""


def stages_sentences(timing: Timing) -> Iterator[str]:
    """Say what num_stages does to the time here."""
    case, single = timing.case, timing.single_stage
    stages, shared = case.record.config.num_stages, case.architecture.shared_word
    if case.record.kernel.grid is not Grid.PERSISTENT or stages == 1:
        return
    if not case.record.resources.async_copies:
        yield (
            f"The prediction does not see what num_stages {stages} loads ahead: the loop has no"
            f" copy to {shared} that runs by itself."
        )
        return
    times = _times(case, timing, "single_stage")
    against = "" if single is None else f" With num_stages 1, {times}."
    yield _stages_words(stages, shared) + against


def _stages_words(stages: int, shared: str) -> str:
    """Say when a copy starts and when it is waited for, which is the same for every kernel."""
    copied = f"num_stages {stages} starts the copy of a row at the end of a pass and waits for it"
    between = stages - 2
    if between == 0:
        return (
            f"{copied} at the beginning of the next: that hides nothing of the load, and takes the"
            f" row through {shared} besides."
        )
    return (
        f"{copied} at the beginning of the pass {stages - 1} later: the work on"
        f" {count(between, 'other row')} in between hides the load."
    )


def tutorial_sentences(case: Case, timing: Timing | None) -> Iterator[str]:
    """Say what the tutorial's num_programs costs where it is another; *timing* None: recorded."""
    times = _times(case, timing, "tutorial")
    if times:
        yield (
            f"With the tutorial's {case.record.miscount} programs instead of"
            f" {case.record.plan.num_programs}, {times}."
        )
