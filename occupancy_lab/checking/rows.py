"""Rows of compiled kernels: from a file, a Triton cache, or launches that are compiled now."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from occupancy_lab.asked import Asked
from occupancy_lab.errors import InputError, quoted, refuse, shortened
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.expressions import Expression, Kind, Value
from occupancy_lab.gpus import Gpu, find_gpu
from occupancy_lab.inputs import AskedGpus
from occupancy_lab.notation import is_constant, literal
from occupancy_lab.options import KNOBS
from occupancy_lab.prediction import NOTICEABLE, ratio_error
from occupancy_lab.record import Failed, Record
from occupancy_lab.table.columns import RESULTS, kinds_of
from occupancy_lab.table.rows import read_file
from occupancy_lab.values import Status

TIMES: Mapping[str, str] = {"us": "measured", "predicted_us": "predicted"}
"""The columns with the time of a launch; the first that two rows have in common decides."""
BASELINE = "baseline"
"""The name in a condition for the value of the same column and row in the baseline."""
TOTALS: Mapping[str, str] = {"us": "total_us", "predicted_us": "predicted_total_us"}
"""The columns of a trace with the time of all launches, by the column with that of one."""
DETAILS = ("source", "n_regs", "local_bytes", "shared", "entry")
"""The results that are added to equal labels of rows to distinguish them, in this order."""
SHORT_ENTRY = 8
"""How many characters of a cache entry's folder a label has."""
_LINE = re.compile(r"[0-9]{1,9}")
_CONSTEXPR = re.compile(r"\b(\w+)=(.*?)(?=, \w+=|$)")
"""A constexpr in a cell of a scan."""


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel compiled for a GPU, or why it was not compiled."""

    values: Mapping[str, Value]
    """The value of each column; None if it is not known."""
    origin: str
    """Where the row is from: "rows.json, row 3"."""
    record: Any = field(default=None, compare=False, repr=False)
    """The Record of a launch that was compiled now."""
    maker: tuple[Asked, Explanation] | None = field(default=None, compare=False, repr=False)
    """The launch that was asked for, and its explanation; None for rows that were read."""
    before: Row | None = field(default=None, compare=False, repr=False)
    """The same launch in the baseline; None if there is none."""

    @property
    def known(self) -> Mapping[str, Value]:
        """The value of each column, and of the baseline's columns with the prefix "baseline."."""
        if self.before is None:
            return self.values
        return {
            **self.values,
            **{f"{BASELINE}.{name}": value for name, value in self.before.values.items()},
        }

    @property
    def status(self) -> str:
        """The status: "ok", or why there are no results."""
        return str(self.values.get("status") or Status.OK)

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return str(self.values.get("kernel") or "")

    def number(self, name: str) -> float | None:
        """Return the value of a column if it is a number, else None."""
        value = self.values.get(name)
        return float(value) if isinstance(value, int | float) else None

    @property
    def is_launched(self) -> bool:
        """False for a configuration that an autotuner is not expected to launch."""
        return self.values.get("expected") is not False

    @property
    def names(self) -> dict[str, Value]:
        """The columns that identify the row: all that have a value and are not results."""
        return {
            name: value
            for name, value in self.values.items()
            if value is not None and name not in RESULTS
        }

    def setting(self, name: str) -> Value:
        """Return the value of a knob, or the compiler's default if it is not set."""
        value = self.values.get(name)
        usual: Mapping[str, Value] = {} if self.record is None else self.record.usual_options
        return usual.get(name) if value is None else value

    def total(self, time: str) -> float | None:
        """Return the time of all launches; *time* is the column of one. None if not known."""
        total = self.number(TOTALS[time])
        one, launches = self.number(time), self.number("launches")
        if total is not None or None in {one, launches} or self.number("grids") != 1:
            return total
        return (one or 0.0) * (launches or 0.0)

    def noticeable(self, time: str) -> float:
        """Return the smallest noticeable relative difference of a time in the column *time*."""
        if time == "us":
            return NOTICEABLE
        return ratio_error(str(self.values.get("basis") or ""), str(self.values.get("bound") or ""))

    @property
    def gpu(self) -> Gpu | None:
        """The GPU, or the target if no GPU is named; None if the lab does not know it."""
        return _gpu(str(self.values.get("gpu") or self.values.get("target")))

    @property
    def place(self) -> tuple[str, int] | None:
        """The file and the line of the kernel's source; None if not known."""
        file, _, line = str(self.values.get("source") or "").rpartition(":")
        return (file, int(line)) if file and _LINE.fullmatch(line) else None


