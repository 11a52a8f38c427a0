"""`explain --measure`: launches and the best change of each, timed on the GPU here."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping, Sequence

from occupancy_lab.arguments import Pointer
from occupancy_lab.errors import InputError, few_of, refuse
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.neighbours import Neighbour, predicted_us
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import check_measured_triton
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.measuring.launches import LaunchBatch, Wanted, passed, time_launches
from occupancy_lab.measuring.process import DEFAULT_RUNS, gpu_to_measure
from occupancy_lab.record import Failed, Record
from occupancy_lab.values import Measurement


def checked_gpu(gpus: Sequence[Gpu], name: str | None, *, warm: bool, other_triton: bool) -> Gpu:
    """Return this machine's first GPU, to measure launches of the kernel or script *name* on.

    Raises InputError if that is not possible as asked, or if the GPU is not among *gpus*.
    """
    if name is None:
        refuse("--measure needs a kernel named as FILE.py:FUNCTION: another process runs it")
    if warm:
        refuse("--measure times launches with an empty L2 cache; leave out --warm")
    check_measured_triton(other_triton=other_triton)
    return gpu_to_measure(gpus)


def measured(
    found: Sequence[Explanation], source: str, gpu: Gpu, made: Sequence[BoundLaunch] | None = None
) -> list[Explanation]:
    """Return the explanations *found* with measured times of their launches on *gpu*.

    The best change of each launch that was compared with others is measured too. *source* is the
    script that makes the launches *made*, or with None the kernel, which then gets made-up tensors.

    Raises InputError if tensors cannot be made up.
    """
    wanted: dict[int, Wanted] = {}
    texts = None if made is None else set(map(passed, made))
    failures: dict[int, Measurement] = {}
    for record in (record for one in found for record in launches_on(one, gpu)):
        try:
            wanted[id(record)] = _wanted(record, texts)
        except InputError as error:
            if made is None:
                raise
            failures[id(record)] = Measurement("launch failed", None, str(error))
    for record in (record for one in found for record in best_changes(one, gpu)):
        with contextlib.suppress(InputError):
            wanted[id(record)] = _wanted(record, texts)
    batch = LaunchBatch(source, tuple(wanted.values()))
    times = failures | dict(zip(wanted, time_launches(batch), strict=True))
    return [with_times(one, times) for one in found]


def fastest_measured(
    found: Explanation, source: str, gpu: Gpu, *, most: int | None, runs: int
) -> Explanation:
    """Return *found* with measured times on *gpu* of its launches, of the *most* fastest or all.

    The launches get made-up tensors and are timed *runs* times each. Raises InputError if tensors
    cannot be made up.
    """
    fastest = sorted(launches_on(found, gpu), key=predicted_us)[:most]
    times = times_of(fastest, source, runs=runs)
    return with_times(found, dict(zip(map(id, fastest), times, strict=True)))


def times_of(
    records: Sequence[Record],
    source: str,
    made: Sequence[BoundLaunch] | None = None,
    runs: int = DEFAULT_RUNS,
) -> list[Measurement]:
    """Return a measurement of each of *records*, timed *runs* times; the rest is as in `measured`.

    Raises InputError if tensors cannot be made up.
    """
    texts = None if made is None else set(map(passed, made))
    wanted = tuple(_wanted(record, texts) for record in records)
    return time_launches(LaunchBatch(source, wanted, runs))


def launches_on(one: Explanation, gpu: Gpu) -> list[Record]:
    """Return the launches of an explanation on *gpu*."""
    return [run for run in one.records if run.gpu.key == gpu.key]


def best_changes(one: Explanation, gpu: Gpu) -> list[Record]:
    """Return the best change of each launch of an explanation on *gpu* that was compared."""
    cases = (case for case in one.cases or one.chosen if case.gpu.key == gpu.key)
    bests = (case.best for case in cases)
    return [best.record for best in bests if best is not None and best.record is not None]


def _wanted(record: Record, texts: Collection[str] | None) -> Wanted:
    """Return how to launch *record*: with a script's tensors, or with None made-up ones.

    *texts* are what `passed` returns for the script's launches. Raises InputError if neither is
    possible.
    """
    if texts is None:
        return Wanted(_bound(record), _sizes(record))
    if passed(record) not in texts:
        refuse("the script passes no tensors for such arguments")
    return Wanted(_bound(record))


def _bound(record: Record) -> BoundLaunch:
    names = (one.name for one in dataclasses.fields(BoundLaunch))
    return BoundLaunch(**{name: getattr(record, name) for name in names})


def _sizes(record: Record) -> dict[str, int]:
    """Return the bytes of each tensor of *record*; raise InputError if they are not known."""
    tensors = [name for name, one in record.arguments.items() if isinstance(one, Pointer)]
    counts, why = record.counts, ""
    if record.launch.grid is None or counts is None:
        why = record.why_not_counted or "its grid is not known"
    elif counts.unknowns:
        unknown = few_of([*dict.fromkeys(one.name for one in counts.unknowns)])
        why = f"what it does depends on {unknown}"
    footprints = () if counts is None else counts.footprints
    sizes = {}
    for one in footprints:
        if one.tensor in tensors:
            if one.bounds is None or one.bounds[0] < 0:
                why = why or f"it is not known which bytes of {one.tensor} it touches"
            else:
                sizes[str(one.tensor)] = one.bounds[1]
    if why:
        refuse(
            f"--measure cannot make up tensors for {record.kernel}: {why}; name a function that"
            " makes them and launches the kernel"
        )
    return sizes


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
