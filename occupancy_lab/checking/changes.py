"""A kernel before and after: which rows are the same launch, and what changed in which words."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from occupancy_lab.checking.rows import TIMES, Row, Table, same_text, shown
from occupancy_lab.expressions import Value
from occupancy_lab.options import NAMES
from occupancy_lab.text.words import (
    LIMITS,
    cell,
    count,
    difference_cell,
    duration,
    listed,
    microseconds,
    percent,
    resource_word,
)
from occupancy_lab.values import Status

AMOUNTS: Mapping[str, str] = {
    "local_bytes": "local B",
    "n_regs": "registers",
    "shared": "shared B",
    "static_shared": "static shared B",
}
"""The amounts that are compared, with their words in a table."""
LAUNCHES = "launches"
"""The column with the number of times that a traced program launches a kernel."""
CALLED: Mapping[str, str] = {
    LAUNCHES: LAUNCHES,
    **{name: f"{words} us" for name, words in TIMES.items()},
    **AMOUNTS,
    "programs_per_multiprocessor": "programs",
}
"""The headers of columns whose own names would not be clear."""
COMPARED = (*TIMES, LAUNCHES, *AMOUNTS, "programs_per_multiprocessor", "occupancy")
"""The columns besides the status in which a change counts, if both tables have them."""
KINDS: Mapping[str, tuple[str, str]] = {
    "failed": ("failing now", "No longer compile or fit"),
    "slower": ("slower", "Slower"),
    "faster": ("faster", "Faster"),
    "total": ("with another total time", "Another total time of all launches"),
    "spills": ("spilling more", "Spill more"),
    "crossed": ("crossing a step", "Crossed a step"),
    "set": ("differing as sets", "Rows that nothing tells apart, compared as sets"),
    "other": ("changed otherwise", "Changed otherwise"),
}
"""The kinds of changes in the order in which they are shown, with words for a count and a title."""


@dataclass(frozen=True, slots=True)
class Change:
    """A kernel before and after, or several rows on each side that nothing tells apart."""

    kind: str
    """One of KINDS."""
    label: str
    before: tuple[Row, ...]
    after: tuple[Row, ...]

    @property
    def order(self) -> tuple[int, float, float, bool, float, str]:
        """The sort key: kind, difference in time, occupancy (losses first), and size of change."""
        one, other = self.before[0], self.after[0]
        lost = (one.number("occupancy") or 0.0) - (other.number("occupancy") or 0.0)
        more = sum(abs((other.number(name) or 0.0) - (one.number(name) or 0.0)) for name in AMOUNTS)
        place = [*KINDS].index(self.kind)
        _, old, new = times(one, other, in_all=True) or ("", 0.0, 0.0)
        longer = -abs(slower(one, other)), -abs(new - old)
        return place, *longer, lost < 0, -abs(lost) * 1e9 - more, self.label

    @property
    def words(self) -> str:
        """What changed: "72 registers instead of 64: 3 programs per SM instead of 4, ..."."""
        if self.kind == "set":
            words = [f"{count(len(self.before), 'row')} before and {len(self.after)} after differ"]
            for name, title in CALLED.items():
                one, other = (_values(name, rows) for rows in (self.before, self.after))
                if one != other:
                    words.append(f"{title} {one} before, {other} after")
            return "; ".join(words)
        before, after = self.before[0], self.after[0]
        if before.status != after.status:
            reason = after.values.get("reason") or before.values.get("reason")
            status = f"{after.status} instead of {before.status}"
            return f"{status}: {reason}" if reason else status
        words = [
            *time_words(before, after),
            *_total_words(before, after),
            *(_amount_words(name, before, after) for name in changed(before, after)),
        ]
        return f"{listed(words or ['with the same amounts'])}: {_occupancy_words(before, after)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain values, for JSON."""
        return {
            "kind": self.kind,
            "row": self.label,
            "words": self.words,
            "before": [dict(one.values) for one in self.before],
            "after": [dict(one.values) for one in self.after],
        }


def times(before: Row, after: Row, *, in_all: bool = False) -> tuple[str, float, float] | None:
    """Return the column of times that decides, and both times; None if they have none in common.

    With *in_all* the times are those of all launches of the row.
    """
    time_of = Row.total if in_all else Row.number
    for name in TIMES:
        if (old := time_of(before, name)) and (new := time_of(after, name)):
            return name, old, new
    return None


def slower(before: Row, after: Row, *, in_all: bool = False) -> float:
    """Return by which share a row is slower (negative: faster); 0 if not noticeably different."""
    if (found := times(before, after, in_all=in_all)) is None:
        return 0.0
    name, old, new = found
    share = new / old - 1
    same = max(before.noticeable(name), after.noticeable(name))
    return share if abs(share) >= same else 0.0


def launches_differ(before: Row, after: Row) -> bool:
    """Tell whether a traced program launches the kernel another number of times."""
    numbers = {before.number(LAUNCHES), after.number(LAUNCHES)}
    return None not in numbers and len(numbers) > 1


