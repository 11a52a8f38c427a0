"""What was compiled for a GPU on which nothing was launched, and what its times rest on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.kernel import load_kernel
from occupancy_lab.reporting.chapters.taken import (
    LATE,
    TITLE,
    make_taken,
    recorded_launches,
    untimed_words,
)
from occupancy_lab.reporting.page import Chapter, Commands
from occupancy_lab.reporting.source import NAME
from occupancy_lab.text.document import Table
from occupancy_lab.text.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.reporting.chapters.taken import Taken
    from occupancy_lab.reporting.page import Block
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.throughput.calibrations import Basis


@dataclass(frozen=True, slots=True)
class Compiled:
    """The configurations behind predicted times."""

    gpu: Gpu
    origin: Gpu | None
    """The GPU of the same target for which they were compiled, and on which they were launched;
    None where they were compiled for this page."""
    basis: Basis
    """What the predictions rest on."""
    triton: tuple[str, ...]
    """The versions that compiled them."""
    kernels: tuple[Kernel, ...]
    configurations: int
    """Those that were compiled and fit."""
    shapes: int
    untimed: Mapping[str, int]
    """The others, by what came of them."""
    recorded: Taken | None
    """What others measured on the GPU; None for nothing."""
    counted: int
    """Of their launches, those with as many programs as fit."""


def make_compiled(source: Source) -> Compiled:
    """Return what was compiled to make *source*, one of predictions."""
    if not source.is_predicted or source.basis is None:
        msg = "these rows were measured"
        raise ValueError(msg)
    each = [name for name in NAME if name != "use"]
    table, planned = source.table.drop_duplicates(each), source.planned.drop_duplicates(each)
    failed = table.loc[table["status"] != "ok", "status"].replace("timed out", LATE)
    recorded = source.recorded
    return Compiled(
        gpu=source.gpu,
        origin=None if source.origin is None else source.origin.gpu,
        basis=source.basis,
        triton=tuple(sorted(set(planned["triton_version"]))),
        kernels=tuple(load_kernel(name) for name in planned["kernel"].unique()),
        configurations=len(planned),
        shapes=len(planned.drop_duplicates(["rows", "cols", "dtype"])),
        untimed=dict(Counter(failed).most_common()),
        recorded=None if recorded is None else make_taken(recorded),
        counted=0 if recorded is None else len(recorded.predictions),
    )


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
    compiled_for = (
        f"The times of this page are **predictions**: nothing was launched on {compiled.gpu.title}"
    )
    if compiled.recorded is None:
        return f"{compiled_for} for it, and no time that was measured on one is known."
    return (
        f"{compiled_for} for it. Those that are called recorded were measured on one earlier, with"
        " the tutorial's kernel and one program per row."
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
