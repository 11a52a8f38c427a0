"""The calculator for tables: millions of (target, n_regs, shared, num_warps) at once."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError, refuse, shortened
from occupancy_lab.files import csv_text, plain_rows, read_cell
from occupancy_lab.gpus import find_gpu
from occupancy_lab.occupancy.calculator import check_launched_warps, whole_clusters
from occupancy_lab.occupancy.exact import exact_rules
from occupancy_lab.occupancy.rule import UNLIMITED, programs
from occupancy_lab.occupancy.tutorial import divides_by_zero, tutorial_rules
from occupancy_lab.text.document import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import IO, TextIO

    import numpy as np
    import pandas as pd

    from occupancy_lab.gpus import Gpu

REQUIRED = ("target", "n_regs", "shared", "num_warps")
LIMITED = ("sgprs", "barriers", "tensor_memory")
"""Optional columns that each have their own limit."""
OPTIONAL = (*LIMITED, "static_shared", "allocated_vgprs", "num_ctas")
FIRST_LINE = 2
"""The line of the file with the first row."""
LIMITS = ("warps", "registers", "shared", "programs")
"""The limits that every table has."""


def _usage(table: pd.DataFrame) -> SimpleNamespace:
    """Return the usage of many kernels: fields of Resources as arrays; None for missing columns."""
    found: dict[str, Any] = dict.fromkeys((*REQUIRED, *OPTIONAL, "agprs")) | {"static_shared": 0}
    for name in (*REQUIRED[1:], *OPTIONAL):
        if name in table:
            found[name] = table[name].to_numpy(dtype="int64")
    return SimpleNamespace(**found)


def _nullable(values: np.ndarray[Any, Any], unknown: np.ndarray[Any, Any]) -> Any:
    import pandas as pd

    return pd.arrays.IntegerArray(values.astype("int64"), unknown)


def _evaluate(table: pd.DataFrame, gpu: Gpu) -> pd.DataFrame:
    import numpy as np
    import pandas as pd

    architecture = gpu.architecture
    usage = _usage(table)
    exact = programs(exact_rules(architecture), usage, architecture, np.where)
    every = {name: np.broadcast_to(limit, len(table)) for name, limit in exact.items()}
    least = np.minimum.reduce(list(every.values()))

    bits = sum((limit == least).astype("int64") << bit for bit, limit in enumerate(every.values()))
    names = np.array(
        [
            "+".join(name for bit, name in enumerate(every) if mask >> bit & 1)
            for mask in range(2 ** len(every))
        ],
        dtype=object,
    )
    copied = programs(tutorial_rules(architecture), usage, architecture, np.where)
    tutorial = np.minimum.reduce(list(copied.values()))
    fails = divides_by_zero(usage)

    none = np.full(len(table), UNLIMITED)

    def limit_columns(names: Iterable[str]) -> dict[str, Any]:
        limits = {name: every.get(name, none) for name in names}
        return {
            f"limit_{name}": _nullable(limit, limit == UNLIMITED) for name, limit in limits.items()
        }

    clusters = {}
    if "num_ctas" in table:
        num_ctas = table["num_ctas"].to_numpy()
        held = whole_clusters(num_ctas, least, gpu, np.where)
        unknown = (num_ctas == 1) | (held is None)
        clusters["resident_clusters"] = _nullable(num_ctas if held is None else held, unknown)
    return pd.DataFrame(
        {
            "programs_per_multiprocessor": least,
            **limit_columns(LIMITS),
            "limiter": names[bits],
            "occupancy": least * usage.num_warps / architecture.max_warps,
            "tutorial_programs": _nullable(tutorial, fails),
            **limit_columns(name for name in LIMITED if name in table),
            **clusters,
        },
        index=table.index,
    )


def evaluate_points(table: pd.DataFrame) -> pd.DataFrame:
    """Return *table* with the results of the exact and the tutorial's formula for each row.

    *table* has the columns target, n_regs, shared and num_warps, and may have those of OPTIONAL and
    others; numbers are integers. Added are programs_per_multiprocessor, a limit_* column per
    resource (empty without a limit), limiter (joined by "+" on a tie), occupancy and
    tutorial_programs (empty where that formula divides by zero); limit_sgprs, limit_barriers,
    limit_tensor_memory and resident_clusters follow if their column (num_ctas for the last) is
    given. Existing columns with these names are replaced.

    Raises InputError for an unknown target.
    """
    import pandas as pd

    numbered = table.reset_index(drop=True)
    parts = [
        _evaluate(rows, find_gpu(str(target)))
        for target, rows in numbered.groupby("target", sort=False)
    ]
    found = pd.concat(parts) if parts else _evaluate(numbered, find_gpu("sm_90"))
    given = numbered.drop(columns=found.columns, errors="ignore")
    return given.join(found).set_axis(table.index)


def _check_columns(table: pd.DataFrame, name: str) -> None:
    import pandas as pd

    if not isinstance(table.index, pd.RangeIndex):
        # If the first row has more fields than the header, pandas makes an index of some.
        columns = len(table.columns)
        refuse(f"{name}: line 2: found {columns + table.index.nlevels} fields, expected {columns}")
    for column in (*REQUIRED, *OPTIONAL):
        # pandas renames the second of two columns of the same name.
        if list(table.columns).count(column) > 1 or {column, f"{column}.1"} <= set(table.columns):
            refuse(f"{name}: line 1: the column {column} is there twice; keep one of them")
    missing = [column for column in REQUIRED if column not in table]
    if missing:
        refuse(
            f"{name}: line 1: the column {missing[0]} is missing;"
            f" a points file has the columns {', '.join(REQUIRED)}"
        )


def _line(column: pd.Series[Any], at: int) -> int:
    return int(column.index.to_numpy()[at]) + FIRST_LINE


def _check_each(column: pd.Series[Any], name: str, check: Callable[[Any], object]) -> None:
    """Raise InputError, naming the line, for the first value of *column* that *check* refuses."""
    for value in column.unique():
        try:
            check(value)
        except InputError as error:
            line = _line(column, int(column.isin([value]).to_numpy().argmax()))
            refuse(f"{name}: line {line}: {error}")


def _check_target(target: Any) -> None:
    import pandas as pd

    if pd.isna(target):
        refuse("target is blank")
    find_gpu(str(target))


def _whole_numbers(column: pd.Series[Any], name: str, *, least: int, blank: int | None) -> Any:
    """Return *column* as int64, blank cells as *blank*; InputError names the first bad line."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    if column.dtype in (bool, object):
        numbers = numbers.mask(column.map(pd.api.types.is_bool))  # pandas converts True to 1
    if blank is not None:
        numbers = numbers.where(column.notna(), blank)
    bad = ~((numbers >= least) & (numbers <= UNLIMITED) & (numbers % 1 == 0))
    if bad.any():
        at = int(bad.to_numpy().argmax())
        found = "blank" if pd.isna(column.iloc[at]) else shortened(str(column.iloc[at]))
        line = _line(column, at)
        refuse(
            f"{name}: line {line}: {column.name} is {found}, expected a whole number from {least}"
        )
    return numbers.astype("int64")