def changed(before: Row, after: Row) -> list[str]:
    """Return the amounts that differ or are known on only one side."""
    return [name for name in AMOUNTS if before.values.get(name) != after.values.get(name)]


def time_words(before: Row, after: Row) -> Iterator[str]:
    """Say how the time differs, if noticeably, or that it is no longer known."""
    if times(before, after) is None:
        for name, how in TIMES.items():
            if (gone := before.number(name)) and name in after.values:
                yield f"{how} time not known instead of {microseconds(gone)}"
    elif slower(before, after):
        yield difference_words(before, after)


def _total_words(before: Row, after: Row) -> Iterator[str]:
    if launches_differ(before, after):
        was, now = (int(row.number(LAUNCHES) or 0) for row in (before, after))
        yield f"{now} launch{'' if now == 1 else 'es'} instead of {was}"
    elif slower(before, after):
        return
    if (found := times(before, after, in_all=True)) and slower(before, after, in_all=True):
        name, old, new = found
        yield f"a total of {two_times(old, new, name)}"


def two_times(old: float, new: float, time: str, written: Callable[[float], str] = duration) -> str:
    """Return two times in words: "4.48 ms predicted instead of 3.58 ms (+25.0%)"."""
    if written(old) == written(new):
        return f"{written(new)} {TIMES[time]}, as before"
    words = f"{written(new)} {TIMES[time]} instead of {written(old)}"
    return f"{words} ({difference_cell(new, old)})"


def difference_words(before: Row, after: Row) -> str:
    """Return how the time differs: "634 us predicted instead of 187 us (+239.0%)".

    "" if it is not known on both sides.
    """
    if (found := times(before, after)) is None:
        return ""
    name, old, new = found
    return two_times(old, new, name, microseconds)


def _amount_words(name: str, before: Row, after: Row) -> str:
    old, new = before.values.get(name), after.values.get(name)
    amd = after.gpu is not None and after.gpu.vendor == "AMD"
    word = "VGPRs" if amd and name == "n_regs" else AMOUNTS[name]
    if new is None:
        return f"{word} not known instead of {shown(old)}"
    was = ", not known before" if old is None else f" instead of {shown(old)}"
    return f"{shown(new)} {word}{was}"


def _occupancy_words(before: Row, after: Row) -> str:
    gpu = after.gpu
    word = "multiprocessor" if gpu is None else gpu.architecture.multiprocessor_word
    old, new = (row.number("programs_per_multiprocessor") for row in (before, after))
    if old is None or new is None:
        return "it is not known how many programs fit"
    shares = (row.number("occupancy") for row in (before, after))
    held, holds = ("not known" if one is None else percent(one) for one in shares)
    share = holds if held == holds else f"{holds} instead of {held}"
    programs = f"{count(int(new), 'program')} per {word}"
    if old == new:
        return f"still {programs} ({share})"
    still = "still " if held == holds else ""
    fewer = new < old
    limiters = str((after if fewer else before).values.get("limiter") or "").split("+")
    vendor = "" if gpu is None else gpu.vendor
    limited = listed([resource_word(vendor, one) for one in limiters if one in LIMITS] or [""])
    why = f", limited by {limited}" if fewer else f", which {limited} limited before"
    words = f"{programs} instead of {int(old)} ({still}{share})"
    return f"{words}{why if limited else ''}"


def _values(name: str, rows: Sequence[Row]) -> str:
    """Return the values of *rows* in a column, sorted, with the number of repeated ones."""
    found = sorted((row.number(name) for row in rows), key=lambda one: (one is None, one))
    counts = Counter(cell(one) if name in TIMES else shown(one) for one in found)
    return ", ".join(
        f"{one} ({times} times)" if times > 1 else one for one, times in counts.items()
    )


def kind_of(before: Row, after: Row) -> str:
    """Return the kind of the change between two rows, one of KINDS."""
    if after.status != Status.OK and before.status == Status.OK:
        return "failed"
    if share := slower(before, after):
        return "slower" if share > 0 else "faster"
    if slower(before, after, in_all=True) or launches_differ(before, after):
        return "total"
    if (after.number("local_bytes") or 0.0) > (before.number("local_bytes") or 0.0):
        return "spills"
    old, new = (row.number("programs_per_multiprocessor") for row in (before, after))
    return "other" if old is None or new is None or old == new else "crossed"


def are_equal(before: Row, after: Row, names: Sequence[str]) -> bool:
    """Tell whether two rows are equal in the columns *names* and not noticeably apart in time."""
    same = _results(before, names) == _results(after, names)
    return same and not slower(before, after) and not slower(before, after, in_all=True)


def take_equal(olds: list[Row], news: list[Row], names: Sequence[str]) -> list[tuple[Row, Row]]:
    """Remove the pairs that `are_equal` from both lists, and return them."""
    by_results: dict[tuple[Value, ...], list[Row]] = {}
    for row in _by_time(news):
        by_results.setdefault(_results(row, names), []).append(row)
    left, pairs = [], []
    for old in _by_time(olds):
        found = by_results.get(_results(old, names), [])
        place = next((n for n, new in enumerate(found) if are_equal(old, new, names)), None)
        if place is None:
            left.append(old)
        else:
            pairs.append((old, found.pop(place)))
    taken = {id(new) for _, new in pairs}
    olds[:] = left
    news[:] = [row for row in news if id(row) not in taken]
    return pairs


