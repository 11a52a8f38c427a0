"""How often the tutorial's formula is wrong on each GPU, with an example of each error."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.explaining.limits import tutorial_sentences
from occupancy_lab.occupancy import Rocm, known_to, tutorial_occupancy
from occupancy_lab.reporting.page import Chapter
from occupancy_lab.reporting.source import config_words
from occupancy_lab.text.document import Section, Table
from occupancy_lab.text.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vendors import Vendors

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.values import TutorialOccupancy


@dataclass(frozen=True, slots=True)
class Verdict:
    """One kernel and the formula's result for it."""

    record: Record
    said: TutorialOccupancy

    @property
    def truth(self) -> int:
        """The number of programs that one multiprocessor holds."""
        return self.record.occupancy.programs_per_multiprocessor

    @property
    def ratio(self) -> float | None:
        """The formula's number of programs over the right number, or None if the formula fails."""
        said = self.said.programs_per_multiprocessor
        return None if said is None else said / self.truth

    @property
    def off(self) -> float:
        """The factor by which the formula is wrong, up or down; 1 if it is right or fails."""
        return 1.0 if self.ratio is None else max(self.ratio, 1 / max(self.ratio, 1e-9))

    @property
    def kernel(self) -> str:
        """The kernel and its resources in words."""
        record, mp = self.record, self.record.gpu.architecture
        sgprs = f", {record.resources.sgprs} SGPRs" if record.resources.sgprs is not None else ""
        return (
            f"{record.problem.words},"
            f" {config_words(record.matrix.kernel.name, record.config)},"
            f" {count(record.resources.n_regs, mp.register_word)}{sgprs},"
            f" {record.resources.shared} B"
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """The formula's results for the kernels of one GPU."""

    gpu: Gpu
    cases: tuple[Verdict, ...]

    @property
    def fails(self) -> int:
        """Kernels for which it divides by zero."""
        return sum(case.ratio is None for case in self.cases)

    @property
    def too_many(self) -> int:
        """Kernels for which the formula gives more programs than fit."""
        return sum(case.ratio is not None and case.ratio > 1 for case in self.cases)

    @property
    def too_few(self) -> int:
        """Kernels for which the formula gives fewer programs than fit."""
        return sum(case.ratio is not None and case.ratio < 1 for case in self.cases)

    @property
    def right(self) -> int:
        """The other kernels."""
        return len(self.cases) - self.fails - self.too_many - self.too_few

    @property
    def missing(self) -> Mapping[str, int]:
        """The number of wrong kernels for each missing term, the most frequent term first."""
        terms = (term for case in self.cases for term in case.said.missing_terms)
        return dict(Counter(terms).most_common())

    @property
    def worst(self) -> Verdict | None:
        """The first of the kernels with the largest error, or None if no kernel has one."""
        wrong = [case for case in self.cases if case.off > 1]
        return max(wrong, key=lambda case: case.off, default=None)

    def row(self, *name: str) -> tuple[str, ...]:
        """Return the numbers as a row of the table with HEADERS, after its *name*."""
        missing = [f"{term} ({number})" for term, number in self.missing.items()]
        numbers = (len(self.cases), self.right, self.too_many, self.too_few, self.fails)
        return (*name, *map(str, numbers), listed(missing or ["-"]))


HEADERS = ("kernels", "right", "too many", "too few", "fails", "what it misses")


@dataclass(frozen=True, slots=True)
class Formula(Counts):
    """The tutorial's formula on one GPU, with the numbers that one ROCm reports there."""

    rocm: Rocm
    """CURRENT on NVIDIA too, where it makes no difference."""

    @property
    def name(self) -> str:
        """The GPU and, on AMD, the ROCm whose numbers the formula takes."""
        if self.gpu.vendor != "AMD":
            return self.gpu.title
        rocm = "current ROCm" if self.rocm is Rocm.CURRENT else "ROCm up to 6.3"
        return f"{self.gpu.title}, {rocm}"


def make_formulas(vendors: Vendors) -> tuple[Formula, ...]:
    """Return the tutorial's formula on each GPU, with the numbers of each ROCm."""
    return tuple(
        Formula(
            gpu,
            tuple(
                Verdict(record, tutorial_occupancy(record.resources, gpu.architecture, rocm))
                for record in vendors.of(gpu)
            ),
            rocm,
        )
        for gpu in vendors.gpus
        for rocm in known_to(gpu.architecture) or (Rocm.CURRENT,)
    )


INTRODUCTION = (
    "The programs that fit by the formula of Triton's tutorial and by the exact one, for every row."
    " On AMD GPUs the tutorial's starts from what ROCm reports, so it is worked out with the"
    " numbers of current ROCm and, for GPUs that it knew, with those of ROCm up to 6.3. It says"
    " that too many programs fit, or too few, or it fails: it divides by `metadata.shared`, which"
    " is 0 for one warp where no rows are in flight there."
)


def the_formulas(formulas: Sequence[Formula]) -> Chapter:
    """Count the kernels that the formula gets wrong, and describe the worst of each GPU."""
    table = Table(("formula", *HEADERS), tuple(one.row(one.name) for one in formulas), prose=True)
    cases = tuple(_case(one, one.worst) for one in formulas if one.worst is not None)
    return Chapter("The tutorial's formula", (INTRODUCTION, table, Section("Worst", (), cases)))


def _case(formula: Formula, case: Verdict) -> str:
    current, *old = tutorial_sentences(case.record.calculation)
    verdict = current if formula.rocm is Rocm.CURRENT else old[0]
    return f"**{formula.name}**: {case.kernel}. {verdict}"
