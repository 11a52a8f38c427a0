"""A sweep's table, chosen from, sorted and written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.errors import InputError
from occupancy_lab.sweeping.rows import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

SHOWN = {
    "gpu": "gpu",
    "rows": "rows",
    "cols": "cols",
    "dtype": "dtype",
    "BLOCK_SIZE": "BLOCK_SIZE",
    "num_warps": "warps",
    "num_stages": "stages",
    "n_regs": "n_regs",
    "shared": "shared",
    "programs_per_multiprocessor": "programs",
    "tutorial_programs": "tutorial",
    "occupancy": "%",
    "limiter": "limiter",
}
"""The columns that a screen has room for, and their names there; exports have them all."""
GRID = ("gpu", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages")
"""The columns that name a configuration; one that is the same in every row is said once."""


def choose(
    table: pd.DataFrame,
    *,
    where: str | None = None,
    sort: str | None = None,
    top: int | None = None,
) -> pd.DataFrame:
    """Give the rows for which *where* holds, by *sort*, the first *top* of them.

    *where* is a condition over columns, as `pandas.DataFrame.query` takes it; *sort* is a column,
    descending with a minus before it.

    Raises InputError where the condition or the column makes no sense.
    """
    if where is not None:
        try:
            table = table.query(where)
        except Exception as error:
            msg = f"--where {where!r} cannot be understood: {error}; try 'occupancy > 0.5'"
            raise InputError(msg) from error
    if sort is not None:
        column = sort.removeprefix("-")
        if column not in table:
            msg = f"there is no column {column!r} to sort by; there are {', '.join(COLUMNS)}"
            raise InputError(msg)
        table = table.sort_values(column, ascending=not sort.startswith("-"), kind="stable")
    if top is not None:
        if top < 1:
            msg = f"--top is {top}; it shows at least 1 row"
            raise InputError(msg)
        table = table.head(top)
    return table


def to_csv(table: pd.DataFrame) -> str:
    """Give the table as CSV; what is not known is an empty cell."""
    return table.to_csv(index=False)


def to_json(table: pd.DataFrame) -> str:
    """Give the table as a JSON list of rows; what is not known is null."""
    return table.to_json(orient="records", indent=2) + "\n"


def to_markdown(table: pd.DataFrame) -> str:
    """Give the whole table in markdown."""
    return _markdown(table) + "\n"


def to_screen(table: pd.DataFrame) -> str:
    """Give in markdown what a screen has room for: what all rows share, fine rows, failures."""
    varying = [name for name in GRID if len(table[name].unique()) > 1]
    shared = [
        f"{name} {table[name].iloc[0]}" for name in GRID if name not in varying and len(table)
    ]
    parts = [", ".join(shared)] if shared else []
    fine = table[table["status"] == "ok"]
    failed = table[table["status"] != "ok"]
    if len(fine):
        columns = [name for name in SHOWN if name in varying or name not in GRID]
        shown = fine.assign(
            occupancy=(fine["occupancy"] * 100).round().astype("Int64"),
            limiter=fine["limiter"].str.replace("+", ", "),
        )
        parts.append(_markdown(shown[columns].rename(columns=SHOWN)))
    if len(failed):
        parts.append(_markdown(failed[[*varying, "status", "reason"]].rename(columns=SHOWN)))
    parts.append(f"{_summary(table)}. % is the occupancy, tutorial what its formula says.")
    return "\n\n".join(parts) + "\n"


def _markdown(table: pd.DataFrame) -> str:
    from tabulate import tabulate

    cells = table.astype(object).where(table.notna(), "-")
    rows = [[str(cell).replace("|", r"\|") for cell in row] for row in cells.to_numpy()]
    return tabulate(rows, list(table.columns), tablefmt="pipe", disable_numparse=True)


def _summary(table: pd.DataFrame) -> str:
    counts = table["status"].value_counts()
    parts = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"{len(table)} configurations: {parts or 'none'}"


def check_export(path: Path) -> None:
    """Raise InputError, before any work is done, where *path* has no directory to be in."""
    if not path.parent.is_dir():
        msg = f"{path} cannot be written: there is no directory {path.parent}"
        raise InputError(msg)


def export(path: Path, text: str) -> None:
    """Write *text* to *path*.

    Raises InputError where it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}"
        raise InputError(msg) from error
