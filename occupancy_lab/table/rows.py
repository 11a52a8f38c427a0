"""Reads and writes the rows of CSV and JSON files, each value as its column allows.

Every error has the same form: the file, the line or row, the column, the value found there, and
what is expected.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from occupancy_lab.errors import InputError, after, quoted, refuse, shortened
from occupancy_lab.expressions import Expression, Kind, nearest, parse
from occupancy_lab.files import check_outputs, csv_text, export, read_cell, read_given, read_json
from occupancy_lab.table.columns import COLUMNS, FLAGS, TEXT, Column
from occupancy_lab.text import document
from occupancy_lab.text.document import Table, json_text, literal

Cells = Sequence[Mapping[str, Any]]

OF_ANY_KERNEL: Mapping[str, Column] = {
    name: column if column.result else TEXT
    for name, column in COLUMNS.items()
    if column.result or column.kind is Kind.TEXT
}
"""The columns whose values are checked in a table of any kernels. Numeric columns that are not
results, such as `rows`, are left out, because a kernel's own constexpr may have the name."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a file."""

    name: str
    """The file's name in errors."""
    places: Sequence[str]
    """The place of each row: "line 3" of a CSV file, "row 2" of JSON."""
    rows: Sequence[dict[str, Any]]
    columns: Sequence[str]
    """Every column that any row has."""

    def refuse(self, place: int, column: str, expected: str) -> NoReturn:
        """Raise InputError for the cell in a *column* of row number *place*."""
        where = f"{self.name}, {self.places[place]}"
        _refuse(where, column, self.rows[place].get(column), expected)


def _refuse(where: str, column: str, value: Any, expected: str) -> NoReturn:
    found = "blank" if value is None else quoted(value)
    refuse(f"{where}: {shortened(column)} is {found}; {expected}")


def read_file(path: str | Path, columns: Mapping[str, Column] = OF_ANY_KERNEL) -> Rows:
    """Return the rows of the file at *path*, "-" for standard input, as `read_text` does.

    Also raises InputError if the file cannot be read.
    """
    name = "standard input" if str(path) == "-" else str(path)
    return read_text(read_given(str(path)), name, columns)


def read_text(text: str, name: str, columns: Mapping[str, Column] = OF_ANY_KERNEL) -> Rows:
    """Return the rows in *text*, the CSV or JSON content of the file *name*.

    JSON is a list of rows, or a document of `explain --json` or `compare --json` that has one.

    Columns that are not in *columns* are numbers or flags if all cells of a CSV file are, and texts
    otherwise. Nested JSON values are unchanged.

    Raises InputError if it is no table, or if a column does not allow a value.
    """
    if text.lstrip()[:1] in {"[", "{"}:
        return _json_rows(name, read_json(text, name), columns)
    return _csv_rows(name, text, columns)


def _json_rows(name: str, document: Any, columns: Mapping[str, Column]) -> Rows:
    if isinstance(document, dict):
        holders = _mappings(name, document.get("lines") or []) or [document]
        document = [
            {"source": one["place"], **row} if "place" in one else row
            for one in holders
            for row in _mappings(name, one.get("rows") or one.get("records") or [])
        ]
    rows = _mappings(name, document)
    places = [f"row {number}" for number in range(1, len(rows) + 1)]
    for place, row in zip(places, rows, strict=True):
        for column, cell in row.items():
            known = columns.get(column, TEXT)
            if cell is None or isinstance(cell, list | dict) or known.holds_any_text:
                continue
            try:
                row[column] = known.read(cell)
            except (ValueError, OverflowError):
                _refuse(f"{name}, {place}", column, cell, known.words)
    return Rows(name, places, rows, [*dict.fromkeys(column for row in rows for column in row)])


