"""Where the tutorial's formula is wrong on GPUs of either vendor, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.formula import tutorial_sentences
from occupancy_lab.occupancy import Rocm
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.vendors_formula import make_examples
from occupancy_lab.reporting.words import config_words, problem_words
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import count, listed, resource_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.reporting.vendors_counts import Case
    from occupancy_lab.reporting.vendors_formula import Formula
    from occupancy_lab.values import Limit, TutorialOccupancy

INTRODUCTION = (
    "The programs that fit by the formula of Triton's tutorial and by the exact one, for every row."
    " On AMD GPUs the tutorial's starts from what ROCm reports, so it is worked out with the"
    " numbers of current ROCm and with those of ROCm up to 6.3, which knew no gfx950. It says that"
    " too many programs fit, or too few, or it fails: it divides by `metadata.shared`, which is 0"
    " for one warp where no rows are in flight there."
)


def the_formulas(formulas: Sequence[Formula]) -> Chapter:
    """Count the kernels that the formula is wrong for, and work some of them out."""
    headers = ("formula", "kernels", "right", "too many", "too few", "fails")
    table = Table((*headers, "what it misses"), tuple(_row(one) for one in formulas), prose=True)
    cases = tuple(_case(one, case) for one, case in make_examples(formulas))
    examples = Section("Worked cases", sentences=cases)
    return Chapter("The tutorial's formula", (INTRODUCTION, table, examples))


def _name(formula: Formula) -> str:
    if formula.gpu.vendor != "AMD":
        return formula.gpu.title
    rocm = "current ROCm" if formula.rocm is Rocm.CURRENT else "ROCm up to 6.3"
    return f"{formula.gpu.title}, {rocm}"


def _row(formula: Formula) -> tuple[str, ...]:
    missing = [f"{term} ({number})" for term, number in formula.missing.items()]
    numbers = (formula.right, formula.too_many, formula.too_few, formula.fails)
    return (_name(formula), str(len(formula.cases)), *map(str, numbers), listed(missing or ["-"]))


def _case(formula: Formula, case: Case[TutorialOccupancy]) -> str:
    """Work out one kernel both ways, and say why they differ."""
    record = case.record
    taken = record.resources
    word = record.gpu.architecture.register_word
    kernel = f"{problem_words(record.problem)}, {config_words(record.kernel.name, record.config)}"
    exact = min(_set(record.occupancy.limits), key=_programs)
    tutorial = min(_set(case.said.limits), key=_programs)
    current, *old = tutorial_sentences(record.calculation)
    verdict = current if formula.rocm is Rocm.CURRENT else old[0]
    names = [resource_word(record.calculation, limit.resource) for limit in (tutorial, exact)]
    return (
        f"**{_name(formula)}**: {kernel}, {count(taken.n_regs, word)}, {taken.shared} B. Tutorial,"
        f" {names[0]}: {'; '.join(tutorial.steps)}. Exact, {names[1]}: {'; '.join(exact.steps)}."
        f" {verdict}"
    )


def _set(limits: Sequence[Limit]) -> list[Limit]:
    return [limit for limit in limits if limit.programs is not None]


def _programs(limit: Limit) -> int:
    return limit.programs or 0
