"""Recorded launches, those that come with the lab or those of a file.

They are read as a whole table, or looked up one by one without pandas.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError, refuse
from occupancy_lab.expressions import Kind
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import kernel_names
from occupancy_lab.occupancy.exact import FIELDS
from occupancy_lab.table.columns import COLUMNS, MEASURED_COLUMNS
from occupancy_lab.table.rows import Rows, read_file, read_text
from occupancy_lab.text.words import listed, microseconds
from occupancy_lab.values import Conditions, Config, Measurement, Problem, Resources

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    import pandas as pd


NAMING = ("gpu", "kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages")
"""The columns that identify a configuration; their cells are never blank."""
NEEDED = (
    *NAMING,
    *("n_regs", "n_spills", "shared", "programs_per_multiprocessor", "occupancy", "num_programs"),
    *("launched", "measured", "us"),
)
"""The columns that a table of launches must have."""
_OF_A_TIME = ("launched", "occupancy", "us")
"""The columns that are never blank for a measured launch."""
_OF_A_BINARY = ("n_regs", "shared")
"""The columns that are never blank if it is known how many programs fit."""
_OF_A_LAUNCH = (*NAMING, *MEASURED_COLUMNS, "num_programs")
"""The columns that are read when a launch is looked up."""


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """A recorded launch."""

    kernel: str
    config: Config
    num_programs: int
    """The programs that were launched."""
    as_compiled: bool
    """Whether as many programs were launched as fit of the kernel compiled then."""
    measurement: Measurement


UNSTEADY = 1.5
"""The largest ratio of the 90th to the 10th percentile of a launch's times. Beyond it, the GPU had
to wait for the host at times; that holds for 3% of the launches recorded on an H200."""


@functools.lru_cache(maxsize=8)
def recorded_launches(gpu_key: str, problem: Problem) -> tuple[RecordedLaunch, ...]:
    """Return every launch of *problem* that was recorded with a steady time on the GPU *gpu_key*.

    Of several recordings of a launch the latest counts; on the same day, the last in the file.
    """
    part = f",{problem.rows},{problem.cols},{problem.dtype},"
    rows = [*_timed_rows(f"measured-{gpu_key}.csv", f"{gpu_key},", part)]
    rows.sort(key=lambda row: row["date"] or "")
    launches = [
        RecordedLaunch(
            kernel=row["kernel"],
            config=row_config(row),
            num_programs=row["launched"],
            as_compiled=row["launched"] == row["num_programs"],
            measurement=row_measurement(row),
        )
        for row in rows
        if row["launched"] and _is_steady(row)
    ]
    return tuple({(one.kernel, one.config, one.num_programs): one for one in launches}.values())


def _is_steady(row: Mapping[str, Any]) -> bool:
    low, high = row["us_low"], row["us_high"]
    return low is None or high is None or high <= UNSTEADY * low


def latest_launches(table: pd.DataFrame) -> pd.DataFrame:
    """Return *table* with only the latest of several recordings of a launch."""
    same = [*NAMING, "launched"]
    by_date = table.sort_values("date", kind="stable", na_position="first")
    return by_date.drop_duplicates(same, keep="last").sort_index()


def recorded_ranking(
    gpu_key: str, problem: Problem, kernels: Collection[str]
) -> tuple[RecordedLaunch, ...]:
    """Return the recorded launches of *kernels* with as many programs as fit, the fastest first."""
    found = (
        one
        for one in recorded_launches(gpu_key, problem)
        if one.as_compiled and one.kernel in kernels
    )
    return tuple(sorted(found, key=lambda one: one.measurement.us or 0.0))


def recorded_measurement(
    gpu_key: str, kernel_name: str, problem: Problem, config: Config, num_programs: int | None
) -> Measurement | None:
    """Return the recorded time of a launch on the GPU *gpu_key*; None if there is none.

    *num_programs* None matches any number, as for a kernel that always launches one program per
    row.
    """
    found = (
        one.measurement
        for one in recorded_launches(gpu_key, problem)
        if (one.kernel, one.config) == (kernel_name, config)
        and num_programs in {None, one.num_programs}
    )
    return next(found, None)


def recorded_as_compiled(
    gpu_key: str, kernel_name: str, problem: Problem, config: Config
) -> tuple[int, Measurement] | None:
    """Return the recorded launch with as many programs as fit, and that number; None for none.

    The number is that of the kernel as compiled then; another Triton may compile it differently.
    """
    found = (
        (one.num_programs, one.measurement)
        for one in recorded_launches(gpu_key, problem)
        if one.as_compiled and (one.kernel, one.config) == (kernel_name, config)
    )
    return next(found, None)


def recorded_copy(gpu_key: str, problem: Problem) -> Measurement | None:
    """Return the latest recorded time of a plain copy of *problem*'s matrix; None for none."""
    return _recorded_provider(gpu_key, problem, "copy")