@functools.cache
def _gpu(name: str) -> Gpu | None:
    try:
        return find_gpu(name)
    except InputError:
        return None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows, with the kinds of their columns."""

    rows: tuple[Row, ...]
    kinds: Mapping[str, Kind]
    varying: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For each kernel, the columns that tell its rows apart."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Table:
        """Return the table of *rows*, with the columns that any of them has."""
        rows = tuple(rows)
        kinds = kinds_of(row.values for row in rows)
        return cls(rows, kinds, _varying(rows))

    def evaluate(self, expression: Expression, values: Mapping[str, Value]) -> Value:
        """Return the value of a condition, which was checked against the kinds, for *values*."""
        kinds = self.kinds_in(expression)
        return expression.evaluate(
            {name: _as_kind(values.get(name), kinds[name]) for name in expression.names}
        )

    def kinds_in(self, expression: Expression) -> Mapping[str, Kind]:
        """Return the kinds of all columns, and of the baseline's columns in *expression*."""
        of_baseline = {
            name: self.kinds[column]
            for name in expression.names
            if name != (column := column_of(name)) and column in self.kinds
        }
        return {**self.kinds, **of_baseline} if of_baseline else self.kinds

    def label(self, row: Row, before: Row | None = None) -> str:
        """Return the name of *row*: the kernel, the GPU, and the settings that distinguish it.

        A setting that differs from the same launch *before* is shown with both values.
        """
        gpu = row.values.get("gpu") or row.values.get("target")
        old = row if before is None else before
        pairs = (
            (name.removeprefix(_ARGUMENT), _value(old, name), _value(row, name))
            for name in self.varying.get(row.kernel, ())
        )
        knobs = [
            f"{name} {shortened(shown(new))}"
            if same_text(was) == same_text(new)
            else f"{name} {shortened(shown(was))} → {shortened(shown(new))}"
            for name, was, new in pairs
            if not was is new is None
        ]
        return ", ".join([row.kernel if gpu is None else f"{row.kernel} on {gpu}", *knobs])

    def labels(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """Return a name for each of *rows*, with more details for equal names."""
        found = [self.label(row) for row in rows]
        for name in DETAILS:
            details = [_detail(row, name) for row in rows]
            differing = Counter(label for label, _ in {*zip(found, details, strict=True)})
            found = [
                f"{label}, {name} {detail}" if differing[label] > 1 else label
                for label, detail in zip(found, details, strict=True)
            ]
        times = Counter(found)
        return tuple(
            f"{label}, {row.origin}" if times[label] > 1 else label
            for label, row in zip(found, rows, strict=True)
        )


def column_of(name: str) -> str:
    """Return the column that a name in a condition stands for, here or in the baseline."""
    return name.removeprefix(f"{BASELINE}.")


def _as_kind(value: Value, kind: Kind) -> Value:
    """Return a value as *kind*; None if it is of another kind, as one from another file may be."""
    if value is None or kind is Kind.TEXT:
        return None if value is None else str(value)
    fits = isinstance(value, bool if kind is Kind.CONDITION else int | float)
    return value if fits else None


def _detail(row: Row, name: str) -> str:
    value = row.values.get(name)
    return str(value).rpartition("/")[2][:SHORT_ENTRY] if name == "entry" else shown(value)


def _varying(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Return for each kernel the columns besides kernel and GPU that tell its rows apart.

    Arguments are left out if the other columns suffice, else named one by one after _ARGUMENT.
    """
    of_kernels: dict[str, list[dict[str, Value]]] = {}
    for row in rows:
        of_kernels.setdefault(row.kernel, []).append(row.names)
    found = {}
    for kernel, named in of_kernels.items():
        columns = [
            name
            for name in dict.fromkeys(name for one in named for name in one)
            if name not in {"kernel", "gpu", "target"} and len({one.get(name) for one in named}) > 1
        ]
        if "arguments" in columns:
            columns.remove("arguments")
            told = {tuple(map(one.get, columns)) for one in named}
            if len(told) < len({(*map(one.get, columns), one.get("arguments")) for one in named}):
                columns += _arguments_apart({one.get("arguments") for one in named})
        found[kernel] = columns
    return found


_ARGUMENT = "arguments."


def _arguments_apart(texts: Iterable[Value]) -> list[str]:
    """Return the arguments that differ among *texts*: the numbers, or if all are equal any."""
    passed = [_passed(text) for text in texts]
    names = dict.fromkeys(name for one in passed for name in one)
    apart = [name for name in names if len({json.dumps(one.get(name)) for one in passed}) > 1]
    numbers = [name for name in apart if not any(isinstance(one.get(name), dict) for one in passed)]
    return [f"{_ARGUMENT}{name}" for name in numbers or apart]


@functools.cache
def _passed(text: Value) -> Mapping[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(str(text))
        return found if isinstance(found, dict) else {}
    return {}


def _value(row: Row, name: str) -> Value:
    """Return the value of a column, or of the argument that _ARGUMENT precedes."""
    if not name.startswith(_ARGUMENT):
        return row.values.get(name)
    value = _passed(row.values.get("arguments")).get(name.removeprefix(_ARGUMENT))
    return " ".join(map(str, value.values())) if isinstance(value, dict) else value


def same_text(value: Value) -> str:
    """Return a value as a text that does not depend on whether it is from CSV or JSON."""
    return str(int(value)) if isinstance(value, float) and not value % 1 else str(value)


def shown(value: Value) -> str:
    """Return a value for a sentence; fractions have four significant digits."""
    if value is None:
        return "not known"
    if isinstance(value, float):
        return f"{value:.4g}" if value % 1 else f"{int(value)}"
    return f"{value}"


def make_rows(found: Iterable[Mapping[str, Any]], name: str) -> list[Row]:
    """Return the rows *found* in *name*; raise InputError if one is not a row of a kernel."""
    rows = []
    for number, values in enumerate(found, 1):
        origin = f"{name}, row {number}"
        if not isinstance(values.get("kernel"), str):
            refuse(f"{origin} names no kernel; a row is what scan, sweep or explain --json writes")
        flat = _flat(values)
        for column, value in flat.items():
            if isinstance(value, int) and not is_constant(value):
                refuse(
                    f"{origin}: {shortened(column)} is {quoted(value)}; a number of at most 64 bits"
                )
        rows.append(Row(flat, origin))
    return rows


def passed_values(run: Record | Failed) -> dict[str, Any]:
    """Return a run as a row in which warps and stages are only those that the launch passes."""
    row = run.row()
    return {
        name: value for name, value in run.to_dict().items() if name not in KNOBS or name in row
    }


def _flat(values: Mapping[str, Any]) -> dict[str, Value]:
    """Return a row with plain values: nested ones become columns or a text, or are left out."""
    nested = values.get("resources")
    flat = {name: _plain(value) for name, value in values.items()}
    if isinstance(nested, dict):
        given = {name: _plain(value) for name, value in nested.items() if name != "num_warps"}
        flat = {**given, **flat, "launched_warps": _plain(nested.get("num_warps"))}
    constexprs = values.get("constexprs")
    if isinstance(constexprs, str):  # in CSV: "BLOCK_SIZE=1024, EVEN=True"
        constexprs = {name: _constant(text) for name, text in _CONSTEXPR.findall(constexprs)}
    if isinstance(constexprs, dict):
        flat = {**{name: _plain(value) for name, value in constexprs.items()}, **flat}
    arguments = values.get("arguments")
    if isinstance(arguments, dict):
        own = {name: value for name, value in arguments.items() if name not in flat}
        flat["arguments"] = json.dumps(own, sort_keys=True)
    if isinstance(values.get("grid"), list):
        flat["grid"] = "x".join(map(str, values["grid"]))
    dropped = {"resources", "constexprs" if isinstance(constexprs, dict) else ""}
    return {
        name: value
        for name, value in flat.items()
        if name not in dropped and not (value is None and isinstance(values.get(name), list | dict))
    }


def _plain(value: Any) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    # A scan has empty texts for unknown values.
    return value if isinstance(value, bool | int | float | str) and value != "" else None


def _constant(text: str) -> Any:
    try:
        return literal(text)
    except ValueError:
        return text


def load(source: Any, *, gpu: AskedGpus | None = None, **launch: Any) -> list[Row]:
    """Return the rows of a source that `check` takes; "-" is a file on standard input."""
    if isinstance(source, str | os.PathLike):
        name = os.fspath(source)
        if ".py:" in name or name.endswith(".py"):
            from occupancy_lab.compiling.script import names_script
            from occupancy_lab.tracing.explain import explain

            how = {**launch, "compared": False} if names_script(name) else launch
            source = explain(kernel=name, gpu=gpu, **how)
        elif Path(name).is_dir():
            return scanned(name, gpu=gpu)
        else:
            file = read_file(name)
            return make_rows(file.rows, file.name)
    if hasattr(source, "lines"):
        return _of_script(source)
    if hasattr(source, "runs"):
        return _of_runs(source)
    if hasattr(source, "columns"):
        from occupancy_lab.files import plain_rows

        return make_rows(plain_rows(source), "the table")
    found = source if isinstance(source, list | tuple) else source.rows()
    rows = [one for one in found if isinstance(one, Row)]
    return rows or make_rows(found, "the rows")


def scanned(*folders: str, gpu: AskedGpus | None = None) -> list[Row]:
    """Return the kernels of Triton caches, by default those of Triton and torch.compile."""
    from occupancy_lab.scanning.scan import scan

    return make_rows(scan(*folders, gpu=gpu).rows(), ", ".join(folders) or "the caches")


def _of_runs(found: Any) -> list[Row]:
    source = _source(found.asked[0].function) if found.asked else None
    rows = make_rows(
        [{"source": source, **passed_values(run)} for run in found.ranked], "the launch"
    )
    return [
        dataclasses.replace(row, record=run, maker=(asked, found))
        if hasattr(run, "calculation")
        else row
        for row, run, asked in zip(rows, found.ranked, found.asked, strict=True)
    ]


def _of_script(found: Any) -> list[Row]:
    """Return a row for each launch that a script makes, identified by its line.

    Each configuration of an autotuned launch is a row, with `expected` for the one to be launched.

    Raises InputError if launches are missing.
    """
    for ran in found.ran:
        if ran.failure is not None:
            refuse(f"{found.name} went no further than some of its launches: {ran.failure}")
        if ran.missing:
            refuse(f"launches of {found.name} are missing: {ran.missing[0]} cannot be run here")
    rows = []
    for line in found.lines:
        made = _of_runs(line.run)
        for row in made:
            values = {**row.values, "source": line.first.place}
            if len(made) > 1:
                values["expected"] = row.record is line.record
            rows.append(dataclasses.replace(row, values=values, origin=line.first.place))
    return rows


def _source(function: Any) -> str | None:
    """Return the file and the line of a kernel's `def`; None if Python does not know them."""
    import inspect

    try:
        lines, first = inspect.getsourcelines(function.fn)
        above = next(place for place, line in enumerate(lines) if line.lstrip().startswith("def "))
        return f"{inspect.getsourcefile(function.fn)}:{first + above}"
    except (OSError, TypeError, AttributeError, StopIteration):
        return None
