"""The configurations of one launch line in one table: their resources and times, and the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from occupancy_lab.explaining.advice import first_advice, what_to_try
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.duration import part_sentence, time_sentence, without_time
from occupancy_lab.explaining.facts import (
    SHORT_HEADERS,
    all_launched_words,
    measured_words,
    number_headers,
    numbers,
    predicted,
    setting,
    setting_words,
)
from occupancy_lab.explaining.grids import doing_less, whole_work
from occupancy_lab.explaining.neighbours import first_of, have_times, rank
from occupancy_lab.explaining.work import in_one_line, work_sentences
from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.options import NAMES
from occupancy_lab.prediction import Prediction
from occupancy_lab.record import Failed, Record, by_gpu
from occupancy_lab.text.document import LONGEST_HEADER, Document, Section, Table, literal
from occupancy_lab.text.words import (
    count,
    known,
    listed,
    multiprocessor_words,
    percent,
    prediction_words,
    said_of_each,
)
from occupancy_lab.values import Status

MOST_REASONS = 3
"""How many reasons for failures of configurations a page shows."""


def write_variants(
    runs: Sequence[Record | Failed], chosen: Sequence[Case] = (), details: Sequence[Section] = ()
) -> Document:
    """Return the configurations of one launch line on one or several GPUs as one table.

    The *chosen* launches are the fastest on each GPU. The *details* on them follow, or without
    these what to try beyond the configurations.
    """
    records = [run for run in runs if isinstance(run, Record)]
    knobs = varying([run.settings for run in runs])
    several = len({run.gpu.key for run in runs}) > 1
    times = {(record.gpu.key, predicted(record)) for record in records}
    timed = len(times) > len({key for key, _ in times}) or have_times(records)
    measured = any(record.measurement is not None for record in records)
    names = literal(", ".join(knobs))  # a column each is more than a terminal has room for
    is_long = len(names) > LONGEST_HEADER
    rows = tuple(
        (
            *((run.gpu.key,) if several else ()),
            (" " if is_long else ", ").join(setting(run.settings, knob) for knob in knobs),
            *_outcome(run, timed=timed, measured=measured),
        )
        for run in runs
    )
    headers = (
        *(("GPU",) if several else ()),
        "configuration" if is_long else names,
        *(SHORT_HEADERS if several else number_headers([runs[0].gpu])),
        *(("time",) if timed else ()),
        "measured" if measured else "limited by",
    )
    of_each = by_gpu(records)
    first = tuple(map(first_of, of_each))
    which = [first_sentence(found, knobs) for found in of_each]
    timeless = [] if timed else said_of_each(first, lambda one: filter(None, [without_time(one)]))
    advised = [one for case in chosen for one in first_advice(case)]
    answer = [*timeless, *([*which, *advised] if chosen else [])]
    sentences = [*([] if chosen else which), *less_work_sentences(runs)]
    below = [case.record for case in chosen] if details else []
    sentences += said_of_each(
        [record for record in first if record not in below],
        lambda record: _time_sentences(record, timed=timed),
    )
    sentences += failed_sentences(
        (run.failure.status, named_reason(run.failure.reason, setting_words(run.settings, knobs)))
        for run in runs
        if isinstance(run, Failed)
    )
    further = details or ((what_to_try(chosen),) if chosen else ())
    titles = listed(list(dict.fromkeys(run.gpu.title for run in runs)))
    counted = "pairs of configuration and GPU" if several else "configurations"
    multiprocessors = multiprocessor_words(run.gpu for run in runs)
    return Document(
        f"{all_launched_words(runs)}, on {titles}",
        (
            *answer,
            f"{len(records)} of {len(runs)} {counted} compile and fit.",
            *([f"A configuration is {names}."] if is_long else []),
            f"Programs are per {multiprocessors}, with the occupancy beside them.",
        ),
        (Section("", (Table(headers, rows),), tuple(sentences)), *further),
    )


def less_work_sentences(runs: Sequence[Record | Failed]) -> list[str]:
    """Say which of *runs*, launches of one kernel, leave work undone that others do."""
    return [sentence for sentence in dict.fromkeys(map(_less_work, by_gpu(runs))) if sentence]


def _less_work(runs: Sequence[Record | Failed]) -> str:
    less = doing_less(runs)
    if not less:
        return ""
    settings = [run.settings for run in runs]
    knobs = [name for name in varying(settings) if name not in NAMES]

    def named(places: Iterable[int]) -> list[str]:
        return [*dict.fromkeys(setting_words(settings[one], knobs) for one in places)]

    short, whole = named(less), named(less.values())
    words = "does not do the whole work{}, as it reads or writes less than {}: it is not ranked"
    if len(short) > 1:
        words = (
            "do not do the whole work{}, as they read or write less than {}: they are not ranked"
        )
    grid = " over the same grid" if len({run.launch.grid for run in runs}) == 1 else ""
    return f"{listed(short)} {words.format(grid, listed(whole))}."


def _time_sentences(record: Record, *, timed: bool) -> Iterator[str]:
    if done := in_one_line(record):
        yield done
    yield from work_sentences(record)
    if record.prediction is not None:
        yield part_sentence(record.prediction)
    if timed:
        yield time_sentence(record)


FAILED_WORDS: Mapping[str, tuple[str, str]] = {
    Status.OK: ("has no time", "have no time"),
    Status.DOES_NOT_FIT: ("does not fit", "do not fit"),
    Status.COMPILE_FAILED: ("did not compile", "did not compile"),
    Status.SKIPPED: ("was skipped", "were skipped"),
    Status.INTERRUPTED: ("was interrupted", "were interrupted"),
}
"""The words for one and for several configurations; other statuses stand for themselves."""


def failed_sentences(failures: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Say how many configurations have each status, and why."""
    of_status: dict[str, Counter[str]] = {}
    for status, reason in failures:
        of_status.setdefault(status, Counter())[reason] += 1
    for status, reasons in of_status.items():
        number, most = sum(reasons.values()), reasons.most_common(MOST_REASONS)
        words = FAILED_WORDS.get(status, (status, status))[number > 1]
        why = "; ".join(literal(words) for words in _once([reason for reason, _ in most]))
        more = len(reasons) - len(most)
        rest = f"; {count(more, 'further reason')} in `--json`" if more else ""
        yield f"{count(number, 'configuration')} {words}: {why}{rest}."


