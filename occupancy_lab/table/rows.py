"""The rows of a CSV or a JSON file, each value as its column holds it.

What is wrong is said in one way: the file, the line or the row, the column, what was found there,
and what is expected.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from occupancy_lab.errors import InputError, quoted, refuse, shortened
from occupancy_lab.expressions import Kind
from occupancy_lab.files import read_cell, read_given, read_json
from occupancy_lab.table.columns import COLUMNS, FLAGS, TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from occupancy_lab.table.columns import Column

OF_ANY_KERNEL: Mapping[str, Column] = {
    name: column if column.result else TEXT
    for name, column in COLUMNS.items()
    if column.result or column.kind is Kind.TEXT
}
"""The columns whose values are checked in a table of any kernels: a number that is no result, such
as `rows`, may be a constexpr of a kernel's own."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a file."""

    name: str
    """What errors call the file."""
    places: Sequence[str]
    """Where each row is: "line 3" of a CSV file, "row 2" of JSON."""
    rows: Sequence[dict[str, Any]]
    columns: Sequence[str]
    """Every column that a row has."""

    def refuse(self, place: int, column: str, expected: str) -> NoReturn:
        """Raise InputError for the cell of a *column* in the row at *place*."""
        value = self.rows[place].get(column)
        found = "blank" if value is None else quoted(value)
        refuse(f"{self.name}, {self.places[place]}: {shortened(column)} is {found}; {expected}")


def read_file(path: str | Path, columns: Mapping[str, Column] = OF_ANY_KERNEL) -> Rows:
    """Return the rows of the file at *path*, "-" for standard input, as `read_text` does.

    Raises InputError too where it cannot be read.
    """
    name = "standard input" if str(path) == "-" else str(path)
    return read_text(read_given(str(path)), name, columns)


def read_text(text: str, name: str, columns: Mapping[str, Column] = OF_ANY_KERNEL) -> Rows:
    """Return the rows of *text*, which the file *name* holds as CSV or JSON.

    JSON is a list of rows, or what `explain --json` and `compare --json` have around one.

    Columns that are none of *columns* hold numbers or flags where all cells of a CSV file are such,
    else texts. What is nested in JSON stays as it is.

    Raises InputError where it is no table, or a value is none that its column holds.
    """
    is_json = text.lstrip()[:1] in {"[", "{"}
    found = _json_rows(name, read_json(text, name)) if is_json else _cells(name, text)
    for column in found.columns:
        known = columns.get(column)
        if known is None and not is_json:
            _guess(found.rows, column)
        elif known is not None and not (is_json and known.holds_any_text):
            _read(found, column, known)
    return found


def _json_rows(name: str, document: Any) -> Rows:
    if isinstance(document, dict):
        holders = [document, *_mappings(name, document.get("lines") or [])]
        document = [
            {"source": one["place"], **row} if "place" in one else row
            for one in holders
            for row in _mappings(name, one.get("rows") or one.get("records") or [])
        ]
    rows = _mappings(name, document)
    places = [f"row {number}" for number in range(1, len(rows) + 1)]
    return Rows(name, places, rows, [*dict.fromkeys(column for row in rows for column in row)])


def _mappings(name: str, found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        refuse(f"{quoted(name)} holds no list of rows, as scan, sweep or explain --json writes it")
    return found


def _cells(name: str, text: str) -> Rows:
    """Return the cells of CSV as they stand."""
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [read_cell(cell) for cell in next(reader, [])]
        lines = [(f"line {reader.line_num}", row) for row in reader if row]
    except csv.Error as error:
        msg = f"{name} cannot be read as a table: {error}"
        raise InputError(msg) from error
    for column, times in Counter(header).items():
        if times > 1:
            refuse(f"{name} has the column {quoted(column)} {times} times")
    for place, row in lines:
        if len(row) != len(header):
            refuse(f"{name}, {place}: found {len(row)} fields, expected {len(header)}")
    rows = [dict(zip(header, row, strict=True)) for _, row in lines]
    return Rows(name, [place for place, _ in lines], rows, header)


def _read(found: Rows, name: str, column: Column) -> None:
    """Replace the cells of a column by the values that it holds, None for what is not known."""
    read: dict[tuple[type, Any], Any] = {}
    for place, row in enumerate(found.rows):
        cell = row.get(name)
        if cell is None or isinstance(cell, list | dict):
            continue
        key = type(cell), cell
        if key not in read:
            try:
                read[key] = column.read(cell)
            except (ValueError, OverflowError):
                found.refuse(place, name, column.words)
        row[name] = read[key]


def _guess(rows: Sequence[dict[str, Any]], name: str) -> None:
    """Replace the cells of a column of CSV by numbers or flags where all of them are such."""
    cells = [row[name] for row in rows]
    values: list[Any] = [read_cell(cell) or None for cell in cells]
    if all(cell in FLAGS for cell in cells if cell):
        values = [FLAGS.get(cell) for cell in cells]
    else:
        with contextlib.suppress(ValueError):
            values = [_number(cell) if cell else None for cell in cells]
    for row, value in zip(rows, values, strict=True):
        row[name] = value


def _number(cell: str) -> float:
    try:
        return int(cell)
    except ValueError:
        number = float(cell)
        if not math.isfinite(number):
            raise
        return number
