"""The page of a trace: the kernels that were launched, how full the GPU is, and what is missing."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.occupancy.calculator import limiter_words
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import cell, count, formatted, listed, percent, range_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.compiling.script import Ran
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.tracing.records import Traced, TracedKernel

NOTHING = "no kernel of Triton was launched"
LONGEST_NAME = 26
"""Characters of a kernel's name in the table: with these it fits 80 columns, times among them."""
MOST_ASSUMED = 10
"""Assumptions that are shown."""
MOST_NAMED = 5
"""Processes that are named each."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a traced program ended."""

    command: tuple[str, ...]
    status: int
    """Its exit status; -N where signal N ended it, as subprocess has it."""
    started: bool
    """Whether a Python of it was there to note anything."""
    ran: Ran | None = None
    """What came of it where it was run dry; None where it launched what it launches."""


def write_trace(found: Traced, outcome: Outcome | None) -> Document:
    """Return the page of what was launched."""
    title = "trace"
    if outcome is not None:
        kind = "trace" if outcome.ran is None else "dry run"
        title = f"{kind} of {literal(shlex.join(outcome.command))}"
    if not found.kernels:
        sentences = (*_dry_sentences(found, outcome), *_faults(found))
        sections = (Section("", (), sentences),) if sentences else ()
        return Document(title, (f"{_nothing(outcome)}.",), sections)
    timed = any(one.total_us is not None for one in found.kernels)
    total = sum(one.total_us or 0.0 for one in found.kernels) if timed else None
    gpus = [one.calculation.gpu for one in found.kernels if one.calculation is not None]
    shown = _one_of_each_tuner(found.kernels)
    predicted = not timed and any(one.prediction is not None for one in shown)
    times = ("us", "share") if timed else ("us",) if predicted else ()
    numbered = [(str(number), one) for number, one in enumerate(shown, 1)]
    # What is wide is in a table of its own, as names are to be whole where 80 columns are all.
    taken = () if timed else ("regs", "shared B")
    headers = ("kernel", "launches", *times, "waves", "%", *taken, "local B")
    rows = tuple(
        (f"{number} {_name(one)}", *_row(one, total, predicted=predicted))
        for number, one in numbered
    )
    further = tuple(
        (
            number,
            _programs(one),
            "-" if one.calculation is None else limiter_words(one.calculation),
            literal(configuration(one)) + _distinction(one, shown),
        )
        for number, one in numbered
    )
    tables = (
        Table(headers, rows),
        Table(("", "programs", "limiter", "configuration"), further, prose=True),
    )
    whole = [
        f"Kernel {number} is {literal(one.kernel)}."
        for number, one in numbered
        if len(one.kernel) > LONGEST_NAME
    ]
    sentences = (
        *whole,
        *_legend(gpus),
        *(_predicted_sentences(shown) if predicted else ()),
        *_tuning_sentences(found),
        *_gpu_sentences(shown),
        *_grid_sentences(found),
        *_dry_sentences(found, outcome),
        *_faults(found),
    )
    answer = (_summary(found), *_time_sentences(found, total))
    return Document(title, answer, (Section("", tables, sentences),))


def _one_of_each_tuner(kernels: Sequence[TracedKernel]) -> list[TracedKernel]:
    """Return *kernels* with one configuration of each autotuner, with the launches of all."""
    groups: dict[Any, list[TracedKernel]] = {}
    for one in kernels:
        fixed = [
            (name, value)
            for name, value in {**one.options, **one.constexprs}.items()
            if name not in one.tuned
        ]
        key = (
            id(one) if one.choices == 1 else (one.kernel, one.choices, repr((fixed, one.arguments)))
        )
        groups.setdefault(key, []).append(one)
    return [group[0] if len(group) == 1 else _first_of(group) for group in groups.values()]


def _first_of(group: Sequence[TracedKernel]) -> TracedKernel:
    """Return the configuration that is predicted to be fastest.

    Where not all that fit have a time it is that with least local memory, and then most occupancy.
    """
    fit = [one for one in group if one.calculation is not None and one.reason is None]
    times = {id(one): one.prediction.us for one in fit if one.prediction is not None}
    if fit and len(times) == len(fit):
        return min(fit, key=lambda one: times[id(one)])

    def rank(one: TracedKernel) -> tuple[Any, ...]:
        found = one.calculation
        if found is None or one.reason is not None:
            return (True,)
        return False, found.resources.local_bytes or 0, -found.occupancy.occupancy

    return min(group, key=rank)


