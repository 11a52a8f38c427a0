"""What was measured, now or once, in words that leave no doubt which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.text.document import literal
from occupancy_lab.text.words import conditions_words, median_words, microseconds, place_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.values import Measurement


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
    taken, planned = found.conditions, case.record.plan.num_programs
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


def time_words(case: Case, measurement: Measurement | None) -> str:
    """Return a measured time and its bandwidth, "12.4 us, 2065 GB/s"; "-" for none."""
    gbs = None if measurement is None else measurement.gbs(case.record.traffic)
    if measurement is None or measurement.us is None or gbs is None:
        return "-"
    return f"{microseconds(measurement.us)}, {gbs:.0f} GB/s"
