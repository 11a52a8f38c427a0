"""What a page of predictions rests on, in words, and the command that makes it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.reporting.page import Chapter, Commands
from occupancy_lab.reporting.taken_view import TITLE, recorded_launches, untimed_words
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.reporting.compiled import Compiled
    from occupancy_lab.reporting.page import Block


def what_was_compiled(compiled: Compiled) -> Chapter:
    """Say that nothing was launched, what the predictions rest on, and what was measured on one."""
    gpu = compiled.gpu
    file = f"{gpu.key}.md" if compiled.origin is None else f"reports/{gpu.key}.md"
    return Chapter(
        TITLE,
        (
            _first(compiled),
            _kernels(compiled),
            _table(compiled),
            *untimed_words(compiled.untimed),
            *_recorded(compiled),
            "This page is made again, anywhere, by:",
            Commands((f"occupancy-lab report --gpu {gpu.key} --output {file}",)),
        ),
    )


def _first(compiled: Compiled) -> str:
    said = (
        f"The times of this page are **predictions**: nothing was launched on {compiled.gpu.title}"
    )
    if compiled.recorded is None:
        return f"{said} for it, and no time that was measured on one is known."
    return (
        f"{said} for it. Those that are called recorded were measured on one earlier, with the"
        " tutorial's kernel and one program per row."
    )


def _kernels(compiled: Compiled) -> str:
    gpu = compiled.gpu
    if compiled.origin is None:
        return (
            f"The kernels were compiled for this page. How many programs of them fit and are"
            f" launched follows from their binaries and the limits of {gpu.title}."
        )
    return (
        f"The kernels are those of the report of {compiled.origin.title}, as they were compiled for"
        f" it: a compiled kernel is the same for every GPU of {gpu.target.name}. How many programs"
        f" of it fit and are launched is worked out for {gpu.title}."
    )


def _table(compiled: Compiled) -> Table:
    gpu = compiled.gpu
    mp = gpu.architecture.multiprocessor_word
    rows = (
        ("compiled for", gpu.target.name),
        ("Triton", listed(compiled.triton)),
        *((kernel.name, kernel.title) for kernel in compiled.kernels),
        ("configurations", f"{compiled.configurations}, on {count(compiled.shapes, 'shape')}"),
        (
            f"{gpu.title} has",
            f"{gpu.multiprocessors} {mp}s, {gpu.boost_mhz} MHz, {gpu.bandwidth_gbs:.0f} GB/s",
        ),
        ("predictions rest on", compiled.basis.words),
    )
    return Table(("", gpu.title), rows, "What was compiled:", prose=True)


def _recorded(compiled: Compiled) -> Iterator[Block]:
    if compiled.recorded is None:
        return
    yield recorded_launches(compiled.recorded)
    key, total = compiled.gpu.key, sum(compiled.recorded.measured.values())
    left_out = total - compiled.counted
    where = f"They are in `reports/data/measured-{key}.csv` and `providers-{key}.csv`."
    if left_out:
        where += (
            f" {compiled.counted} of the {total} launches are held against a prediction; the others"
            " had another number of programs than fits, or too little is known of their binaries."
        )
    yield where