OTHER_SOFTMAXES = {
    "torch": "torch.softmax",
    "torch.compile": "torch.compile",
    "liger": "Liger's softmax",
    "quack": "quack's softmax",
}
"""Other implementations of softmax, by their name in the recordings."""
NOISE = 0.02
"""The relative difference between two recordings of the same launch."""


def faster_rivals(gpu_key: str, problem: Problem, us: float) -> dict[str, float]:
    """Return the times in us of other softmaxes that were recorded to be faster than *us*."""
    found = {
        name: _recorded_provider(gpu_key, problem, provider)
        for provider, name in OTHER_SOFTMAXES.items()
    }
    return {
        name: one.us
        for name, one in found.items()
        if one is not None and one.us is not None and one.us < us * (1.0 - NOISE)
    }


def rival_sentences(faster: Mapping[str, float]) -> Iterator[str]:
    """Say which rivals of `faster_rivals` are faster, if there are any."""
    if faster:
        names = [f"{name} ({microseconds(us)})" for name, us in faster.items()]
        yield f"Recorded to be faster than any launch here: {listed(names)}."


def _recorded_provider(gpu_key: str, problem: Problem, name: str) -> Measurement | None:
    start = f"{problem.rows},{problem.cols},{problem.dtype},{name},"
    rows = _timed_rows(f"providers-{gpu_key}.csv", start, start)
    latest = max(rows, key=lambda row: row["date"] or "", default=None)
    return None if latest is None else row_measurement(latest)


def row_conditions(row: Mapping[str, Any]) -> Conditions:
    """Return the conditions of a measured row; None for what is missing."""
    return Conditions(**{field.name: row[field.name] for field in dataclasses.fields(Conditions)})


def row_measurement(row: Mapping[str, Any]) -> Measurement:
    """Return the measurement of a row; None for what is missing."""
    names = ("us", "us_low", "us_high", "runs", "relative_error", "mostly_launch")
    return Measurement(
        row["measured"],
        row_conditions(row),
        row["why_not"],
        **{name: row[name] for name in names},
    )


def _timed_rows(name: str, start: str, part: str) -> Iterator[dict[str, Any]]:
    """Return the rows with a time in the file *name*, if it exists.

    Only lines that begin with *start* and contain *part* are parsed, which is ten times as fast; a
    line begins with the columns of `Record.named`. Rows with invalid numbers are skipped.
    """
    file = files("occupancy_lab.recorded") / name
    if not file.is_file():
        return
    with file.open(encoding="utf-8") as lines:
        header = next(lines, "").rstrip().split(",")
        chosen = (line for line in lines if part in line and line.startswith(start))
        for cells in csv.DictReader(chosen, fieldnames=header):
            with suppress(ValueError):
                row = {name: COLUMNS[name].read(cells.get(name) or "") for name in _OF_A_LAUNCH}
                if row["measured"] == "measured" and row["us"]:
                    yield row


