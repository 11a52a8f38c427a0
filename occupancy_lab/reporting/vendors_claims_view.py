"""What ROCm's runtime and LLVM say of the kernels, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.formula import term_reasons
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.vendors_claims import worst_claims
from occupancy_lab.reporting.words import config_words, problem_words
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import article, count, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.occupancy import Claim
    from occupancy_lab.reporting.vendors_claims import Claims
    from occupancy_lab.reporting.vendors_counts import Case

INTRODUCTION = (
    "The same kernels by what else speaks of occupancy on AMD GPUs:"
    " `hipOccupancyMaxActiveBlocksPerMultiprocessor`, which ROCm's runtime works out from tables of"
    " its own that changed with the years, and the `; Occupancy:` that LLVM writes into the"
    " assembly, its waves a SIMD turned into whole programs. Both were worked out from their"
    " sources; no AMD GPU was asked."
)


def the_claims(claims: Sequence[Claims]) -> Chapter:
    """Count the kernels that runtime and compiler are wrong for, and tell one of each kind."""
    headers = ("", "GPU", "kernels", "right", "too many", "too few", "what it misses")
    table = Table(headers, tuple(_row(one) for one in claims), prose=True)
    cases = tuple(_case(one, case) for one, case in worst_claims(claims))
    examples = (Section("Worked cases of these", sentences=cases),) if cases else ()
    return Chapter("ROCm's runtime and LLVM", (INTRODUCTION, table, *examples))


def _row(claims: Claims) -> tuple[str, ...]:
    missing = [f"{term} ({number})" for term, number in claims.missing.items()]
    numbers = (len(claims.cases), claims.right, claims.too_many, claims.too_few)
    return (
        claims.claimant.name,
        claims.gpu.title,
        *map(str, numbers),
        listed(missing or ["-"]),
    )


def _case(claims: Claims, case: Case[Claim]) -> str:
    record, mp = case.record, case.record.gpu.architecture
    taken = record.resources
    word = mp.multiprocessor_word
    return (
        f"**{claims.claimant.name}, {claims.gpu.title}**: {problem_words(record.problem)},"
        f" {config_words(record.kernel.name, record.config)},"
        f" {count(taken.n_regs, mp.register_word)}, {taken.sgprs or 0} SGPRs, {taken.shared} B. It"
        f" says {count(case.said.programs_per_multiprocessor, 'program')} {article(word)} {word}"
        f" where {case.truth} fit: {term_reasons(case.said.missing_terms, mp)}."
    )