def named_reason(reason: str, configuration: str) -> str:
    """Return why a launch failed, with the *configuration* for "this one" if it has a name."""
    return reason.replace("this one", configuration) if configuration else reason


def _once(reasons: Sequence[str]) -> Iterator[str]:
    """Return *reasons*; what a reason has in common with the one before it is left out."""
    before = ""
    for reason in reasons:
        common, and_, rest = reason.partition(", and ")
        yield rest if and_ and common == before else reason
        before = common if and_ else ""


def varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names whose values differ between *settings*, in the order of their appearance."""
    names = dict.fromkeys(name for setting in settings for name in setting)
    return [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]


def _outcome(run: Record | Failed, *, timed: bool, measured: bool) -> tuple[str, ...]:
    if isinstance(run, Failed):
        return (*["-"] * (len(SHORT_HEADERS) + timed), run.failure.status)
    last = measured_words(run.measurement) if measured else limiter_words(run.calculation)
    return (*numbers(run), *((predicted(run),) if timed else ()), last)


def first_sentence(records: Sequence[Record], knobs: Sequence[str]) -> str:
    """Name the best of *records*, of one GPU, by its *knobs*, and say how many are as good."""
    records = whole_work(records)
    first = first_of(records)
    words = setting_words(first.settings, knobs)
    if first.prediction is not None:
        fastest = _fastest_words(first, first.prediction, records)
        return f"**{first.title}**: {words or 'the launch'} {fastest}."
    resources, occupancy = first.resources, first.occupancy
    alike = sum(rank(one) == rank(first) for one in records) - 1
    keep = "keeps" if alike == 1 else "keep"
    others = f", and {count(alike, 'other')} {keep} as many" if alike else ""
    local = f"{known(resources.local_bytes)} B of" if resources.local_bytes != 0 else "no"
    return (
        f"**{first.title}**: among those with the least local memory, {words or 'the first'} keeps"
        f" the most {first.calculation.architecture.warp_word}s resident{others}:"
        f" {percent(occupancy.occupancy)}, with {local} local memory; that alone does not make it"
        " the fastest."
    )


def _fastest_words(first: Record, least: Prediction, records: Sequence[Record]) -> str:
    unknown = sum(one.prediction is None for one in records)
    close = [
        one
        for one in records
        if one is not first
        and one.prediction is not None
        and one.prediction.us / least.us - 1 < least.noticeable
    ]
    others = ""
    if close:
        are = "is" if len(close) == 1 else "are"
        others = f"; {count(len(close), 'other')} {are} within {least.noticeable:.0%} of that"
    if unknown:
        others += f"; no time is predicted for {count(unknown, 'other')}"
    return f"is predicted to be fastest, {prediction_words(least)}{others}"
