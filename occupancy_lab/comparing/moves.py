"""What moved from one compiled kernel to another on one GPU, and the occupancy step it crosses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.limits import (
    limiter_words,
    occupancy_words,
    programs_words,
    resource_word,
    unit_words,
)
from occupancy_lab.text.words import count, known, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from occupancy_lab.comparing.entry import Entry, Slice
    from occupancy_lab.values import NextStep


def moves(part: Slice) -> Iterator[str]:
    """Say what each entry of *part* takes more or less than the first, and what that does."""
    first, *others = part.entries
    for other in others:
        names = first.names[part.dimension], other.names[part.dimension]
        before, after = _amounts(first), _amounts(other)
        moved = [unit for unit in before if before[unit] != after[unit]]
        if moved:
            words = [f"{known(after[unit])} {unit} against {known(before[unit])}" for unit in moved]
            yield f"**{names[1]}** against {names[0]}: {listed(words)}. {_step(first, other)}"
        else:
            same = [f"{number} {unit}" for unit, number in before.items() if number]
            yield f"**{names[1]}** takes the same as {names[0]}: {listed(same)}."


def _amounts(entry: Entry) -> dict[str, int | None]:
    """Return what an entry takes, by what is counted; None where that is not known."""
    resources, case = entry.record.resources, entry.calculation
    return {
        unit_words(case, "registers"): resources.n_regs,
        unit_words(case, "sgprs"): resources.sgprs,
        unit_words(case, "shared"): resources.shared,
        "B of local memory a thread": resources.local_bytes,
        "VGPRs spilled": resources.vgpr_spills,
        "SGPRs spilled": resources.sgpr_spills,
    }


def _held(entry: Entry) -> str:
    return f"{programs_words(entry.calculation)}, {occupancy_words(entry.calculation)}"


def _step(first: Entry, other: Entry) -> str:
    """Say whether the programs a multiprocessor change, and where the step lies."""
    before, after = first.record.occupancy, other.record.occupancy
    if before.num_warps != after.num_warps:
        word = first.architecture.warp_word
        return (
            f"With {count(before.num_warps, word)} a program that is {_held(first)}, with"
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


def _launched(first: Entry, other: Entry) -> str:
    before, after = first.record.plan.num_programs, other.record.plan.num_programs
    return "" if before == after else f", and num_programs from {before} to {after}"


def _steps(entry: Entry) -> dict[str, NextStep]:
    return {step.resource: step for step in entry.calculation.next_steps}


def _cliffs(high: Entry, low: Entry) -> Iterator[str]:
    """Say how much of a resource still holds as many programs as *high* does."""
    programs = high.record.occupancy.programs_per_multiprocessor
    steps = _steps(high)
    for resource, step in _steps(low).items():
        cliff = steps[resource].least_for_one_fewer if resource in steps else None
        if resource in low.record.occupancy.limiters and cliff is not None:
            unit = unit_words(high.calculation, resource)
            yield (
                f"Up to {cliff - 1} {unit} hold {count(programs, 'program')}; {step.now} are"
                f" {step.now - cliff + 1} too many"
            )


def _nearest(first: Entry, other: Entry) -> Iterator[str]:
    """Say of each resource that moved what it allows by itself, or where its next step lies."""
    before = _steps(first)
    for resource, step in _steps(other).items():
        if resource not in before or before[resource].now == step.now:
            continue
        allowed = [entry.record.occupancy.limit(resource).programs for entry in (first, other)]
        if allowed[0] != allowed[1] and None not in allowed:
            word = resource_word(other.calculation, resource)
            yield f"{word} alone would allow {allowed[0]} and {allowed[1]}"
        elif step.least_for_one_fewer is not None:
            unit = unit_words(other.calculation, resource)
            yield f"the next step down is at {step.least_for_one_fewer} {unit}"
