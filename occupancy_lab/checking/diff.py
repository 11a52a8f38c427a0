"""`diff`: what changed between two tables of compiled kernels, times and spills first."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_lab.checking.changes import (
    AMOUNTS,
    CALLED,
    COMPARED,
    KINDS,
    LAUNCHES,
    Change,
    Match,
    are_equal,
    are_traces,
    both_have,
    changed,
    common_columns,
    kind_of,
    launched,
    launches_differ,
    match_rows,
    two_times,
)
from occupancy_lab.checking.check import SHOWN, first_of, not_launched_sentence
from occupancy_lab.checking.rows import TIMES, Row, Table, load, same_text, shown
from occupancy_lab.errors import MOST_NAMED, after, few_of, quoted, refuse, some_of
from occupancy_lab.expressions import Expression, Kind, Value, nearest, parse
from occupancy_lab.inputs import AskedGpus
from occupancy_lab.text.document import Answer, Document, Section, literal
from occupancy_lab.text.document import Table as Grid
from occupancy_lab.text.words import cell, count, listed, percent


@dataclass(frozen=True, slots=True, repr=False)
class Diff(Answer):
    """What changed between two tables of compiled kernels."""

    names: tuple[str, str]
    """The names of the two tables."""
    changes: tuple[Change, ...]
    """The changes in the order of KINDS, the largest of each kind first."""
    unchanged: int
    """How many pairs of rows are equal."""
    removed: tuple[str, ...]
    """The rows that only the first table has."""
    added: tuple[str, ...]
    """The rows that only the second table has."""
    broken: tuple[str, ...] = ()
    """The rows that meet the condition of --fail-on."""
    undecided: tuple[str, ...] = ()
    """The rows of only one table for which the condition is not decided."""
    fail_on: str | None = None
    lacking: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The columns that only the first table has, and those that only the second has."""
    apart: str = ""
    """Why no row matches any other; "" if some do."""
    totals: str = ""
    """A sentence on the total times of two traces; "" if they are not known."""
    left_out: int = 0
    """Rows of traces that an autotuner is not expected to launch; they are not compared."""

    @property
    def status(self) -> int:
        """1 if a row meets the condition of --fail-on, else 0."""
        return 1 if self.broken else 0

    def of_kind(self, kind: str) -> list[Change]:
        """Return the changes of a kind."""
        return [one for one in self.changes if one.kind == kind]

    def to_document(self) -> Document:
        """Return the page of what changed."""
        before, after = (literal(name) for name in self.names)
        sections = [
            Section(title, (), _sentences(self.of_kind(kind)))
            for kind, (_, title) in KINDS.items()
            if kind != "other" and self.of_kind(kind)
        ]
        pairs = [one for one in self.changes if one.kind != "set"]
        if pairs:
            sections.insert(0, Section("", (_table(pairs[:SHOWN]),)))
        for title, rows in ((f"Only in {before}", self.removed), (f"Only in {after}", self.added)):
            if rows:
                times = Counter(rows)
                labels = [f"{one} ({n} times)" if n > 1 else one for one, n in times.items()]
                sections.append(Section(title, (), first_of(map(literal, labels), len(labels))))
        return Document(f"{before} and {after}", tuple(self._answer()), tuple(sections))

    def _answer(self) -> Iterator[str]:
        if self.totals:
            yield self.totals
        kinds = Counter(one.kind for one in self.changes)
        parts = [f"{kinds[kind]} {words}" for kind, (words, _) in KINDS.items() if kinds[kind]]
        yield f"{', '.join([*parts, f'{self.unchanged} unchanged'])}."
        if self.apart:
            yield self.apart
        if self.removed or self.added:
            before, after = (literal(name) for name in self.names)
            only = [(self.removed, before), (self.added, after)]
            yield f"{listed([f'{len(one)} only in {name}' for one, name in only if one])}."
        if self.left_out:
            yield not_launched_sentence("compared", self.left_out)
        for name, columns in zip(self.names, self.lacking, strict=True):
            if columns:
                words = f"{count(len(columns), 'column')} that only {literal(name)} has"
                yield f"Not compared: {words} ({literal(few_of(columns))})."
        if self.fail_on is not None:
            met = [f"met by {count(len(self.broken), 'row')}{_named(self.broken)}"]
            if self.undecided:
                number = count(len(self.undecided), "row")
                met.append(f"undecided for {number} of only one table{_named(self.undecided)}")
            yield f"{literal(self.fail_on)}: {'. It is '.join(met)}."

    def to_dict(self) -> dict[str, Any]:
        """Return every change, and the rows of only one table, as plain values."""
        return {
            "status": self.status,
            "before": self.names[0],
            "after": self.names[1],
            "totals": self.totals or None,
            "changes": [one.to_dict() for one in self.changes],
            "unchanged": self.unchanged,
            "removed": list(self.removed),
            "added": list(self.added),
            "columns": {"removed": list(self.lacking[0]), "added": list(self.lacking[1])},
            "fail_on": self.fail_on,
            "broken": list(self.broken),
            "undecided": list(self.undecided),
        }


