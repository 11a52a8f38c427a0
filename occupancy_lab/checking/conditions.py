"""The conditions of `check`, given or read from pyproject.toml, and which rows must meet them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from occupancy_lab.checking.rows import BASELINE, Row, Table, column_of
from occupancy_lab.errors import after, quoted, refuse
from occupancy_lab.expressions import Expression, parse
from occupancy_lab.expressions import nearest as nearest_name
from occupancy_lab.files import read_bytes
from occupancy_lab.values import Status

PYPROJECT = "pyproject.toml"
TOOL = "occupancy-lab"
_KEYS = ("condition", "where", "kernels")
_EXAMPLE = "local_bytes == 0 and occupancy >= 0.5"


@dataclass(frozen=True, slots=True)
class Check:
    """A condition, and which rows have to meet it."""

    name: str
    """The name in pyproject.toml, or the condition itself."""
    condition: Expression
    where: Expression | None = None
    kernels: tuple[str, ...] = ()
    """Patterns of kernel names, such as "softmax*"; empty for all kernels."""

    @classmethod
    def read(
        cls,
        condition: str,
        *,
        name: str | None = None,
        where: str | None = None,
        kernels: str | Sequence[str] = (),
    ) -> Check:
        """Return a check; raise InputError if *condition* or *where* is not a condition."""
        patterns = (kernels,) if isinstance(kernels, str) else tuple(kernels)
        with after(f"check {quoted(name)}: " if name else ""):
            chosen = None if where is None else parse(where, _EXAMPLE)
            held = parse(condition, _EXAMPLE).beside(BASELINE)
            return cls(name or condition, held, chosen, patterns)

    def rows(self, table: Table) -> list[Row]:
        """Return the rows that have to meet the check, or may have to as far as is known.

        Rows that an autotuner is not expected to launch are left out. Raises InputError if the
        check names a column that the table does not have.
        """
        named = self.name != self.condition.text
        with after(f"check {quoted(self.name)}: " if named else ""):
            self.condition.check(table.kinds_in(self.condition))
            if self.where is not None:
                self.where.check(table.kinds)
        return [row for row in table.rows if row.is_launched and self.is_for(row, table)]

    def is_for(self, row: Row, table: Table) -> bool:
        """Tell whether *row* has to meet the check, or may have to as far as is known."""
        if self.kernels and not any(fnmatchcase(row.kernel, one) for one in self.kernels):
            return False
        return self.where is None or table.evaluate(self.where, row.values) is not False

    @property
    def columns(self) -> list[str]:
        """The columns that the condition names, in order, each before its baseline."""
        place = self.condition.text.find
        return sorted(self.condition.names, key=lambda name: (place(column_of(name)), len(name)))

    @property
    def has_baseline(self) -> bool:
        """Whether the condition compares with a baseline."""
        return any(name != column_of(name) for name in self.condition.names)

    def kind(self, row: Row, table: Table) -> str | None:
        """Return why *row* does not pass: broken, not known, failed or new; None if it passes.

        A row is new if it is missing in the baseline and its own values are all known.
        """
        if row.status != Status.OK:
            return "failed"
        held = table.evaluate(self.condition, row.known)
        if held is not None:
            return None if held else "broken"
        own = (row.values.get(name) for name in self.columns if name == column_of(name))
        new = self.has_baseline and row.before is None and None not in own
        return "new" if new else "not known"


def read_checks(names: Sequence[str] = (), folder: Path | None = None) -> list[Check]:
    """Return the checks called *names*, by default all, of the nearest pyproject.toml with checks.

    The file is searched for in *folder*, by default the current one, and above. Raises InputError
    if there is none or its checks are invalid.
    """
    start = (folder or Path.cwd()).absolute()
    for path in (one / PYPROJECT for one in (start, *start.parents)):
        tables = _tables(path)
        if tables is not None:
            break
    else:
        refuse(
            f"no {PYPROJECT} here or above has [tool.{TOOL}.checks]; give a condition, such as"
            f" {_EXAMPLE!r}"
        )
    for name in names:
        if name not in tables:
            refuse(f"{path} has no check {quoted(name)}; {nearest_name(name, tables)}")
    return [_check(path, name, tables[name]) for name in dict.fromkeys(names or tables)]


def _tables(path: Path) -> Mapping[str, Any] | None:
    try:
        document: Any = tomllib.loads(read_bytes(path).decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        refuse(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")
    for key in ("tool", TOOL, "checks"):
        document = document.get(key)
        if document is None:
            return None
        if not isinstance(document, dict):
            break
    if not isinstance(document, dict) or not document:
        refuse(
            f"[tool.{TOOL}.checks] of {path} has no checks, such as no-spills = 'local_bytes == 0'"
        )
    return document


def _check(path: Path, name: str, given: Any) -> Check:
    values = {"condition": given} if isinstance(given, str) else given
    if not isinstance(values, dict) or not isinstance(values.get("condition"), str):
        refuse(f"check {quoted(name)} of {path} has no condition, such as {_EXAMPLE!r}")
    for key, value in values.items():
        if key not in _KEYS:
            refuse(f"check {quoted(name)} of {path} has {quoted(key)}; {nearest_name(key, _KEYS)}")
        several = key == "kernels" and isinstance(value, list)
        if not all(isinstance(one, str) for one in (value if several else [value])):
            refuse(f"{key} of check {quoted(name)} of {path} is {quoted(value)}; give a text")
    return Check.read(name=name, **values)
