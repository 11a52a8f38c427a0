"""How often a formula is wrong on the kernels of one GPU, whoever's formula it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record


class _Said(Protocol):
    @property
    def programs_per_multiprocessor(self) -> int | None:
        """Programs that fit by the formula; None where it fails."""

    @property
    def missing_terms(self) -> tuple[str, ...]:
        """The fewest terms that, put back, make it right."""


Said = TypeVar("Said", bound=_Said)


@dataclass(frozen=True, slots=True)
class Case(Generic[Said]):
    """One kernel, and what a formula says of it."""

    record: Record
    said: Said

    @property
    def truth(self) -> int:
        """Programs that one multiprocessor holds."""
        return self.record.occupancy.programs_per_multiprocessor

    @property
    def ratio(self) -> float | None:
        """What the formula says over what fits; None where it fails."""
        said = self.said.programs_per_multiprocessor
        return None if said is None else said / self.truth

    @property
    def off(self) -> float:
        """By what factor the formula is wrong, either way; 1 where it is right or fails."""
        return 1.0 if self.ratio is None else max(self.ratio, 1 / max(self.ratio, 1e-9))


@dataclass(frozen=True, slots=True)
class Counts(Generic[Said]):
    """What a formula says of the kernels of one GPU."""

    gpu: Gpu
    cases: tuple[Case[Said], ...]

    @property
    def fails(self) -> int:
        """Kernels for which it divides by zero."""
        return sum(case.ratio is None for case in self.cases)

    @property
    def too_many(self) -> int:
        """Kernels of which it says that more programs fit than do."""
        return sum(case.ratio is not None and case.ratio > 1 for case in self.cases)

    @property
    def too_few(self) -> int:
        """Kernels of which it says that fewer programs fit than do."""
        return sum(case.ratio is not None and case.ratio < 1 for case in self.cases)

    @property
    def right(self) -> int:
        """The other kernels."""
        return len(self.cases) - self.fails - self.too_many - self.too_few

    @property
    def missing(self) -> Mapping[str, int]:
        """By term that it misses, the kernels it is wrong for, the commonest first."""
        terms = (term for case in self.cases for term in case.said.missing_terms)
        return dict(Counter(terms).most_common())
