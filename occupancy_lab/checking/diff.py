"""`diff`: what changed between two tables of compiled kernels, times and spills first."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.checking.changes import (
    AMOUNTS,
    CALLED,
    COMPARED,
    KINDS,
    Change,
    changed,
    kind_of,
    take_alike,
)
from occupancy_lab.checking.check import SHOWN, first_of, load
from occupancy_lab.checking.rows import TIMES, Row, Table, shown
from occupancy_lab.errors import MOST_NAMED, InputError, few_of, quoted, refuse
from occupancy_lab.expressions import nearest, parse
from occupancy_lab.table.columns import RESULTS
from occupancy_lab.text.document import Answer, Document, Section, literal
from occupancy_lab.text.document import Table as Grid
from occupancy_lab.text.words import cell, count, listed, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from occupancy_lab.expressions import Expression, Kind, Value
    from occupancy_lab.inputs import AskedGpus


@dataclass(frozen=True, slots=True, repr=False)
class Diff(Answer):
    """What changed between two tables of compiled kernels."""

    names: tuple[str, str]
    """What the tables are called."""
    changes: tuple[Change, ...]
    """In the order of KINDS, the largest of each kind first."""
    unchanged: int
    """Pairs of rows that are alike."""
    removed: tuple[str, ...]
    """What only the first table has."""
    added: tuple[str, ...]
    """What only the second table has."""
    broken: tuple[str, ...] = ()
    """What the changes are called for which the condition of --fail-on holds."""
    fail_on: str | None = None
    lacking: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The columns that only the first table has, and those that only the second has."""
    apart: str = ""
    """Why no row matches another, where none does."""

    @property
    def status(self) -> int:
        """1 where a change meets the condition of --fail-on, else 0."""
        return 1 if self.broken else 0

    def of_kind(self, kind: str) -> list[Change]:
        """Return the changes of a kind."""
        return [one for one in self.changes if one.kind == kind]

    def to_document(self) -> Document:
        """Return what changed as tables and sentences."""
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
        kinds = Counter(one.kind for one in self.changes)
        parts = [f"{kinds[kind]} {words}" for kind, (words, _) in KINDS.items() if kinds[kind]]
        yield f"{', '.join([*parts, f'{self.unchanged} unchanged'])}."
        if self.apart:
            yield self.apart
        if self.removed or self.added:
            before, after = (literal(name) for name in self.names)
            only = [(self.removed, before), (self.added, after)]
            yield f"{listed([f'{len(one)} only in {name}' for one, name in only if one])}."
        for name, columns in zip(self.names, self.lacking, strict=True):
            if columns:
                words = f"{count(len(columns), 'column')} that only {literal(name)} has"
                yield f"Not compared: {words}, {literal(few_of(columns))}."
        if self.fail_on is not None:
            met = count(len(self.broken), "change")
            names = "; ".join(literal(one) for one in self.broken[:SHOWN])
            yield f"{literal(self.fail_on)}: met by {met}{f': {names}' if names else ''}."

    def to_dict(self) -> dict[str, Any]:
        """Return every change, and what only one table has, as plain values."""
        return {
            "status": self.status,
            "before": self.names[0],
            "after": self.names[1],
            "changes": [one.to_dict() for one in self.changes],
            "unchanged": self.unchanged,
            "removed": list(self.removed),
            "added": list(self.added),
            "columns": {"removed": list(self.lacking[0]), "added": list(self.lacking[1])},
            "fail_on": self.fail_on,
            "broken": list(self.broken),
        }


def _sentences(changes: Sequence[Change]) -> tuple[str, ...]:
    """Return what changed, each in words that are said once of all that they hold for."""
    labels: dict[str, list[str]] = {}
    for one in changes:
        labels.setdefault(one.words, []).append(one.label)
    sentences = []
    for words, some in labels.items():
        more = [f"{len(some) - MOST_NAMED} more"] if len(some) > MOST_NAMED else []
        named = "; ".join([*some[:MOST_NAMED], *more])
        sentences.append(f"**{literal(named)}**: {literal(words)}.")
    return first_of(sentences, len(sentences))