def _named(labels: Sequence[str]) -> str:
    names = "; ".join(map(literal, labels[:SHOWN]))
    return f": {names}" if names else ""


def _sentences(changes: Sequence[Change]) -> tuple[str, ...]:
    labels: dict[str, list[str]] = {}
    for one in changes:
        labels.setdefault(one.words, []).append(one.label)
    sentences = []
    for words, some in labels.items():
        named = "; ".join(some_of(some, MOST_NAMED))
        sentences.append(f"**{literal(named)}**: {literal(words)}.")
    return first_of(sentences, len(sentences))


def _table(changes: Sequence[Change]) -> Grid:
    pairs = [(one.before[0], one.after[0]) for one in changes]
    times = [
        name
        for name in TIMES
        if any(None not in {row.number(name) for row in pair} for pair in pairs)
    ]
    fine = [pair for one, pair in zip(changes, pairs, strict=True) if one.kind != "failed"]
    amounts = [name for name in AMOUNTS if any(name in changed(*pair) for pair in fine)]
    often = [LAUNCHES] if any(launches_differ(*pair) for pair in pairs) else []
    columns = (*times, *often, *amounts, "programs_per_multiprocessor", "occupancy")
    return Grid(
        ("", *(CALLED.get(name, name) for name in columns)),
        tuple(
            (literal(one.label), *(_cell(*pair, name) for name in columns))
            for one, pair in zip(changes, pairs, strict=True)
        ),
    )


def _cell(before: Row, after: Row, name: str) -> str:
    said = cell if name in TIMES else percent if name == "occupancy" else shown
    numbers = (row.number(name) for row in (before, after))
    texts = ["-" if one is None else said(one) for one in numbers]
    return texts[0] if texts[0] == texts[1] else " → ".join(texts)


