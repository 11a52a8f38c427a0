"""`explain --measure`: launches and the best change of each, timed on the GPU here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from occupancy_lab.arguments import Plain, Pointer
from occupancy_lab.errors import few_of, refuse
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.neighbours import Neighbour, predicted_us
from occupancy_lab.gpus import Gpu
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.measuring.launches import LaunchBatch, Wanted, time_launches
from occupancy_lab.measuring.process import DEFAULT_RUNS
from occupancy_lab.record import Failed, Record
from occupancy_lab.values import Measurement

BASE = ("kernel", "launch", "arguments", "constexprs", "options")
"""What a Record has of a BoundLaunch that identifies its launch."""


def check_measure(name: str | None = "", *, warm: bool, other_triton: bool) -> None:
    """Raise InputError if a launch of the kernel or script *name* cannot be measured as asked."""
    if name is None:
        refuse("--measure needs a kernel named as FILE.py:FUNCTION: another process runs it")
    if warm:
        refuse("--measure times launches with an empty L2 cache; leave out --warm")
    if other_triton:
        refuse("--measure launches what the Triton here compiles, and --triton names another one")


def measured(
    found: Sequence[Explanation], source: str, gpu: Gpu, made: Sequence[BoundLaunch] | None = None
) -> list[Explanation]:
    """Return the explanations *found* with measured times of their launches on *gpu*.

    The best change of each launch that was compared with others is measured too. *source* is the
    script that makes the launches *made*, or with None the kernel, which then gets made-up tensors.

    Raises InputError if tensors cannot be made up.
    """
    records = [record for one in found for record in launches_on(one, gpu)]
    changes = [record for one in found for record in best_changes(one, gpu)]
    wanted = {id(record): _wanted(record, made) for record in (*records, *changes)}
    for record in records:
        if isinstance(why_not := wanted[id(record)], str):
            refuse(why_not)
    times = _times(wanted, source, gpu, DEFAULT_RUNS)
    return [with_times(one, times) for one in found]


def fastest_measured(
    found: Explanation, source: str, gpu: Gpu, *, most: int | None, runs: int
) -> Explanation:
    """Return *found* with measured times on *gpu* of its launches, of the *most* fastest or all.

    The launches get made-up tensors and are timed *runs* times each. Raises InputError if tensors
    cannot be made up.
    """
    fastest = sorted(launches_on(found, gpu), key=predicted_us)[:most]
    wanted = {id(record): _wanted(record, None) for record in fastest}
    for why_not in wanted.values():
        if isinstance(why_not, str):
            refuse(why_not)
    return with_times(found, _times(wanted, source, gpu, runs))


def launches_on(one: Explanation, gpu: Gpu) -> list[Record]:
    """Return the launches of an explanation on *gpu*."""
    return [run for run in one.records if run.gpu.key == gpu.key]


def best_changes(one: Explanation, gpu: Gpu) -> list[Record]:
    """Return the best change of each launch of an explanation on *gpu* that was compared."""
    cases = (case for case in one.cases or one.chosen if case.gpu.key == gpu.key)
    bests = (case.best for case in cases)
    return [best.record for best in bests if best is not None and best.record is not None]


def _times(
    wanted: Mapping[int, Wanted | str | None], source: str, gpu: Gpu, runs: int
) -> dict[int, Measurement]:
    """Return the measurement of each launch that can be made, by the same key as in *wanted*."""
    possible = {key: one for key, one in wanted.items() if isinstance(one, Wanted)}
    batch = LaunchBatch(source, gpu.target, tuple(possible.values()), runs)
    return dict(zip(possible, time_launches(batch), strict=True))


def _wanted(record: Record, made: Sequence[BoundLaunch] | None) -> Wanted | str | None:
    """Return how to launch *record*: as a change of the launches *made*, or with made-up tensors.

    None if it is no change of constexprs, options and grid alone; in words why tensors cannot be
    made up.
    """
    return _with_sizes(record) if made is None else _change(record, made)


def _change(record: Record, made: Iterable[BoundLaunch]) -> Wanted | None:
    """Return *record* as a change of one of the launches *made* by a script.

    None if it is none of their constexprs, options and grid alone, so that there are no tensors.
    """

    def numbers(one: BoundLaunch) -> dict[str, object]:
        return {name: value for name, value in one.arguments.items() if name not in one.constexprs}

    def changes(one: BoundLaunch) -> dict[str, Plain]:
        before, after = {**one.arguments, **one.options}, {**record.arguments, **record.options}
        return {
            name: after.get(name)
            for name in (*before, *(after.keys() - before))
            if before.get(name) != after.get(name)
        }

    alike = [one for one in made if one.kernel == record.kernel and numbers(one) == numbers(record)]
    if not alike:
        return None
    nearest = min(alike, key=lambda one: (len(changes(one)), one.launch.grid != record.launch.grid))
    return Wanted(nearest, changes(nearest), record.launch.grid)


def _with_sizes(record: Record) -> Wanted | str:
    """Return *record* with the bytes of each tensor, or in words why they are not known."""
    tensors = [name for name, one in record.arguments.items() if isinstance(one, Pointer)]
    counts, cannot = record.counts, f"--measure cannot make up tensors for {record.kernel}"
    instead = "name a function that makes them and launches the kernel"
    if record.launch.grid is None or counts is None:
        why = record.why_not_counted or "its grid is not known"
        return f"{cannot}: {why}; {instead}"
    if counts.unknowns:
        unknown = few_of([*dict.fromkeys(one.name for one in counts.unknowns)])
        return f"{cannot}: what it does depends on {unknown}; {instead}"
    bounds = {one.tensor: one.bounds for one in counts.footprints if one.tensor in tensors}
    for name, one in bounds.items():
        if one is None or one[0] < 0:
            return f"{cannot}: it is not known which bytes of {name} it touches; {instead}"
    sizes = {name: one[1] for name, one in bounds.items() if name is not None and one is not None}
    return Wanted(BoundLaunch(**{name: getattr(record, name) for name in BASE}), sizes=sizes)


def with_times(one: Explanation, times: Mapping[int, Measurement]) -> Explanation:
    """Return *one* with the measured *times* of its launches and changes, by the record's id."""

    def timed(record: Record, before: Record | Failed) -> Record:
        return dataclasses.replace(record, measurement=times.get(id(before)))

    def with_best(near: Neighbour) -> Neighbour:
        record = near.record
        return near if record is None else dataclasses.replace(near, record=timed(record, record))

    pairs = zip(one.runs, one.ranked, strict=True)
    runs = tuple(timed(run, own) if isinstance(run, Record) else run for run, own in pairs)
    made = dataclasses.replace(one, runs=runs)
    now = {id(record): new for record, new in zip(one.records, made.records, strict=True)}
    compared = [
        dataclasses.replace(
            case, record=now[id(case.record)], neighbours=tuple(map(with_best, case.neighbours))
        )
        for case in one.compared
    ]
    return made.with_compared(compared)
