"""What was recorded: the launches that come with the lab, or those of a file.

As a table of all of them, or one launch looked up without pandas, where no GPU is at hand.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from occupancy_lab.errors import InputError, quoted
from occupancy_lab.expressions import Kind
from occupancy_lab.gpus import find_gpu
from occupancy_lab.kernel import kernel_names
from occupancy_lab.table.columns import COLUMNS, MEASURED_COLUMNS, RESOURCES, Column
from occupancy_lab.text.words import listed, microseconds
from occupancy_lab.values import Conditions, Config, Measurement, Resources

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from importlib.resources.abc import Traversable

    import pandas as pd

    from occupancy_lab.values import Problem

NAMING = ("gpu", "kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages")
"""The columns that name a configuration; none of their cells is blank."""
NEEDED = (
    *NAMING,
    *("n_regs", "n_spills", "shared", "programs_per_multiprocessor", "occupancy", "num_programs"),
    *("launched", "measured", "us"),
)
"""The columns that say of a launch what it was and how long it took."""
_OF_A_TIME = ("launched", "occupancy", "us")
"""The columns whose cells are not blank where a launch was measured."""
_OF_A_BINARY = ("n_regs", "shared")
"""The columns whose cells are not blank where it is known how many programs fit."""
_OF_A_LAUNCH = (*NAMING, *RESOURCES, *MEASURED_COLUMNS, "num_programs")
"""The columns that are read of a launch that is looked up."""
CHECK = "check"
"""The `use` of launches that a prediction is only held against: of a GPU whose tutorial benchmark
was not measured."""


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """A launch that was recorded, and how it was compiled then."""

    kernel: str
    config: Config
    num_programs: int
    """Programs launched."""
    as_compiled: bool
    """Whether these are as many as fit of what was compiled then."""
    measurement: Measurement
    resources: Resources | None
    """What it was compiled to; None where that was not noted."""


@functools.lru_cache(maxsize=8)
def recorded_launches(gpu_key: str, problem: Problem) -> tuple[RecordedLaunch, ...]:
    """Return every launch of *problem* with a time that was recorded on the GPU *gpu_key*.

    The latest of those that are alike in all but their date comes first.
    """
    part = f",{problem.rows},{problem.cols},{problem.dtype},"
    rows = [*_timed_rows(f"measured-{gpu_key}.csv", f"{gpu_key},", part)]
    rows.sort(key=lambda row: row["date"] or "", reverse=True)
    return tuple(_recorded_launch(row) for row in rows if row["launched"])


def _recorded_launch(row: Mapping[str, Any]) -> RecordedLaunch:
    amounts = {name: row[name] for name in RESOURCES if row[name] is not None}
    amounts.pop("n_spills", None)  # Resources work it out of local_bytes
    known = {"n_regs", "shared"} <= amounts.keys()
    return RecordedLaunch(
        kernel=row["kernel"],
        config=Config(row["BLOCK_SIZE"], row["num_warps"], row["num_stages"]),
        num_programs=row["launched"],
        as_compiled=row["launched"] == row["num_programs"],
        measurement=row_measurement(row),
        resources=Resources(num_warps=row["num_warps"], **amounts) if known else None,
    )


def recorded_measurement(
    gpu_key: str, kernel_name: str, problem: Problem, config: Config, num_programs: int | None
) -> Measurement | None:
    """Return the latest recorded measurement of a launch on the GPU *gpu_key*, None for none.

    It was launched with *num_programs* programs; for None any number will do, as for a kernel that
    launches one program per row whatever is asked for.
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
    """Return the latest recorded launch with as many programs as fit, and that number.

    It is the number for what was compiled then, which another Triton may compile differently. None
    where nothing was recorded.
    """
    found = (
        (one.num_programs, one.measurement)
        for one in recorded_launches(gpu_key, problem)
        if one.as_compiled and (one.kernel, one.config) == (kernel_name, config)
    )
    return next(found, None)