def _mappings(name: str, found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        refuse(f"{quoted(name)} holds no list of rows, as scan, sweep or explain --json writes it")
    return found


def _csv_rows(name: str, text: str, columns: Mapping[str, Column]) -> Rows:
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [read_cell(cell) for cell in next(reader, [])]
        lines = [(f"line {reader.line_num}", row) for row in reader if row]
    except csv.Error as error:
        refuse(f"{name} cannot be read as a table: {error}")
    for column, times in Counter(header).items():
        if times > 1:
            refuse(f"{name} has the column {quoted(column)} {times} times")
    _check_fields(name, header, lines)
    places = [place for place, _ in lines]
    values: list[Sequence[Any]] = []
    for column, cells in zip(header, zip(*(row for _, row in lines), strict=True), strict=False):
        known = columns.get(column)
        if known is None:
            values.append(_guessed(cells))
            continue
        read = {}
        for cell in dict.fromkeys(cells):
            try:
                read[cell] = known.read(cell)
            except ValueError:
                where = f"{name}, {places[cells.index(cell)]}"
                _refuse(where, column, cell, known.words)
        values.append([read[cell] for cell in cells])
    rows = [dict(zip(header, row, strict=True)) for row in zip(*values, strict=True)]
    return Rows(name, places, rows, header)


def _check_fields(
    name: str, header: Sequence[str], lines: Sequence[tuple[str, Sequence[str]]]
) -> None:
    """Raise InputError unless each of *lines* has as many fields as the header."""
    for place, row in lines:
        if len(row) > len(header) == 1:
            refuse(
                f"{name} is neither CSV nor JSON; give a file that sweep --export-csv, trace --json"
                " or the like wrote"
            )
        if len(row) != len(header):
            refuse(f"{name}, {place}: found {len(row)} fields, expected {len(header)}")


def _guessed(cells: Sequence[str]) -> Sequence[Any]:
    """Return a column's cells as numbers or flags if all of them are, and as texts otherwise."""
    if all(cell in FLAGS for cell in cells if cell):
        return [FLAGS.get(cell) for cell in cells]
    try:
        return [_number(cell) if cell else None for cell in cells]
    except ValueError:
        return [read_cell(cell) or None for cell in cells]


def _number(cell: str) -> float:
    try:
        return int(cell)
    except ValueError:
        number = float(cell)
        if not math.isfinite(number):
            raise
        return number


@dataclass(frozen=True, slots=True)
class View:
    """The first `top` rows for which `where` holds, sorted by the column `sort`.

    `where` is a condition over columns, as in `occupancy_lab.expressions`; rows for which it is not
    known are left out. A minus before the column's name sorts in descending order; unknown values
    come last.
    """

    where: str | None = None
    sort: str | None = None
    top: int | None = None

    def check(
        self, kinds: Mapping[str, Kind], missing: Mapping[str, str] = MappingProxyType({})
    ) -> Expression | None:
        """Return the condition; raise InputError for a view that does not fit these *kinds*.

        *missing* says how to get a column that the table lacks.
        """
        condition = None
        if self.where is not None:
            with after("--where "):
                condition = parse(self.where)
                absent = sorted(condition.names & missing.keys() - kinds.keys())
                if not absent:
                    condition.check(kinds)
            if absent:
                refuse(f"--where {quoted(self.where)} names {absent[0]}; {missing[absent[0]]}")
        name = (self.sort or "").removeprefix("-")
        if self.sort is not None and name not in kinds:
            hint = missing.get(name) or nearest(name, kinds)
            refuse(f"--sort {quoted(self.sort)} names no column; {hint}")
        if self.top is not None and self.top < 1:
            refuse(f"--top is {self.top}; it shows at least 1 row")
        return condition

    def places(self, rows: Cells, kinds: Mapping[str, Kind]) -> list[int]:
        """Return the indices of the shown *rows*, in order.

        Raises InputError as `check` does.
        """
        condition = self.check(kinds)
        places = [
            place
            for place, row in enumerate(rows)
            if condition is None
            or condition.evaluate({name: row.get(name) for name in condition.names}) is True
        ]
        if self.sort is not None:
            name = self.sort.removeprefix("-")
            known = [place for place in places if rows[place].get(name) is not None]
            unknown = [place for place in places if rows[place].get(name) is None]
            known.sort(key=lambda place: rows[place][name], reverse=self.sort.startswith("-"))
            places = known + unknown
        return places[: self.top]


def to_csv(columns: Sequence[str], rows: Cells) -> str:
    """Return *rows* as CSV that is safe in a spreadsheet; unknown values are empty cells."""
    return csv_text(columns, [[to_cell(row.get(name)) for name in columns] for row in rows])


def to_cell(value: Any) -> Any:
    """Return a value as the content of a cell: constexprs as "BLOCK_SIZE=1024, EVEN=True"."""
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}={one}" for name, one in value.items())
    return None if value == "" else value


def to_json(_columns: Sequence[str], rows: Cells) -> str:
    """Return *rows* as a JSON list; unknown values are null."""
    return json_text(list(rows)) + "\n"


def to_table(columns: Sequence[str], rows: Cells) -> Table:
    """Return *rows* as a table of text; unknown values are dashes."""
    found = ([to_cell(row.get(name)) for name in columns] for row in rows)
    cells = tuple(
        tuple("-" if cell is None else literal(str(cell)) for cell in row) for row in found
    )
    return Table(tuple(map(literal, columns)), cells, prose=True)


def to_markdown(columns: Sequence[str], rows: Cells) -> str:
    """Return *rows* as a markdown table; unknown values are dashes."""
    return document.to_markdown((to_table(columns, rows),))


FORMS: Mapping[str, Callable[[Sequence[str], Cells], str]] = {
    "csv": to_csv,
    "json": to_json,
    "markdown": to_markdown,
}
"""The functions that write a table's rows, by the name of the form."""


@dataclass(frozen=True, slots=True)
class Exports:
    """The files for a table's rows, by form."""

    csv: str | None = None
    json: str | None = None
    markdown: str | None = None

    def _paths(self) -> dict[str, str]:
        return {form: path for form in FORMS if (path := getattr(self, form)) is not None}

    def check(self, **others: Mapping[str, Path | str | None]) -> None:
        """Raise InputError, before any work is done, if the files cannot be written.

        *others* are further arguments of `check_outputs`.
        """
        check_outputs({f"--export-{form}": path for form, path in self._paths().items()}, **others)

    def write(self, columns: Sequence[str], rows: Cells) -> Iterator[str]:
        """Write all files, and yield a message for each that cannot be written."""
        for form, path in self._paths().items():
            try:
                export(Path(path), FORMS[form](columns, rows))
            except InputError as error:
                yield str(error)
