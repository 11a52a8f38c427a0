"""How long a launch takes: the predicted time with reasons, and measured or recorded times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from occupancy_lab.arguments import Pointer
from occupancy_lab.assumed import trips_at
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.facts import time_words
from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.prediction import PARTS, Prediction, Quotient
from occupancy_lab.record import Record
from occupancy_lab.text.document import Section, Table, literal
from occupancy_lab.text.words import (
    article,
    byte_words,
    change,
    conditions_words,
    count,
    listed,
    median_words,
    microseconds,
    place_words,
    range_sentence,
    said_of_each,
    scaled,
)
from occupancy_lab.throughput.launch_time import is_open
from occupancy_lab.values import Measurement
from occupancy_lab.work.counts import Counts

OFFSETS = ("int32", "int64", "uint32", "uint64")
"""The dtypes of tensors that may hold offsets or indices."""
WIDEST_DRAWN = 32
"""Bits of the widest numbers that are proposed to be drawn at random."""
_INTEGER = re.compile(r"(u?)int(\d+)")
NO_GRID = "no `--grid` is given"
"""Why it is not known what a launch does."""


def the_duration(cases: Sequence[Case]) -> Section:
    """Explain how long the launch should take, what bounds it, and what was measured."""

    def sentences(case: Case) -> Iterator[str]:
        prediction = case.record.prediction
        if prediction is not None:
            yield part_sentence(prediction)
            yield from programs_sentences(case.record, prediction)
        yield from stages_sentences(case)
        if prediction is not None and prediction.calibrated:
            yield time_sentence(case.record)
        yield from measured_sentences(case)

    timed = [(case.title, found) for case in cases if (found := case.record.prediction)]
    tables = tuple(
        _parts_table(found, f"{title}:" if place else f"{title}: {PARTS_OVERLAP}")
        for place, (title, found) in enumerate(timed)
    )
    return Section("How long it takes", tables, said_of_each(cases, sentences))


PARTS_OVERLAP = (
    "each part if nothing else took any time; parts overlap, so they add up to more than the whole."
    " Cycles are those of an average multiprocessor, summed over its programs. Bytes of device"
    " memory are as many as it would read in the time: one that is written counts for more, and one"
    " that the L2 cache still has at the end for none. The L2 cache has a rate for all bytes, one"
    " for those stored and one for requests: the slowest counts here:"
)


def _parts_table(prediction: Prediction, caption: str) -> Table:
    rows = tuple(
        (PARTS[part.name], microseconds(part.us), *_quotient_words(part.quotient))
        for part in prediction.parts
    )
    return Table(("", "time", "amount", "at", "from"), rows, caption, prose=True)


def _quotient_words(one: Quotient | None) -> tuple[str, str, str]:
    if one is None:
        return "-", "-", "-"
    if one.unit == "B":
        rate = f"{byte_words(round(one.rate * 1e6))}/s"
        return byte_words(round(one.amount)), rate, one.source
    if one.unit != "cycles":
        words = count(round(one.amount), one.unit)
        return words, f"{one.rate:.0f} a us" if one.amount > 1 else "-", one.source
    amount = f"{scaled(one.amount)} cycles"
    if one.each:
        amount = f"{one.amount / one.each:.3g} x {scaled(one.each)} cycles"
    return amount, f"{one.rate:.0f} MHz", one.source


def time_sentence(record: Record) -> str:
    """Return what the predicted time rests on, or what a prediction lacks."""
    found = record.prediction
    if found is not None:
        return range_sentence(record.gpu, found.basis, calibrated=found.calibrated)
    why = why_no_time(record)
    if record.memory is None:
        why += "; `--bytes-read` and `--bytes-written` give the least possible"
    return f"{why}."


def without_time(record: Record) -> str:
    """Say why no time is predicted and what would give one; "" if there is a time."""
    if record.plan is None:
        return (
            "It is not known how many programs are launched, what they do and how long that takes:"
            f" {NO_GRID}."
        )
    return time_sentence(record) if record.prediction is None else ""


def part_sentence(prediction: Prediction) -> str:
    """Name the two parts of a launch's time that would take longest by themselves."""
    first, *others = prediction.longest
    found = f"The part that takes longest by itself: {PARTS[first.name]}, {microseconds(first.us)}"
    if others:
        found += f"; then {PARTS[others[0].name]}, {microseconds(others[0].us)}"
    return f"{found}."


