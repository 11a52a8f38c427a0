"""What to try next, each with the command that shows what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.fits import DIVISIBILITY, WIDEST_ACCESS, elements_per_thread
from occupancy_lab.inputs import DEFAULT_ROWS
from occupancy_lab.kernel import Grid
from occupancy_lab.occupancy import occupancy
from occupancy_lab.text.document import Section
from occupancy_lab.text.words import count, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.explaining.case import Case

MOST_PADDING = 1.1
"""Columns after padding over columns before it, up to which wider loads can be worth it."""


def _command(case: Case, **changes: object) -> str:
    """Return the explain command of this case with *changes* made; None leaves an option out."""
    record = case.record
    problem, config = record.problem, record.config
    default = record.kernel.default_config(problem, case.architecture.max_shared)
    asked = {
        "cols": (problem.cols, None),
        "rows": (problem.rows, DEFAULT_ROWS),
        "dtype": (problem.dtype, "float32"),
        "kernel": (record.kernel.name, "softmax"),
        "block_size": (config.block_size, default.block_size),
        "num_warps": (config.num_warps, default.num_warps),
        "num_stages": (config.num_stages, default.num_stages),
    }
    options: dict[str, object] = {"gpu": record.gpu.key}
    options |= {name: value for name, (value, usual) in asked.items() if value != usual}
    options |= changes
    words = " ".join(
        f"--{name.replace('_', '-')} {value}"
        for name, value in options.items()
        if value is not None
    )
    return f"`occupancy-lab explain {words}`"


def _fewer_stages(case: Case) -> Iterator[str]:
    single = occupancy(case.single_stage, case.architecture)
    now = case.record.occupancy
    gained = single.programs_per_multiprocessor - now.programs_per_multiprocessor
    if gained > 0:
        yield (
            f"num_stages 1 holds {single.programs_per_multiprocessor} programs instead of"
            f" {now.programs_per_multiprocessor}; other programs' loads can hide what the stages"
            f" hid: {_command(case, num_stages=1)}"
        )


def _fewer_warps(case: Case) -> Iterator[str]:
    elements, item_bytes = elements_per_thread(case), case.record.problem.item_bytes
    config, architecture = case.record.config, case.architecture
    if elements * item_bytes >= WIDEST_ACCESS or config.num_warps == 1:
        return
    threads = config.block_size * item_bytes // WIDEST_ACCESS
    num_warps = max(1, threads // architecture.warp_size)
    if num_warps < config.num_warps:
        more = config.block_size / (num_warps * architecture.warp_size)
        yield (
            f"{count(num_warps, architecture.warp_word)} a program would give each thread {more:g}"
            f" elements instead of {elements:g}, and a reduction fewer {architecture.warp_word}s to"
            f" cross: {_command(case, num_warps=num_warps)}"
        )


def _wider_loads(case: Case) -> Iterator[str]:
    problem, resources = case.record.problem, case.record.resources
    narrow = resources.load_bytes is not None and resources.load_bytes < WIDEST_ACCESS
    padded = -(-problem.cols // DIVISIBILITY) * DIVISIBILITY
    worth_it = problem.cols < padded <= problem.cols * MOST_PADDING
    if narrow and worth_it and case.record.kernel.grid is not Grid.BLOCKS:
        yield (
            f"If the matrix can be padded with -inf to {padded} columns (stride and n_cols both:"
            f" the mask counts too), loads get wider: {_command(case, cols=padded)}"
        )


def _spills(case: Case) -> Iterator[str]:
    resources, config = case.record.resources, case.record.config
    more = config.num_warps * 2
    if resources.local_bytes and more <= case.architecture.max_warps_per_program:
        yield (
            f"{resources.local_bytes} B of local memory a thread: more warps hold a row with fewer"
            f" registers each: {_command(case, num_warps=more)}"
        )


def _row_kernel(case: Case) -> Iterator[str]:
    if case.record.kernel.name == "softmax":
        yield (
            "One program a row leaves the scheduling of rows to the GPU and needs no num_programs:"
            f" {_command(case, kernel='softmax_row', num_warps=None, num_stages=None)}"
        )


def _enough_occupancy(case: Case) -> Iterator[str]:
    if case.record.occupancy.occupancy >= 1:
        yield (
            f"Every {case.architecture.warp_word} slot is taken: more occupancy is not to be had,"
            " and what is left to win is in the loads, the reduction and the tail."
        )


def what_to_try(cases: tuple[Case, ...]) -> Section:
    """Return what this kernel's own numbers suggest, each suggestion with its command."""
    kinds = (_enough_occupancy, _fewer_stages, _fewer_warps, _wider_loads, _spills, _row_kernel)

    def sentences(case: Case) -> Iterator[str]:
        for kind in kinds:
            yield from kind(case)

    return Section("What to try", sentences=said_of_each(cases, sentences))
