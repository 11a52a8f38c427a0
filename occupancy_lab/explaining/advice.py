"""What to launch instead: the launches near one in a table, the best change, and wider loads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Self

from occupancy_lab.arguments import ALIGNMENT, Descriptor, Pointer
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.commands import further_away
from occupancy_lab.explaining.duration import not_measured
from occupancy_lab.explaining.facts import number_headers, numbers
from occupancy_lab.explaining.grids import GRID, added_tensors, grown_tensors, splits_of
from occupancy_lab.explaining.neighbours import Neighbour, blocks_of, predicted_us, rank
from occupancy_lab.explaining.work import line_words
from occupancy_lab.options import CAPS, NAMES
from occupancy_lab.prediction import CHOSEN_WORDS, Prediction, part_words
from occupancy_lab.record import Record
from occupancy_lab.text.document import Section, Table, literal, side_by_side, spans
from occupancy_lab.text.words import (
    change,
    count,
    listed,
    microseconds,
    percent,
    prediction_words,
    said_of_each,
)
from occupancy_lab.values import Status
from occupancy_lab.work.counting import LATE

LONG_LOOP = 16
"""Passes of a loop from which on a page suggests to divide them among more programs."""
_LEAST_REGISTERS = re.compile(r"register target of (\d+) or higher")
"""What ptxas says of a cap on registers that is too low."""
_WITHOUT_TIMES = "Without times only occupancy and local memory are compared"


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
        words += f"; {microseconds(then.us)} measured with {literal(best.words)} ({share})"
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


def neighbour_tables(cases: Sequence[Case]) -> tuple[Table, ...]:
    """Return one table of predicted times if all cases have one, else tables of their numbers."""
    having = [case for case in cases if case.neighbours]
    if having and all(case.record.prediction is not None for case in cases):
        shown = {one.words for case in having for one in worth_showing(case)}
        names = dict.fromkeys(one.words for case in having for one in case.neighbours)
        facts = ((name, partial(_time_of, name)) for name in names if name in shown)
        table = side_by_side(cases, facts, corner="predicted with", prose=True)
        return (table,) if table.rows else ()
    return tuple(_numbers_table(case, title=len(cases) > 1) for case in having)


def worth_showing(case: Case) -> list[Neighbour]:
    """Return the neighbours with other options, and the noticeably faster ones of the rest.

    Those that do not compile are left out, and pairs of num_warps and num_stages but the best.
    """
    own = case.record.prediction
    compiled = [one for one in case.neighbours if one.status != Status.COMPILE_FAILED]
    if own is None:
        return compiled
    most, best = own.us * (1 - own.noticeable), case.best
    return [
        one
        for one in compiled
        if one is best or (not _is_pair(one) and (one.changes.keys() <= {*NAMES} or one.us <= most))
    ]


def in_one_sentence(case: Case) -> str:
    """Say which neighbour is the fastest and why, or that none is faster; "" without times.

    What starting the programs takes comes first where it bounds the launch and the fastest
    neighbour has as many programs.
    """
    own, best = case.record.prediction, case.best
    if own is None or not case.neighbours:
        return ""
    if best is None or best.prediction is None:
        some = [one for one in case.neighbours if one.prediction is not None and not one.reason]
        if not some:
            return ""
        if slow := _many_programs(case.record):
            return slow
        none = "The change that was tried is not"
        if len(some) > 1:
            none = f"None of the {len(some)} changes tried is"
        return (
            f"{none} predicted to be faster than {microseconds(own.us)} by {own.noticeable:.0%} or"
            f" more{_but_spills(case)}."
        )
    found = best.prediction
    times = f"{prediction_words(found.as_chosen)} predicted instead of {microseconds(own.us)}"
    why = f"{_few_programs(case.record, best)}{why_faster(own, found)}"
    many = _many_programs(case.record) if _starts_as_many(case.record, best) else ""
    return f"{many} {literal(change_if(best, case.record))}: {times}{why}.".lstrip()


def _starts_as_many(record: Record, best: Neighbour) -> bool:
    programs = None if best.record is None else best.record.num_programs
    return (programs or 0) >= (record.num_programs or 0)


def change_if(best: Neighbour, record: Record) -> str:
    """Return the change from *record* to *best* and its condition: "num_warps 4 instead of 8".

    A change of arguments depends on the kernel, and tensors may have to grow: "BLOCK 2 instead of 1
    (if its results stay right)".
    """
    words = best.instead_of(record)
    if best.changes.keys() <= {*NAMES} or best.record is None:
        return words
    grown = grown_tensors(record, best.record) if GRID in best.changes else []
    grow = "grows" if len(grown) == 1 else "grow"
    room = f", and {listed(grown)} {grow} with the grid" if grown else ""
    added = added_tensors(record, best.record)
    are = "is" if len(added) == 1 else "are"
    zero = f", and {listed(added)} {are} zeroed before the launch" if added else ""
    return f"{words} (if its results stay right{room}{zero})"


def _few_programs(record: Record, best: Neighbour) -> str:
    plan, more = record.plan, None if best.record is None else best.record.num_programs
    if plan is None or plan.waves is None or plan.waves >= 1:
        return ""
    if not more or not plan.num_programs or more <= plan.num_programs:
        return ""
    return f", as {plan.num_programs} programs take {percent(plan.waves)} of the places for them"


def why_faster(own: Prediction, other: Prediction) -> str:
    """Name what shrinks most: "; the part that shrinks most: latency, from 52 us to 12 us"."""
    now, then = ({part.name: part.us for part in one.parts} for one in (own, other))
    name = max(now, key=lambda name: now[name] - then.get(name, 0.0))
    if now[name] <= then.get(name, 0.0):
        return ""
    times = f"from {microseconds(now[name])} to {microseconds(then.get(name, 0.0))}"
    return f"; the part that shrinks most: {part_words(name)}, {times}"


def cap_outcomes(cases: Sequence[Case]) -> dict[str, dict[str, str]]:
    """Return what launches compile to with each cap on registers that was tried.

    For each GPU the words are by option, as in maxnreg=64.
    """
    found: dict[str, dict[str, str]] = {}
    for case in cases:
        outcomes = found[case.record.gpu.key] = {}
        for one in case.neighbours:
            ((name, value), *others) = one.changes.items()
            if others or name not in CAPS or value is None:
                continue
            outcome = "it spills nothing"
            if one.record is None:
                outcome = _why_not_capped(one)
            elif spilled := one.record.resources.local_bytes:
                outcome = f"{spilled} B in local memory"
            outcomes[f"{name}={value}"] = outcome
    return found


def _why_not_capped(one: Neighbour) -> str:
    """Say why a cap on registers does not compile: the first line of what the compiler says."""
    if least := _LEAST_REGISTERS.search(one.why_failed):
        return f"the compiler needs at least {least[1]}"
    first, *_ = one.why_failed.splitlines() or [""]
    return f"{one.status}: {literal(first)}" if first else one.status


def _time_of(words: str, case: Case) -> str:
    one = next((one for one in case.neighbours if one.words == words), None)
    if one is None or one.reason:
        return "-"
    if one.record is None:
        return one.status
    if one.prediction is None:
        return "not known"
    longer = one.us / predicted_us(case.record) - 1
    spills, before = one.record.resources.local_bytes, case.record.resources.local_bytes
    local = f", {spills} B in local memory" if spills != before else ""
    return f"{microseconds(one.us)} ({change(longer)}){local}"


def _numbers_table(case: Case, *, title: bool) -> Table:
    headers = number_headers((case.record.gpu,))
    rows = [("as launched", *numbers(case.record))]
    for one in case.neighbours:
        if one.record is None:
            rows.append((one.words, *["-"] * (len(headers) - 1), one.status))
        elif not one.reason:
            rows.append((one.words, *numbers(one.record)))
    return Table(("", *headers), tuple(rows), f"**{case.title}**" if title else "")


def of_neighbours(case: Case) -> Iterator[str]:
    """Say which changes have no effect, what the table leaves out, and without times, the best.

    With predicted times, the best change is in the first sentence of the page.
    """
    yield from _without_effect(case)
    tried = [one.record for one in case.neighbours if one.record is not None]
    if late := sum(one.why_not_counted == LATE.why_not for one in tried):
        have = "has" if late == 1 else "have"
        yield (
            f"{count(late, 'change')} {have} no time, as counting what nearby launches do took too"
            " long; the same command again goes on from there."
        )
    if case.record.prediction is not None:
        if in_one_sentence(case):
            yield from _left_out(case, case.record.prediction)
        return
    if case.best is not None and case.best.record is not None:
        yield _better(case, case.best.record)
        return
    warps = f"{case.architecture.warp_word}s"
    shown = [rank(one.record) for one in case.neighbours if one.record and not one.reason]
    if any(resident > rank(case.record)[1] for _, resident in shown):
        yield (
            f"{_WITHOUT_TIMES}: none of these spills less, and those that keep more {warps}"
            " resident spill more."
        )
    elif shown:
        yield f"{_WITHOUT_TIMES}: none of these keeps more {warps} resident or spills less."


def _left_out(case: Case, own: Prediction) -> Iterator[str]:
    """Say which other blocks and grids were tried, or why none was, and how to try more."""
    shown = {*map(id, worth_showing(case))}
    hidden = [one for one in case.neighbours if one.record and id(one) not in shown]
    grids = {one.record.launch.grid for one in case.neighbours if one.record and _is_of_blocks(one)}
    where = "" if grids - {case.record.launch.grid} else " over the same grid"
    of_kinds = {
        "other shape": f" of its blocks{where}",
        "other split": " of the sum",
        "pair": " of num_warps and num_stages",
        "larger grid": "",
    }
    numbers_of = Counter(_kind(one, one.record) for one in hidden if one.record)
    if hidden:
        were, none = "were compiled too and are", "none of them is"
        if len(hidden) == 1:
            were, none = "was compiled too and is", "it is not"
        first = min(hidden, key=lambda one: one.us)
        fastest, faster = "", first.us / own.us - 1
        if faster < 0 and microseconds(first.us) != microseconds(own.us):
            of = " of them" if len(hidden) > 1 else ""
            fastest = (
                f"the fastest{of}, {literal(first.words)}, takes {microseconds(first.us)}"
                f" ({change(faster)})"
            )
        if faster > -own.noticeable:
            none = f"{none} predicted to be faster by {own.noticeable:.0%} or more"
            fastest = f"{none}{'; ' if fastest else ''}{fastest}"
        kinds = [kind for kind in of_kinds if numbers_of[kind]]
        words = listed([f"{count(numbers_of[kind], kind)}{of_kinds[kind]}" for kind in kinds])
        yield f"{words} {were} not in the table: {fastest}."
    yield from without_blocks(case)
    yield from further_away(case)
    best = case.best
    if best is not None:
        yield from _spilling(case, best)
    if best is not None and not _starts_as_many(case.record, best):
        yield from filter(None, [_many_programs(case.record)])
    if best is None or GRID not in best.changes or _is_of_blocks(best):
        yield from _idle(case.record)


def _spilling(case: Case, best: Neighbour) -> Iterator[str]:
    """Say why a change that is predicted to be faster than the *best* one is not named first."""
    spills = case.record.resources.local_bytes or 0
    faster = [one for one in case.neighbours if one.local_bytes > spills and one.us < best.us]
    if faster:
        first = min(faster, key=lambda one: one.us)
        yield (
            f"{literal(first.words)} is predicted to be faster still, {microseconds(first.us)}, but"
            " uses more local memory than now; predictions are least accurate for launches that"
            " spill, so it is not named first."
        )


def _many_programs(record: Record) -> str:
    own = record.prediction
    if own is None or own.bound != "dispatch" or record.plan is None:
        return ""
    starting, *others = own.longest
    then = "".join(
        f"; what takes next longest, {part_words(one.name)}, takes {microseconds(one.us)}"
        for one in others[:1]
    )
    return (
        f"Starting {count(record.plan.num_programs or 0, 'program')} takes"
        f" {microseconds(starting.us)} of {microseconds(own.us)} by itself{then}. Let each program"
        " do several pieces of the work."
    )


def _idle(record: Record) -> Iterator[str]:
    counts, programs, size = record.counts, record.num_programs, record.gpu.multiprocessors
    if counts is None or not programs or not size or programs > size // 2:
        return
    passes = ((one.trips.low / max(one.entered.most, 1.0), one) for one in counts.loops)
    most, loop = max(passes, key=itemgetter(0), default=(0.0, None))
    if loop is None or loop.depth or most < LONG_LOOP:
        return
    word = record.gpu.architecture.multiprocessor_word
    yield (
        f"{size - programs} of {size} {word}s have no program, while each program makes {most:.0f}"
        f" passes of the loop at {line_words(loop.place)}."
        " Divide these passes among more programs; where they add up a result, let the programs add"
        " theirs, by tl.atomic_add or in a second launch."
    )


def _without_effect(case: Case) -> Iterator[str]:
    named = [(next(iter(one.changes)), one) for one in case.neighbours if len(one.changes) == 1]
    differ = {name for name, one in named if one.record is not None and not one.reason}
    yield from dict.fromkeys(one.reason for name, one in named if name not in differ and one.reason)
    same = [one.words for name, one in named if name in differ and one.reason]
    if same:
        yield f"{listed(same)} {'gives' if len(same) == 1 else 'give'} the same binary as now."


def without_blocks(case: Case) -> Iterator[str]:
    """Say why no other blocks were tried or shown, if the launch has blocks to change."""
    record, own, blocks = case.record, case.record.prediction, blocks_of(case.record)
    unknowns = () if record.counts is None else record.counts.unknowns
    missing = next((one for one in unknowns if one.assumed is None), None)
    if own is None or own.bound == "launch" or not blocks:
        return
    if missing is not None:
        given = missing.tensor is not None or missing.name in record.arguments
        how = ", which `--assume` gives" if given else ""
        yield f"Other blocks were not tried without {literal(missing.name)}{how}."
    elif any(isinstance(one, Descriptor) for one in record.arguments.values()):
        yield "Other blocks were not tried, because a tensor descriptor is made for these blocks."
    elif not any(map(_is_of_blocks, case.neighbours)):
        names = listed([literal(name) for name in blocks])
        yield f"No other size of {names} is compared, because none is known to do the same work."


def _is_of_blocks(one: Neighbour) -> bool:
    return one.record is not None and not one.changes.keys().isdisjoint(one.record.tiles)


def _is_pair(one: Neighbour) -> bool:
    return one.changes.keys() == {"num_warps", "num_stages"}


def _kind(one: Neighbour, record: Record) -> str:
    if _is_of_blocks(one):
        return "other shape"
    if one.changes.keys() & splits_of(record):
        return "other split"
    return "pair" if _is_pair(one) else "larger grid"


def _but_spills(case: Case) -> str:
    """Name the neighbours that are predicted to be faster but spill more; "" if there are none."""
    own = case.record.prediction
    faster = [
        one.words
        for one in case.neighbours
        if own is not None and one.us / own.us - 1 <= -own.noticeable
    ]
    return f" without more local memory than now, which {listed(faster)} takes" if faster else ""


def _better(case: Case, record: Record) -> str:
    most = rank(record)
    alike = [one.words for one in case.neighbours if one.record and rank(one.record) == most]
    own, other = case.calculation, record.calculation
    spills, fewer = own.resources.local_bytes or 0, other.resources.local_bytes or 0
    shares = percent(own.occupancy.occupancy), percent(other.occupancy.occupancy)
    held = f"an occupancy of {shares[1]} instead of {shares[0]}"
    gains, loss = [], ""
    if fewer < spills:
        gains.append(f"{fewer} B in local memory instead of {spills}")
    if other.occupancy.occupancy > own.occupancy.occupancy:
        gains.append(held)
    elif other.occupancy.occupancy < own.occupancy.occupancy:
        loss = f", at {held}"
    have = "has" if len(alike) == 1 else "have"
    return (
        f"{_WITHOUT_TIMES}: {listed(alike)} {have} {listed(gains)}{loss}; only a measurement"
        f" tells whether that is faster: more resident {case.architecture.warp_word}s help a kernel"
        " that waits for loads, not one that keeps memory or the tensor cores busy."
    )
