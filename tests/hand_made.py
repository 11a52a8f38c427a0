"""Counts of launches made by hand, with numbers that follow from arithmetic."""

from collections.abc import Sequence

from occupancy_lab.work.counts import (
    SECTOR,
    Access,
    Amount,
    Arithmetic,
    Counts,
    Footprint,
    Loop,
    Place,
    Reuse,
)
from occupancy_lab.work.execution import Executed, ExecutedLine, GlobalAccess

FILE = "kernel.py"
ITEM = 2
"""Bytes of an element of fp16."""


def place(line: int) -> Place:
    """Return a line of the kernel's file."""
    return Place(FILE, line)


def access(  # noqa: PLR0913 - what an access is made of
    tensor: str,
    line: int,
    elements: int,
    unique: int,
    *,
    writes: bool = False,
    executions: int = 1,
    sectors: int | None = None,
) -> Access:
    """Return a load or store of *elements* active elements of fp16, with *unique* distinct bytes.

    Unless *sectors* is given, its sectors are full.
    """
    asked = Amount.of(elements)
    touched = Amount.of(elements * ITEM // SECTOR if sectors is None else sectors)
    return Access(
        place(line),
        "store" if writes else "load",
        tensor,
        ITEM,
        not writes,
        writes,
        Amount.of(executions),
        asked,
        asked,
        touched,
        Amount.of(-(-touched.low // 4)),
        Amount.of(unique),
    )


def footprint(tensor: str, read: int, written: int, *again: tuple[int, int]) -> Footprint:
    """Return a tensor's distinct bytes, in whole sectors; *again* has reuse distances and bytes."""
    each = Amount.of(read), Amount.of(written)
    return Footprint(tensor, *each, *each, tuple(Reuse(*one) for one in again))


def matmul(size: int, block: int, resident: int) -> Counts:
    """Return a product of square matrices of fp16 in square blocks, with programs in row order."""
    across = size // block
    programs, matrix = across * across, size * size * ITEM
    a_program = block * size * ITEM
    waves = programs / min(resident, programs)
    rows, columns = min(-(-resident // across), across), min(resident, across)
    wave = rows * columns * block * block * ITEM + (rows + columns) * a_program
    times = min(waves, across) - 1  # each row of the grid, or each wave, reads all of b
    passes, flops = Amount.of(programs * size // 64), Amount.of(2 * size**3)
    loads = size * size * across
    return Counts(
        programs,
        min(programs, 24),
        accesses=(
            access("a", 8, loads, matrix, executions=programs * size // 64),
            access("b", 9, loads, matrix, executions=programs * size // 64),
            access("c", 12, size * size, matrix, writes=True, executions=programs),
        ),
        footprints=(
            footprint("a", matrix, 0),
            footprint("b", matrix, 0, (max(wave, matrix), round(times * matrix))),
            footprint("c", 0, matrix),
        ),
        arithmetic=(
            Arithmetic(
                place(10),
                "dot",
                "fp16",
                flops,
                Amount.of(programs * size // 64),
                (block, block, 64),
            ),
            Arithmetic(place(11), "mulf", "fp32", Amount.of(size * size), Amount.of(programs)),
        ),
        loops=(Loop(place(7), 0, Amount.of(programs), passes, size // 64, size // 64, 1),),
    )


def executed(places: Sequence[Place], warps: int) -> Executed:
    """Return what *warps* warps execute of code with ten instructions on each of *places*.

    There are 70 cycles between the instructions of the last place, and 10 between those of others.
    """
    lines = [
        ExecutedLine(
            place,
            Amount.of(10 * warps),
            {"global_accesses": Amount.of(warps)},
            Amount.of(warps * (70 if place is places[-1] else 10)),
            warps * (70 if place is places[-1] else 10),
        )
        for place in places
    ]
    access = GlobalAccess(
        places[0],
        3,
        "load",
        "x",
        16,
        Amount.of(warps),
        Amount.of(32 * warps),
        Amount.of(16 * warps),
        Amount.of(4 * warps),
        Amount.of(2 * warps),
        Amount.of(4 * warps),
        is_known=True,
    )
    total_of = Amount.of(10 * warps * len(places))
    kinds = {"global_accesses": Amount.of(warps * len(places))}
    return Executed(warps, warps, total_of, kinds, tuple(lines), (), (access,))


def rows(number: int, cols: int, resident: int, *, passes: int = 1) -> Counts:
    """Return a kernel that reads each row of a matrix *passes* times and writes it once."""
    matrix, row = number * cols * ITEM, cols * ITEM
    return Counts(
        number,
        min(number, 24),
        accesses=(
            *(access("x", 3 + one, number * cols, matrix) for one in range(passes)),
            access("y", 20, number * cols, matrix, writes=True),
        ),
        footprints=(
            footprint("x", matrix, 0, (min(resident, number) * row, (passes - 1) * matrix)),
            footprint("y", 0, matrix),
        ),
        arithmetic=(
            Arithmetic(place(5), "addf", "fp32", Amount.of(number * cols), Amount.of(number)),
        ),
    )
