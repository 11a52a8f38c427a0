"""What is compared: entries, and the slices of them that differ in one respect alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.explaining.case import Case
from occupancy_lab.text.document import literal
from occupancy_lab.text.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DIMENSIONS = ("gpu", "kernel", "triton", "num_stages")
"""What entries can differ in, in the order in which it is spoken of."""
PLACE = "{place}"
PREPOSITIONS = {"gpu": "on", "kernel": "in", "triton": "with", "num_stages": "with"}


@dataclass(frozen=True, slots=True)
class Entry(Case):
    """One column of a comparison: a case, and what it is called in each dimension."""

    names: Mapping[str, str]
    """By dimension: "H100 SXM", "softmax", "Triton 3.7.1", "num_stages 4"."""
    name: str
    """What sets it apart from the other entries: the names that differ."""

    @property
    def title(self) -> str:
        """What the entry is called."""
        return self.name

    def called(self, dimension: str) -> str:
        """Return what the entry is called in one dimension, with its preposition: "on MI300X"."""
        return f"{PREPOSITIONS[dimension]} {self.names[dimension]}"


def make_entries(cases: Sequence[tuple[Case, str, int | None]]) -> tuple[Entry, ...]:
    """Return *cases* their names.

    With each comes the text by which its kernel was asked for, which names it where two kernels
    have one name, and the num_stages that was asked for, None for the kernel's own choice.
    """
    texts = {(text, case.record.kernel.name) for case, text, _ in cases}
    unique = len(texts) == len({name for _, name in texts})
    all_names = [
        {
            "gpu": case.record.gpu.title,
            "kernel": case.record.kernel.name if unique else literal(text),
            "triton": f"Triton {case.record.triton_version}",
            "num_stages": "" if stages is None else f"num_stages {stages}",
        }
        for case, text, stages in cases
    ]
    differing = [name for name in DIMENSIONS if len({names[name] for names in all_names}) > 1]
    return tuple(
        Entry(case.record, case.single_stage, names, ", ".join(names[name] for name in differing))
        for (case, _, _), names in zip(cases, all_names, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Slice:
    """Entries that differ in one dimension alone."""

    dimension: str
    title: str
    """What the entries have in common that others have not; "" where there are no others."""
    entries: tuple[Entry, ...]

    def said(self, phrase: Callable[[Entry], str | None]) -> str | None:
        """Return "P on A and B, and Q on C", or None where *phrase* says the same of all.

        Where a phrase holds PLACE, "on A and B" goes there, and else to its end; None is not said.
        """
        names: dict[str | None, list[str]] = {}
        for entry in self.entries:
            names.setdefault(phrase(entry), []).append(entry.names[self.dimension])
        if len(names) == 1:
            return None
        parts = []
        for text, places in names.items():
            if text is not None:
                place = f"{PREPOSITIONS[self.dimension]} {listed(places)}"
                parts.append(text.replace(PLACE, place) if PLACE in text else f"{text} {place}")
        return ", and ".join(parts)


def slices(entries: tuple[Entry, ...], dimension: str) -> tuple[Slice, ...]:
    """Return the slices along *dimension*; none where all entries are alike in it."""
    differing = differing_dimensions(entries)
    if dimension not in differing:
        return ()
    others = [name for name in differing if name != dimension]
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(", ".join(entry.names[name] for name in others), []).append(entry)
    return tuple(Slice(dimension, title, tuple(group)) for title, group in groups.items())


def differing_dimensions(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """Return the dimensions in which *entries* are not all alike."""
    return tuple(name for name in DIMENSIONS if len({entry.names[name] for entry in entries}) > 1)