def why_no_time(record: Record) -> str:
    """Say why a launch has no predicted time, and which option would give it one."""
    why = _unknown(record) or _not_counted(record)
    has_tensor_cores = record.gpu.architecture.tensor_multiply_adds is not None
    if not why and record.resources.tensor_instructions and not has_tensor_cores:
        why = f"the rate of the tensor cores of {record.gpu.title} is not known"
    elif not why and record.executed is not None and record.executed.instructions.high is None:
        why = "how often the loops of its machine code run is not known"
    return f"No time is predicted, as {why}" if why else "No time is predicted of such a launch"


def _not_counted(record: Record) -> str:
    """Return why it is not known what the launch does; "" if it is known."""
    if record.counts is None:
        if record.plan is None:
            return NO_GRID
        return record.why_not_counted or "what it does is not counted"
    if any(loop.trips.high is None for loop in record.counts.loops):
        words = "how often its loops run"
        return _steered(record, record.counts, "loop", words, _trips_words(record.counts))
    if is_open(record.counts, record.executed, record.memory):
        return _steered(record, record.counts, "", "how much it does")
    return ""


def _trips_words(counts: Counts) -> str:
    lines = sorted({place.line for place, allowed in counts.steered if allowed.high is None})
    if not lines:
        return ""
    given = " ".join(f"--assume {trips_at(line)}=N" for line in lines)
    at = f"the loop at line {lines[0]}"
    if len(lines) > 1:
        at = f"the loops at lines {listed([str(line) for line in lines])}"
    return f"`{given}` gives the trips of {at}"


def _steered(record: Record, counts: Counts, kind: str, words: str, first: str = "") -> str:
    """Say that *words* is not known, and which `--assume` would give the value it depends on.

    Only unknown values are considered that steer a *kind*, as a loop; "" stands for any. *first*
    says what else gives a time.
    """
    steering = [one for one in counts.unknowns if one.assumed is None and kind in one.steers]
    argument = next((one.name for one in steering if one.name.isidentifier()), None)
    ways = [first] if first else []
    steered: dict[str, set[str]] = {}
    for one in steering:
        if one.tensor is not None:
            steered.setdefault(one.tensor, set()).add(one.steers)
    if steered:
        given = " ".join(f"--assume {name}=VALUE" for name in steered)
        give = "gives" if len(steered) == 1 else "give"
        hints = (_hint(record, name, kinds) for name, kinds in steered.items())
        hint = next(filter(None, hints), "")
        ways.append(f"`{given}` {give} the value of each element{hint}")
    elif argument is not None:
        ways.append(f"`--assume {argument}=VALUE` gives the value it depends on")
    return f"{words} is not known{': ' if ways else ''}{'; '.join(ways)}"


def _hint(record: Record, tensor: str, steered: AbstractSet[str]) -> str:
    """Say what else `--assume` may give a tensor of integers; "" for another tensor.

    It is a random number for what only masks and branches depend on; such addresses and numbers of
    iterations would be out of any range.
    """
    pointer = record.arguments.get(tensor)
    dtype = pointer.dtype if isinstance(pointer, Pointer) else ""
    if steered <= {"mask", "branch"} and (drawn := _any_of(dtype)):
        return f", and `--assume {tensor}={drawn}` draws each at random"
    if dtype in OFFSETS:
        return f", and `--assume {tensor}=64*i` gives offsets that are 64 apart"
    return ""


