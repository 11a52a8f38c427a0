"""Which rows of two tables are the same launch: `diff` and the baseline of `check` ask it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.checking.changes import COMPARED, take_alike
from occupancy_lab.checking.rows import Table, same_text
from occupancy_lab.options import NAMES
from occupancy_lab.table.columns import RESULTS
from occupancy_lab.values import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.checking.rows import Row

_KERNEL = ("kernel", "gpu")
_SIZE = "dram_written_bytes"
"""What tells launches of a kernel on tensors of other sizes apart, whatever their settings."""


@dataclass(frozen=True, slots=True)
class Match:
    """A row before and after; or several of each that nothing tells apart; or those of one side."""

    before: tuple[Row, ...]
    after: tuple[Row, ...]
    told_apart: bool = True
    """Whether the columns say that these are the same, and not only how alike they are."""


def both_have(before: Table, after: Table, names: Sequence[str]) -> list[str]:
    """Return those of *names* that are columns of both tables."""
    return [name for name in names if name in before.kinds and name in after.kinds]


def common_columns(before: Table, after: Table) -> list[str]:
    """Return the columns of both tables that name a row."""
    return [name for name in both_have(before, after, [*before.kinds]) if name not in RESULTS]


def are_traces(*tables: Table) -> bool:
    """Tell whether all of *tables* are of traces, which have all launches of a program."""
    return all("launches" in table.kinds for table in tables)


def launched(table: Table) -> Table:
    """Return *table* without what an autotuner of a traced program is not expected to launch."""
    rows = [row for row in table.rows if row.values.get("expected") is not False]
    return table if len(rows) == len(table.rows) else Table.of(rows)


def match_rows(before: Table, after: Table, match: Sequence[str] | None = None) -> Iterator[Match]:
    """Yield what becomes of each row: one is the same launch as another in equal columns.

    They are equal in *match* alone, or in all that name a row. What two traces leave over then is
    matched by kernel and GPU: first where both write as many bytes, then where constexprs are
    equal, then all of a kernel. Of several rows that nothing tells apart those that are alike are
    pairs, and the others one match.
    """
    columns = common_columns(before, after) if match is None else match
    compared = both_have(before, after, COMPARED)
    ways: list[Sequence[str]] = [columns]
    if match is None and are_traces(before, after):
        constexprs = [name for name in columns if name not in NAMES]
        ways += [(*columns, _SIZE), (*_KERNEL, _SIZE), constexprs, _KERNEL]
    olds, news = list(before.rows), list(after.rows)
    for place, way in enumerate(ways):
        last = place == len(ways) - 1
        left: tuple[list[Row], list[Row]] = ([], [])
        for group in _groups(olds, news, way):
            if len(group[0]) == len(group[1]) == 1:
                yield Match(tuple(group[0]), tuple(group[1]))
                continue
            for old, new in take_alike(*group, compared) if place == 0 else ():
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
    """Return the rows of both tables that *columns* name alike."""
    groups: dict[tuple[str, ...], tuple[list[Row], list[Row]]] = {}
    for place, rows in enumerate((olds, news)):
        for row in rows:
            key = tuple(same_text(row.values.get(name)) for name in columns)
            groups.setdefault(key, ([], []))[place].append(row)
    return [*groups.values()]


def with_baseline(rows: Sequence[Row], baseline: Sequence[Row]) -> list[Row]:
    """Return *rows*, each with the same launch in *baseline*, as `match_rows` finds it.

    Of several that nothing tells apart it has what all of these hold. What failed in the baseline
    is not in it.
    """
    before = Table.of(row for row in baseline if row.status == Status.OK)
    after = Table.of(rows)
    matches = [*match_rows(launched(before), launched(after))]
    matches += match_rows(
        _not_launched(before), _not_launched(after), common_columns(before, after)
    )
    found = {id(row): _agreed(one.before) for one in matches if one.before for row in one.after}
    return [dataclasses.replace(row, before=found.get(id(row))) for row in rows]


def _not_launched(table: Table) -> Table:
    return Table.of(row for row in table.rows if row.values.get("expected") is False)


def _agreed(rows: Sequence[Row]) -> Row:
    """Return the first of *rows* with the values that all of them hold, the others not known."""
    first = rows[0]
    return dataclasses.replace(
        first,
        values={
            name: value if all(row.values.get(name) == value for row in rows) else None
            for name, value in first.values.items()
        },
    )