def diff(  # noqa: PLR0913 - one argument per option of the command line
    before: Any,
    after: Any,
    *,
    fail_on: str | None = None,
    match: Sequence[str] | None = None,
    names: tuple[str, str] = ("before", "after"),
    gpu: AskedGpus | None = None,
    **launch: Any,
) -> Diff:
    """Return what changed in time, registers, local and shared memory and occupancy.

    Rows are the same launch if all columns are equal that both tables have and that are not
    results: kernel, GPU, constexprs, num_warps, the problem. Rows of two traces that are still
    unmatched are matched by kernel and GPU, those of two programs or launches by what they pass.
    Rows that nothing tells apart are compared as sets.

    Args:
        before: A table, as `check` takes it: a file of scan, sweep or explain --json, a folder,
            which is a Triton cache, "file.py:function", or rows.
        after: Another table.
        fail_on: A condition on a row before and after, whose columns have the prefixes before_ and
            after_: "after_local_bytes > before_local_bytes". For rows that nothing tells apart, any
            pair may meet it. The values of a row of only one table are None on the other side. The
            condition also counts as met if it cannot be decided because a value is known before but
            not after, or because it names a column that one table lacks.
        match: The columns in which rows of the same launch are equal, instead of all.
        names: The names of the two tables.
        gpu: GPUs, as `explain` takes them, for folders and functions.
        **launch: How functions are launched, as `explain_launch` takes it.

    Raises:
        InputError: something is wrong with a table or the condition, or a table has no rows.
    """
    condition = None if fail_on is None else parse(fail_on, _FAIL_ON)
    if before == after == "-":
        refuse("standard input is only one of the two tables: give a file for the other")
    whole = [Table.of(load(one, gpu=gpu, **launch)) for one in (before, after)]
    for name, table in zip(names, whole, strict=True):
        if not table.rows:
            refuse(f"there are no rows to compare in {name}")
    old, new = map(launched, whole)
    columns = common_columns(old, new)
    for name in match or ():
        if name not in columns:
            refuse(
                f"--match {quoted(name)} is not a column of both tables; {nearest(name, columns)}"
            )
    union = Table.of([*old.rows, *new.rows])
    settings = columns if match is None else match
    varying = {
        kernel: [name for name in names if match is None or name.partition(".")[0] in match]
        for kernel, names in union.varying.items()
    }
    union = dataclasses.replace(union, varying=varying)
    matches = [*match_rows(old, new, match)]
    changes, unchanged = _changes(matches, union, settings, both_have(old, new, COMPARED))
    found = Diff(
        names,
        changes,
        unchanged,
        removed=tuple(_label(union, one) for one in matches if not one.after),
        added=tuple(_label(union, one) for one in matches if not one.before),
        lacking=(
            tuple(name for name in old.kinds if name not in new.kinds),
            tuple(name for name in new.kinds if name not in old.kinds),
        ),
        apart="" if changes or unchanged else _why_apart((old, new), settings, names),
        fail_on=fail_on,
        totals=_totals(old, new),
        left_out=sum(len(table.rows) for table in whole) - len(union.rows),
    )
    if condition is None:
        return found
    return _gated(found, condition, union, columns, matches)


def _changes(
    matches: Sequence[Match], union: Table, settings: Sequence[str], compared: Sequence[str]
) -> tuple[tuple[Change, ...], int]:
    changes, unchanged = [], 0
    for one in matches:
        if not (one.before and one.after):
            continue
        before, after = one.before[0], one.after[0]
        values = [[row.values.get(name) for name in settings] for row in (before, after)]
        same = [same_text(was) == same_text(now) for was, now in zip(*values, strict=True)]
        if one.told_apart and all(same) and are_equal(before, after, compared):
            unchanged += 1
        else:
            kind = kind_of(before, after) if one.told_apart else "set"
            changes.append(Change(kind, _label(union, one), one.before, one.after))
    return tuple(sorted(changes, key=lambda one: one.order)), unchanged


_FAIL_ON = "after_local_bytes > before_local_bytes"


def _why_apart(tables: Sequence[Table], columns: Sequence[str], names: tuple[str, str]) -> str:
    apart = {}
    for name in columns:
        one, other = ({same_text(row.values.get(name)) for row in table.rows} for table in tables)
        if not one & other:
            apart[name] = one, other
    if not apart:
        return "No row of one table equals a row of the other in all columns that identify rows."
    differing = [
        f"{name} is {few_of(sorted(one))} in {names[0]} and {few_of(sorted(other))} in {names[1]}"
        for name, (one, other) in apart.items()
    ]
    rest = literal(",".join(name for name in columns if name not in apart))
    hint = f" --match {rest} compares rows that are equal in these columns." if rest else ""
    return f"Nothing matches: {literal('; '.join(differing))}.{hint}"


