"""How often the tutorial's formula is wrong on each GPU, with a case of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from occupancy_lab.explaining.formula import tutorial_sentences
from occupancy_lab.explaining.limits import resource_word
from occupancy_lab.occupancy import Rocm, known_to, tutorial_occupancy
from occupancy_lab.reporting.launches import config_words, problem_words
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vendors import Vendors

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.values import Limit, TutorialOccupancy


class _Said(Protocol):
    @property
    def programs_per_multiprocessor(self) -> int | None:
        """Programs that fit by the formula; None where it fails."""

    @property
    def missing_terms(self) -> tuple[str, ...]:
        """The fewest terms that, put back, make it right."""


Said = TypeVar("Said", bound=_Said)


@dataclass(frozen=True, slots=True)
class Verdict(Generic[Said]):
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
    cases: tuple[Verdict[Said], ...]

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


@dataclass(frozen=True, slots=True)
class Formula(Counts["TutorialOccupancy"]):
    """The tutorial's formula on one GPU, fed with what one ROCm reports there."""

    rocm: Rocm
    """CURRENT on NVIDIA too, where it changes nothing."""

    def worst(self, term: str | None = None) -> Verdict[TutorialOccupancy] | None:
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
        for rocm in known_to(gpu.architecture) or (Rocm.CURRENT,)
    )


def make_examples(
    formulas: Sequence[Formula],
) -> tuple[tuple[Formula, Verdict[TutorialOccupancy]], ...]:
    """Return the worst case of each formula, and then of each term that none of these misses."""
    found = [(one, case) for one in formulas if (case := one.worst()) is not None]
    for term in dict.fromkeys(term for one in formulas for term in one.missing):
        if not any(term in case.said.missing_terms for _, case in found):
            found += _worst_of(formulas, term)
    return tuple(found)


def _worst_of(
    formulas: Sequence[Formula], term: str
) -> list[tuple[Formula, Verdict[TutorialOccupancy]]]:
    cases = [(one, case) for one in formulas if (case := one.worst(term)) is not None]
    return sorted(cases, key=lambda pair: -pair[1].off)[:1]


def _cases(records: Iterable[Record], rocm: Rocm) -> Iterator[Verdict[TutorialOccupancy]]:
    for record in records:
        said = tutorial_occupancy(record.resources, record.gpu.architecture, rocm)
        yield Verdict(record, said)


INTRODUCTION = (
    "The programs that fit by the formula of Triton's tutorial and by the exact one, for every row."
    " On AMD GPUs the tutorial's starts from what ROCm reports, so it is worked out with the"
    " numbers of current ROCm and, for GPUs that it knew, with those of ROCm up to 6.3. It says"
    " that too many programs fit, or too few, or it fails: it divides by `metadata.shared`, which"
    " is 0 for one warp where no rows are in flight there."
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


def _case(formula: Formula, case: Verdict[TutorialOccupancy]) -> str:
    """Work out one kernel both ways, and say why they differ."""
    record = case.record
    taken = record.resources
    word = record.gpu.architecture.register_word
    kernel = f"{problem_words(record.problem)}, {config_words(record.kernel.name, record.config)}"
    exact = min(_set(record.occupancy.limits), key=_programs)
    tutorial = min(_set(case.said.limits), key=_programs)
    current, *old = tutorial_sentences(record.calculation)
    verdict = current if formula.rocm is Rocm.CURRENT else old[0]
    names = [resource_word(record.gpu.vendor, limit.resource) for limit in (tutorial, exact)]
    return (
        f"**{_name(formula)}**: {kernel}, {count(taken.n_regs, word)}, {taken.shared} B. Tutorial,"
        f" {names[0]}: {'; '.join(tutorial.steps)}. Exact, {names[1]}: {'; '.join(exact.steps)}."
        f" {verdict}"
    )


def _set(limits: Sequence[Limit]) -> list[Limit]:
    return [limit for limit in limits if limit.programs is not None]


def _programs(limit: Limit) -> int:
    return limit.programs or 0
