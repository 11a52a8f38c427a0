"""The whole comparison in words: a column an entry, and a sentence for each difference."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from occupancy_lab.comparing.entry import differing_dimensions, slices
from occupancy_lab.comparing.hardware import between_gpus
from occupancy_lab.comparing.moves import moves
from occupancy_lab.explaining.compiled import resource_rows, stage_sentences
from occupancy_lab.explaining.formula import tutorial_programs, tutorial_sentences
from occupancy_lab.explaining.launch import num_programs_words, plan_sentence, waves_words
from occupancy_lab.explaining.limits import (
    answer_in_short,
    limiter_words,
    occupancy_words,
    programs_words,
)
from occupancy_lab.text.document import Document, Section, Table
from occupancy_lab.text.words import compared, listed, said_apart, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.comparing.entry import Entry, Slice

KNOBS = (("BLOCK_SIZE", "block_size"), ("num_warps", "num_warps"), ("num_stages", "num_stages"))


def write_comparison(entries: tuple[Entry, ...]) -> Document:
    """Return what is said of *entries*, which are of one problem and differ in some dimension."""
    return Document(
        _title(entries),
        tuple(answer_in_short(entry) for entry in entries),
        (
            Section("Side by side", (_table(entries),)),
            Section("What differs and why", sentences=_differences(entries)),
        ),
    )


def _title(entries: tuple[Entry, ...]) -> str:
    first, differing = entries[0], differing_dimensions(entries)
    problem = first.record.problem
    same = [f"{problem.rows} x {problem.cols} {problem.dtype}"]
    if "kernel" not in differing:
        same.insert(0, first.names["kernel"])
    if "gpu" not in differing:
        same.append(first.called("gpu"))
    names = [dict.fromkeys(entry.names[name] for entry in entries) for name in differing]
    return f"{', '.join(same)}: {'; '.join(listed(list(several)) for several in names)}"


def _knobs(entry: Entry) -> str:
    return " / ".join(_knob(entry, field) for _, field in KNOBS)


def _table(entries: tuple[Entry, ...]) -> Table:
    rows = compared(
        entries,
        (
            ("target", lambda entry: entry.record.gpu.target.name),
            ("kernel", lambda entry: entry.names["kernel"]),
            (" / ".join(name for name, _ in KNOBS), _knobs),
            *resource_rows(entries),
            ("programs a multiprocessor", lambda entry: programs_words(entry.calculation)),
            ("limiter", lambda entry: limiter_words(entry.calculation)),
            ("occupancy", lambda entry: occupancy_words(entry.calculation)),
            ("num_programs", num_programs_words),
            ("waves of programs", waves_words),
            ("tutorial, programs", lambda entry: tutorial_programs(entry.calculation)),
        ),
    )
    return Table(("", *(entry.title for entry in entries)), rows)


def _differences(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """Return a sentence for each difference."""
    differing = differing_dimensions(entries)
    along = [said_of_each(slices(entries, name), _along) for name in differing]
    stages = said_apart(entries, stage_sentences) if differing != ("triton",) else ()
    plans = said_apart(entries, _plan) if "kernel" in differing else ()
    tutorial: tuple[str, ...] = ()
    if "gpu" in differing or any(_tutorial_errs(entry) for entry in entries):
        tutorial = said_apart(entries, _tutorial)
    return (*itertools.chain(*along), *stages, *plans, *tutorial)


def _tutorial(entry: Entry) -> Iterator[str]:
    return tutorial_sentences(entry.calculation)


def _tutorial_errs(entry: Entry) -> bool:
    said, truth = entry.record.tutorial, entry.record.occupancy
    return said.programs_per_multiprocessor != truth.programs_per_multiprocessor


def _plan(entry: Entry) -> tuple[str]:
    return (plan_sentence(entry),)


def _along(part: Slice) -> Iterator[str]:
    if part.dimension == "gpu":
        yield from between_gpus(part)
    else:
        yield from moves(part)
    if part.dimension in {"gpu", "kernel"}:
        yield from _choices(part)


def _knob(entry: Entry, field: str) -> str:
    return str(getattr(entry.record.config, field))


def _choices(part: Slice) -> Iterator[str]:
    """Say where the kernel's own choice of a configuration differs."""
    for name, field in KNOBS:
        values = part.said(partial(_knob, field=field))
        if values is not None:
            yield f"{name} is {values}, each the kernel's own choice."
