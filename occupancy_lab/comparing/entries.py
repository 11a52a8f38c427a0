"""The compared entries, and how the amounts that their kernels take differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.facts import launched_words, setting_words
from occupancy_lab.explaining.limits import occupancy_words, programs_words
from occupancy_lab.explaining.neighbours import no_effect
from occupancy_lab.explaining.variants import varying
from occupancy_lab.occupancy.calculator import limiter_words, unit_words
from occupancy_lab.options import CAPS
from occupancy_lab.text.document import LONGEST_HEADER, literal
from occupancy_lab.text.words import count, known, listed, resource_word
from occupancy_lab.values import NextStep

DIMENSIONS = ("gpu", "kernel", "matrix", "triton", "settings")
"""What entries can differ in, in the order of a page."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Entry(Case):
    """One column of a comparison: a case, and its name in each dimension."""

    names: Mapping[str, str]
    """By dimension: "H100 SXM", "softmax", "4096 x 781 float32", "Triton 3.7.1", "num_stages 4"."""
    name: str
    """The names that differ from those of other entries."""
    number: int | None = None
    """The number of its column; None if its name is short enough for a header."""

    @property
    def title(self) -> str:
        """The header of the entry's column: its name or its number."""
        return self.name if self.number is None else str(self.number)


def make_entries(cases: Sequence[Case]) -> tuple[Entry, ...]:
    """Return *cases* with their names.

    If two kernels have the same name, they are named as the user asked for them.
    """
    kernels = {(case.kernel_name, case.record.kernel) for case in cases}
    unique = len(kernels) == len({name for _, name in kernels})
    knobs = varying([_asked(case) for case in cases])
    grids = len({launched_words(case.record) for case in cases if case.record.matrix is None})
    all_names = [
        {
            "gpu": case.record.gpu.title,
            "kernel": literal(case.record.kernel if unique else str(case.kernel_name)),
            "matrix": "" if grids > 1 and knobs else launched_words(case.record).partition(", ")[2],
            "triton": f"Triton {case.record.triton_version}",
            "settings": setting_words(_asked(case), knobs),
        }
        for case in cases
    ]
    differing = [name for name in DIMENSIONS if len({names[name] for names in all_names}) > 1]
    named = [", ".join(names[name] for name in differing) for names in all_names]
    are_long = "settings" in differing and max(map(len, named)) > LONGEST_HEADER
    return tuple(
        Entry(
            record=case.record,
            recorded=case.recorded,
            asked_kernel=case.asked_kernel,
            names=names,
            name=name,
            number=number if are_long else None,
        )
        for number, (case, names, name) in enumerate(zip(cases, all_names, named, strict=True), 1)
    )


def _asked(case: Case) -> dict[str, Any]:
    """Return the settings that were asked for; those of a matrix may be the kernel's choice."""
    matrix, settings = case.record.matrix, case.record.settings
    return {
        name: value
        for name, value in settings.items()
        if matrix is None or name in matrix.options or name.lower() in matrix.asked
    }


@dataclass(frozen=True, slots=True)
class Slice:
    """Entries that differ only in one dimension."""

    dimension: str
    title: str
    """The names that the entries share and other entries do not; "" if there are no others."""
    entries: tuple[Entry, ...]


def slices(entries: tuple[Entry, ...], dimension: str) -> tuple[Slice, ...]:
    """Return the slices along *dimension*."""
    others = [name for name in differing_dimensions(entries) if name != dimension]
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(", ".join(entry.names[name] for name in others), []).append(entry)
    return tuple(Slice(dimension, title, tuple(group)) for title, group in groups.items())


