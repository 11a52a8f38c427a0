"""What was run, where and when, what could not be, and the commands that repeat it.

Of a GPU on which nothing was launched: what was compiled for it, and what its times rest on.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.kernel import load_kernel
from occupancy_lab.reporting.page import Chapter, Commands
from occupancy_lab.reporting.source import NAME
from occupancy_lab.text.document import Table, literal
from occupancy_lab.text.words import count, listed
from occupancy_lab.values import Conditions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.reporting.page import Block
    from occupancy_lab.reporting.source import Source
    from occupancy_lab.throughput.calibrations import Basis


LATE = "compile timed out"
"""What a compile that timed out is called, beside launches that did."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What was measured of one GPU, and under which conditions."""

    gpu: Gpu
    file: str | None
    """Where the rows are from; None for what comes with the lab."""
    kernels: tuple[Kernel, ...]
    conditions: Mapping[str, tuple[str, ...]]
    """By the field of Conditions, the values that occur; none where nobody knows."""
    measured: Mapping[str, int]
    """Launches with a time, by use."""
    untimed: Mapping[str, int]
    """Launches without one, by what came of them."""
    reasons: Mapping[str, str]
    """The first reason of each, where one was given."""
    providers: Mapping[str, int]
    """What else was timed, and how often."""


def make_taken(source: Source) -> Taken:
    """Return what was run to make *source*."""
    measured, table = source.measured, source.table
    untimed = table[table["measured"] != "measured"]
    came_of = untimed["measured"].where(untimed["measured"].notna(), untimed["status"])
    # A row that is ok and was not launched is one for another GPU, or was interrupted.
    came_of = came_of.replace("ok", "not launched")
    late = untimed["measured"].isna() & (untimed["status"] == "timed out")
    came_of = came_of.mask(late, LATE)
    given = untimed["why_not"].dropna()
    reasons = given.groupby(came_of[given.index], sort=False).first()
    providers = source.providers
    return Taken(
        gpu=source.gpu,
        file=source.file,
        kernels=tuple(load_kernel(name) for name in measured["kernel"].unique()),
        conditions={
            field.name: _values(measured[field.name]) for field in dataclasses.fields(Conditions)
        },
        measured=_counts(measured["use"]),
        untimed=_counts(came_of),
        reasons={str(name): str(why) for name, why in reasons.items()},
        providers={} if providers.empty else _counts(providers["provider"]),
    )


def _values(column: pd.Series[str]) -> tuple[str, ...]:
    """Return the values that occur, in order; numbers without a fraction."""
    values = sorted(column.dropna().unique())
    return tuple(f"{one:.0f}" if isinstance(one, float) else str(one) for one in values)


def _counts(column: pd.Series[str]) -> dict[str, int]:
    """Return how often each value occurs, the commonest first."""
    return {str(value): int(number) for value, number in column.value_counts().items()}


TITLE = "What was run"
ROWS: Mapping[str, str] = {
    "device": "GPU",
    "driver": "driver",
    "torch": "torch",
    "triton": "Triton",
    "date": "date",
    "timer": "timed with",
    "l2": "L2 cache before each launch",
    "sm_mhz": "clock after the launches, MHz",
    "throttled": "clock held down by",
}
"""What the fields of Conditions are called."""


def what_was_run(taken: Taken) -> Chapter:
    """Say where, when and how the launches were made, and how to make them again."""
    rows = [*_conditions(taken), *((kernel.name, kernel.title) for kernel in taken.kernels)]
    rows += [("launches measured", _measured(taken)), *_others(taken)]
    table = Table(("", taken.gpu.title), tuple(rows), prose=True)
    reasons = (
        f"The first of those that ended as *{name}*: {why}" for name, why in taken.reasons.items()
    )
    return Chapter(TITLE, (table, *untimed_words(taken.untimed), *reasons, *_again(taken)))


def recorded_launches(taken: Taken) -> Table:
    """Say where and how the recorded launches were measured, and how many there are."""
    rows = (*_conditions(taken), ("launches", _measured(taken)), *_others(taken))
    return Table(("", taken.gpu.title), rows, "What was measured on one:", prose=True)


def _conditions(taken: Taken) -> Iterator[tuple[str, str]]:
    for name, words in ROWS.items():
        if taken.conditions[name]:
            yield words, listed(taken.conditions[name])


def _measured(taken: Taken) -> str:
    total = sum(taken.measured.values())
    if len(taken.measured) == 1:
        return str(total)
    return f"{total}: {listed([f'{number} {use}' for use, number in taken.measured.items()])}"


def _others(taken: Taken) -> Iterator[tuple[str, str]]:
    if taken.providers:
        numbers = [f"{number} of {name}" for name, number in taken.providers.items()]
        yield "timed beside them", listed(numbers)


def untimed_words(untimed: Mapping[str, int]) -> Iterator[str]:
    """Say how many configurations have no time, by what came of them."""
    if untimed:
        what = listed([f"{number} ({name})" for name, number in untimed.items()])
        yield f"Configurations without a time: {what}."


def _again(taken: Taken) -> Iterator[str | Commands]:
    key = taken.gpu.key
    if taken.file is None:
        yield (
            f"The rows are in `reports/data/measured-{key}.csv` and `providers-{key}.csv`. The"
            " first command, on such a GPU, records them again; the second makes this page of them,"
            " anywhere:"
        )
        yield Commands(
            (
                "python reports/record_measurements.py",
                f"occupancy-lab report --gpu {key} --output reports/{key}.md",
            )
        )
        return
    yield f"The rows are those of {literal(taken.file)}; this page is made of them by:"
    file = shlex.quote(taken.file)
    yield Commands((f"occupancy-lab report --gpu {key} --file {file} --output {key}.md",))


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