def recorded_copy(gpu_key: str, problem: Problem) -> Measurement | None:
    """Return the latest recorded measurement of a plain copy of *problem*'s matrix, None for none.

    It was measured beside the kernels, on the GPU *gpu_key*.
    """
    return _recorded_provider(gpu_key, problem, "copy")


OTHER_SOFTMAXES = {
    "torch": "torch.softmax",
    "torch.compile": "torch.compile",
    "liger": "Liger's softmax",
    "quack": "quack's softmax",
}
"""What else makes a softmax, by its name in the recordings."""
NOISE = 0.02
"""What times of one launch differ by from one recording to the next."""


def faster_rivals(gpu_key: str, problem: Problem, us: float) -> dict[str, float]:
    """Return what was recorded to take less than *us* by more than NOISE, and its time in us."""
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
    """Say of what `faster_rivals` returns that it is faster; nothing where nothing is."""
    if faster:
        names = [f"{name} ({microseconds(us)})" for name, us in faster.items()]
        yield f"Recorded to be faster than any launch here: {listed(names)}."


def _recorded_provider(gpu_key: str, problem: Problem, name: str) -> Measurement | None:
    start = f"{problem.rows},{problem.cols},{problem.dtype},{name},"
    rows = _timed_rows(f"providers-{gpu_key}.csv", start, start)
    latest = max(rows, key=lambda row: row["date"] or "", default=None)
    return None if latest is None else row_measurement(latest)


def row_measurement(row: Mapping[str, Any]) -> Measurement:
    """Return the measurement that the columns of a row hold, None for what is missing."""
    conditions = {field.name: row[field.name] for field in dataclasses.fields(Conditions)}
    names = ("us", "us_low", "us_high", "runs", "relative_error", "mostly_launch")
    return Measurement(
        row["measured"],
        Conditions(**conditions),
        row["why_not"],
        **{name: row[name] for name in names},
    )