def differing_dimensions(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """Return the dimensions in which *entries* are not all the same."""
    return tuple(name for name in DIMENSIONS if len({entry.names[name] for entry in entries}) > 1)


def moves(part: Slice) -> Iterator[str]:
    """Say which amounts of each entry differ from the first entry's, and with what effect."""
    first, *others = part.entries
    idle = without_effect(part.entries)
    yield from idle.values()
    for place, other in enumerate(others, 1):
        if any(_only_change(one, other) in idle for one in part.entries[:place]):
            continue
        if part.dimension == "settings" and _is_timed_step(first, other):
            continue
        names = first.names[part.dimension], other.names[part.dimension]
        before, after = _amounts(first), _amounts(other)
        moved = [unit for unit in before if before[unit] != after[unit]]
        if moved:
            words = [f"{known(after[unit])} {unit} against {known(before[unit])}" for unit in moved]
            yield f"**{names[1]}** against {names[0]}: {listed(words)}. {_step(first, other)}"
        else:
            same = [f"{number} {unit}" for unit, number in before.items() if number]
            yield f"**{names[1]}** takes the same as {names[0]}: {listed(same)}."


def without_effect(entries: Sequence[Entry]) -> dict[str, str]:
    """Return a sentence for each option whose values all give the same binary."""
    reasons: dict[str, list[str]] = {}
    for one, other in itertools.combinations(entries, 2):
        name = _only_change(one, other)
        if name in {"num_stages", *CAPS}:
            reasons.setdefault(name, []).append(no_effect(one.record, other.record, name))
    return {name: found[0] for name, found in reasons.items() if all(found)}


def _only_change(one: Entry, other: Entry) -> str | None:
    """Return the only setting that differs between two entries; None if more differs."""
    if any(one.names[name] != other.names[name] for name in DIMENSIONS if name != "settings"):
        return None
    knobs = varying([one.record.settings, other.record.settings])
    return knobs[0] if len(knobs) == 1 else None


def _is_timed_step(one: Entry, other: Entry) -> bool:
    """Tell whether two entries have times, the same occupancy and the same local memory."""
    held = [(x.record.occupancy.occupancy, x.record.resources.local_bytes) for x in (one, other)]
    return held[0] == held[1] and None not in {one.record.prediction, other.record.prediction}


def _amounts(entry: Entry) -> dict[str, int | None]:
    resources, case = entry.record.resources, entry.calculation
    return {
        unit_words(case, "registers"): resources.n_regs,
        unit_words(case, "sgprs"): resources.sgprs,
        unit_words(case, "shared"): resources.shared,
        "B of local memory per thread": resources.local_bytes,
        "VGPRs spilled": resources.vgpr_spills,
        "SGPRs spilled": resources.sgpr_spills,
    }


def _held(entry: Entry) -> str:
    return f"{programs_words(entry.calculation)}, {occupancy_words(entry.calculation)}"


def _step(first: Entry, other: Entry) -> str:
    before, after = first.record.occupancy, other.record.occupancy
    if few := _few_programs(first, other):
        return few
    if before.num_warps != after.num_warps:
        word = first.architecture.warp_word
        return (
            f"With {count(before.num_warps, word)} per program that is {_held(first)}, with"
            f" {count(after.num_warps, word)} {_held(other)}."
        )
    if before.programs_per_multiprocessor == after.programs_per_multiprocessor:
        limiters = [limiter_words(entry.calculation) for entry in (first, other)]
        limiter = " before and ".join(dict.fromkeys(limiters))
        limiter += " after" if limiters[0] != limiters[1] else ""
        near = "".join(f"; {words}" for words in _nearest(first, other))
        return f"No occupancy step is crossed: {_held(first)}, limited by {limiter}{near}."
    fewer = after.programs_per_multiprocessor < before.programs_per_multiprocessor
    high, low = (first, other) if fewer else (other, first)
    cliffs = "".join(f" {words}." for words in _cliffs(high, low))
    return (
        f"That crosses an occupancy step {'down' if fewer else 'up'}, from {_held(first)}, to"
        f" {_held(other)}{_launched(first, other)}.{cliffs}"
    )


def _few_programs(first: Entry, other: Entry) -> str:
    before, after = first.record.plan, other.record.plan
    if before is None or after is None:
        return ""
    if any(plan.waves is None or plan.waves >= 1 for plan in (before, after)):
        return ""
    own, others = (f"{one.num_programs} of the {one.resident_programs}" for one in (after, before))
    against = "" if own == others else f", against {others}"
    return f"Occupancy limits neither: {own} programs that could run at once are launched{against}."


def _launched(first: Entry, other: Entry) -> str:
    if first.record.plan is None or other.record.plan is None:
        return ""
    before, after = first.plan.num_programs, other.plan.num_programs
    return "" if before == after else f", and programs from {before} to {after}"


def _steps(entry: Entry) -> dict[str, NextStep]:
    return {step.resource: step for step in entry.calculation.next_steps}


def _cliffs(high: Entry, low: Entry) -> Iterator[str]:
    """Say with how much of each limiting resource as many programs would fit as in *high*."""
    programs = high.record.occupancy.programs_per_multiprocessor
    steps = _steps(high)
    for resource, step in _steps(low).items():
        cliff = steps[resource].least_for_one_fewer if resource in steps else None
        if resource in low.record.occupancy.limiters and cliff is not None:
            unit = unit_words(high.calculation, resource)
            yield (
                f"{count(programs, 'program')} {'fits' if programs == 1 else 'fit'} with up to"
                f" {cliff - 1} {unit}; {step.now} is {step.now - cliff + 1} too many"
            )


def _nearest(first: Entry, other: Entry) -> Iterator[str]:
    """Say for each changed resource how many programs it allows, or where its next step is."""
    before = _steps(first)
    for resource, step in _steps(other).items():
        if resource not in before or before[resource].now == step.now:
            continue
        allowed = [entry.record.occupancy.limit(resource).programs for entry in (first, other)]
        if allowed[0] != allowed[1] and None not in allowed:
            word = resource_word(other.calculation.gpu.vendor, resource)
            yield f"{word} alone would allow {allowed[0]} and {allowed[1]}"
        elif step.least_for_one_fewer is not None:
            unit = unit_words(other.calculation, resource)
            yield f"the next step down is at {step.least_for_one_fewer} {unit}"