def _table(changes: Sequence[Change]) -> Grid:
    """Return the amounts of each change before and after."""
    pairs = [(one.before[0], one.after[0]) for one in changes]
    times = [
        name
        for name in TIMES
        if any(None not in {row.number(name) for row in pair} for pair in pairs)
    ]
    fine = [pair for one, pair in zip(changes, pairs, strict=True) if one.kind != "failed"]
    amounts = [name for name in AMOUNTS if any(name in changed(*pair) for pair in fine)]
    columns = (*times, *amounts, "programs_per_multiprocessor", "occupancy")
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
) -> Diff:
    """Return what changed in time, registers, local and shared memory and occupancy.

    Rows are the same launch where every column is equal that both tables have and that is no
    result: kernel, GPU, constexprs, num_warps, the problem. Rows that nothing tells apart are
    compared as sets.

    Args:
        before: A table, as `check` takes it: a file of scan, sweep or explain --json, a folder,
            which is a Triton cache, or rows.
        after: Another one.
        fail_on: A condition of changes, whose columns are those of a row with before_ and after_:
            "after_local_bytes > before_local_bytes". Of rows that nothing tells apart, any of the
            first with any of the second may meet it. What only one table has is None in the other.
            A change meets it too where that is not known because a value is known before and not
            after; and it is met where it names a column that one table lacks.
        match: The columns in which rows are equal that are the same launch, instead of all.
        names: What to call the tables.
        gpu: GPUs, as `explain` takes them, for folders.

    Raises:
        InputError: something is wrong with a table or the condition, or both have no rows.
    """
    condition = None if fail_on is None else parse(fail_on, _FAIL_ON)
    if before == after == "-":
        refuse("standard input is only one of the two tables: give a file for the other")
    tables = [Table.of(load(one, gpu=gpu)[0]) for one in (before, after)]
    union = Table.of([*tables[0].rows, *tables[1].rows])
    if not union.rows:
        refuse("there are no rows to compare in either table")
    columns = [name for name in tables[0].kinds if name in tables[1].kinds and name not in RESULTS]
    if match is not None:
        for name in match:
            if name not in columns:
                refuse(f"--match {quoted(name)} names no column of both; {nearest(name, columns)}")
        columns = [*match]
        varying = {
            kernel: [name for name in names if name in columns]
            for kernel, names in union.varying.items()
        }
        union = dataclasses.replace(union, varying=varying)
    compared = [name for name in COMPARED if all(name in table.kinds for table in tables)]
    changes, only, unchanged = [], ([], []), 0  # type: ignore[var-annotated] # as it is filled
    for olds, news in _groups(tables, columns):
        single = len(olds) == len(news) == 1
        unchanged += take_alike(olds, news, compared)
        if olds and news:
            kind = kind_of(olds[0], news[0]) if single else "set"
            changes.append(Change(kind, union.label(news[0]), tuple(olds), tuple(news)))
        else:
            for place, rows in enumerate((olds, news)):
                only[place].extend(rows)
    found = Diff(
        names,
        tuple(sorted(changes, key=lambda one: one.order)),
        unchanged,
        removed=tuple(map(union.label, only[0])),
        added=tuple(map(union.label, only[1])),
        lacking=_lacking(tables),
        apart="" if changes or unchanged else _why_apart(tables, columns, names),
        fail_on=fail_on,
    )
    if condition is None:
        return found
    broken = tuple(_broken(condition, union, columns, found, only))
    return dataclasses.replace(found, broken=broken)


_FAIL_ON = "after_local_bytes > before_local_bytes"


