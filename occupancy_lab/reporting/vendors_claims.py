"""How often ROCm's runtime and LLVM are wrong on each AMD GPU, with a case of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.gpus import HipArchitecture
from occupancy_lab.occupancy import CLAIMANTS, claim

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.occupancy import Claim, Claimant
    from occupancy_lab.record import Record
    from occupancy_lab.reporting.vendors import Vendors


@dataclass(frozen=True, slots=True)
class Claimed:
    """One kernel, and what a claimant says of it."""

    record: Record
    said: Claim

    @property
    def truth(self) -> int:
        """Programs that one multiprocessor holds."""
        return self.record.occupancy.programs_per_multiprocessor

    @property
    def ratio(self) -> float:
        """What is said over what fits."""
        return self.said.programs_per_multiprocessor / self.truth

    @property
    def off(self) -> float:
        """By what factor it is wrong, either way; 1 where it is right."""
        return max(self.ratio, 1 / max(self.ratio, 1e-9))


@dataclass(frozen=True, slots=True)
class Claims:
    """What one claimant says of the kernels of one GPU."""

    claimant: Claimant
    gpu: Gpu
    cases: tuple[Claimed, ...]

    @property
    def too_many(self) -> int:
        """Kernels of which it says that more programs fit than do."""
        return sum(case.ratio > 1 for case in self.cases)

    @property
    def too_few(self) -> int:
        """Kernels of which it says that fewer programs fit than do."""
        return sum(case.ratio < 1 for case in self.cases)

    @property
    def right(self) -> int:
        """The other kernels."""
        return len(self.cases) - self.too_many - self.too_few

    @property
    def missing(self) -> Mapping[str, int]:
        """By what it misses, the kernels it is wrong for, the commonest first."""
        return dict(
            Counter(term for case in self.cases for term in case.said.missing_terms).most_common()
        )


def make_claims(vendors: Vendors) -> tuple[Claims, ...]:
    """Give what each claimant says of the kernels of each AMD GPU."""
    return tuple(
        Claims(
            claimant,
            gpu,
            tuple(
                Claimed(record, claim(claimant, record.resources, gpu.architecture))
                for record in vendors.of(gpu)
            ),
        )
        for gpu in vendors.gpus
        if isinstance(gpu.architecture, HipArchitecture)
        for claimant in CLAIMANTS
    )


def worst_claims(claims: Sequence[Claims]) -> tuple[tuple[Claims, Claimed], ...]:
    """Give, for each claimant and what it misses, the first kernel that it is most wrong for."""
    found: dict[tuple[str, tuple[str, ...]], tuple[Claims, Claimed]] = {}
    for one in claims:
        for case in one.cases:
            key = one.claimant.name, case.said.missing_terms
            if case.off > 1 and (key not in found or case.off > found[key][1].off):
                found[key] = one, case
    return tuple(found.values())