def _distinction(kernel: TracedKernel, shown: Sequence[TracedKernel]) -> str:
    """Return the arguments in which *kernel* differs from others of its configuration."""
    alike = [
        one
        for one in shown
        if (one.kernel, configuration(one)) == (kernel.kernel, configuration(kernel))
    ]
    words = [
        f"{name} {said}"
        for name, said in kernel.arguments.items()
        if any(one.arguments.get(name) != said for one in alike)
    ]
    return f"; {literal(', '.join(words))}" if words else ""


def _legend(gpus: Sequence[Gpu]) -> Iterator[str]:
    """Say what the columns mean whose names do not say it."""
    words = dict.fromkeys(gpu.architecture.multiprocessor_word for gpu in gpus)
    if words:
        yield (
            "Programs are those of a launch, and of how many that run at once; waves is their"
            " quotient, whose part behind the point is how full the last wave is; % is the"
            f" occupancy of each {' or '.join(words)}; local B is local memory per thread, register"
            " spills among it."
        )


def _predicted_sentences(shown: Sequence[TracedKernel]) -> Iterator[str]:
    """Say what the predicted times rest on, and what they come to together."""
    times = [(one, one.prediction) for one in shown]
    gpus = {
        one.calculation.gpu.key: (one.calculation.gpu, found)
        for one, found in times
        if one.calculation is not None and found is not None
    }
    for gpu, found in gpus.values():
        words = range_sentence(gpu, found.basis, calibrated=found.calibrated)
        yield f"us is the predicted time of the most frequent grid, the L2 cache empty. {words}"
    known = [(one, found) for one, found in times if found is not None and len(one.grids) == 1]
    if len(known) == len(shown):
        launches = [one.launches for one in shown]
        low, middle, high = (
            sum(number * (us or 0.0) for number, us in zip(launches, some, strict=True)) / 1000
            for some in zip(*((one.low_us, one.us, one.high_us) for _, one in known), strict=True)
        )
        yield f"All launches, one after the other: {middle:.3g} ms ({low:.3g} to {high:.3g})."


def _tuning_sentences(found: Traced) -> Iterator[str]:
    if any(one.tuning for one in found.kernels):
        yield "Launches after a + are those of an autotuner's benchmarks."


def _nothing(outcome: Outcome | None) -> str:
    if outcome is None or outcome.started:
        return NOTHING
    return (
        "Nothing could be noted: the program is no Python, or one that leaves out PYTHONPATH or"
        " sitecustomize, as -E, -I and -S do"
    )


def configuration(kernel: TracedKernel) -> str:
    """Return options and constexprs in words: "num_warps 4, num_stages 3, BLOCK 1024"."""
    return ", ".join(
        f"{name} {value}" for name, value in {**kernel.options, **kernel.constexprs}.items()
    )


def _name(kernel: TracedKernel) -> str:
    """Return a kernel's name, the middle of a long one left out."""
    name, half = kernel.kernel, LONGEST_NAME // 2
    short = name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[1 - half :]}"
    return literal(short)


def _row(kernel: TracedKernel, total: float | None, *, predicted: bool) -> tuple[str, ...]:
    tuning = f" + {kernel.tuning}" if kernel.tuning else ""
    times = []
    if predicted:
        times = ["-" if kernel.prediction is None else cell(kernel.prediction.us)]
    if total is not None:
        part = kernel.total_us
        times = [cell(kernel.us), "-" if part is None or not total else percent(part / total)]
    found = kernel.calculation
    sits = ("-",) * (4 if total is None else 2)
    if found is not None:
        resources = found.resources
        shared = resources.shared + resources.static_shared
        taken = () if total is not None else (formatted(resources.n_regs), formatted(shared))
        local = formatted(resources.local_bytes)
        sits = (f"{100 * found.occupancy.occupancy:.0f}", *taken, local)
    launches = f"{kernel.launches}{'?' if kernel.choices > 1 else ''}{tuning}"
    plan = kernel.plan(kernel.usual_grid)
    waves = "-" if plan is None or plan.waves is None else f"{plan.waves:.2f}"
    return (launches, *times, waves, *sits)


def _programs(kernel: TracedKernel) -> str:
    """Return the programs of the usual grid, and of how many that run at once."""
    usual = kernel.usual_grid
    plan = kernel.plan(usual)
    if usual is None:
        return "-"
    if plan is None or plan.waves is None:
        return str(math.prod(usual))
    return f"{plan.num_programs} of {plan.resident_programs}"


