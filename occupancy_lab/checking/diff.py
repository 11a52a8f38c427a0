"""`diff`: what changed between two tables of compiled kernels, what crossed a step first."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.checking.check import load
from occupancy_lab.checking.rows import OK, RESULTS, Row, Table, shown
from occupancy_lab.errors import InputError, refuse
from occupancy_lab.expressions import parse
from occupancy_lab.text.document import Answer, Document, Section, literal
from occupancy_lab.text.document import Table as Grid
from occupancy_lab.text.words import LIMITS, count, listed, percent, resource_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from occupancy_lab.expressions import Expression, Kind, Value
    from occupancy_lab.inputs import AskedGpus

AMOUNTS: Mapping[str, str] = {
    "n_regs": "registers",
    "local_bytes": "local B",
    "shared": "shared B",
    "static_shared": "static shared B",
}
"""The amounts that are compared, and what a table calls them."""
COMPARED = (*AMOUNTS, "programs_per_multiprocessor", "occupancy")
"""The columns in which a change counts, where both tables have them; and the status."""
SHOWN = 20
"""The rows that a page lists of a kind; JSON has them all."""
_KINDS: Mapping[str, str] = {
    "failed": "No longer compile or fit",
    "crossed": "Crossed a step",
    "spills": "Spill more",
    "set": "Nothing tells these rows apart: compared as sets",
    "other": "Changed otherwise",
}
"""The kinds of changes, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Change:
    """A kernel before and after; or several of each that nothing tells apart."""

    kind: str
    """failed, crossed, spills, set or other."""
    label: str
    before: tuple[Row, ...]
    after: tuple[Row, ...]

    @property
    def size(self) -> float:
        """How large the change is, to sort by: what is lost of the occupancy, then the amounts."""
        one, other = self.before[0], self.after[0]
        lost = _number(one, "occupancy") - _number(other, "occupancy")
        more = sum(abs(_number(other, name) - _number(one, name)) for name in AMOUNTS)
        return abs(lost) * 1e9 + more

    @property
    def words(self) -> str:
        """Say what changed: "registers 64 to 72: 3 programs per SM instead of 4, ..."."""
        if self.kind == "set":
            return "; ".join(_set_words(self.before, self.after))
        return _words(self.before[0], self.after[0])

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain values, for JSON."""
        return {
            "kind": self.kind,
            "row": self.label,
            "words": self.words,
            "before": [dict(one.values) for one in self.before],
            "after": [dict(one.values) for one in self.after],
        }


def _number(row: Row, name: str) -> float:
    value = row.values.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _changed(before: Row, after: Row) -> list[str]:
    """Return the columns whose values are known on both sides and differ."""
    return [
        name
        for name in AMOUNTS
        if None not in (one := (before.values.get(name), after.values.get(name)))
        and one[0] != one[1]
    ]


def _words(before: Row, after: Row) -> str:
    if before.status != after.status:
        reason = after.values.get("reason") or before.values.get("reason")
        words = f"{after.status} instead of {before.status}"
        return f"{words}: {reason}" if reason else words
    amounts = [
        f"{shown(after.values[name])} {_word(name, after)} instead of {shown(before.values[name])}"
        for name in _changed(before, after)
    ]
    words = listed(amounts) if amounts else "with the same amounts"
    return f"{words}: {_occupancy_words(before, after)}"


def _word(name: str, row: Row) -> str:
    amd = row.gpu is not None and row.gpu.vendor == "AMD"
    return "VGPRs" if amd and name == "n_regs" else AMOUNTS[name]


def _occupancy_words(before: Row, after: Row) -> str:
    """Say what fits after and before, and the resource that decides it."""
    gpu = after.gpu
    word = "multiprocessor" if gpu is None else gpu.architecture.multiprocessor_word
    names = ("programs_per_multiprocessor", "occupancy")
    (old, held), (new, holds) = (
        [row.values.get(name) for name in names] for row in (before, after)
    )
    if old is None or new is None:
        return "the programs that fit are not known"
    share = percent(float(holds)) if isinstance(holds, int | float) else "not known"
    if (old, held) == (new, holds):
        return f"still {shown(new)} program{'' if new == 1 else 's'} per {word} ({share})"
    fewer = isinstance(old, int | float) and isinstance(new, int | float) and new < old
    decisive = after if fewer else before
    limiters = str(decisive.values.get("limiter") or "").split("+")
    vendor = "" if gpu is None else gpu.vendor
    limited = listed([resource_word(vendor, one) for one in limiters if one in LIMITS] or [""])
    why = f", limited by {limited}" if fewer else f", which {limited} limited before"
    was = percent(float(held)) if isinstance(held, int | float) else "not known"
    plural = "" if new == 1 else "s"
    words = f"{shown(new)} program{plural} per {word} instead of {shown(old)}"
    return f"{words} ({share} instead of {was}){why if limited else ''}"


def _set_words(before: Sequence[Row], after: Sequence[Row]) -> Iterator[str]:
    """Say how the values of rows differ that nothing tells apart."""
    yield f"{count(len(before), 'row')} before and {len(after)} after differ"
    for name in (*AMOUNTS, "programs_per_multiprocessor"):
        one, other = (sorted(_number(row, name) for row in rows) for rows in (before, after))
        if one != other:
            called = AMOUNTS.get(name, "programs per multiprocessor")
            yield f"{called} {_numbers(one)} before, {_numbers(other)} after"


def _numbers(values: Sequence[float]) -> str:
    counts = Counter(shown(int(value)) for value in values)
    return ", ".join(
        f"{one} ({times} times)" if times > 1 else one for one, times in counts.items()
    )


@dataclass(frozen=True, slots=True, repr=False)
class Diff(Answer):
    """What changed between two tables of compiled kernels."""

    names: tuple[str, str]
    """What the tables are called."""
    changes: tuple[Change, ...]
    """Steps that were crossed first, then spills, then the rest by size."""
    unchanged: int
    """Pairs of rows that are alike."""
    removed: tuple[str, ...]
    """What only the first table has."""
    added: tuple[str, ...]
    """What only the second table has."""
    broken: tuple[str, ...] = ()
    """What the changes are called for which the condition of --fail-on holds."""
    fail_on: str | None = None

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
            Section(title, (), _shown([_sentence(one) for one in self.of_kind(kind)]))
            for kind, title in _KINDS.items()
            if kind != "other" and self.of_kind(kind)
        ]
        pairs = [one for one in self.changes if one.kind != "set"]
        if pairs:
            sections.insert(0, Section("", (_table(pairs[:SHOWN]),)))
        for title, rows in ((f"Only in {before}", self.removed), (f"Only in {after}", self.added)):
            if rows:
                sections.append(Section(title, (), _shown(_each_once(rows))))
        return Document(f"{before} and {after}", tuple(self._answer()), tuple(sections))

    def _answer(self) -> Iterator[str]:
        kinds = Counter(one.kind for one in self.changes)
        words = {
            "failed": "failing now",
            "crossed": "crossing a step",
            "spills": "spilling more",
            "set": "differing as sets",
            "other": "changed otherwise",
        }
        parts = [f"{kinds[kind]} {said}" for kind, said in words.items() if kinds[kind]]
        yield f"{', '.join([*parts, f'{self.unchanged} unchanged'])}."
        if self.removed or self.added:
            before, after = (literal(name) for name in self.names)
            only = [(self.removed, before), (self.added, after)]
            yield f"{listed([f'{len(one)} only in {name}' for one, name in only if one])}."
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
            "fail_on": self.fail_on,
            "broken": list(self.broken),
        }


def _shown(sentences: Sequence[str]) -> tuple[str, ...]:
    more = len(sentences) - SHOWN
    return (*sentences[:SHOWN], *([f"{more} more; --json has them all."] if more > 0 else []))


def _each_once(labels: Sequence[str]) -> list[str]:
    times = Counter(labels)
    return [literal(f"{one} ({times[one]} times)" if times[one] > 1 else one) for one in times]


def _sentence(change: Change) -> str:
    return f"**{literal(change.label)}**: {literal(change.words)}."


def _table(changes: Sequence[Change]) -> Grid:
    """Return the amounts of each change before and after."""
    columns = [
        name
        for name in AMOUNTS
        if any(name in _changed(one.before[0], one.after[0]) for one in changes)
    ]
    rows = tuple(
        (
            literal(one.label),
            *(_cell(one, name) for name in (*columns, "programs_per_multiprocessor")),
            _cell(one, "occupancy"),
        )
        for one in changes
    )
    headers = ("", *(AMOUNTS[name] for name in columns), "programs", "occupancy")
    return Grid(headers, rows)


def _cell(change: Change, name: str) -> str:
    values = [row.values.get(name) for row in (change.before[0], change.after[0])]
    texts = [
        "-"
        if value is None
        else percent(float(value))
        if name == "occupancy" and isinstance(value, int | float)
        else shown(value)
        for value in values
    ]
    return texts[0] if texts[0] == texts[1] else " → ".join(texts)


def diff(
    before: Any,
    after: Any,
    *,
    fail_on: str | None = None,
    names: tuple[str, str] = ("before", "after"),
    gpu: AskedGpus | None = None,
) -> Diff:
    """Return what changed in registers, local and shared memory and occupancy.

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
        names: What to call the tables.
        gpu: GPUs, as `explain` takes them, for folders.

    Raises:
        InputError: something is wrong with a table or the condition, or both have no rows.
    """
    condition = None if fail_on is None else parse(fail_on, _FAIL_ON)
    tables = [Table.of(load(one, gpu=gpu)[0]) for one in (before, after)]
    both = Table.of([*tables[0].rows, *tables[1].rows])
    if not both.rows:
        refuse("there are no rows to compare in either table")
    columns = [name for name in tables[0].kinds if name in tables[1].kinds and name not in RESULTS]
    compared = [name for name in COMPARED if all(name in table.kinds for table in tables)]
    changes, only, unchanged = [], ([], []), 0  # type: ignore[var-annotated] # as it is filled
    for olds, news in _groups(tables, columns):
        single = len(olds) == len(news) == 1
        unchanged += _take_alike(olds, news, compared)
        if olds and news:
            kind = _kind(olds[0], news[0]) if single else "set"
            changes.append(Change(kind, both.label(news[0]), tuple(olds), tuple(news)))
        else:
            for place, rows in enumerate((olds, news)):
                only[place].extend(rows)
    changes.sort(key=_order)
    broken = [] if condition is None else _broken(condition, both, columns, changes, only)
    removed, added = (tuple(both.label(row) for row in rows) for rows in only)
    return Diff(names, tuple(changes), unchanged, removed, added, tuple(broken), fail_on)


_FAIL_ON = "after_local_bytes > before_local_bytes"


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


def _take_alike(olds: list[Row], news: list[Row], names: Sequence[str]) -> int:
    """Take the pairs that are alike in *names* out of both lists; return how many these are."""

    def results(row: Row) -> tuple[Value, ...]:
        return (row.status, *(row.values.get(name) for name in names))

    own, others = (Counter(map(results, rows)) for rows in (olds, news))
    alike = own & others
    for rows in (olds, news):
        taken = Counter(alike)
        kept = []
        for row in rows:
            if taken[results(row)]:
                taken[results(row)] -= 1
            else:
                kept.append(row)
        rows[:] = kept
    return alike.total()


def _kind(before: Row, after: Row) -> str:
    if after.status != OK and before.status == OK:
        return "failed"
    programs = [row.values.get("programs_per_multiprocessor") for row in (before, after)]
    if None not in programs and programs[0] != programs[1]:
        return "crossed"
    return "spills" if _number(after, "local_bytes") > _number(before, "local_bytes") else "other"


def _order(change: Change) -> tuple[int, bool, float, str]:
    """Return what changes are sorted by: kind, losses of occupancy before gains, size."""
    kinds = list(_KINDS)
    one, other = change.before[0], change.after[0]
    gained = _number(other, "occupancy") > _number(one, "occupancy")
    return kinds.index(change.kind), gained, -change.size, change.label


def _broken(
    condition: Expression,
    both: Table,
    columns: Sequence[str],
    changes: Sequence[Change],
    only: tuple[list[Row], list[Row]],
) -> Iterator[str]:
    """Return what to call the changes for which the condition holds."""
    sides = ("before_", "after_")
    kinds: dict[str, Kind] = {name: both.kinds[name] for name in columns}
    kinds |= {f"{side}{name}": kind for side in sides for name, kind in both.kinds.items()}
    try:
        condition.check(kinds)
    except InputError as error:
        msg = f"--fail-on {error}"
        raise InputError(msg) from error
    table = Table((), kinds)

    def holds(before: Row | None, after: Row | None) -> bool:
        values: dict[str, Value] = {}
        for side, row in zip(sides, (before, after), strict=True):
            if row is not None:
                values |= row.values
                values |= {f"{side}{name}": value for name, value in row.values.items()}
        return table.evaluate(condition, values) is True

    for change in changes:
        if any(holds(*pair) for pair in itertools.product(change.before, change.after)):
            yield change.label
    yield from (both.label(row) for row in only[0] if holds(row, None))
    yield from (both.label(row) for row in only[1] if holds(None, row))


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