def _by_time(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(row.number(name) or 0.0 for name in TIMES))


def _results(row: Row, names: Sequence[str]) -> tuple[Value, ...]:
    values = ((name, row.values.get(name)) for name in names)
    return (row.status, *(one is None if name in TIMES else one for name, one in values))


_KERNEL = ("kernel", "gpu")
_SIZE = "dram_written_bytes"
"""The column that distinguishes a kernel's launches on tensors of different sizes."""


@dataclass(frozen=True, slots=True)
class Match:
    """A row before and after, several of each that nothing tells apart, or a row of one side."""

    before: tuple[Row, ...]
    after: tuple[Row, ...]
    told_apart: bool = True
    """Whether the columns identify the rows as the same launch."""


def both_have(before: Table, after: Table, names: Sequence[str]) -> list[str]:
    """Return the *names* that are columns of both tables."""
    return [name for name in names if name in before.kinds and name in after.kinds]


def common_columns(before: Table, after: Table) -> list[str]:
    """Return the columns of both tables that identify a row."""
    known = {name for table in (before, after) for row in table.rows for name in row.names}
    return [name for name in both_have(before, after, [*before.kinds]) if name in known]


def are_traces(*tables: Table) -> bool:
    """Tell whether all *tables* are traces, which have all launches of a program."""
    return all("launches" in table.kinds for table in tables)


def launched(table: Table) -> Table:
    """Return *table* without configurations that an autotuner is not expected to launch."""
    rows = [row for row in table.rows if row.is_launched]
    return table if len(rows) == len(table.rows) else Table.of(rows)


def match_rows(before: Table, after: Table, match: Sequence[str] | None = None) -> Iterator[Match]:
    """Yield a match for each row, pairing rows of both tables that are the same launch.

    Rows are the same launch if the columns *match* are equal, by default all columns that identify
    a row. Rows of two traces that are still unmatched are matched by kernel and GPU: first those
    that write equally many bytes, then those with equal constexprs, then any of the same kernel.
    Those of two explanations are matched by their arguments, first with equal constexprs.
    Among several rows that nothing tells apart, equal rows are paired, and the rest is one match.
    """
    columns = common_columns(before, after) if match is None else match
    compared = both_have(before, after, COMPARED)
    ways: list[Sequence[str]] = [columns]
    constexprs = [name for name in columns if name not in NAMES]
    if match is None and are_traces(before, after):
        ways += [(*columns, _SIZE), (*_KERNEL, _SIZE), constexprs, _KERNEL]
    elif match is None and "arguments" in columns:
        ways += [constexprs, (*_KERNEL, "arguments")]
    olds, news = list(before.rows), list(after.rows)
    for place, way in enumerate(ways):
        last = place == len(ways) - 1
        left: tuple[list[Row], list[Row]] = ([], [])
        for group in _groups(olds, news, way):
            if len(group[0]) == len(group[1]) == 1:
                yield Match(tuple(group[0]), tuple(group[1]))
                continue
            for old, new in take_equal(*group, compared) if place == 0 else ():
                yield Match((old,), (new,))
            if last and all(group):
                yield Match(tuple(group[0]), tuple(group[1]), told_apart=False)
                continue
            for some, more in zip(left, group, strict=True):
                some.extend(more)
        olds, news = left
    yield from (Match((row,), ()) for row in olds)
    yield from (Match((), (row,)) for row in news)


def _groups(
    olds: Sequence[Row], news: Sequence[Row], columns: Sequence[str]
) -> list[tuple[list[Row], list[Row]]]:
    groups: dict[tuple[str, ...], tuple[list[Row], list[Row]]] = {}
    for place, rows in enumerate((olds, news)):
        for row in rows:
            key = tuple(same_text(row.values.get(name)) for name in columns)
            groups.setdefault(key, ([], []))[place].append(row)
    return [*groups.values()]


def with_baseline(rows: Sequence[Row], baseline: Sequence[Row]) -> list[Row]:
    """Return *rows*, each with the same launch in *baseline* as `match_rows` finds it.

    If several launches match, only the values that they share are known. Launches that failed in
    the baseline are ignored.
    """
    before = Table.of(row for row in baseline if row.status == Status.OK)
    after = Table.of(rows)
    matches = match_rows(launched(before), launched(after))
    found = {id(row): _agreed(one.before) for one in matches if one.before for row in one.after}
    return [dataclasses.replace(row, before=found.get(id(row))) for row in rows]


def _agreed(rows: Sequence[Row]) -> Row:
    """Return the first of *rows* with only the values that all of them share, others None."""
    first = rows[0]
    return dataclasses.replace(
        first,
        values={
            name: value if all(row.values.get(name) == value for row in rows) else None
            for name, value in first.values.items()
        },
    )
