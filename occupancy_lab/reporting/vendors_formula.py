"""How often the tutorial's formula is wrong on each GPU, with a case of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.occupancy import Rocm, tutorial_occupancy
from occupancy_lab.reporting.vendors_counts import Case, Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.reporting.vendors import Vendors
    from occupancy_lab.values import TutorialOccupancy

SINCE_ROCM_7 = frozenset({"gfx950"})
"""Targets that no ROCm knew that reported the old numbers.

Source: the release notes of ROCm 7.0's libraries, such as hipFFT 1.0.20, add gfx950.
"""


@dataclass(frozen=True, slots=True)
class Formula(Counts["TutorialOccupancy"]):
    """The tutorial's formula on one GPU, fed with what one ROCm reports there."""

    rocm: Rocm
    """CURRENT on NVIDIA too, where it changes nothing."""

    def worst(self, term: str | None = None) -> Case[TutorialOccupancy] | None:
        """Return the first of the kernels that it is most wrong for; None: right, or it fails.

        With *term* they are those for which it misses that term.
        """
        cases = [case for case in self.cases if case.off > 1]
        missed = [case for case in cases if term is None or term in case.said.missing_terms]
        return max(missed, key=lambda case: case.off, default=None)


def make_formulas(vendors: Vendors) -> tuple[Formula, ...]:
    """Return the tutorial's formula on each GPU, with what each ROCm reports of it."""
    return tuple(
        Formula(gpu, tuple(_cases(vendors.of(gpu), rocm)), rocm)
        for gpu in vendors.gpus
        for rocm in _known_to(gpu)
    )


def make_examples(
    formulas: Sequence[Formula],
) -> tuple[tuple[Formula, Case[TutorialOccupancy]], ...]:
    """Return the worst case of each formula, and then of each term that none of these misses."""
    found = [(one, case) for one in formulas if (case := one.worst()) is not None]
    for term in dict.fromkeys(term for one in formulas for term in one.missing):
        if not any(term in case.said.missing_terms for _, case in found):
            found += _worst_of(formulas, term)
    return tuple(found)


def _worst_of(
    formulas: Sequence[Formula], term: str
) -> list[tuple[Formula, Case[TutorialOccupancy]]]:
    cases = [(one, case) for one in formulas if (case := one.worst(term)) is not None]
    return sorted(cases, key=lambda pair: -pair[1].off)[:1]


def _known_to(gpu: Gpu) -> tuple[Rocm, ...]:
    old = gpu.vendor == "AMD" and gpu.target.name not in SINCE_ROCM_7
    return (Rocm.CURRENT, Rocm.OLD) if old else (Rocm.CURRENT,)


def _cases(records: Iterable[Record], rocm: Rocm) -> Iterator[Case[TutorialOccupancy]]:
    for record in records:
        said = tutorial_occupancy(record.resources, record.gpu.architecture, rocm)
        yield Case(record, said)
