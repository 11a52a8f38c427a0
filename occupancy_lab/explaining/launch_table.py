"""Launches of any kernel side by side: as the table of a sweep, a comparison, or a ranking."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError
from occupancy_lab.explaining.any_launch import (
    launch_rows,
    number_headers,
    numbers,
    setting,
    time_sentence,
    varying,
    why_no_time,
    write_variants,
)
from occupancy_lab.explaining.dry_run import DryRun, explain_launch
from occupancy_lab.expressions import Kind, nearest, parse
from occupancy_lab.files import check_outputs
from occupancy_lab.sweeping import views
from occupancy_lab.sweeping.run import NOT_WRITTEN, Swept, complaints_of, export_table
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import cell, count, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from occupancy_lab.record import LaunchRecord

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
    complaints = tuple(
        complaints_of(
            [
                partial(export_table, Path(path), form_of, chosen)
                for path, form_of in outputs.values()
                if path is not None
            ]
        )
    )
    forms = {"csv": views.to_csv, "json": views.to_json}
    runs = [swept.runs[place] for place in chosen.index]
    text = forms[form](chosen) if form else _screen(runs)
    if complaints:
        return Swept(text, NOT_WRITTEN, complaints)
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
        names = [", ".join(setting(one, knob) for knob in knobs) for one in settings]
        rows = launch_rows(records)
        differing = tuple(row for row in rows if len(records) == 1 or len(set(row[1:])) > 1)
        alike = [row[0] for row in rows if len(set(row[1:])) == 1 and row[1] != "-"]
        headers = ("", *names)
        sentences = [f"Alike in all: {listed(alike)}."] if alike and len(records) > 1 else []
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
    }


def tune_launches(top: int = 5, **asked: Any) -> RankedLaunches:
    """Return the launches that are *asked* by their predicted time, the best first.

    Raises InputError where no time is predicted of any of them; the message says why.
    """
    run = explain_launch(**asked)
    ranked = sorted(
        (record for record in run.records if record.prediction is not None), key=_predicted
    )
    if not ranked:
        why = why_no_time(run.records[0]).replace("`", "")
        msg = f"{why}; `sweep` lists these launches without a time"
        raise InputError(msg)
    others = [one for one in run.runs if getattr(one, "prediction", None) is None]
    return RankedLaunches((*ranked, *others), run.launcher, run.function, top)


@dataclass(frozen=True, slots=True, repr=False)
class RankedLaunches(DryRun):
    """Launches by their predicted time, and after them those without one."""

    top: int
    """The most that the ranking has of each GPU."""

    def to_document(self, *, full: bool = False) -> Document:
        """Return the ranking on each GPU; *full* changes nothing."""
        del full
        knobs = varying([_settings(run) for run in self.runs])
        titles = dict.fromkeys(run.gpu.title for run in self.runs)
        ranked = {title: self._ranked_on(title) for title in titles}
        sections = [
            self._ranking(title, found, knobs, caption=len(titles) > 1)
            for title, found in ranked.items()
            if found
        ]
        without = len(self.runs) - sum(map(len, ranked.values()))
        sentences = ["Nothing was launched."]
        if without:
            sentences.append(f"{without} of {len(self.runs)} launches have no predicted time.")
        return Document(
            f"{literal(self.runs[0].kernel)}, by predicted time on {listed([*titles])}",
            tuple(_first(found, knobs) for found in ranked.values() if found),
            (*sections, Section("", (), tuple(sentences))),
        )

    def _ranked_on(self, title: str) -> list[LaunchRecord]:
        return [one for one in self.records if one.title == title and one.prediction is not None]

    def _ranking(
        self, title: str, found: Sequence[LaunchRecord], knobs: Sequence[str], *, caption: bool
    ) -> Section:
        rows = tuple(
            (
                *(setting(_settings(record), knob) for knob in knobs),
                cell(_predicted(record)),
                "-" if record.prediction is None else f"{record.prediction.gbs:.0f}",
                *numbers(record),
            )
            for record in found[: self.top]
        )
        headers = (*map(literal, knobs), "predicted us", "GB/s", *number_headers([found[0].gpu]))
        table = Table(headers, rows, f"**{title}**" if caption else "")
        return Section("", (table,), (time_sentence(found[0]),))


def _predicted(record: LaunchRecord) -> float:
    return math.inf if record.prediction is None else record.prediction.us


def _first(found: Sequence[LaunchRecord], knobs: Sequence[str]) -> str:
    """Say which launch of one GPU is predicted to be the fastest, and how many as fast."""
    best = found[0]
    words = ", ".join(f"{literal(knob)} {setting(_settings(best), knob)}" for knob in knobs)
    time = cell(_predicted(best))
    alike = sum(cell(_predicted(one)) == time for one in found) - 1
    others = f"; {count(alike, 'other')} to take as long" if alike else ""
    return (
        f"**{best.title}**: {words or 'the launch'} is predicted to take least, {time} us{others}."
    )
