"""Launches of any kernel side by side: as the table of a sweep, a comparison, or a ranking."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError
from occupancy_lab.explaining.any_launch import launch_rows, setting_words, varying, write_variants
from occupancy_lab.explaining.dry_run import DryRun, explain_launch
from occupancy_lab.expressions import Kind, nearest, parse
from occupancy_lab.files import check_outputs, export
from occupancy_lab.record import LaunchRecord
from occupancy_lab.sweeping import views
from occupancy_lab.sweeping.run import NOT_WRITTEN, Swept
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import listed, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

MOST_COMPARED = 6
"""Launches that fit beside each other."""


def sweep_launches(  # noqa: PLR0913 - one argument per option of the command line
    *,
    where: str | None = None,
    sort: str | None = None,
    top: int | None = None,
    form: str | None = None,
    export_csv: str | None = None,
    export_json: str | None = None,
    export_markdown: str | None = None,
    **asked: Any,
) -> Swept:
    """Return what `occupancy-lab sweep FILE.py:FUNCTION` prints of the launches that are *asked*.

    Raises InputError, before any work, for what cannot be asked or written, and after it for a
    column that there is not.
    """
    outputs = {
        "--export-csv": (export_csv, views.to_csv),
        "--export-json": (export_json, views.to_json),
        "--export-markdown": (export_markdown, views.to_markdown),
    }
    check_outputs({option: path for option, (path, _) in outputs.items()})
    swept = explain_launch(**asked)
    table = swept.table()
    chosen = _chosen(table, where, sort, top)
    complaints = []
    for path, form_of in outputs.values():
        try:
            if path is not None:
                export(Path(path), form_of(chosen))
        except InputError as error:
            complaints.append(str(error))
    forms = {"csv": views.to_csv, "json": views.to_json}
    runs = [swept.runs[place] for place in chosen.index]
    text = forms[form](chosen) if form else _screen(runs)
    if complaints:
        return Swept(text, NOT_WRITTEN, tuple(complaints))
    return Swept(text, 0 if swept.records else 1)


def _screen(runs: Sequence[Any]) -> str:
    return write_variants(runs).to_markdown() if runs else "No row meets the condition.\n"


def _chosen(
    table: pd.DataFrame, where: str | None, sort: str | None, top: int | None
) -> pd.DataFrame:
    """Return the rows that meet *where*, by the column *sort* ("-" before it: descending)."""
    if where is not None:
        condition = parse(where)
        condition.check(_kinds(table))
        plain = table.astype(object).where(table.notna(), None).to_dict("records")
        rows = [{str(name): value for name, value in row.items()} for row in plain]
        kept = [condition.evaluate(row) is True for row in rows]
        table = table[kept]
    if sort is not None:
        name = sort.removeprefix("-")
        if name not in table:
            msg = f"--sort {name!r} is no column; {nearest(name, table.columns)}"
            raise InputError(msg)
        table = table.sort_values(name, ascending=not sort.startswith("-"), kind="stable")
    return table if top is None else table.head(top)


def _kinds(table: pd.DataFrame) -> Mapping[str, Kind]:
    from pandas.api import types

    def kind(column: Any) -> Kind:
        if types.is_bool_dtype(column):
            return Kind.CONDITION
        return Kind.NUMBER if types.is_numeric_dtype(column) else Kind.TEXT

    return {str(name): kind(table[name]) for name in table}


def compare_launches(**asked: Any) -> ComparedLaunches:
    """Return what differs between the launches that are *asked*, as `explain_launch` takes them.

    Raises InputError where there is one launch only, or more than a table has columns for.
    """
    run = explain_launch(**asked)
    if not 1 < len(run.runs) <= MOST_COMPARED:
        msg = (
            f"compare sets 2 to {MOST_COMPARED} launches side by side, and these are"
            f" {len(run.runs)}; `sweep` lists more"
        )
        raise InputError(msg)
    return ComparedLaunches(run.runs, run.launcher, run.function)


class ComparedLaunches(DryRun):
    """Launches side by side: what differs, and what is alike."""

    __slots__ = ()

    def to_document(self, *, full: bool = False) -> Document:
        """Return what differs; *full* changes nothing."""
        del full
        records = self.records
        knobs = varying([{**_settings(run), "GPU": run.gpu.key} for run in self.runs])
        settings = [{**_settings(run), "GPU": run.gpu.title} for run in records]
        names = [", ".join(str(one.get(knob, "-")) for knob in knobs) for one in settings]
        rows = launch_rows(records)
        differing = tuple(row for row in rows if len(set(row[1:])) > 1)
        alike = [row[0] for row in rows if len(set(row[1:])) == 1 and row[1] != "-"]
        headers = ("", *map(literal, names))
        sentences = [f"Alike in all: {listed(alike)}."] if alike else []
        sentences += [f"{literal(run.kernel)}: {literal(run.reason)}." for run in self.failures]
        return Document(
            f"{literal(self.runs[0].kernel)}: what differs by {literal(listed(knobs))}",
            (f"{len(records)} of {len(self.runs)} compile and fit.",),
            (Section("", (Table(headers, differing, prose=True),), tuple(sentences)),),
        )


def _settings(run: Any) -> dict[str, Any]:
    return {
        **{name: value for name, value in run.arguments.items() if name in run.constexprs},
        **run.options,
        **({"Triton": run.triton_version} if isinstance(run, LaunchRecord) else {}),
    }


def tune_launches(top: int = 5, **asked: Any) -> RankedLaunches:
    """Return the launches that are *asked* by their predicted time, the best first.

    Raises InputError where no time is predicted of any of them; the message says why.
    """
    run = explain_launch(**asked)
    ranked = sorted(
        (record for record in run.records if record.prediction is not None),
        key=lambda record: record.prediction.us if record.prediction else 0.0,
    )
    if not ranked:
        from occupancy_lab.explaining.any_launch import time_sentence

        why = time_sentence(run.records[0]).replace("`", "").rstrip(".")
        msg = f"{why}; `sweep` lists these launches without a time"
        raise InputError(msg)
    return RankedLaunches(tuple(ranked[:top]), run.launcher, run.function)


class RankedLaunches(DryRun):
    """Launches by their predicted time."""

    __slots__ = ()

    def to_document(self, *, full: bool = False) -> Document:
        """Return the ranking; *full* changes nothing."""
        del full
        rows = tuple(
            (literal(setting_words(record)), record.gpu.key, *_times(record))
            for record in self.records
        )
        headers = ("launch", "GPU", "predicted us", "GB/s", "programs", "registers")
        best = self.records[0]
        return Document(
            f"{literal(best.kernel)}, by predicted time on {best.title}",
            (f"**{literal(setting_words(best))}** is predicted to be the fastest.",),
            (Section("", (Table(headers, rows),), ("Nothing was launched.",)),),
        )


def _times(record: LaunchRecord) -> Iterator[str]:
    prediction, calculation = record.prediction, record.calculation
    yield "-" if prediction is None else microseconds(prediction.us).removesuffix(" us")
    yield "-" if prediction is None else f"{prediction.gbs:.0f}"
    yield str(calculation.occupancy.programs_per_multiprocessor)
    yield str(calculation.resources.n_regs)
