"""`check`: conditions that every row of compiled kernels has to meet, and the rows that do not."""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from occupancy_lab.checking.changes import with_baseline
from occupancy_lab.checking.conditions import Check
from occupancy_lab.checking.fixes import Fix, FixFinder
from occupancy_lab.checking.rows import Row, Table, column_of, load, shown
from occupancy_lab.errors import few_of, quoted, refuse
from occupancy_lab.expressions import Value
from occupancy_lab.inputs import AskedGpus
from occupancy_lab.text.document import Answer, Document, Section, literal
from occupancy_lab.text.words import count
from occupancy_lab.values import Status

SHOWN = 20
"""How many rows a page shows for each check or kind of change; JSON has all."""


@dataclass(frozen=True)
class Finding:
    """A row that does not pass a check."""

    check: Check
    row: Row
    kind: str
    """broken, not known, or failed (did not compile or does not fit)."""
    label: str
    """The name of the row among the others."""
    _finder: FixFinder = field(compare=False, repr=False)

    @property
    def found(self) -> dict[str, Value]:
        """The values of the columns that the condition names."""
        return {name: self.row.known.get(name) for name in self.check.columns}

    @property
    def mend(self) -> Fix | None:
        """The best launch that fixes the row, breaks no other check and is not slower; or None."""
        found = self._nearest
        return None if found is None or (found.slower or 0.0) > 0 else found

    @functools.cached_property
    def _nearest(self) -> Fix | None:
        """As `mend`, or the fastest of the slower launches if there are only slower ones."""
        return self._finder.fix(self.row, self.check) if self.kind == "broken" else None

    @property
    def why(self) -> str:
        """What was found: "local_bytes is 152"."""
        if self.kind == "failed":
            reason = self.row.values.get("reason")
            return f"{self.row.status}: {reason}" if reason else self.row.status
        return ", ".join(
            f"{name.partition('.')[0]} is {shown(value)}" for name, value in self.found.items()
        )

    @property
    def advice(self) -> str:
        """A sentence on what would fix the row; "" unless the check is broken."""
        if self.kind != "broken":
            return ""
        if self.mend is None:
            found = self._nearest
            if found is None:
                return f"No compiled launch would fix it.{self._best_change}"
            return (
                "No compiled launch meets the check without taking longer:"
                f" {found.words} takes {found.time}."
            )
        columns = [name for name in self.check.columns if name == column_of(name)]
        values = [f"{name} is {shown(self.mend.values.get(name))}" for name in columns]
        if self.mend.sentence:
            sentence = _after_colon(self.mend.sentence)
            return f"What would fix it: {sentence} Then {', '.join(values)}."
        shows = f"{self.mend.words}, compiled: {', '.join(values)}"
        of_cache = self.row.values.get("entry") is not None
        other = f"Another {'entry of the same code' if of_cache else 'launch'} meets the check"
        if self.mend.slower is None:
            return f"{other}: {shows}; it is not known which is faster."
        time = self.mend.time or self.mend.close
        if not self.mend.time and " instead of " in time:
            time += ", which predictions do not tell apart"
        return f"What would fix it: {'; '.join(filter(None, (shows, time)))}."

    @property
    def _best_change(self) -> str:
        """The first sentence of `explain` for the row, to be appended; "" if there is none."""
        said = self._finder.advice(self.row)
        if said is None:
            return ""
        if not said.words:
            return f" {said.sentence}"
        return f" What brings most: {_after_colon(said.sentence)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values, for JSON."""
        return {
            "check": self.check.name,
            "kind": self.kind,
            "row": self.label,
            "origin": self.row.origin,
            "found": self.found,
            "why": self.why,
            "advice": self.advice,
            "mend": None if self.mend is None else self.mend.to_dict(),
            "values": dict(self.row.values),
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one check."""

    check: Check
    rows: tuple[Row, ...]
    """The rows that have to meet the check."""
    findings: tuple[Finding, ...]
    let_pass: int
    """How many rows that are not known or failed pass because the user asked so."""
    labels: tuple[str, ...]
    """The name of each of the rows."""
    new: tuple[str, ...] = ()
    """The names of the rows that the baseline lacks, so that the condition is not decided."""

    @property
    def sentence(self) -> str:
        """How many rows break the check, and how many do not pass otherwise."""
        name, total = literal(self.check.name), count(len(self.rows), "row")
        if not self.rows:
            return f"**{name}**: no rows."
        kinds = Counter(one.kind for one in self.findings)
        breaks = "breaks it" if kinds["broken"] == 1 else "break it"
        words = {"broken": breaks, "not known": "not known", "failed": "without results"}
        parts = [f"{kinds[kind]} {said}" for kind, said in words.items() if kinds[kind]]
        if self.let_pass:
            parts.append(f"{self.let_pass} not known or without results, which pass")
        if self.new:
            parts.append(f"{len(self.new)} missing in the baseline ({literal(few_of(self.new))})")
        if not self.findings:
            met = len(self.rows) - self.let_pass - len(self.new)
            parts.insert(0, f"{met} {'meets' if met == 1 else 'meet'} it")
        return f"**{name}**: of {total}, {', '.join(parts)}."


@dataclass(frozen=True, slots=True, repr=False)
class Checked(Answer):
    """The outcomes of all checks."""

    outcomes: tuple[Outcome, ...]
    not_compiled: int = 0
    """Entries of caches whose compile did not finish; they are not checked."""
    not_launched: int = 0
    """Configurations that an autotuner is not expected to launch; they are not checked."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every row that does not pass a check."""
        return tuple(one for outcome in self.outcomes for one in outcome.findings)

    @property
    def status(self) -> int:
        """0 if all rows pass every check, else 1."""
        return 1 if self.findings else 0

    def to_document(self) -> Document:
        """Return the page: which checks hold, and the rows that break the others."""
        sections = []
        for outcome in self.outcomes:
            if not outcome.findings:
                continue
            sentences = (
                f"**{literal(one.label)}**: {literal(f'{one.why}. {one.advice}'.strip())}"
                for one in outcome.findings
            )
            title = "" if len(self.outcomes) == 1 else literal(outcome.check.name)
            sections.append(Section(title, (), first_of(sentences, len(outcome.findings))))
        held = sum(not outcome.findings for outcome in self.outcomes)
        total = count(len(self.outcomes), "check")
        title = f"{held} of {total} hold" if held < len(self.outcomes) else f"{total}: all hold"
        if len(self.outcomes) == 1:
            title = "The check holds" if held else "The check does not hold"
        answer = [one.sentence for one in self.outcomes]
        if self.not_compiled:
            words = "entries were not checked: their compiles did not finish"
            if self.not_compiled == 1:
                words = "entry was not checked: its compile did not finish"
            answer.append(f"{self.not_compiled} {words}.")
        if self.not_launched:
            answer.append(not_launched_sentence("checked", self.not_launched))
        return Document(title, tuple(answer), tuple(sections))

    def to_dict(self) -> dict[str, Any]:
        """Return the checks and every row that does not pass, as plain values."""
        return {
            "status": self.status,
            "not_compiled": self.not_compiled,
            "not_launched": self.not_launched,
            "checks": [
                {
                    "name": one.check.name,
                    "condition": one.check.condition.text,
                    "rows": len(one.rows),
                    "let_pass": one.let_pass,
                    "new": list(one.new),
                    "findings": [finding.to_dict() for finding in one.findings],
                }
                for one in self.outcomes
            ],
        }


def _after_colon(sentence: str) -> str:
    """Return a sentence that begins with "If" in lower case; other first words may be names."""
    return f"if {sentence.removeprefix('If ')}" if sentence.startswith("If ") else sentence


def not_launched_sentence(done: str, number: int) -> str:
    """Say how many rows were not *done* ("checked") because they would not be launched."""
    return f"Not {done}: {count(number, 'row')} that an autotuner is not expected to launch."


def first_of(sentences: Iterable[str], number: int) -> tuple[str, ...]:
    """Return the sentences that a page shows, and how many more of the *number* there are."""
    more = [f"{number - SHOWN} more; --json has them all."] if number > SHOWN else []
    return (*itertools.islice(sentences, SHOWN), *more)


def check(  # noqa: PLR0913 - one argument per option of the command line
    condition: str | Check | Sequence[Check],
    *sources: Any,
    where: str | None = None,
    baseline: Any = None,
    gpu: AskedGpus | None = None,
    unknown_ok: bool = False,
    failures_ok: bool = False,
    allow_empty: bool = False,
    **launch: Any,
) -> Checked:
    """Return which rows of compiled kernels do not meet a condition, and what would fix each.

    Args:
        condition: "local_bytes == 0 and occupancy >= 0.5", as `sweep --where` takes it, or the
            checks that `read_checks` returns.
        *sources: The rows: a JSON or CSV file of `scan`, `sweep`, `explain --json` or `trace
            --json`; a folder, which is a Triton cache; "file.py:function" of Triton, or an
            ordinary function, whose launches are compiled; a table of `sweep`, or a list of rows.
        where: A condition that selects the rows that have to meet *condition*; None is all.
        baseline: A file, folder or rows. `baseline` in a condition, as in "us <= baseline * 1.05",
            is the value of the same column and row there. Rows missing there are named, and pass.
        gpu: GPUs, as `explain` takes them, for folders and functions.
        unknown_ok: Whether rows with unknown values pass.
        failures_ok: Whether rows that did not compile or do not fit pass.
        allow_empty: Whether a check without rows passes.
        **launch: How a function is launched, as `explain_launch` takes it.

    Raises:
        InputError: something is wrong with the condition or a source, or there are no rows.
    """
    if isinstance(condition, str):
        checks: Sequence[Check] = (Check.read(condition, where=where),)
    else:
        checks = (condition,) if isinstance(condition, Check) else tuple(condition)
    rows: list[Row] = []
    for source in sources:
        rows += load(source, gpu=gpu, **launch)
    kernels = [row for row in rows if row.status != Status.NOT_COMPILED]
    passes = {"not known": unknown_ok, "failed": failures_ok, "empty": allow_empty}
    if not kernels and not allow_empty:
        named = [str(one) for one in sources if isinstance(one, str | os.PathLike)]
        place = f" in {few_of(named)}" if named else ""
        refuse(
            f"there are no rows to check{place}, which proves nothing; --allow-empty lets this pass"
        )
    passed = {kind for kind, ok in passes.items() if ok}
    table = Table.of(_beside(checks, kernels, baseline, allow_empty=allow_empty, gpu=gpu))
    finder = FixFinder(checks, table)
    return Checked(
        tuple(_outcome(one, table, finder, passed) for one in checks),
        not_compiled=len(rows) - len(kernels),
        not_launched=sum(not row.is_launched for row in kernels),
    )


def _beside(
    checks: Sequence[Check],
    rows: Sequence[Row],
    baseline: Any,
    *,
    allow_empty: bool,
    gpu: AskedGpus | None,
) -> Sequence[Row]:
    """Return *rows* with their baseline; raise InputError if that is missing or of no use."""
    asking = [one for one in checks if one.has_baseline]
    if baseline is None:
        if asking:
            text = quoted(asking[0].condition.text)
            refuse(f"{text} names baseline: give the FILE that has it with --baseline")
        return rows
    if not asking:
        refuse("no condition names baseline, as 'predicted_us <= baseline * 1.05' does")
    found = with_baseline(rows, load(baseline, gpu=gpu))
    if not allow_empty and all(row.before is None for row in found):
        refuse(
            "the baseline has none of the rows, which proves nothing; --allow-empty lets this pass"
        )
    return found


def _outcome(one: Check, table: Table, finder: FixFinder, passes: Collection[str]) -> Outcome:
    if not table.rows:
        return Outcome(one, (), (), 0, ())
    rows = one.rows(table)
    if not rows and "empty" not in passes:
        kernels = few_of(sorted({row.kernel for row in table.rows}))
        refuse(
            f"check {quoted(one.name)} applies to none of the {len(table.rows)} rows, whose kernels"
            f" are {kernels}; --allow-empty lets this pass"
        )
    labels = table.labels(rows)
    kinds = [one.kind(row, table) for row in rows]
    findings = tuple(
        Finding(one, row, kind, called, finder)
        for row, kind, called in zip(rows, kinds, labels, strict=True)
        if kind is not None and kind != "new" and kind not in passes
    )
    new = tuple(called for kind, called in zip(kinds, labels, strict=True) if kind == "new")
    let_pass = sum(kind in passes for kind in kinds)
    return Outcome(one, tuple(rows), findings, let_pass, labels, new)
