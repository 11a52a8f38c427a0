"""How often ROCm's runtime and LLVM are wrong on each AMD GPU, with a case of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.gpus import HipArchitecture
from occupancy_lab.occupancy import CLAIMANTS, claim
from occupancy_lab.reporting.vendors_counts import Case, Counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.occupancy import Claim, Claimant
    from occupancy_lab.reporting.vendors import Vendors


@dataclass(frozen=True, slots=True)
class Claims(Counts["Claim"]):
    """What one claimant says of the kernels of one GPU."""

    claimant: Claimant


def make_claims(vendors: Vendors) -> tuple[Claims, ...]:
    """Return what each claimant says of the kernels of each AMD GPU."""
    return tuple(
        Claims(
            gpu,
            tuple(
                Case(record, claim(claimant, record.resources, gpu.architecture))
                for record in vendors.of(gpu)
            ),
            claimant,
        )
        for gpu in vendors.gpus
        if isinstance(gpu.architecture, HipArchitecture)
        for claimant in CLAIMANTS
    )


def worst_claims(claims: Sequence[Claims]) -> tuple[tuple[Claims, Case[Claim]], ...]:
    """Give, for each claimant and what it misses, the first kernel that it is most wrong for."""
    found: dict[tuple[str, tuple[str, ...]], tuple[Claims, Case[Claim]]] = {}
    for one in claims:
        for case in one.cases:
            key = one.claimant.name, case.said.missing_terms
            if case.off > 1 and (key not in found or case.off > found[key][1].off):
                found[key] = one, case
    return tuple(found.values())
