"""How long a launch takes: predicted with its reasons, and measured or recorded beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.measured import measured_sentences, time_words
from occupancy_lab.explaining.reasons import (
    bound_sentence,
    programs_sentences,
    rows_sentences,
    stages_sentences,
    tutorial_sentences,
)
from occupancy_lab.explaining.timing import timing
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import basis_sentence, change, compared, microseconds, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.explaining.timing import Timing

ALTERNATIVES = {
    "more programs, one step": "more_programs",
    "one program fewer": "one_fewer",
    "num_stages 1": "single_stage",
    "one program a row, no loop": "row_programs",
    "the tutorial's num_programs": "tutorial",
}
"""What is changed, and the field of Timing that holds the prediction with it."""


def the_duration(cases: tuple[Case, ...]) -> Section:
    """Explain how long the launch should take, what bounds it, and what was measured of it."""
    timings = {case.title: timing(case) for case in cases}
    found = tuple(one for one in timings.values() if one is not None)

    def sentences(case: Case) -> Iterator[str]:
        timed = timings[case.title]
        if timed is not None:
            yield from _reasons(timed)
        yield from tutorial_sentences(case, timed)
        yield unknown_sentence(case) if timed is None else _basis_sentence(timed)
        yield from measured_sentences(case)

    tables = (*_time_tables(cases), *_part_tables(found), *_alternative_tables(found))
    return Section("How long it takes", tables, said_of_each(cases, sentences))


def unknown_sentence(case: Case) -> str:
    """Say why there is no prediction."""
    gpu, resources = case.record.gpu, case.record.resources
    if gpu.multiprocessors is None:
        why = f"{gpu.title} is an architecture, not a GPU; its size, clock and bandwidth are open"
    elif gpu.boost_mhz is None:
        why = f"the clock of {gpu.title} is not known"
    elif gpu.bandwidth_gbs is None:
        why = f"the bandwidth of {gpu.title} is not known"
    elif resources.instructions is None:
        why = "the instructions of its binary could not be counted"
    else:
        why = "no GPU has been calibrated"
    return f"No time is predicted: {why}."


def _reasons(timed: Timing) -> Iterator[str]:
    yield bound_sentence(timed)
    yield from programs_sentences(timed)
    yield from rows_sentences(timed)
    yield from stages_sentences(timed)


def _basis_sentence(timed: Timing) -> str:
    prediction, gpu = timed.prediction, timed.case.record.gpu
    return basis_sentence(gpu, prediction.basis, calibrated=prediction.calibrated)


def _time_tables(cases: tuple[Case, ...]) -> tuple[Table, ...]:
    rows = compared(
        cases,
        (
            ("predicted", _predicted_words),
            ("of a plain copy's bandwidth", _share_words),
            ("bound by", _bound_words),
            ("measured now", lambda case: time_words(case, case.record.measurement)),
            ("recorded", lambda case: time_words(case, case.recorded.launch)),
        ),
    )
    rows = tuple(row for row in rows if any(cell != "-" for cell in row[1:]))
    return (Table(("", *(case.title for case in cases)), rows),) if rows else ()


def _predicted_words(case: Case) -> str:
    prediction = case.record.prediction
    if prediction is None:
        return "-"
    return f"{microseconds(prediction.us)}, {prediction.gbs:.0f} GB/s"


def _share_words(case: Case) -> str:
    prediction = case.record.prediction
    return "-" if prediction is None else f"{prediction.share_of_ceiling:.0%}"


def _bound_words(case: Case) -> str:
    prediction = case.record.prediction
    return "-" if prediction is None else prediction.bound


def _part_tables(timings: tuple[Timing, ...]) -> tuple[Table, ...]:
    """Return each part's time by itself, and its share of the prediction."""
    if not timings:
        return ()

    def words(timed: Timing, place: int) -> str:
        us = timed.prediction.parts[place].us
        return f"{microseconds(us)} ({us / timed.prediction.us:.0%})"

    names = [part.name for part in timings[0].prediction.parts]
    rows = tuple(
        (name, *(words(timed, place) for timed in timings)) for place, name in enumerate(names)
    )
    caption = "Each part if nothing else took any time; parts overlap, so they add up to more:"
    return (Table(("", *(timed.title for timed in timings)), rows, caption),)


def _alternative_tables(timings: tuple[Timing, ...]) -> tuple[Table, ...]:
    """Return what would be predicted with one thing changed."""

    def words(timed: Timing, field: str) -> str:
        other = getattr(timed, field)
        return "-" if other is None else f"{microseconds(other.us)} ({change(timed.change(other))})"

    rows = tuple(
        (name, *(words(timed, field) for timed in timings)) for name, field in ALTERNATIVES.items()
    )
    rows = tuple(row for row in rows if any(cell != "-" for cell in row[1:]))
    caption = "What would be predicted with one thing changed:"
    return (Table(("", *(timed.title for timed in timings)), rows, caption),) if rows else ()
