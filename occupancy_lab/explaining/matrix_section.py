"""What only a matrix's launch has: its num_programs, the tutorial's, and other launches for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from occupancy_lab.asked import Asked, ask
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.commands import explain_command, tune_command
from occupancy_lab.explaining.facts import resident_words, setting_words
from occupancy_lab.explaining.limits import the_tutorial
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import Kernel, load_kernel
from occupancy_lab.prediction import NOTICEABLE, Prediction
from occupancy_lab.text.document import Document, Section, Table
from occupancy_lab.text.words import byte_words, change, count, microseconds, said_of_each
from occupancy_lab.values import Measurement, Problem, Traffic

if TYPE_CHECKING:
    from occupancy_lab.sweeping.recorded import RecordedLaunch

ONE_ROW = Problem(1, 1000)
"""A matrix with which a count of elements shows what is per element (MN) and per row (M)."""


def the_matrix(cases: Sequence[Case], *, full: bool = False) -> Section:
    """Return other launches for the matrix; in *full* also num_programs and the torch operations.

    The section of launches that were not made from a matrix is empty.
    """
    title = "For this matrix"
    if any(case.record.matrix is None for case in cases):
        return Section(title)
    others = said_of_each(cases, _other_launches)
    if not full:
        return Section(title, (), others)
    tutorial = the_tutorial([case.calculation for case in cases])
    sentences = (
        *said_of_each(cases, _num_programs),
        *tutorial.sentences,
        *said_of_each(cases, _tutorials_launch),
        *said_of_each(cases[:1], _torch_operations),
        *others,
    )
    return Section(title, tutorial.tables, sentences)


def _num_programs(case: Case) -> Iterator[str]:
    plan, word = case.plan, case.record.launch.work.piece
    programs = plan.num_programs
    if programs is None or plan.resident_programs is None:
        return
    if not plan.is_persistent:
        yield f"One program per {word}: num_programs = {programs}."
        return
    others = f"{word}s p, p + {programs}, ... up to {plan.work - 1}"
    if case.kernel.work is not None:
        others = f"{word} p first, and the programs take the others in turns"
    rounds = ""
    if plan.rounds and plan.rounds > 1:
        left = count(plan.last_round or 0, word)
        rounds = f": {plan.rounds} rounds, the last with {left} for {plan.at_once} programs"
    yield (
        f"num_programs = min({plan.work} {word}s, {resident_words(case)}) = {programs}."
        f" Program p takes {others}{rounds}."
    )


def _tutorials_launch(case: Case) -> Iterator[str]:
    launched, right = case.record.miscount, case.plan.num_programs
    if launched is None or right is None:
        return
    programs = f"With that formula, num_programs is {launched}"
    if launched < right:
        what = f"{programs}, which leaves {count(right - launched, 'place')} empty"
    elif case.record.runs(launched):
        what = (
            f"{programs}, {launched - right} more than fit, which wait until others have finished"
            f" all their {case.record.launch.work.piece}s"
        )
    else:
        what = (
            f"{programs}, {launched - right} more than fit: the driver refuses that, because"
            " programs that wait for each other must all fit"
        )
    times = _times(case, case.record.tutorial_prediction, case.recorded.tutorial)
    yield f"{what}{times and ': '}{times}."


def _times(case: Case, other: Prediction | None, recorded: Measurement | None) -> str:
    """Return the predicted and the recorded time of another launch; "" without any."""
    parts, own = [], case.record.prediction
    if other is not None and own is not None:
        longer = change(other.us / own.us - 1)
        parts.append(f"{microseconds(other.us)} is predicted ({longer})")
    if recorded is not None and recorded.us is not None and case.recorded.us is not None:
        longer = change(recorded.us / case.recorded.us - 1)
        parts.append(f"{microseconds(recorded.us)} was recorded ({longer})")
    return ", ".join(parts)


def row_launch(case: Case) -> Asked | None:
    """Return the launch with one program per row to compare a persistent one with; or None."""
    record = case.record
    if record.matrix is None or record.prediction is None or record.matrix.options:
        return None
    name = case.kernel.by_rows if case.alike else None
    if name is None:
        return None
    single = dataclasses.replace(record.config, num_stages=1)
    return ask(NamedKernel(name, load_kernel(name)), record.problem, single, record.gpu)


def _other_launches(case: Case) -> Iterator[str]:
    from occupancy_lab.sweeping.recorded import rival_sentences

    recorded, rows = case.recorded, case.row_kernel
    yield from rival_sentences(recorded.faster)
    if recorded.fastest is not None:
        yield _fastest(case, recorded.fastest)
    elif case.record.prediction is not None:
        yield f"{tune_command(case)} ranks other launches for this matrix by predicted time."
    times = _times(case, None if rows is None else rows.prediction, recorded.row_programs)
    if times and case.kernel.by_rows is not None:
        kernel = f"{case.kernel.by_rows} and num_warps {case.record.num_warps}"
        yield f"With {kernel}, one program per row without a loop, {times}."


def _fastest(case: Case, fastest: RecordedLaunch) -> str:
    """Name the fastest recorded launch, unless it is not noticeably faster than the launch was."""
    us, least = case.recorded.us, fastest.measurement.us or 0.0
    others = f"{case.recorded.number} launches recorded for this matrix"
    if us is not None and least > us * (1 - NOTICEABLE):
        return f"None of {others} was noticeably faster than this one, {microseconds(us)}."
    settings = fastest.config.settings
    words = f"{fastest.kernel}, {setting_words(settings, settings)}"
    against = "" if us is None else f" against {microseconds(us)} ({change(least / us - 1)})"
    said = f"The fastest of {others} is {words}: {microseconds(least)}{against}."
    if (fastest.kernel, fastest.config) == (case.kernel.name, case.record.config):
        return said
    return f"{said} {explain_command(case, fastest.kernel, fastest.config)}"


def _torch_operations(case: Case) -> Iterator[str]:
    own, name = case.record.traffic, case.kernel.compared_with
    if own is None or name is None:
        return
    kernel = load_kernel(name)
    moved = kernel.traffic(case.record.problem)
    if moved is None:
        return
    operations = count(len(kernel.steps(case.record.problem)), "torch operation")
    ratio = moved.total_bytes / own.total_bytes
    yield (
        f"{name}, {operations} one after another, {_moves(kernel, moved)}, where M is rows and N"
        f" columns: {ratio:.1f} times the traffic of {case.kernel.name}, which"
        f" {_moves(case.kernel, own)}."
    )


def _moves(kernel: Kernel, moved: Traffic) -> str:
    reads, writes = _polynomials(kernel)
    return (
        f"reads {reads} elements ({byte_words(moved.read_bytes)}) and writes {writes}"
        f" ({byte_words(moved.written_bytes)})"
    )


def _polynomials(kernel: Kernel) -> tuple[str, str]:
    steps = kernel.steps(ONE_ROW)
    reads, writes = sum(step.reads for step in steps), sum(step.writes for step in steps)
    return _polynomial(reads), _polynomial(writes)


def _polynomial(elements: int) -> str:
    """Return a number of elements counted with `ONE_ROW` as "5MN + 2M"."""
    counts = zip(divmod(elements, ONE_ROW.cols), ("MN", "M"), strict=True)
    terms = [name if number == 1 else f"{number}{name}" for number, name in counts if number]
    return " + ".join(terms) or "0"


def write_steps(kernel: Kernel, problem: Problem, gpus: Sequence[Gpu]) -> Document:
    """Return the traffic of a *kernel* of torch operations, step by step, and the least time."""
    steps, moved = kernel.steps(problem), kernel.traffic(problem) or Traffic(0, 0)
    rows = (
        (
            step.operation,
            _polynomial(one.reads),
            _polynomial(one.writes),
            byte_words(step.reads * problem.item_bytes),
            byte_words(step.writes * problem.item_bytes),
        )
        for step, one in zip(steps, kernel.steps(ONE_ROW), strict=True)
    )
    amounts = map(byte_words, (moved.read_bytes, moved.written_bytes))
    total = ("total", *_polynomials(kernel), *amounts)
    floors = tuple(
        f"{gpu.title}: {byte_words(moved.total_bytes)} at {gpu.bandwidth_gbs:g} GB/s, the vendor's"
        f" peak, take at least {microseconds(floor)}."
        for gpu in gpus
        if (floor := moved.floor_us(gpu.bandwidth_gbs)) is not None
    )
    headers = ("step", "elements read", "written", "bytes read", "written")
    why_none = (
        f"{kernel.name} is {count(len(steps), 'torch operation')}, launched one after another:"
        " Triton compiles nothing, so there is no occupancy to explain."
    )
    moves = f"It {_moves(kernel, moved)}, where M is rows and N columns."
    section = Section("What each step moves", (Table(headers, (*rows, total)),), floors)
    return Document(f"{kernel.name}, {problem.words}", (why_none, moves), (section,))