def recorded_files() -> list[Traversable]:
    """Return the files of recorded launches, sorted by name."""
    found = files("occupancy_lab.recorded").iterdir()
    measured = (file for file in found if fnmatchcase(file.name, "measured-*.csv"))
    return sorted(measured, key=lambda file: file.name)


def recorded_table() -> pd.DataFrame:
    """Return every launch that comes with the lab, with the columns of a measured sweep and `use`.

    Raises InputError if there is none.
    """
    import pandas as pd

    tables = [_launches(_recorded(entry)) for entry in recorded_files()]
    if not tables:
        refuse("no measured launches come with this installation; give a file of your own")
    return pd.concat(tables, ignore_index=True)


def read_table(path: str | Path, *, kernels: Collection[str] = ()) -> pd.DataFrame:
    """Return the launches of a file that `sweep --measure` wrote as CSV or JSON.

    Their kernels are the lab's own, or those called *kernels*.

    Raises InputError, with the line and column, if the file cannot be read, lacks a column or has
    an invalid cell.
    """
    return _launches(read_file(path, COLUMNS), kernels)


def _launches(rows: Rows, kernels: Collection[str] = ()) -> pd.DataFrame:
    missing = [column for column in NEEDED if column not in rows.columns]
    if missing:
        refuse(
            f"{rows.name} has no column {', '.join(missing)}; "
            "occupancy-lab sweep --measure --export-csv writes what is needed"
        )
    known = [*kernel_names(), *kernels]
    keys: dict[str, str] = {}
    for place, row in enumerate(rows.rows):
        filled = [*NAMING]
        if row.get("measured") == "measured":
            filled += _OF_A_TIME
        if row.get("programs_per_multiprocessor") is not None:
            filled += _OF_A_BINARY
        for name in filled:
            if row.get(name) is None:
                rows.refuse(place, name, COLUMNS[name].words)
        if row["kernel"] not in known:
            expected = f"one of {', '.join(known)}, or of a file given to evaluate by --kernel"
            rows.refuse(place, "kernel", expected)
        if row["gpu"] not in keys:
            try:
                keys[row["gpu"]] = find_gpu(row["gpu"]).key
            except InputError as error:
                rows.refuse(place, "gpu", str(error))
    table = _table(rows)
    return table.assign(gpu=table["gpu"].map(keys))


def read_rows(file: Traversable) -> pd.DataFrame:
    """Return the rows of a CSV *file* that comes with the lab, with the types of COLUMNS.

    Raises InputError as `read_table` does, but not for missing columns.
    """
    return _table(_recorded(file))


def _recorded(file: Traversable) -> Rows:
    return read_text(file.read_text(encoding="utf-8"), file.name, COLUMNS)


def _table(rows: Rows) -> pd.DataFrame:
    import pandas as pd

    found = {}
    for name in rows.columns:
        values = [row.get(name) for row in rows.rows]
        column = COLUMNS.get(name)
        dtype: Any = None
        if column is not None and column.kind is Kind.TEXT:
            dtype = str
        elif column is not None and column.kind is Kind.NUMBER:
            dtype = int if column.whole and None not in values else float
        found[name] = pd.Series(values, dtype=dtype)
    return pd.DataFrame(found)


def row_problem(row: Mapping[Any, Any]) -> Problem:
    """Return the problem of a row."""
    return Problem(int(row["rows"]), int(row["cols"]), str(row["dtype"]))


def row_config(row: Mapping[Any, Any]) -> Config:
    """Return the configuration of a row."""
    return Config(int(row["BLOCK_SIZE"]), int(row["num_warps"]), int(row["num_stages"]))


def row_resources(row: Mapping[Any, Any]) -> Resources:
    """Return the resources of a row; missing or empty columns are None."""
    import pandas as pd

    known = {name: int(row[name]) for name in FIELDS if name in row and not pd.isna(row[name])}
    return Resources(**known)