def _unreadable(error: Exception) -> str:
    """Return the meaning of pandas's *error*, with the line if it has a number."""
    text = str(error)
    if fields := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", text):
        return f"line {fields[2]}: found {fields[3]} fields, expected {fields[1]}"
    if quote := re.search(r"EOF inside string starting at row (\d+)", text):
        return f"line {int(quote[1]) + 1}: found no end of the quoted field"
    return f"expected a CSV file in UTF-8: {text.strip()}"


def read_points(file: IO[str], name: str) -> pd.DataFrame:
    """Return the points in a CSV *file*, which errors call *name*.

    Blank lines are left out. Raises InputError with the line number if a row cannot be read.
    """
    import pandas as pd

    try:
        # Blank lines are kept, so that rows are numbered like the lines of the file.
        table = pd.read_csv(
            file,
            skipinitialspace=True,
            skip_blank_lines=False,
            keep_default_na=False,
            na_values=[""],
            low_memory=False,
        )
    except pd.errors.EmptyDataError:
        msg = f"{name}: line 1: the file is empty; expected the columns {', '.join(REQUIRED)}"
        raise InputError(msg) from None
    except ValueError as error:  # as are pandas's ParserError and UnicodeDecodeError
        refuse(f"{name}: {_unreadable(error)}")
    table.columns = table.columns.str.strip()
    _check_columns(table, name)
    table = table.dropna(how="all")
    _check_each(table["target"], name, _check_target)
    for column in (*REQUIRED[1:], *OPTIONAL):
        if column in table:
            least = int(column in {"num_warps", "num_ctas"})
            blank = None if column in REQUIRED else least
            table[column] = _whole_numbers(table[column], name, least=least, blank=blank)
    for target, warps in table.groupby("target", sort=False)["num_warps"]:
        architecture = find_gpu(str(target)).architecture
        _check_each(warps, name, partial(check_launched_warps, architecture=architecture))
    texts = table.select_dtypes(exclude=["number", "bool"])
    table[texts.columns] = texts.map(read_cell)
    return table.reset_index(drop=True)


def calculate_points(file: IO[str], name: str, output: TextIO, *, as_json: bool = False) -> None:
    """Read points from *file*, which errors call *name*, and write them with their occupancy.

    They are written as CSV, or with *as_json* as a list of rows.

    Raises InputError, with the line number, before anything is written.
    """
    table = evaluate_points(read_points(file, name))
    if as_json:
        output.write(json_text(plain_rows(table)) + "\n")
    else:
        rows = table.astype(object).where(table.notna(), None)
        output.write(csv_text(table.columns, rows.itertuples(index=False, name=None)))
