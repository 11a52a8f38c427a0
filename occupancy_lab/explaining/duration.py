"""How long a launch takes: predicted with its reasons, and measured or recorded beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.facts import time_words
from occupancy_lab.explaining.timing import (
    programs_sentences,
    rows_sentences,
    stages_sentences,
    timing,
    tutorial_sentences,
)
from occupancy_lab.prediction import PARTS
from occupancy_lab.text.document import Section, Table, literal
from occupancy_lab.text.words import (
    change,
    conditions_words,
    median_words,
    microseconds,
    place_words,
    range_sentence,
    said_of_each,
)
from occupancy_lab.throughput.ranges import is_open

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.explaining.timing import Timing
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
    found = tuple(one for one in timings.values() if one is not None)

    def sentences(case: Case) -> Iterator[str]:
        timed = timings[case.title]
        if case.record.prediction is not None:
            yield part_sentence(case.record.prediction)
        if timed is not None:
            yield from (
                *programs_sentences(timed),
                *rows_sentences(timed),
                *stages_sentences(timed),
            )
        if case.record.matrix is not None:
            yield from tutorial_sentences(case, timed)
        prediction = case.record.prediction
        if prediction is not None and prediction.calibrated:
            yield time_sentence(case.record)
        yield from measured_sentences(case)

    timed = [one for one in cases if one.record.prediction]
    tables = (*_part_tables(timed), *_alternative_tables(found))
    return Section("How long it takes", tables, said_of_each(cases, sentences))


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


def _part_tables(cases: Sequence[Case]) -> tuple[Table, ...]:
    """Return each part's time by itself."""
    if not cases:
        return ()
    predictions = [one.record.prediction for one in cases]
    of_each = [
        {} if one is None else {part.name: part.us for part in one.parts} for one in predictions
    ]
    rows = tuple(
        (words, *("-" if name not in us else microseconds(us[name]) for us in of_each))
        for name, words in PARTS.items()
        if any(name in us for us in of_each)
    )
    caption = "Each part if nothing else took any time; parts overlap, so they add up to more:"
    return (Table(("", *(one.title for one in cases)), rows, caption),)


def _alternative_tables(timings: tuple[Timing, ...]) -> tuple[Table, ...]:
    """Return what would be predicted with one thing changed."""

    def words(timed: Timing, field: str) -> str:
        other = getattr(timed, field)
        if other is None:
            return "-"
        return f"{microseconds(other.us)} ({change(timed.change(other))})"

    rows = tuple(
        (name, *(words(timed, field) for timed in timings)) for name, field in ALTERNATIVES.items()
    )
    rows = tuple(row for row in rows if any(cell != "-" for cell in row[1:]))
    caption = "What would be predicted with one thing changed:"
    return (Table(("", *(timed.title for timed in timings)), rows, caption),) if rows else ()


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
        where = f"Recorded on {place_words(taken)} ({conditions_words(taken)})"
        yield from _time_sentences(case, where, recorded)
        if taken.triton != case.record.triton_version:
            yield (
                f"Triton {taken.triton} compiled what was recorded, Triton"
                f" {case.record.triton_version} what is predicted."
            )
    yield from _as_compiled_sentences(case)


def _as_compiled_sentences(case: Case) -> Iterator[str]:
    """Say what was recorded of the same configuration, compiled to another launch."""
    if case.recorded.as_compiled is None:
        return
    programs, found = case.recorded.as_compiled
    taken, planned = found.conditions, case.plan.num_programs
    if taken is not None:
        yield (
            f"Recorded on {place_words(taken)} ({conditions_words(taken)}):"
            f" {time_words(case, found)}, {median_words(found.runs)}{_range(found)}. That is with"
            f" {programs} programs, as many as fit of what Triton {taken.triton} compiled; of what"
            f" is predicted {planned} fit."
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
