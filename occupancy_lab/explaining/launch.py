"""The launch: num_programs, waves, the tail, and which rows a program handles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.kernel import Grid
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import compared, count, known, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case

SHOWN_ROWS = 3
"""Rows of one program that are listed before the dots."""
SHOWN_ELEMENTS = 64
"""Elements up to which a blocks launch is shown program by program."""


def work_word(case: Case) -> str:
    """Return what a program does one after the other: rows or blocks."""
    return "block" if case.record.kernel.grid is Grid.BLOCKS else "row"


def num_programs_words(case: Case) -> str:
    """Return num_programs, where it is known."""
    return known(case.record.plan.num_programs)


def resident_words(case: Case) -> str:
    """Return the programs that the GPU holds at once: "8 x 132 = 1056"."""
    resident = case.record.plan.resident_programs
    if resident is None:
        return "not known"
    held = case.record.occupancy.programs_per_multiprocessor
    multiprocessors = case.record.gpu.multiprocessors
    return f"{held} x {multiprocessors} = {resident}"


def waves_words(case: Case) -> str:
    """Return the programs launched over those that the GPU holds at once."""
    waves = case.record.plan.waves
    return "not known" if waves is None else f"{waves:.2f}"


def _tail(case: Case) -> str:
    plan = case.record.plan
    if plan.last_round is None or plan.at_once is None:
        return "not known"
    return f"{plan.last_round} of {plan.at_once} ({plan.last_round / plan.at_once:.0%})"


def _rows_of_first(case: Case) -> str:
    if case.record.plan.num_programs is None:
        return "not known"
    work = case.record.plan.work_of(0)
    shown = ", ".join(str(row) for row in work[:SHOWN_ROWS])
    return f"{shown}, ..." if len(work) > SHOWN_ROWS else shown


def plan_sentence(case: Case) -> str:
    """Say how num_programs comes about."""
    plan, gpu, word = case.record.plan, case.record.gpu, work_word(case)
    multiprocessor = case.architecture.multiprocessor_word
    if plan.resident_programs is None or plan.num_programs is None:
        return (
            f"{gpu.title} is an architecture, not a GPU, so the number of its {multiprocessor}s is"
            " not known: name a GPU to get num_programs."
        )
    if case.record.kernel.grid is Grid.PERSISTENT:
        return (
            f"num_programs = min({plan.work} rows, {resident_words(case)}) = {plan.num_programs}."
            f" Program p takes rows p, p + {plan.num_programs}, ... up to {plan.work - 1}."
        )
    return (
        f"One program a {word}: num_programs = {plan.num_programs}, {waves_words(case)} times what"
        " the GPU holds at once."
    )


def _sentences(case: Case) -> Iterator[str]:
    yield plan_sentence(case)
    yield from _tail_sentence(case)
    yield from _tutorial_sentence(case)


def _tutorial_sentence(case: Case) -> Iterator[str]:
    launched, right = case.record.miscount, case.record.plan.num_programs
    if launched is None or right is None:
        return
    if launched > right:
        yield (
            f"The tutorial's formula would launch {launched} programs, {launched - right} more than"
            " fit: they wait until others have done all their rows."
        )
    else:
        yield (
            f"The tutorial's formula would launch {launched} programs and leave {right - launched}"
            " places empty."
        )


def _tail_sentence(case: Case) -> Iterator[str]:
    plan, word = case.record.plan, work_word(case)
    if plan.rounds is None or plan.last_round is None or plan.at_once is None:
        return
    if plan.rounds == 1:
        resident = plan.resident_programs or plan.at_once
        yield (
            f"All {plan.work} {word}s are done at once, with {plan.at_once / resident:.0%} of the"
            " places for programs in use; there is no tail."
        )
        return
    busy = plan.work / (plan.rounds * plan.at_once)
    yield (
        f"The {plan.work} {word}s take {plan.rounds} rounds; the last is the tail, with"
        f" {count(plan.last_round, word)} for {plan.at_once} places. Over the whole launch"
        f" {busy:.0%} of the places have a {word}."
    )


def _program_tables(case: Case) -> tuple[Table, ...]:
    """Show a small blocks launch program by program."""
    problem, block_size = case.record.problem, case.record.config.block_size
    elements = problem.rows * problem.cols
    program_table = case.record.kernel.program_table
    if program_table is None or elements > SHOWN_ELEMENTS or block_size > SHOWN_ELEMENTS:
        return ()
    rows = tuple(
        (
            str(row.pid),
            str(row.block_start),
            " ".join(str(offset) for offset in row.offsets),
            " ".join("1" if inside else "0" for inside in row.mask),
        )
        for row in program_table(elements, block_size)
    )
    return (Table(("pid", "block_start", "offsets", "mask"), rows, "What each program sees:"),)


def the_launch(cases: tuple[Case, ...]) -> Section:
    """Explain how many programs are launched, in how many rounds, and who does which rows."""
    word = work_word(cases[0])
    rows = compared(
        cases,
        (
            ("programs at once", resident_words),
            ("num_programs", num_programs_words),
            ("waves of programs", waves_words),
            (f"{word}s in the last round", _tail),
            (f"{word}s of program 0", _rows_of_first),
        ),
    )
    table = Table(("", *(case.title for case in cases)), rows)
    tables = (table, *_program_tables(cases[0]))
    return Section("The launch", tables, said_of_each(cases, _sentences))