def _lacking(tables: Sequence[Table]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that only the first table has, and those that only the second has.

    A table without rows has no columns, and lacks none.
    """
    if not all(table.rows for table in tables):
        return (), ()
    one, other = tables
    return (
        tuple(name for name in one.kinds if name not in other.kinds),
        tuple(name for name in other.kinds if name not in one.kinds),
    )


def _why_apart(tables: Sequence[Table], columns: Sequence[str], names: tuple[str, str]) -> str:
    """Say in which columns no row of one table is equal to any of the other."""
    if not all(table.rows for table in tables):
        return ""
    apart = {}
    for name in columns:
        one, other = ({_text(row.values.get(name)) for row in table.rows} for table in tables)
        if not one & other:
            apart[name] = one, other
    if not apart:
        return "No row of one table is equal to any of the other in all that names them."
    differing = [
        f"{name} is {few_of(sorted(one))} in {names[0]} and {few_of(sorted(other))} in {names[1]}"
        for name, (one, other) in apart.items()
    ]
    rest = literal(",".join(name for name in columns if name not in apart))
    hint = f" --match {rest} compares rows that are equal in these." if rest else ""
    return f"Nothing matches: {literal('; '.join(differing))}.{hint}"


def _groups(tables: Sequence[Table], columns: Sequence[str]) -> Iterable[tuple[list[Row], ...]]:
    """Return the rows of both tables that *columns* name alike."""
    groups: dict[tuple[str, ...], tuple[list[Row], list[Row]]] = {}
    for place, table in enumerate(tables):
        for row in table.rows:
            key = tuple(_text(row.values.get(name)) for name in columns)
            groups.setdefault(key, ([], []))[place].append(row)
    return groups.values()


def _text(value: Value) -> str:
    """Return a value as a text that is the same whether CSV or JSON held it."""
    return str(int(value)) if isinstance(value, float) and not value % 1 else str(value)


def _broken(
    condition: Expression,
    union: Table,
    columns: Sequence[str],
    found: Diff,
    only: tuple[list[Row], list[Row]],
) -> Iterator[str]:
    """Return what to call the changes for which the condition holds."""
    sides = ("before_", "after_")
    kinds: dict[str, Kind] = {name: union.kinds[name] for name in columns}
    kinds |= {f"{side}{name}": kind for side in sides for name, kind in union.kinds.items()}
    try:
        condition.check(kinds)
    except InputError as error:
        msg = f"--fail-on {error}"
        raise InputError(msg) from error
    table = Table((), kinds)
    asked = {name.removeprefix("after_") for name in condition.names if name.startswith("after_")}

    def holds(before: Row | None, after: Row | None) -> bool:
        values: dict[str, Value] = {}
        for side, row in zip(sides, (before, after), strict=True):
            if row is not None:
                values |= row.values
                values |= {f"{side}{name}": value for name, value in row.values.items()}
        met = table.evaluate(condition, values)
        if met is None and before is not None and after is not None:
            # What was known and is not any more may be as bad as the condition says.
            return any(
                before.values.get(name) is not None and after.values.get(name) is None
                for name in asked
            )
        return met is True

    for name in (*found.lacking[0], *found.lacking[1]):
        if condition.names & {f"{side}{name}" for side in sides}:
            yield f"the column {name}, which one table lacks"
    for change in found.changes:
        if any(holds(*pair) for pair in itertools.product(change.before, change.after)):
            yield change.label
    yield from (union.label(row) for row in only[0] if holds(row, None))
    yield from (union.label(row) for row in only[1] if holds(None, row))


def diff_tritons(tritons: Sequence[str], *, fail_on: str | None = None, **asked: Any) -> Diff:
    """Return what changes from the first Triton to the second for the same launches.

    *asked* is what `sweep` takes of a matrix, or, with a *kernel* "file.py:function" and no cols,
    what `explain_launch` takes.
    """
    if len(tritons) != 2 or tritons[0] == tritons[1]:  # noqa: PLR2004 - before and after
        refuse("--triton takes two different versions here, such as 3.6.0,3.7.1")
    before, after = (load(_compiled(one, asked))[0] for one in tritons)
    names = [f"Triton {rows[0].values.get('triton_version')}" for rows in (before, after)]
    return diff(before, after, fail_on=fail_on, names=(names[0], names[1]))


def _compiled(triton: str, asked: Mapping[str, Any]) -> Any:
    if "cols" in asked:
        from occupancy_lab.sweeping import sweep

        given = {name: value for name, value in asked.items() if name != "progress"}
        return sweep(triton=triton, **given)
    from occupancy_lab.explaining.dry_run import explain_launch

    return explain_launch(triton=triton, **asked)
