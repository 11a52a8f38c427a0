"""The calculator for tables: millions of (target, n_regs, shared, num_warps) at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError, refuse
from occupancy_lab.files import csv_text, plain_rows
from occupancy_lab.gpus import Gpu, find_gpu
from occupancy_lab.occupancy.calculator import check_launched_warps, whole_clusters
from occupancy_lab.occupancy.exact import exact_rules
from occupancy_lab.occupancy.rule import UNLIMITED, programs
from occupancy_lab.occupancy.tutorial import divides_by_zero, tutorial_rules
from occupancy_lab.table.columns import AT_LEAST_1, COUNT, TEXT
from occupancy_lab.table.rows import read_file
from occupancy_lab.text.document import json_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

REQUIRED = ("target", "n_regs", "shared", "num_warps")
LIMITED = ("sgprs", "barriers", "tensor_memory")
"""Optional columns that each have their own limit."""
OPTIONAL = (*LIMITED, "static_shared", "allocated_vgprs", "num_ctas")
COLUMNS = {"target": TEXT} | {
    name: dataclasses.replace(
        AT_LEAST_1 if name in {"num_warps", "num_ctas"} else COUNT, most=UNLIMITED
    )
    for name in (*REQUIRED[1:], *OPTIONAL)
}
"""The columns whose values are checked."""
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


def read_points(path: str) -> pd.DataFrame:
    """Return the points in the CSV or JSON file at *path*; "-" is standard input.

    Blank rows are left out. Raises InputError with the line or row if a value is missing or not
    allowed.
    """
    import pandas as pd

    found = read_file(path, COLUMNS)
    missing = [name for name in REQUIRED if name not in found.columns]
    if missing:
        refuse(
            f"{found.name} has no column {missing[0]}; a file of points has the columns"
            f" {', '.join(REQUIRED)}"
        )
    checked = set()
    for place, row in enumerate(found.rows):
        if all(cell is None for cell in row.values()):
            continue
        for name in REQUIRED:
            if row.get(name) is None:
                found.refuse(place, name, COLUMNS[name].words)
        point = row["target"], row["num_warps"]
        if point not in checked:
            try:
                check_launched_warps(row["num_warps"], find_gpu(row["target"]).architecture)
            except InputError as error:
                refuse(f"{found.name}, {found.places[place]}: {error}")
            checked.add(point)
    table = pd.DataFrame(found.rows, columns=list(found.columns)).dropna(how="all")
    given = {name: column.least for name, column in COLUMNS.items() if name in table}
    del given["target"]
    return table.fillna(given).astype(dict.fromkeys(given, "int64")).reset_index(drop=True)


def calculate_points(path: str, *, as_json: bool = False) -> str:
    """Return the points in the file at *path* with their occupancy, as CSV or as JSON.

    Raises InputError as `read_points` does.
    """
    table = evaluate_points(read_points(path))
    if as_json:
        return json_text(plain_rows(table)) + "\n"
    rows = table.astype(object).where(table.notna(), None)
    return csv_text(table.columns, rows.itertuples(index=False, name=None))