def _totals(before: Table, after: Table) -> str:
    if not are_traces(before, after):
        return ""
    launches = [int(sum(row.number(LAUNCHES) or 0 for row in one.rows)) for one in (before, after)]
    often = f", {count(launches[1], 'launch')}"
    if launches[0] != launches[1]:
        often += f" instead of {launches[0]}"
    for time, how in TIMES.items():
        totals = [[row.total(time) for row in table.rows] for table in (before, after)]
        old, new = (sum(filter(None, one)) for one in totals)
        if old and new:
            unknown = sum(one.count(None) for one in totals)
            rows = f"{count(unknown, 'row')} whose time is not {how}"
            without = f" (without {rows})" if unknown else ""
            return f"**All kernels**: {two_times(old, new, time)}{often}{without}."
    return ""


def _label(union: Table, one: Match) -> str:
    row = (one.after or one.before)[0]
    return union.label(row, one.before[0] if one.before and one.told_apart else None)


def _gated(
    found: Diff,
    condition: Expression,
    union: Table,
    columns: Sequence[str],
    matches: Sequence[Match],
) -> Diff:
    """Return *found* with the rows that meet the condition, and those that are undecided."""
    kinds: dict[str, Kind] = {name: union.kinds[name] for name in columns}
    kinds |= {f"{side}{name}": kind for side in _SIDES for name, kind in union.kinds.items()}
    with after("--fail-on "):
        condition.check(kinds)
    table = Table((), kinds)
    lacking = (*found.lacking[0], *found.lacking[1])
    broken = [
        f"the column {name}, which one table lacks"
        for name in lacking
        if condition.names & {f"{side}{name}" for side in _SIDES}
    ]
    unknown = []
    for one in matches:
        pairs = itertools.product(one.before or (None,), one.after or (None,))
        met = {_holds(condition, table, *pair) for pair in pairs}
        if True in met:
            broken.append(_label(union, one))
        elif None in met and not (one.before and one.after):
            unknown.append(_label(union, one))
    return dataclasses.replace(found, broken=tuple(broken), undecided=tuple(unknown))


_SIDES = ("before_", "after_")


def _holds(
    condition: Expression, table: Table, before: Row | None, after: Row | None
) -> bool | None:
    """Tell whether a row before and after meets a condition; None if that is not known."""
    values: dict[str, Value] = {}
    for side, row in zip(_SIDES, (before, after), strict=True):
        if row is not None:
            values |= row.values
            values |= {f"{side}{name}": value for name, value in row.values.items()}
    met = table.evaluate(condition, values)
    if met is None and before is not None and after is not None:
        # A value that is no longer known may be as bad as the condition says.
        asked = [name.removeprefix("after_") for name in condition.names if name[:6] == "after_"]
        gone = (name for name in asked if before.values.get(name) is not None)
        return any(after.values.get(name) is None for name in gone) or None
    return None if met is None else bool(met)


def diff_tritons(tritons: Sequence[str], *, fail_on: str | None = None, **asked: Any) -> Diff:
    """Return what changes from the first Triton to the second for the same launches.

    *asked* has the arguments of `sweep` for a matrix or, with a *kernel* "file.py:function" and no
    cols, those of `explain`.
    """
    if len(tritons) != 2 or tritons[0] == tritons[1]:  # noqa: PLR2004 - before and after
        refuse("--triton takes two different versions here, such as 3.6.0,3.7.1")
    before, after = (load(_compiled(one, asked)) for one in tritons)
    names = [f"Triton {rows[0].values.get('triton_version')}" for rows in (before, after)]
    return diff(before, after, fail_on=fail_on, names=(names[0], names[1]))


def _compiled(triton: str, asked: Mapping[str, Any]) -> Any:
    if "cols" in asked:
        from occupancy_lab.sweeping.run import sweep

        given = {name: value for name, value in asked.items() if name != "progress"}
        return sweep(triton=triton, **given)
    from occupancy_lab.tracing.explain import explain

    return explain(triton=triton, **asked)
