"""An Explanation: launches compiled for each GPU, and what their pages say."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.asked import Asked, check_assumed
from occupancy_lab.assumed import Assumption
from occupancy_lab.compiled_records import compile_record, compile_runs, with_counts
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import CompileError, DoesNotFitError
from occupancy_lab.explaining.advice import cap_outcomes, what_to_try
from occupancy_lab.explaining.case import Case, Recorded, with_recorded
from occupancy_lab.explaining.duration import the_duration
from occupancy_lab.explaining.facts import setting_words
from occupancy_lab.explaining.grids import (
    GRID,
    doing_less,
    grid_changes,
    has_idle_programs,
    same_input,
    same_work,
    split_changes,
)
from occupancy_lab.explaining.limits import answer_in_short, the_limits, the_next_step
from occupancy_lab.explaining.matrix_section import row_launch, the_matrix
from occupancy_lab.explaining.neighbours import (
    Neighbour,
    aligned,
    block_changes,
    changed,
    changes,
    fastest_grids,
    fewest_aligned,
    first_of,
    have_times,
    onward,
    pairs,
    with_chosen,
)
from occupancy_lab.explaining.short import launch_page, the_launch_in_short, write_short
from occupancy_lab.explaining.variants import less_work_sentences, varying, write_variants
from occupancy_lab.explaining.work import the_work
from occupancy_lab.record import Failed, Record, by_gpu
from occupancy_lab.table.columns import RESULTS, SWEEP_COLUMNS
from occupancy_lab.text.document import Answer, Document

if TYPE_CHECKING:
    import pandas as pd

    from occupancy_lab.explaining.source import SourceView
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.text.document import Section

PADDED, ROWS = "padded", "rows"
"""What stands for launches with arguments rounded up, and with one program per row, among what
proposes changes."""
SEARCH_SECONDS = 60.0
"""How long nearby launches are counted: a count of long machine code takes seconds."""
MOST_FURTHER = 3
"""How many times the search continues from the best change found so far."""


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """What launches compile to on each GPU, their occupancy there and their predicted times."""

    runs: tuple[Record | Failed, ...]
    """Each launch on each GPU, in the order in which they were asked for."""
    asked: tuple[Asked, ...] = field(repr=False, compare=False)
    compiler: Compiler = field(repr=False, compare=False)
    """Compiles the launches that these are compared with."""
    triton: str | None = None
    """The other Triton that the user asked for, as typed; None is the Triton here."""
    page: Document | None = None
    """The whole page of a kernel that nothing is compiled of."""
    assume: Mapping[str, Assumption] = field(default_factory=dict, repr=False)
    """The assumed values, as `count_launch` takes them."""

    @functools.cached_property
    def ranked(self) -> tuple[Record | Failed, ...]:
        """`runs`; on each GPU the fastest has the wider range of a launch chosen among several."""
        return with_chosen(self.runs)

    @property
    def records(self) -> tuple[Record, ...]:
        """The launches that compile and fit."""
        return tuple(run for run in self.ranked if isinstance(run, Record))

    @property
    def failures(self) -> tuple[Failed, ...]:
        """The launches that do not compile or fit, with the reasons."""
        return tuple(run for run in self.runs if isinstance(run, Failed))

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        """What was recorded elsewhere of the launch of each of `cases`."""
        return tuple(case.recorded for case in self.cases)

    @property
    def is_one_launch(self) -> bool:
        """Whether there is one launch per GPU."""
        return len({run.gpu.key for run in self.runs}) == len(self.runs)

    @functools.cached_property
    def cases(self) -> tuple[Case, ...]:
        """Each of `records` with what it is compared with; empty if a GPU has several launches."""
        return self._cases_of(self.records) if self.is_one_launch else ()

    def _cases_of(self, records: Sequence[Record]) -> tuple[Case, ...]:
        made = {id(run): one for one, run in zip(self.asked, self.ranked, strict=True)}
        asked = [made[id(record)] for record in records]
        return make_cases(asked, records, self.compiler, self.triton, self.assume)

    def case_of(self, record: Record) -> Case:
        """Return the case of one of `records`; a script's cases were made while the script ran."""
        if "cases" in vars(self) and self.cases:
            return next(case for case in self.cases if case.record is record)
        return self._cases_of([record])[0]

    @functools.cached_property
    def chosen(self) -> tuple[Case, ...]:
        """The fastest of several launches on each GPU, with neighbours that are not among `runs`.

        A GPU without predicted times has none.
        """
        found = [first_of(records) for records in by_gpu(self.records) if have_times(records)]
        settings = [run.settings for run in self.runs]

        def is_other(one: Neighbour) -> bool:
            return one.record is None or one.record.settings not in settings

        return tuple(
            dataclasses.replace(case, neighbours=tuple(filter(is_other, case.neighbours)))
            for case in self._cases_of(found)
        )

    @property
    def compared(self) -> tuple[Case, ...]:
        """Those of `cases` or `chosen` that were compared with other launches already."""
        return next((vars(self)[name] for name in ("cases", "chosen") if vars(self).get(name)), ())

    def with_compared(self, compared: Sequence[Case]) -> Explanation:
        """Return a copy that has *compared*, of the same records, in place of its own."""
        made = dataclasses.replace(self)
        vars(made)["ranked"] = self.ranked
        if compared:
            vars(made)["cases" if made.is_one_launch else "chosen"] = tuple(compared)
        return made

    def to_document(self, *, full: bool = False) -> Document:
        """Return the short explanation, or the *full* one with the arithmetic."""
        if self.page is not None:
            return self.page
        if self.is_one_launch:
            return (write_full if full else write_short)(self.cases, self.failures)
        if not full or not self.records:
            return write_variants(self.ranked, self.chosen)
        firsts = map(first_of, by_gpu(self.records))
        details = the_arithmetic(self.chosen, [record.calculation for record in firsts])
        if self.chosen:
            launch = dataclasses.replace(the_launch_in_short(self.chosen), title="The fastest")
            details = (launch, *details)
        return write_variants(self.ranked, self.chosen, details)

    @property
    def source(self) -> SourceView:
        """The kernel's source with what each line does."""
        from occupancy_lab.explaining.source import SourceView

        function = self.asked[0].function if self.asked else None
        first = tuple(map(first_of, by_gpu(self.records)))
        chosen = []
        for record in () if self.is_one_launch else first:
            of_gpu = [run.settings for run in self.runs if run.gpu == record.gpu]
            words = setting_words(record.settings, varying(of_gpu))
            fastest = "" if record.prediction is None else ", which is predicted to be the fastest"
            chosen.append(
                f"**{record.title}**: of {len(of_gpu)} configurations, {words} is shown{fastest}."
            )
        return SourceView(first, self.runs[0].kernel, function, chosen=tuple(chosen))

    def to_markdown(self, *, full: bool = False) -> str:
        """Return the short explanation, or the *full* one, in GitHub's markdown."""
        return self.to_document(full=full).to_markdown()

    @property
    def less_work(self) -> list[str]:
        """A sentence for each GPU on launches that do less work than others; empty if none does."""
        return less_work_sentences(self.runs)

    def table(self) -> pd.DataFrame:
        """Return a row for each launch on each GPU, with its constexprs and options."""
        import pandas as pd

        table = pd.DataFrame([run.row() for run in self.runs])
        less = {id(runs[place]) for runs in by_gpu(self.runs) for place in doing_less(runs)}
        table["whole_work"] = [id(run) not in less for run in self.runs]
        measured = {
            place: (run.num_programs or 0, run.measurement)
            for place, run in enumerate(self.runs)
            if isinstance(run, Record) and run.measurement is not None
        }
        if measured:
            from occupancy_lab.sweeping.grid import add_columns

            table = add_columns(table.drop(columns=["us", "us_low", "us_high"]), measured)
        if not self.records:
            columns = (name for name in SWEEP_COLUMNS if name in RESULTS)
            table = table.reindex(columns=[*dict.fromkeys([*table, *columns])])
        return table.convert_dtypes()

    @property
    def tried(self) -> list[dict[str, Any]]:
        """The changes that were tried, on each GPU, as plain values."""
        return [
            {"gpu": case.record.gpu.key, "is_best": one is best, **one.to_dict()}
            for case in self.cases or self.chosen
            for best in [case.best]
            for one in case.neighbours
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the records, the changes that were tried and both documents as plain values."""
        return {
            "records": [run.to_dict() for run in self.ranked],
            "recorded": [one.to_dict() for one in self.recorded],
            "changes": self.tried,
            "short": None if self.page else self.to_document().to_dict(),
            "document": self.to_document(full=True).to_dict(),
        }

    def __repr__(self) -> str:
        if self.page is not None:
            return super().__repr__()
        gpus = ", ".join(dict.fromkeys(run.gpu.key for run in self.runs))
        fit = f"{len(self.records)} of {len(self.runs)} compile and fit"
        return f"<{type(self).__name__} of {self.runs[0].kernel} on {gpus}: {fit}>"


def explain_asked(
    asked: Sequence[Asked],
    compiler: Compiler,
    assume: Mapping[str, Assumption] = MappingProxyType({}),
    *,
    all_may_fail: bool = False,
    **others: Any,
) -> Explanation:
    """Compile *asked* and return their Explanation; *others* are further fields of it.

    *assume* has the assumed values, as `count_launch` takes them.

    Raises InputError if *assume* has a number that the launches pass. If all launches fail, raises
    the error of the first unless *all_may_fail*; its message also has the reason on each other GPU.
    """
    check_assumed(asked, assume)
    runs = compile_runs(asked, compiler)
    if not all_may_fail and not any(isinstance(run, Record) for run in runs):
        asked[0].check()
        try:
            with closing(compiler):
                compile_record(asked[0], compiler)
        except (CompileError, DoesNotFitError) as error:
            firsts = [run for run, *_ in by_gpu(runs) if isinstance(run, Failed)]
            reasons = {_without_target(run): run.failure.reason for run in reversed(firsts)}
            reasons[_without_target(firsts[0])] = str(error)
            error.args = ("; ".join(reversed(reasons.values())),)
            raise
    runs = with_counts(runs, asked, compiler, assume, besides=True)
    return Explanation(tuple(runs), tuple(asked), compiler, assume=assume, **others)


def _without_target(run: Failed) -> str:
    """Return why *run* failed, in words that are the same on each GPU."""
    return run.failure.reason.partition("; remembered in ")[0].replace(run.gpu.target.name, "")


def make_cases(
    asked: Sequence[Asked],
    records: Sequence[Record],
    compiler: Compiler,
    triton: str | None,
    assume: Mapping[str, Assumption],
) -> tuple[Case, ...]:
    """Return the case of each of *records*: its neighbours and, for a matrix, recorded launches.

    All launches to compare with are compiled together. If padded arguments help, a second round of
    compiles finds out which of them are needed. What further launches do is not counted after
    SEARCH_SECONDS, and no further round of changes begins.
    """
    made = [
        Case(
            record,
            asked_kernel=one.name,
            triton=triton,
            typed=one.typed,
            is_tuned=one.is_tuned,
        )
        for one, record in zip(asked, records, strict=True)
    ]
    wanted: list[tuple[int, Any, Any, Asked]] = []
    for place, (one, case) in enumerate(zip(asked, made, strict=True)):
        launches = [one]
        for kind in (changes, *SAME_WORK):
            for change in kind(case.record):
                other = changed(one, change)
                if other is not None and other not in launches:
                    launches.append(other)
                    wanted.append((place, kind, change, other))
        besides = {PADDED: aligned(one, case.record), ROWS: row_launch(case)}
        wanted += [(place, name, {}, other) for name, other in besides.items() if other]

    until = time.monotonic() + SEARCH_SECONDS

    def compiled(asked: Sequence[Asked]) -> list[Record | Failed]:
        return with_counts(compile_runs(asked, compiler), asked, compiler, assume, until=until)

    runs = compiled([other for *_, other in wanted])
    tried: list[dict[Any, list[Neighbour]]] = [defaultdict(list) for _ in made]
    for (place, kind, change, _), run in zip(wanted, runs, strict=True):
        record, found = made[place].record, run
        if kind == PADDED and isinstance(run, Record):
            found = fewest_aligned(asked[place], record, run, compiled)
        tried[place][kind].append(Neighbour.of(record, change, found))
    cases = [_with_comparisons(case, one) for case, one in zip(made, tried, strict=True)]
    return tuple(_with_further_changes(asked, cases, compiled, until))


def _with_further_changes(
    asked: Sequence[Asked],
    cases: Sequence[Case],
    compiled: Callable[[Sequence[Asked]], Sequence[Record | Failed]],
    until: float,
) -> Sequence[Case]:
    for proposed in (pairs, *[onward] * MOST_FURTHER):
        if time.monotonic() > until:
            break
        further = [
            (place, change, other)
            for place, (one, case) in enumerate(zip(asked, cases, strict=True))
            for change in proposed(case.record, case.neighbours)
            if (other := changed(one, change)) is not None
        ]
        if not further:
            continue
        shapes: list[list[Neighbour]] = [[] for _ in cases]
        runs = compiled([other for *_, other in further])
        for (place, change, _), run in zip(further, runs, strict=True):
            record = cases[place].record
            if isinstance(run, Record) and same_work(record, run):
                shapes[place].append(Neighbour.of(record, change, run))
        cases = [
            dataclasses.replace(case, neighbours=(*case.neighbours, *fastest_grids(some)))
            for case, some in zip(cases, shapes, strict=True)
        ]
    return cases


def _with_comparisons(case: Case, tried: Mapping[Any, Sequence[Neighbour]]) -> Case:
    """Return *case* with what was *tried*, by what proposed it."""
    record = case.record
    shapes, splits, grids = (
        [one for one in tried[kind] if one.record is not None and is_the_same(record, one.record)]
        for kind, is_the_same in SAME_WORK.items()
    )
    neighbours = (
        *tried[changes],
        *fastest_grids(shapes),
        *fastest_grids(splits),
        *(one for one in grids if not _is_idle(record, one)),
    )
    padded, rows = (next((one.record for one in tried[name]), None) for name in (PADDED, ROWS))
    return with_recorded(
        dataclasses.replace(case, neighbours=neighbours, padded=padded, row_kernel=rows)
    )


def _is_split(record: Record, other: Record) -> bool:
    return record.num_programs != other.num_programs and same_work(record, other)


SAME_WORK = {block_changes: same_work, split_changes: _is_split, grid_changes: same_input}
"""What proposes blocks, splits and grids, and what tells whether they do the same work."""


def _is_idle(record: Record, larger: Neighbour) -> bool:
    """Tell whether changing only the grid to a larger one leaves programs without work."""
    other = larger.record
    return (
        other is not None
        and larger.changes.keys() == {GRID}
        and same_work(record, other)
        and has_idle_programs(other, record)
    )


def write_full(cases: Sequence[Case], failures: Sequence[Failed] = ()) -> Document:
    """Return the full explanation of one launch on one or several GPUs."""
    sections = (
        the_launch_in_short(cases),
        *the_arithmetic(cases, [case.calculation for case in cases]),
        the_matrix(cases, full=True),
    )
    return launch_page(cases, failures, map(answer_in_short, cases), sections)


def the_arithmetic(
    cases: Sequence[Case], calculations: Sequence[Calculation]
) -> tuple[Section, ...]:
    """Return the work, time and neighbours of *cases*, and the limits that are *calculations*.

    Sections without content are left out.
    """
    found = (
        the_work(cases),
        the_limits(calculations),
        the_next_step(calculations, cap_outcomes(cases)),
        the_duration(cases),
        what_to_try(cases, full=True),
    )
    return tuple(one for one in found if one.tables or one.sentences)
