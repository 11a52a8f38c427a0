"""The page of a trace: the launched kernels, how they fill the GPU, and what is missing."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from occupancy_lab.compiling.script import NOT_LAUNCHED, Ran
from occupancy_lab.errors import MOST_NAMED, some_of
from occupancy_lab.explaining.duration import why_no_time
from occupancy_lab.explaining.kernel_time import KernelTime
from occupancy_lab.explaining.script_lines import missing
from occupancy_lab.gpus import Gpu, present_gpus
from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.prediction import part_cell
from occupancy_lab.record import Record
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import (
    as_sentence,
    cell,
    count,
    duration,
    formatted,
    listed,
    microseconds,
    multiprocessor_words,
    percent,
    prediction_words,
    range_sentence,
)
from occupancy_lab.tracing.fusing import fusing_sentences
from occupancy_lab.tracing.traced import (
    WORTH_TRYING,
    GpuTime,
    GridLaunches,
    Traced,
    TracedKernel,
)

NOTHING = "No Triton kernel was launched"
TUNING = "Launches after a + are an autotuner's benchmarks."
LONGEST_NAME = 26
"""Characters of a kernel's name in the table; with times it then fits 80 columns."""
MOST_COMPARED = 10
"""For how many kernels the measured time is compared with the predicted one."""
MOST_OTHERS = 3
"""For how many kernels other than Triton's the time is shown."""
MOST_LAUNCHES = 20
"""How many launches the table of launches has."""
UNITS = (
    "share is its part of the time of all kernels; bound is what is predicted to take longest by"
    " itself; busiest is the unit that works longest, and busy for how much of the time, by the"
    " model: what Nsight Compute calls Speed Of Light."
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a traced program ended."""

    command: tuple[str, ...]
    status: int
    """The exit status; -N if signal N ended the program, as in subprocess."""
    started: bool
    """Whether one of its Pythons noted anything at all."""
    ran: Ran | None = None
    """The result of a dry run; None if the program really launched."""


def write_trace(found: Traced, outcome: Outcome | None, *, alone: bool = False) -> Document:
    """Return the page of the launched kernels.

    Without tables and what explains them if there is one launch *alone*, which is explained below.
    """
    title = "trace"
    if outcome is not None:
        kind = "trace" if outcome.ran is None else "dry run"
        title = f"{kind} of {literal(shlex.join(outcome.command))}"
    if not found.kernels:
        sentences = (*_dry_sentences(found, outcome), *_faults(found))
        sections = (Section("", (), sentences),) if sentences else ()
        nothing = NOTHING
        if outcome is not None and not outcome.started:
            nothing = (
                "Nothing could be noted: the script is not Python, or ignores PYTHONPATH or"
                " sitecustomize, as -E, -I and -S make it do"
            )
        elif outcome is not None and outcome.ran is None and not present_gpus():
            nothing += "; there is no GPU here, and --dry-run needs none"
        return Document(title, (as_sentence(nothing),), sections)
    shown = found.shown
    times = {id(one): one.time for one in shown if one.time is not None}
    measured = any(one.measured for one in times.values())
    times = {key: one for key, one in times.items() if one.measured == measured}
    total = KernelTime.total(times.values())
    answer = (
        *(() if total is None else (_lost_sentence(found, times, total),)),
        *action_sentence(shown),
        *_gpu_time_sentence(found),
        _summary(found),
        *_timing_sentences(found, measured=measured),
    )
    gpus = [one.calculation.gpu for one in found.kernels if one.calculation is not None]
    if alone:
        ran = None if outcome is None else outcome.ran
        place = Path(shown[0].grids[0].places[0]).name
        line = f"The launch line is {literal(shown[0].kernel)}, {literal(place)}."
        said = (launched_sentence(shown), line, *missing(ran))
        return Document(title, answer, (Section("", (), said),))
    sentences = (
        *(
            f"Kernel {number} is {literal(one.kernel)}."
            for number, one in enumerate(shown, 1)
            if len(one.kernel) > LONGEST_NAME
        ),
        *(untimed(shown) if total is None else _times_sentences(shown, total)),
        *_legend(gpus),
        *_tried_sentences(found),
        *(() if total is None else fusing_sentences(found.handovers, total.us)),
        *([TUNING] if any(one.tuning for one in found.kernels) else ()),
        *_gpu_sentences(shown),
        *_grid_sentences(shown),
        *_dry_sentences(found, outcome),
        *_faults(found),
    )
    section = Section("", _tables(shown, times, total), sentences)
    return Document(title, answer, (section,))


def _tables(
    shown: Sequence[TracedKernel], times: Mapping[int, KernelTime], total: KernelTime | None
) -> tuple[Table, ...]:
    """Return tables of the kernels' times, of how they fill the GPU, and of their configurations.

    Wide columns are in a table of their own, so that names stay whole in 80 columns.
    """
    names = [f"{number} {short_name(one.kernel)}" for number, one in enumerate(shown, 1)]
    if total is None:
        rows = tuple(
            (name, _launches(one), *_sits(one)) for name, one in zip(names, shown, strict=True)
        )
        first = [Table(("kernel", "launches", *SITS), rows)]
    else:
        beside = "least" if total.measured else "range"
        headers = ("kernel", "launches", "us", beside, "lost us", "share")
        rows = tuple(
            (name, _launches(one), *_time_cells(times.get(id(one)), total))
            for name, one in zip(names, shown, strict=True)
        )
        further = tuple(
            (str(number), *_bound_cells(one), *_sits(one)) for number, one in enumerate(shown, 1)
        )
        first = [Table(headers, rows), Table(("", "bound", "busiest", "busy", *SITS), further)]
    last = tuple(
        (
            str(number),
            *_programs(one),
            "-" if one.calculation is None else limiter_words(one.calculation),
            literal(configuration(one)),
        )
        for number, one in enumerate(shown, 1)
    )
    where = Table(
        ("", "programs", "at once", "waves", "limiter", "configuration"), last, prose=True
    )
    return (*first, where, *_launch_table(shown, total), *_actions(shown))


def _launch_table(shown: Sequence[TracedKernel], total: KernelTime | None) -> Iterator[Table]:
    """Return the launches that take most time, if kernels have several or their lines are known."""
    found = [(number, one, grid) for number, one in enumerate(shown, 1) for grid in one.grids]
    if len(found) == len(shown) and not any(grid.places for _, _, grid in found):
        return

    def us(grid: GridLaunches) -> float | None:
        time = grid.measured if total is not None and total.measured else grid.predicted
        return time.us / time.launches if time is not None and time.launches else None

    passed: dict[str, list[Sequence[str]]] = {}
    for _, kernel, grid in found:
        passed.setdefault(kernel.kernel, []).append(grid.key[1])
    most = sorted(found, key=lambda one: -(us(one[2]) or 0.0) * one[2].launches)[:MOST_LAUNCHES]
    rows = []
    for number, kernel, grid in sorted(most, key=lambda one: one[0]):
        others = passed[kernel.kernel]
        differs = [one for one in grid.key[1] if any(one not in other for other in others)]
        lines = [Path(place).name for place in grid.places[:MOST_NAMED]]
        words = (lines, [" x ".join(map(str, grid.grid or ()))], differs)
        told = (literal(", ".join(one)) or "-" for one in words)
        rows.append((str(number), *told, str(grid.launches), cell(us(grid))))
    headers = ("", "launched by", "grid", "passes", "launches", "us")
    several = range(1, 6) if len(found) > len(shown) else range(1, 4)
    wanted = [0, *(at for at in several if any(row[at] != "-" for row in rows))]
    yield Table(
        tuple(headers[at] for at in wanted),
        tuple(tuple(row[at] for at in wanted) for row in rows),
        prose=True,
    )


def _bound_cells(kernel: TracedKernel) -> tuple[str, str, str]:
    """Return what bounds a kernel, its busiest unit, and that unit's share of the predicted time.

    The share is not of a measured time, which may be of data in the L2 cache that the prediction
    does not know of.
    """
    found = kernel.prediction
    if found is None or found.busiest is None or not found.us:
        return "-" if found is None else part_cell(found.bound), "-", "-"
    return (
        part_cell(found.bound),
        part_cell(found.busiest.name),
        percent(found.busiest.us / found.us),
    )


def _actions(shown: Sequence[TracedKernel]) -> Iterator[Table]:
    rows = tuple(
        (str(number), literal(one.action.change), one.action.times, cell(one.saved_us))
        for number, one in enumerate(shown, 1)
        if one.action is not None and one.action.change
    )
    if rows:
        yield Table(("", "what brings most", "predicted", "saves us"), rows, prose=True)


def action_sentence(shown: Sequence[TracedKernel]) -> Iterator[str]:
    """Say which change of which kernel saves most of the program's time."""
    most = max(shown, key=lambda one: one.saved_us or 0.0)
    if most.action is not None and most.saved_us:
        yield (
            f"What brings most: in {literal(most.kernel)} {literal(most.action.change)}, predicted"
            f" to save {duration(most.saved_us)}."
        )


def _tried_sentences(found: Traced) -> Iterator[str]:
    """Say how the changes were found, and which kernels have none."""
    tried = [(str(number), one.action) for number, one in enumerate(found.shown, 1) if one.action]
    if any(action.change for _, action in tried):
        yield (
            "What brings most is the fastest launch that `explain` finds near a kernel's; saves us"
            " is the time of all launches over that grid, times the share that the change saves of"
            " one launch's predicted time."
        )
    if alone := [number for number, action in tried if not action.change]:
        which = f"kernel {alone[0]}" if len(alone) == 1 else f"kernels {listed(alone)}"
        yield f"No change of {which} is predicted to save noticeable time."
    if tried and found.processes:
        yield "Other shapes of blocks were not tried: a --dry-run of the script tries those too."
    yield from not_tried(found)


def not_tried(found: Traced) -> Iterator[str]:
    """Say for which kernels no nearby launch was tried, and why."""
    if minor := [*dict.fromkeys(found.minor)]:
        lose, near = ("loses", "it") if len(minor) == 1 else ("each lose", "them")
        yield (
            f"{_named(minor)} {lose} {percent(WORTH_TRYING)} of the time of all kernels or less: no"
            f" launch near {near} was tried."
        )
    if found.lesser:
        yield (
            "Launches were only tried near those that lose most, and not near"
            f" {_named(found.lesser)}."
        )
    if found.failed:
        yield f"No launch near {_named(found.failed)} could be compiled and predicted here."
    if found.untried:
        yield (
            f"There was no time left to try launches near {_named(found.untried)}:"
            " `--actions SECONDS` gives more, and what is compiled is kept."
        )


def _legend(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Explain the columns whose names do not explain them."""
    if gpus:
        yield (
            "programs are those of a launch, at once how many of them run together; waves is the"
            " first divided by the second, and its fraction is how full the last wave is; occupancy"
            " is that of each"
            f" {multiprocessor_words(gpus)}; local B is local memory per thread, register spills"
            " included."
        )


def _lost_sentence(
    found: Traced,
    times: Mapping[int, KernelTime],
    total: KernelTime,
) -> str:
    if total.measured:
        span = 1e6 * sum(one.launching_seconds or 0.0 for one in found.processes)
        of = (
            f" of the {duration(span)} from the first launch to the last" if span > total.us else ""
        )
        words = f"{duration(total.us)}{of} are in Triton's kernels"
    else:
        words = f"{duration(total.us)} are predicted in Triton's kernels ({total.limits})"
    if total.lost_us is None:
        return f"{words}."
    timed = [(one, times[id(one)].lost_us or 0.0) for one in found.shown if id(one) in times]
    most, lost = max(timed, key=lambda pair: pair[1])
    predicted = "" if total.measured else "predicted to be "
    words += f"; {duration(total.lost_us)} of them are {predicted}lost"
    if len({one.kernel for one, _ in timed}) > 1:
        words += f", {duration(lost)} of these in {literal(most.kernel)}"
    return f"{words}."


def _gpu_time_sentence(found: Traced) -> Iterator[str]:
    time = GpuTime.total(one.gpu_time for one in found.processes)
    if time is None or not time.span_us:
        return
    waited = max(time.span_us - time.busy_us, 0.0)
    shares = [
        f"{percent(us / time.span_us)} {words}"
        for us, words in (
            (time.triton_us, "in Triton's kernels"),
            (sum(time.others.values()), "in other kernels"),
            (time.copies_us, "in copies"),
            (waited, "waiting"),
        )
    ]
    yield f"Of {duration(time.span_us)} that torch.profiler saw, the GPU was {listed(shares)}."
    longest = sorted(time.others, key=lambda name: time.others[name], reverse=True)[:MOST_OTHERS]
    if longest:
        words = [f"{literal(name)} {duration(time.others[name])}" for name in longest]
        yield f"The other kernels that took longest: {listed(words)}."


def _times_sentences(shown: Sequence[TracedKernel], total: KernelTime) -> Iterator[str]:
    times = [one.time for one in shown if one.time is not None]
    counts = "each byte of device memory moved once"
    allowed = f"its bytes and FLOPs allow at the rates of the GPU's data sheet, {counts}"
    if total.measured:
        yield (
            f"us is the mean measured time of a launch; least is the time that {allowed}; lost us"
            f" is the time of all launches above that; {UNITS}"
        )
        if any(one.us < (one.light_us or 0.0) for one in times):
            yield (
                "A launch can take less than its least, which counts all bytes that it writes: its"
                " last writes may still be in the L2 cache when it ends."
            )
    else:
        records = [one.record for one in shown if one.record is not None]
        warm = any(one.launch.warm for one in records)
        cache = "right after the same launch" if warm else "the L2 cache empty"
        yield (
            f"us is the mean predicted time of a launch, {taken_words(records)}, {cache};"
            " range has the 10th and 90th percentile; lost us is the time of all launches above"
            f" what {allowed}; {UNITS}"
        )
    lights = [(one.kernel, one.record.speed_of_light) for one in shown if one.record is not None]
    if steered := [name for name, one in lights if one is not None and one.us != one.most_us]:
        yield (
            f"What {_named(steered)} does depends on values that are not known: lost us is above"
            " everything that it may do."
        )
    strange = [*_strange_sentences(shown)] if total.measured else []
    yield from strange
    gpus = {
        one.calculation.gpu.key: (one.calculation.gpu, one.prediction)
        for one in shown
        if one.calculation is not None and one.prediction is not None
    }
    for gpu, one in gpus.values() if strange or not total.measured else ():
        yield range_sentence(gpu, one.basis, calibrated=one.calibrated)
    yield from untimed(shown, measured=total.measured)


def untimed(shown: Sequence[TracedKernel], *, measured: bool = False) -> Iterator[str]:
    """Name the kernels whose launches are missing in the sum of times or of lost time."""
    without_time, without_light = [], []
    for one in shown:
        time = one.time
        if time is not None and time.measured != measured:
            time = None
        asked = one.launches - (one.captured if measured else 0)
        if asked > (0 if time is None else time.launches):
            without_time.append(one.kernel)
        if time is not None and time.known < time.launches:
            without_light.append(one.kernel)
    if without_time:
        yield f"No time is known for launches of {_named(without_time)}: no sum includes them."
    yield from _why_untimed(shown)
    if without_light:
        yield (
            f"What launches of {_named(without_light)} do, and so what they lose, is not known:"
            " no sum of lost time includes them."
        )


def _why_untimed(shown: Sequence[TracedKernel]) -> Iterator[str]:
    """Say why no time is predicted of kernels whose resources are known."""
    reasons: dict[str, list[str]] = {}
    for one in shown:
        if one.record is not None and one.prediction is None:
            reasons.setdefault(why_no_time(one.record), []).append(one.kernel)
    for reason, kernels in reasons.items():
        yield f"{_named(kernels)}: {reason}."


def _strange_sentences(shown: Sequence[TracedKernel]) -> Iterator[str]:
    for one in [each for each in shown if not each.elsewhere][:MOST_COMPARED]:
        us, predicted = (None if one.longest is None else one.longest.us), one.prediction
        if us is None or predicted is None or predicted.low_us <= us <= predicted.high_us:
            continue
        why = (
            "the reason may be something that a prediction does not know of, such as other clocks,"
            " another process or values that decide what it does"
            if us > predicted.high_us
            else "the reason may be tensors that are in the L2 cache beforehand"
        )
        record = one.record if us < predicted.low_us else None
        warm = None if record is None else record.again().prediction
        if warm is not None:
            why += f"; right after the same launch {prediction_words(warm)} are predicted"
        yield (
            f"{literal(one.kernel)} took {microseconds(us)}, outside the predicted"
            f" {cell(predicted.low_us)} to {microseconds(predicted.high_us)}: {why}."
        )


def _named(names: Iterable[str]) -> str:
    return listed(some_of([*dict.fromkeys(map(literal, names))], MOST_NAMED))


def configuration(kernel: TracedKernel) -> str:
    """Return options and constexprs in words: "num_warps 4, num_stages 3, BLOCK 1024"."""
    return ", ".join(
        f"{name} {value}" for name, value in {**kernel.options, **kernel.constexprs}.items()
    )


def short_name(name: str) -> str:
    """Return a kernel's *name*; a long one without its middle."""
    half = LONGEST_NAME // 2
    return literal(name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[1 - half :]}")


SITS = ("occupancy", "regs", "shared B", "local B")
"""The headers of the columns that `_sits` returns."""


def _launches(kernel: TracedKernel) -> str:
    tuning = f" + {kernel.tuning}" if kernel.tuning else ""
    return f"{kernel.launches}{'?' if kernel.choices > 1 else ''}{tuning}"


def _time_cells(time: KernelTime | None, total: KernelTime) -> tuple[str, ...]:
    """Return the mean time of a launch, its least or range, what all lose, and their share."""
    if time is None or not time.launches:
        return ("-",) * 4
    if total.measured:
        beside = cell(None if time.light_us is None else time.light_us / max(time.known, 1))
    else:
        beside = " to ".join(cell(one / time.launches) for one in (time.low_us, time.high_us))
    share = percent(time.us / total.us) if total.us else "-"
    return cell(time.us / time.launches), beside, cell(time.lost_us), share


def _sits(kernel: TracedKernel) -> tuple[str, ...]:
    """Return how the kernel fills the GPU, in the order of SITS."""
    found = kernel.calculation
    if found is None:
        return ("-",) * len(SITS)
    resources = found.resources
    return (
        percent(found.occupancy.occupancy),
        formatted(resources.n_regs),
        formatted(resources.shared + resources.static_shared),
        formatted(resources.local_bytes),
    )


def _programs(kernel: TracedKernel) -> tuple[str, str, str]:
    main = kernel.main_grid
    plan = kernel.plan(main)
    if main is None:
        return "-", "-", "-"
    if plan is None or plan.waves is None:
        return str(math.prod(main)), "-", "-"
    return str(plan.num_programs), str(plan.resident_programs), f"{plan.waves:.2f}"


def _summary(found: Traced) -> str:
    shown = found.shown
    names, launches = {one.kernel for one in shown}, sum(one.launches for one in shown)
    words = [f"{count(launches, 'launch')} of {count(len(names), 'kernel')}"]
    if len(shown) > len(names):
        words[0] += f" in {count(len(shown), 'configuration')}"
    if tuning := sum(one.tuning for one in found.kernels):
        words.append(f"{tuning} more while tuning")
    processes = [one for one in found.processes if one.launches]
    devices = {(part.pid, part.device) for one in found.kernels for part in one.parts}
    if len(processes) > 1:
        words.append(f"summed over {len(processes)} processes")
    elif len(devices) > 1:
        words.append(f"summed over {len(devices)} devices")
    sentence = ", ".join(words) + "."
    if captured := sum(one.captured for one in found.kernels):
        replays = sum(one.replays for one in found.processes)
        sentence += (
            f" {captured} of them captured in CUDA graphs, which were replayed {replays} times:"
            " launches by a replay are not seen, so each counts once."
        )
    return sentence


def _timing_sentences(found: Traced, *, measured: bool) -> Iterator[str]:
    seconds = sum(one.seconds or 0.0 for one in found.processes)
    if measured:
        timed = sum(one.samples for one in found.kernels)
        events = max(one.empty_us for one in found.processes)
        yield (
            f"{timed} launches were timed, and the {events:.2f} us that the events take were"
            " subtracted; a launch between two timed ones counts with the mean of both."
        )
    overhead = sum(one.overhead_ns for one in found.processes)
    launches = sum(one.launches for one in found.processes)
    if launches and overhead and seconds:
        held = sum(one.held for one in found.processes)
        words = f" The GPU was kept busy {held} times for 50 us, to time a launch." if held else ""
        hot = [one.hot_ns for one in found.processes if one.hot_ns is not None]
        each = f", {max(hot) / 1000:.2f} us for a usual launch" if hot else ""
        yield (
            f"Noting took {overhead / 1e6:.3g} ms, {percent(overhead / 1e9 / seconds)} of"
            f" {seconds:.3g} s{each}.{words}"
        )


def _gpu_sentences(shown: Sequence[TracedKernel]) -> Iterator[str]:
    sentences = {
        f"Occupancy on {one.calculation.title}, {one.gpu_source}."
        for one in shown
        if one.calculation is not None
    }
    yield from sorted(sentences)
    yield from unknown_resources(shown)


def unknown_resources(shown: Sequence[TracedKernel]) -> Iterator[str]:
    """Say for which kernels the resources are not known, and why."""
    reasons: dict[str, list[TracedKernel]] = {}
    for one in shown:
        if one.reason is not None:
            reasons.setdefault(one.reason, []).append(one)
    for reason, those in reasons.items():
        words = f"{literal(those[0].kernel)}, {literal(configuration(those[0]))}"
        more = f" and {len(those) - 1} more" if len(those) > 1 else ""
        yield f"{words}{more}: {literal(reason)}."


def _grid_sentences(shown: Sequence[TracedKernel]) -> Iterator[str]:
    launches = sum(len(one.grids) for one in shown)
    if launches > len(shown):
        yield (
            "A kernel with several grids or numbers is described by the launches that take most of"
            " its time, and what brings most is for these."
        )
    if launches > MOST_LAUNCHES:
        yield f"{launches - MOST_LAUNCHES} more kinds of launches take less time; --json has all."


def _dry_sentences(found: Traced, outcome: Outcome | None) -> Iterator[str]:
    if outcome is None or outcome.ran is None:
        return
    yield launched_sentence(found.shown)
    if any(one.choices > 1 for one in found.kernels):
        yield (
            "A kernel whose autotuner has several configurations, marked ?, is shown in the one"
            " that is predicted to be fastest, or without predictions in the one with the least"
            " local memory and then the highest occupancy; any of them may be launched, and --json"
            " has all."
        )
    yield from missing(outcome.ran)


def launched_sentence(shown: Iterable[TracedKernel]) -> str:
    """Say that a dry run launched nothing, and what was launched if times were measured."""
    if any(one.record is not None and one.record.measurement is not None for one in shown):
        return f"{NOT_LAUNCHED} What was measured was launched afterwards, on the GPU here."
    return NOT_LAUNCHED


def taken_words(records: Iterable[Record]) -> str:
    """Return how the predicted times of *records* would be taken, in words."""
    profiled = any(one.launch.in_program for one in records)
    return "as a profiler would give it" if profiled else "between CUDA events"


def _faults(found: Traced) -> Iterator[str]:
    cut = [one for one in found.processes if not one.ended]
    for one in cut[:MOST_NAMED]:
        yield (
            f"Process {one.pid} was killed or had not ended: launches after its last note are not"
            " counted."
        )
    if len(cut) > MOST_NAMED:
        yield f"The same holds for {len(cut) - MOST_NAMED} more processes."
    for error in dict.fromkeys(error for one in found.processes for error in one.errors):
        yield f"Noting failed, and the script went on: {literal(error)}."
