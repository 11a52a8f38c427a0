"""Which rows of a table are shown, in which order, and the files that they are written to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError, after, quoted, refuse
from occupancy_lab.expressions import nearest, parse
from occupancy_lab.files import check_outputs, csv_text, export
from occupancy_lab.text import document
from occupancy_lab.text.document import Table, json_text, literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from occupancy_lab.expressions import Expression, Kind

    Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class View:
    """The rows for which `where` holds, by the column `sort`, and the first `top` of them.

    `where` is a condition over columns, as `occupancy_lab.expressions` has them; a row is left out
    where it is not known whether it holds. `sort` is descending with a minus before the column's
    name, and what is not known comes last.
    """

    where: str | None = None
    sort: str | None = None
    top: int | None = None

    def check(self, kinds: Mapping[str, Kind], missing: Mapping[str, str] | None = None) -> None:
        """Raise InputError for what makes no sense of columns of these *kinds*.

        *missing* says how to come by a column that the table has not got.
        """
        self._condition(kinds, missing or {})
        name = (self.sort or "").removeprefix("-")
        if self.sort is not None and name not in kinds:
            hint = (missing or {}).get(name) or nearest(name, kinds)
            refuse(f"--sort {quoted(self.sort)} names no column; {hint}")
        if self.top is not None and self.top < 1:
            refuse(f"--top is {self.top}; it shows at least 1 row")

    def _condition(
        self, kinds: Mapping[str, Kind], missing: Mapping[str, str]
    ) -> Expression | None:
        if self.where is None:
            return None
        with after("--where "):
            condition = parse(self.where)
            absent = sorted(condition.names & missing.keys() - kinds.keys())
            if not absent:
                condition.check(kinds)
        if absent:
            refuse(f"--where {quoted(self.where)} names {absent[0]}; {missing[absent[0]]}")
        return condition

    def places(self, rows: Rows, kinds: Mapping[str, Kind]) -> list[int]:
        """Return the places in *rows* of those that are shown, in their order.

        Raises InputError as `check` does.
        """
        self.check(kinds)
        condition = self._condition(kinds, {})
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


def to_csv(columns: Sequence[str], rows: Rows) -> str:
    """Return *rows* as CSV, safe in a spreadsheet; what is not known is an empty cell."""
    return csv_text(columns, [[to_cell(row.get(name)) for name in columns] for row in rows])


def to_cell(value: Any) -> Any:
    """Return a value as one cell holds it: constexprs as "BLOCK_SIZE=1024, EVEN=True"."""
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}={one}" for name, one in value.items())
    return None if value == "" else value


def to_json(_columns: Sequence[str], rows: Rows) -> str:
    """Return *rows* as a JSON list; what is not known is null."""
    return json_text(list(rows)) + "\n"


def to_table(columns: Sequence[str], rows: Rows) -> Table:
    """Return *rows* as a table of text; what is not known is a dash."""
    found = ([to_cell(row.get(name)) for name in columns] for row in rows)
    cells = tuple(
        tuple("-" if cell is None else literal(str(cell)) for cell in row) for row in found
    )
    return Table(tuple(map(literal, columns)), cells, prose=True)


def to_markdown(columns: Sequence[str], rows: Rows) -> str:
    """Return *rows* as a table in markdown; what is not known is a dash."""
    return document.to_markdown((to_table(columns, rows),))


FORMS: Mapping[str, Callable[[Sequence[str], Rows], str]] = {
    "csv": to_csv,
    "json": to_json,
    "markdown": to_markdown,
}
"""How the rows of a table are written, by the name of the form."""


@dataclass(frozen=True, slots=True)
class Exports:
    """The files that the rows of a table go to, by the form that each has."""

    csv: str | None = None
    json: str | None = None
    markdown: str | None = None

    def _paths(self) -> dict[str, str]:
        return {form: path for form in FORMS if (path := getattr(self, form)) is not None}

    def check(self, **others: Mapping[str, Path | str | None]) -> None:
        """Raise InputError, before any work is done, where they cannot be written.

        *others* are what else `check_outputs` takes.
        """
        check_outputs({f"--export-{form}": path for form, path in self._paths().items()}, **others)

    def write(self, columns: Sequence[str], rows: Rows) -> Iterator[str]:
        """Write them all, and return why those that cannot be written are not."""
        for form, path in self._paths().items():
            try:
                export(Path(path), FORMS[form](columns, rows))
            except InputError as error:
                yield str(error)
