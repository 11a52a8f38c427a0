"""What fits: a row in a block, a block in a program's threads, a thread's elements in a load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.kernel import Grid
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import compared, count, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.values import Problem

WIDEST_ACCESS = 16
"""Bytes of the widest global load or store of one thread, on both vendors' GPUs here."""
DIVISIBILITY = 16
"""Triton looks at whether a whole-number argument is a multiple of this, and at nothing finer."""


def masked_lanes(case: Case) -> int:
    """Return the lanes of the last block (or of each row's block) that hold no element."""
    problem, block_size = case.record.problem, case.record.config.block_size
    length = problem.cols
    if case.record.kernel.grid is Grid.BLOCKS:
        length = problem.rows * problem.cols
    return -length % block_size


def elements_per_thread(case: Case) -> float:
    """Return the elements of a block that one thread holds; below 1 some threads only repeat."""
    return case.record.config.block_size / case.threads


def _block_sentences(case: Case) -> Iterator[str]:
    problem, block_size = case.record.problem, case.record.config.block_size
    masked = masked_lanes(case)
    if case.record.kernel.grid is Grid.BLOCKS:
        total = problem.rows * problem.cols
        yield (
            f"A program takes BLOCK_SIZE {block_size} of the {total} elements; the mask keeps the"
            f" last program's {masked} spare lanes out of memory."
        )
        return
    spare = "every lane holds an element."
    if masked:
        spare = (
            f"{masked} of the {block_size} lanes are masked: they move no memory, but they take"
            " registers and instructions like the others."
        )
    yield (
        f"A program holds a whole row, and `tl.arange` takes a power of two: {block_size} for"
        f" {problem.cols} columns; {spare}"
    )


def _row_start(problem: Problem) -> str:
    row_bytes = problem.cols * problem.item_bytes
    past = row_bytes % WIDEST_ACCESS
    if past:
        return (
            f"a row is {row_bytes} bytes, so row 1 starts {past} bytes past a {WIDEST_ACCESS}-byte"
            " boundary."
        )
    return f"a row is {row_bytes} bytes, which would do, but Triton does not look at bytes."


def _load_sentences(case: Case) -> Iterator[str]:
    problem, resources = case.record.problem, case.record.resources
    if resources.load_bytes is None:
        return
    if resources.load_bytes >= WIDEST_ACCESS:
        yield f"Loads are {resources.load_bytes} bytes a thread, the widest there are."
        return
    if problem.cols % DIVISIBILITY and case.record.kernel.grid is not Grid.BLOCKS:
        padded = -(-problem.cols // DIVISIBILITY) * DIVISIBILITY
        yield (
            f"{problem.cols} columns forbid {WIDEST_ACCESS}-byte loads: {_row_start(problem)}"
            f" Triton asks whether {problem.cols} is a multiple of {DIVISIBILITY}, and it is not."
            f" Each load moves {resources.load_bytes} bytes; {padded} columns would let it be"
            " wider."
        )
        return
    elements = elements_per_thread(case)
    if elements < 1:
        yield (
            f"Only {case.record.config.block_size} of the {case.threads} threads hold an element of"
            " their own; the others repeat it."
        )
    elif elements * problem.item_bytes < WIDEST_ACCESS:
        yield (
            f"A thread holds {elements:g} elements of {problem.item_bytes} bytes, too few for a"
            f" {WIDEST_ACCESS}-byte load; its loads are {resources.load_bytes} bytes."
        )


def what_fits(cases: tuple[Case, ...]) -> Section:
    """Explain the block, its mask, the elements a thread holds and the width of its loads."""
    rows = compared(
        cases,
        (
            ("BLOCK_SIZE", lambda case: str(case.record.config.block_size)),
            ("masked lanes", _masked),
            ("threads a program", threads_words),
            ("elements a thread", lambda case: f"{elements_per_thread(case):g}"),
            ("widest load, bytes a thread", lambda case: _width(case.record.resources.load_bytes)),
            (
                "widest store, bytes a thread",
                lambda case: _width(case.record.resources.store_bytes),
            ),
        ),
    )
    table = Table(("", *(case.title for case in cases)), rows)
    sentences = (*said_of_each(cases, _block_sentences), *said_of_each(cases, _load_sentences))
    return Section("What fits", (table,), sentences)


def _masked(case: Case) -> str:
    masked, block_size = masked_lanes(case), case.record.config.block_size
    return f"{masked} of {block_size} ({masked / block_size:.1%})"


def threads_words(case: Case) -> str:
    """Return the threads a program: "8 warps x 32 = 256"."""
    architecture = case.architecture
    warps = count(case.record.config.num_warps, architecture.warp_word)
    return f"{warps} x {architecture.warp_size} = {case.threads}"


def _width(number: int | None) -> str:
    return "not known" if number is None else str(number)