def _any_of(dtype: str) -> str:
    """Return the range of a dtype of integers, "0..255"; "" for another dtype."""
    integer = _INTEGER.fullmatch(dtype)
    if integer is None:
        return "0..1" if dtype == "bool" else ""
    bits = min(int(integer[2]), WIDEST_DRAWN)
    low, high = (0, 2**bits - 1) if integer[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return f"{low}..{high}"


def _unknown(record: Record) -> str:
    """Return what a prediction lacks of the GPU or the binary; "" if nothing."""
    gpu = record.gpu
    if gpu.multiprocessors is None:
        return f"{gpu.title} is an architecture, not a GPU; its size, clock and bandwidth are open"
    if gpu.boost_mhz is None:
        return f"the clock of {gpu.title} is not known"
    if gpu.bandwidth_gbs is None:
        return f"the bandwidth of {gpu.title} is not known"
    if record.resources.instructions is None:
        return "the instructions of its binary could not be counted"
    return ""


def measured_sentences(case: Case) -> Iterator[str]:
    """Say what was measured now, or why not, and what was recorded."""
    now, recorded = case.record.measurement, case.recorded.launch
    if now is not None and now.us is None:
        yield not_measured(now)
    elif now is not None and now.conditions is not None:
        where = f"Measured now on {now.conditions.device} ({conditions_words(now.conditions)})"
        yield from _time_sentences(case, where, now)
    if recorded is not None and recorded.conditions is not None:
        taken = recorded.conditions
        yield from _time_sentences(case, f"Recorded on {place_words(taken)}", recorded)
        if taken.triton != case.record.triton_version:
            yield (
                f"Triton {taken.triton} compiled the recorded launch, Triton"
                f" {case.record.triton_version} the predicted one."
            )
    programs, found = case.recorded.as_compiled or (0, None)
    if found is not None and found.conditions is not None:
        yield (
            f"Recorded on {place_words(found.conditions)}: {time_words(case, found)},"
            f" {median_words(found.runs)}{_range(found)}. That is with {programs} programs, as many"
            f" as fit when Triton {found.conditions.triton} compiled it; {case.plan.num_programs}"
            " fit as it compiles now."
        )


def not_measured(found: Measurement) -> str:
    """Say why a measurement has no time."""
    on = "" if found.conditions is None else f" on {found.conditions.device}"
    reason = "" if found.reason is None else f": {literal(found.reason)}"
    return f"**Not measured**{on}, {found.status}{reason}."


def _time_sentences(case: Case, where: str, measurement: Measurement) -> Iterator[str]:
    times = f"{time_words(case, measurement)}, {median_words(measurement.runs)}"
    prediction, against = case.record.prediction, ""
    if prediction is not None and measurement.us is not None:
        share = prediction.us / measurement.us - 1
        way = "above" if share > 0 else "below"
        against = f"; the prediction is {abs(share):.1%} {way} it"
    yield f"{where}: {times}{_range(measurement)}{against}."
    if measurement.mostly_launch:
        yield (
            "That is less than twice the time of an empty kernel: it is mostly launch overhead and"
            " tells little about the kernel."
        )


def _range(measurement: Measurement) -> str:
    low, high = measurement.us_low, measurement.us_high
    if low is None or high is None:
        return ""
    return f", 10th to 90th percentile {microseconds(low)} to {microseconds(high)}"


def programs_sentences(record: Record, own: Prediction) -> Iterator[str]:
    """Say whether more programs on a multiprocessor would make the launch faster."""
    plan, calculation = record.plan, record.calculation
    fit, word = calculation.next_programs, record.gpu.architecture.multiprocessor_word
    if plan is None or plan.resident_programs is None:
        return
    if plan.resident_programs >= plan.work:
        yield "All programs run at once now: only a larger grid would bring more."
        return
    if fit is None:
        yield (
            f"No more programs fit on {article(word)} {word}, however few registers and however"
            f" little {record.gpu.architecture.shared_word} they take."
        )
        return
    more = record.with_more
    if more is None:
        return
    longer = more.us / own.us - 1
    predicted = (
        f"with {fit} programs per {word} instead of"
        f" {record.occupancy.programs_per_multiprocessor}, {microseconds(more.us)} would be"
        f" predicted ({change(longer)})"
    )
    if longer <= -own.noticeable:
        limiters = limiter_words(calculation)
        yield f"Lower use of {limiters} would make the kernel faster: {predicted}."
    else:
        yield f"Occupancy is not the limit: {predicted}."


def stages_sentences(case: Case) -> Iterator[str]:
    """Say when num_stages loads ahead and what that takes, if it has an effect on the binary."""
    stages, resources, one = case.record.num_stages, case.record.resources, case.with_one_stage
    if one is None:
        return
    if resources.async_copies:
        yield stages_words(stages, case.architecture.shared_word)
    amounts = (
        (f"B of {case.architecture.shared_word}", resources.shared, one.resources.shared),
        (f"{case.architecture.register_word}s a thread", resources.n_regs, one.resources.n_regs),
    )
    taken = [f"{then} {unit} instead of {now}" for unit, now, then in amounts if now != then]
    if taken:
        yield f"With num_stages 1 it takes {listed(taken)}."


def stages_words(stages: int, shared: str) -> str:
    """Say when a prefetch starts and when the loop waits for it; the same for every kernel."""
    copied = (
        f"num_stages {stages} starts a copy into {shared} at the end of a pass of the loop and"
        " waits for it at the beginning of the"
    )
    if stages == 2:  # noqa: PLR2004 - the least that copies ahead
        return f"{copied} next, which hides none of the load's latency."
    between = count(stages - 2, "other pass")
    return f"{copied} pass {stages - 1} later: the work of {between} in between hides the load."