def _summary(found: Traced) -> str:
    names = {one.kernel for one in found.kernels}
    launches = round(sum(one.launches / one.choices for one in found.kernels))
    words = [
        (
            f"{launches} launch{'' if launches == 1 else 'es'} of {count(len(names), 'kernel')}"
            f" in {count(len(found.kernels), 'configuration')}"
        )
    ]
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
            " what a replay launches is not seen, so each counts once."
        )
    return sentence


def _time_sentences(found: Traced, total: float | None) -> Iterator[str]:
    seconds = sum(one.seconds or 0.0 for one in found.processes)
    if total is not None:
        timed = sum(one.samples for one in found.kernels)
        events = max(one.empty_us for one in found.processes)
        less = f", less the {events:.2f} us that the events take"
        yield (
            f"{total / 1000:.3g} ms in kernels of Triton"
            + (f", {percent(total / 1e6 / seconds)} of {seconds:.3g} s" if seconds else "")
            + f": {timed} launches were timed{less}, and those between them took the mean of both."
        )
    overhead = sum(one.overhead_ns for one in found.processes)
    launches = sum(one.launches for one in found.processes)
    if launches and overhead and seconds:
        held = sum(one.held for one in found.processes)
        words = f" The GPU was held {held} times for 50 us, to time a launch." if held else ""
        hot = [one.hot_ns for one in found.processes if one.hot_ns is not None]
        each = f", {max(hot) / 1000:.2f} us of a usual launch" if hot else ""
        yield (
            f"Noting took {overhead / 1e6:.3g} ms, {percent(overhead / 1e9 / seconds)} of"
            f" {seconds:.3g} s{each}.{words}"
        )


def _gpu_sentences(shown: Sequence[TracedKernel]) -> Iterator[str]:
    """Say for which GPU occupancy is, and of which kernels it is not known."""
    said = {
        f"Occupancy on {one.calculation.title}, {one.gpu_source}."
        for one in shown
        if one.calculation is not None
    }
    yield from sorted(said)
    reasons: dict[str, list[TracedKernel]] = {}
    for one in shown:
        if one.reason is not None:
            reasons.setdefault(one.reason, []).append(one)
    for reason, those in reasons.items():
        words = f"{literal(those[0].kernel)}, {literal(configuration(those[0]))}"
        more = f" and {len(those) - 1} more" if len(those) > 1 else ""
        yield f"{words}{more}: {literal(reason)}."


def _grid_sentences(found: Traced) -> Iterator[str]:
    several = [one for one in found.kernels if len(one.grids) > 1]
    if several:
        words = [f"{literal(one.kernel)} {len(one.grids)}" for one in several[:MOST_NAMED]]
        more = f" and {len(several) - MOST_NAMED} more" if len(several) > MOST_NAMED else ""
        yield f"The most frequent grid is shown of several: {listed(words)}{more}; --json has all."


def _dry_sentences(found: Traced, outcome: Outcome | None) -> Iterator[str]:
    if outcome is None or outcome.ran is None:
        return
    yield "Nothing was launched: tensors of the GPU had shapes, and only small ones values."
    if any(one.choices > 1 for one in found.kernels):
        yield (
            "Of an autotuned kernel, marked ?, the configuration is shown that is predicted to be"
            " fastest, or where no time is known that with least local memory and then most"
            " occupancy; any of them may be launched, and --json has all."
        )
    yield from outcome.ran.why_launches_are_missing("program")
    assumed = outcome.ran.assumed
    yield from (f"Assumed: {literal(str(one))}." for one in assumed[:MOST_ASSUMED])
    if len(assumed) > MOST_ASSUMED:
        yield f"{len(assumed) - MOST_ASSUMED} more values were assumed; --json has all."


def _faults(found: Traced) -> Iterator[str]:
    """Say which records are not whole, and what went wrong in noting."""
    cut = [one for one in found.processes if not one.ended]
    for one in cut[:MOST_NAMED]:
        yield (
            f"Process {one.pid} was killed or had not ended: launches after its last note are not"
            " counted."
        )
    if len(cut) > MOST_NAMED:
        yield f"So it was with {len(cut) - MOST_NAMED} more processes."
    for error in dict.fromkeys(error for one in found.processes for error in one.errors):
        yield f"Noting went wrong, and the program went on: {literal(error)}."