def _timed_rows(name: str, start: str, part: str) -> Iterator[dict[str, Any]]:
    """Return those rows of the file *name*, if there is one, that have a time.

    Their lines begin with *start* and have *part*.

    A row with a number that cannot be is passed over. Lines are sifted before they are parsed: it
    is ten times as fast. A row's name stands at its beginning, in the order of `name_columns`.
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
    """Return the files of recorded launches by name."""
    found = (file for file in files("occupancy_lab.recorded").iterdir() if _is_recorded(file.name))
    return sorted(found, key=lambda file: file.name)


def _is_recorded(name: str) -> bool:
    return name.startswith("measured-") and name.endswith(".csv")


def recorded_table() -> pd.DataFrame:
    """Return every launch that comes with the lab, with the columns of a measured sweep and `use`.

    Raises InputError where none was recorded.
    """
    import pandas as pd

    tables = [_launches(entry, entry.name) for entry in recorded_files()]
    if not tables:
        msg = "no measured launches come with this installation; give a file of your own"
        raise InputError(msg)
    return pd.concat(tables, ignore_index=True)


def read_table(path: str | Path, *, kernels: Collection[str] = ()) -> pd.DataFrame:
    """Return the launches of a CSV file that `sweep --measure --export-csv` wrote.

    They are of the lab's own kernels, or of those called *kernels*.

    Raises InputError where it cannot be read, lacks a column, or has a cell that its column cannot
    hold: with its line and column.
    """
    return _launches(Path(path), str(path), kernels)


def _launches(file: Traversable, name: str, kernels: Collection[str] = ()) -> pd.DataFrame:
    rows = _Rows.read(file, name)
    missing = [column for column in NEEDED if column not in rows.columns]
    if missing:
        msg = (
            f"{name} has no column {', '.join(missing)}; "
            "occupancy-lab sweep --measure --export-csv writes what is needed"
        )
        raise InputError(msg)
    rows.check_filled()
    rows.check_kernels(kernels)
    keys = rows.gpu_keys()
    table = rows.table()
    return table.assign(gpu=table["gpu"].map(keys))


def read_rows(file: Traversable) -> pd.DataFrame:
    """Return the rows of a CSV *file* that comes with the lab; COLUMNS says what columns hold.

    Raises InputError as `read_table` does, but for columns that are not there.
    """
    return _Rows.read(file, file.name).table()


@dataclass(frozen=True, slots=True)
class _Rows:
    """The cells of a CSV file."""

    name: str
    """What errors call the file."""
    lines: tuple[int, ...]
    """The line on which each row ends."""
    columns: dict[str, tuple[str, ...]]

    @classmethod
    def read(cls, file: Traversable, name: str) -> _Rows:
        """Return the cells of *file*; InputError where it is no table."""
        if isinstance(file, Path) and file.exists() and not file.is_file():
            msg = f"{name} cannot be read as a table: it is no regular file"
            raise InputError(msg)
        try:
            text = file.read_bytes().decode("utf-8-sig")
            reader = csv.reader(io.StringIO(text, newline=""), strict=True)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
        except (OSError, UnicodeError, csv.Error) as error:
            msg = f"{name} cannot be read as a table: {error}"
            raise InputError(msg) from error
        twice = [column for column in header if header.count(column) > 1]
        if twice:
            msg = f"{name} has the column {quoted(twice[0])} {header.count(twice[0])} times"
            raise InputError(msg)
        for line, row in rows:
            if len(row) != len(header):
                msg = f"{name}, line {line}: found {len(row)} fields, expected {len(header)}"
                raise InputError(msg)
        cells = zip(*(row for _, row in rows), strict=True) if rows else [()] * len(header)
        return cls(name, tuple(line for line, _ in rows), dict(zip(header, cells, strict=True)))

    def table(self) -> pd.DataFrame:
        """Return the values of the cells; InputError for one that its column cannot hold."""
        import pandas as pd

        return pd.DataFrame({name: self._series(name) for name in self.columns})

    def _series(self, name: str) -> pd.Series[Any]:
        import pandas as pd

        cells, column = self.columns[name], COLUMNS.get(name, Column())
        values = {}
        for cell in dict.fromkeys(cells):
            try:
                values[cell] = column.read(cell)
            except ValueError:
                self._refuse(cells.index(cell), name, column.words)
        dtype: Any = str if column.kind is Kind.TEXT else None
        if column.kind is Kind.NUMBER:
            dtype = int if column.whole and None not in values.values() else float
        return pd.Series([values[cell] for cell in cells], dtype=dtype)

    def _refuse(self, place: int, name: str, expected: str) -> NoReturn:
        cell = self.columns[name][place]
        found = quoted(cell) if cell else "blank"
        msg = f"{self.name}, line {self.lines[place]}: {name} is {found}; {expected}"
        raise InputError(msg)

    def check_filled(self) -> None:
        """Raise InputError for the first cell that is blank where it may not be."""
        measured, fitting = self.columns["measured"], self.columns["programs_per_multiprocessor"]
        for place in range(len(self.lines)):
            names = [*NAMING]
            names += _OF_A_TIME if measured[place] == "measured" else ()
            names += _OF_A_BINARY if fitting[place] else ()
            for name in names:
                if not self.columns[name][place]:
                    self._refuse(place, name, COLUMNS[name].words)

    def gpu_keys(self) -> dict[str, str]:
        """Return the keys of the GPUs by their names; InputError for one that is not known."""
        cells, keys = self.columns["gpu"], {}
        for name in dict.fromkeys(cells):
            try:
                keys[name] = find_gpu(name).key
            except InputError as error:
                self._refuse(cells.index(name), "gpu", str(error))
        return keys

    def check_kernels(self, others: Collection[str]) -> None:
        """Raise InputError for the first kernel that is neither the lab's nor one of *others*."""
        known = [*kernel_names(), *others]
        for place, kernel in enumerate(self.columns["kernel"]):
            if kernel not in known:
                expected = f"one of {', '.join(known)}, or of a file given to evaluate by --kernel"
                self._refuse(place, "kernel", expected)
