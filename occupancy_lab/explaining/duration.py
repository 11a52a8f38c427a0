"""How long a launch takes: predicted with its reasons, and measured or recorded beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.explaining.facts import time_words
from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.prediction import NOTICEABLE, PARTS
from occupancy_lab.text.document import Section, literal, side_by_side
from occupancy_lab.text.words import (
    article,
    change,
    conditions_words,
    count,
    median_words,
    microseconds,
    place_words,
    range_sentence,
    said_of_each,
)
from occupancy_lab.throughput.ranges import is_open

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.prediction import Prediction
    from occupancy_lab.record import Record
    from occupancy_lab.values import Measurement
    from occupancy_lab.work.counts import Counts

ALTERNATIVES = {
    "more programs, one step": "more_programs",
    "num_stages 1": "single_stage",
    "one program per row, no loop": "row_programs",
    "the tutorial's num_programs": "tutorial",
}
"""What is changed, and the field of Timing that holds the prediction with it."""


NO_GRID = "no `--grid` is given"
"""Why nobody knows what a launch does."""


def the_duration(cases: tuple[Case, ...]) -> Section:
    """Explain how long the launch should take, what bounds it, and what was measured of it."""
    timings = {case.title: timing(case) for case in cases}

    def sentences(case: Case) -> Iterator[str]:
        timed, prediction = timings[case.title], case.record.prediction
        if prediction is not None:
            yield part_sentence(prediction)
        if timed is not None:
            yield from programs_sentences(timed)
            yield from rows_sentences(timed)
            yield from stages_sentences(timed)
        if case.record.matrix is not None:
            yield from tutorial_sentences(case, timed)
        if prediction is not None and prediction.calibrated:
            yield time_sentence(case.record)
        yield from measured_sentences(case)

    tables = (
        side_by_side(
            [one for one in cases if one.record.prediction],
            ((words, partial(_part_words, name)) for name, words in PARTS.items()),
            caption="Each part if nothing else took any time; parts overlap, so they add up to"
            " more:",
        ),
        side_by_side(
            [one for one in timings.values() if one is not None],
            ((name, partial(_alternative_words, field)) for name, field in ALTERNATIVES.items()),
            caption="What would be predicted with one thing changed:",
        ),
    )
    shown = tuple(table for table in tables if table.rows)
    return Section("How long it takes", shown, said_of_each(cases, sentences))


def time_sentence(record: Record) -> str:
    """Return what the predicted time rests on, or what is missing for one."""
    found = record.prediction
    if found is not None:
        return range_sentence(record.gpu, found.basis, calibrated=found.calibrated)
    why = why_no_time(record)
    if record.memory is None:
        why += "; `--bytes-read` and `--bytes-written` give the least possible"
    return f"{why}."


def part_sentence(prediction: Prediction) -> str:
    """Return what takes longest of a launch by itself, and what comes next."""
    first, *others = sorted(prediction.parts, key=lambda part: -part.us)
    found = f"What takes longest by itself: {PARTS[first.name]}, {microseconds(first.us)}"
    if others:
        found += f"; then {PARTS[others[0].name]}, {microseconds(others[0].us)}"
    return f"{found}."


def why_no_time(record: Record) -> str:
    """Say that a launch has no predicted time, and what would give it one, if anything would."""
    why = not_modelled(record) or _unknown(record) or _not_counted(record)
    return f"No time is predicted, as {why}" if why else "No time is predicted of such a launch"


def not_modelled(record: Record) -> str:
    """Return why no option would give the launch a predicted time; "" where one may."""
    return "clusters are not modelled" if record.resources.num_ctas > 1 else ""


def _not_counted(record: Record) -> str:
    """Return why what the launch does is not known, without which there is no time; or ""."""
    if record.counts is None:
        if record.plan is None:
            return NO_GRID
        return record.why_not_counted or "what it does is not counted"
    if any(loop.trips.high is None for loop in record.counts.loops):
        return _steered(record.counts, "loop", "how often its loops run")
    if is_open(record.counts, record.executed, record.memory):
        return _steered(record.counts, "", "how much it does")
    return ""


def _steered(counts: Counts, kind: str, words: str) -> str:
    """Say that *words* are not known, and which option would tell, by what steers a *kind*."""
    steering = [one for one in counts.unknowns if one.assumed is None and kind in one.steers]
    tensor = next((one.tensor for one in steering if one.tensor is not None), None)
    argument = next((one.name for one in steering if one.name.isidentifier()), None)
    found = f"{words} is not known"
    if tensor is None:
        how = f": `--assume {argument}=VALUE` gives what it hangs on" if argument else ""
        return f"{found}{how}"
    return (
        f"{found}: `--assume {tensor}=VALUE` gives what each element holds, and `--assume"
        f" {tensor}=64*i` offsets that are 64 apart"
    )


def _unknown(record: Record) -> str:
    """Return what is not known of the GPU or the binary, without which there is no time; or ""."""
    gpu = record.gpu
    if gpu.multiprocessors is None:
        return f"{gpu.title} is an architecture, not a GPU; its size, clock and bandwidth are open"
    if gpu.boost_mhz is None:
        return f"the clock of {gpu.title} is not known"
    if gpu.bandwidth_gbs is None:
        return f"the bandwidth of {gpu.title} is not known"
    if record.resources.instructions is None:
        return "the instructions of its binary could not be counted"
    if record.counts is not None and record.resources.tensor_instructions:
        return f"the rate of the tensor cores of {gpu.title} is not known"
    return ""


def _part_words(part: str, case: Case) -> str:
    """Return the time of a part by itself; "-" where the launch has none of that name."""
    parts = case.record.prediction.parts if case.record.prediction else ()
    return next((microseconds(one.us) for one in parts if one.name == part), "-")


def _alternative_words(field: str, timed: Timing) -> str:
    other = getattr(timed, field)
    return "-" if other is None else f"{microseconds(other.us)} ({change(timed.change(other))})"


def measured_sentences(case: Case) -> Iterator[str]:
    """Say what was measured now, or why it was not, and what was recorded."""
    now, recorded = case.record.measurement, case.recorded.launch
    if now is not None and now.us is None:
        on = "" if now.conditions is None else f" on {now.conditions.device}"
        reason = "" if now.reason is None else f": {literal(now.reason)}"
        yield f"**Not measured**{on}, {now.status}{reason}."
    elif now is not None and now.conditions is not None:
        where = f"Measured now on {now.conditions.device} ({conditions_words(now.conditions)})"
        yield from _time_sentences(case, where, now)
    if recorded is not None and recorded.conditions is not None:
        taken = recorded.conditions
        yield from _time_sentences(case, f"Recorded on {place_words(taken)}", recorded)
        if taken.triton != case.record.triton_version:
            yield (
                f"Triton {taken.triton} compiled what was recorded, Triton"
                f" {case.record.triton_version} what is predicted."
            )
    yield from _as_compiled_sentences(case)


def _as_compiled_sentences(case: Case) -> Iterator[str]:
    """Say what was recorded of the same configuration, compiled to another launch."""
    programs, found = case.recorded.as_compiled or (0, None)
    if found is not None and (taken := found.conditions) is not None:
        planned = case.plan.num_programs
        yield (
            f"Recorded on {place_words(taken)}: {time_words(case, found)},"
            f" {median_words(found.runs)}{_range(found)}. That is with {programs} programs, as many"
            f" as fit of what Triton {taken.triton} compiled; of what is predicted {planned} fit."
        )


def _time_sentences(case: Case, where: str, measurement: Measurement) -> Iterator[str]:
    times = f"{time_words(case, measurement)}, {median_words(measurement.runs)}"
    yield f"{where}: {times}{_range(measurement)}{_against(case, measurement)}."
    if measurement.mostly_launch:
        yield (
            "That is less than twice the time of an empty kernel: it is mostly the launch, and"
            " tells little of the kernel."
        )


def _range(measurement: Measurement) -> str:
    low, high = measurement.us_low, measurement.us_high
    if low is None or high is None:
        return ""
    return f", of which eight in ten took {microseconds(low)} to {microseconds(high)}"


def _against(case: Case, measurement: Measurement) -> str:
    prediction = case.record.prediction
    if prediction is None or measurement.us is None:
        return ""
    share = prediction.us / measurement.us - 1
    return f"; the prediction is {abs(share):.1%} {'above' if share > 0 else 'below'} it"


@dataclass(frozen=True, slots=True)
class Timing:
    """A case with its prediction, and the predictions of launches that differ in one thing."""

    case: Case
    prediction: Prediction
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


def timing(case: Case) -> Timing | None:
    """Return the timing of *case*; None where there is no prediction."""
    record = case.record
    if record.prediction is None or record.matrix is None:
        return None
    single = case.single_stage if record.num_stages > 1 and case.plan.is_persistent else None
    rows = case.row_kernel
    return Timing(
        case,
        record.prediction,
        None if all_at_once(case) else record.with_more,
        None if single is None else single.prediction,
        None if rows is None else rows.prediction,
    )


def all_at_once(case: Case) -> bool:
    """Tell whether every row (or block) has a program from the start."""
    plan = case.plan
    return plan.resident_programs is not None and plan.resident_programs >= plan.work


def programs_sentences(timing: Timing) -> Iterator[str]:
    """Say whether more resident programs would help."""
    case, more, fit = timing.case, timing.more_programs, timing.case.calculation.next_programs
    word = case.architecture.multiprocessor_word
    if all_at_once(case):
        yield (
            f"More resident programs would not help: each {case.piece} has a program from the"
            " start."
        )
    elif fit is None:
        yield (
            f"No more programs fit on {article(word)} {word}, whatever registers and"
            f" {case.architecture.shared_word} they take."
        )
    if more is None:
        return
    programs = case.record.occupancy.programs_per_multiprocessor
    predicted = (
        f"with {fit} programs per {word} instead of {programs}, {microseconds(more.us)}"
        f" would be predicted ({change(timing.change(more))})"
    )
    if timing.change(more) <= -timing.prediction.noticeable:
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
