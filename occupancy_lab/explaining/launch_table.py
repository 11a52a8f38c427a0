"""Launches of any kernel side by side: as the table of a sweep, a comparison, or a ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.dry_run import explain_launch
from occupancy_lab.explaining.duration import time_sentence, why_no_time
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.facts import (
    compared_facts,
    number_headers,
    numbers,
    setting,
    settings_of,
    told,
)
from occupancy_lab.explaining.neighbours import predicted_us
from occupancy_lab.explaining.variants import first_sentence, varying, write_variants
from occupancy_lab.sweeping.run import NOT_WRITTEN, Swept
from occupancy_lab.table.columns import kinds_of
from occupancy_lab.table.view import FORMS, columns_of
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import cell, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.record import Record
    from occupancy_lab.table.view import Exports, View
    from occupancy_lab.text.document import Block

MOST_COMPARED = 6
"""Launches that fit beside each other."""


def sweep_launches(view: View, exports: Exports, form: str | None = None, **asked: Any) -> Swept:
    """Return what `occupancy-lab sweep FILE.py:FUNCTION` prints of the launches that are *asked*.

    Raises InputError, before any work, for what cannot be asked or written, and after it for a
    column that there is not.
    """
    exports.check()
    swept = explain_launch(**asked)
    rows = [run.row() for run in swept.runs]
    columns, places = columns_of(rows), view.places(rows, kinds_of(rows))
    shown = [{name: rows[place].get(name) for name in columns} for place in places]
    complaints = tuple(exports.write(columns, shown))
    runs = [swept.runs[place] for place in places]
    screen = FORMS[form](columns, shown) if form else _screen(runs)
    if complaints:
        return Swept(screen, NOT_WRITTEN, complaints)
    return Swept(screen, 0 if swept.records else 1)


def _screen(runs: Sequence[Any]) -> tuple[Block, ...]:
    return write_variants(runs).blocks() if runs else ("No row meets the condition.",)


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
    return ComparedLaunches(run.runs, run.asked, run.compiler)


class ComparedLaunches(Explanation):
    """Launches side by side: what differs, and what is alike."""

    def to_document(self, *, full: bool = False) -> Document:
        """Return what differs; *full* changes nothing."""
        del full
        records = self.records
        knobs = varying([{**settings_of(run), "GPU": run.gpu.key} for run in self.runs])
        settings = [{**settings_of(run), "GPU": run.gpu.title} for run in records]
        names = [", ".join(setting(one, knob) for knob in knobs) for one in settings]
        cases = [Case(record) for record in records]
        rows = told(cases, compared_facts(cases))
        differing = tuple(row for row in rows if len(records) == 1 or len(set(row[1:])) > 1)
        alike = [row[0] for row in rows if len(set(row[1:])) == 1 and row[1] != "-"]
        headers = ("", *names)
        sentences = [f"Alike in all: {listed(alike)}."] if alike and len(records) > 1 else []
        sentences += [
            f"{literal(run.kernel)}: {literal(run.failure.reason)}." for run in self.failures
        ]
        return Document(
            f"{literal(self.runs[0].kernel)}: what differs by {literal(listed(knobs))}",
            (f"{len(records)} of {len(self.runs)} compile and fit.",),
            (Section("", (Table(headers, differing, prose=True),), tuple(sentences)),),
        )


def tune_launches(top: int = 5, **asked: Any) -> RankedLaunches:
    """Return the launches that are *asked* by their predicted time, the best first.

    Raises InputError where no time is predicted of any of them; the message says why.
    """
    run = explain_launch(**asked)
    ranked = sorted(
        (record for record in run.records if record.prediction is not None), key=predicted_us
    )
    if not ranked:
        why = why_no_time(run.records[0]).replace("`", "")
        msg = f"{why}; `sweep` lists these launches without a time"
        raise InputError(msg)
    others = [one for one in run.runs if getattr(one, "prediction", None) is None]
    return RankedLaunches((*ranked, *others), run.asked, run.compiler, top=top)


@dataclass(frozen=True, repr=False)
class RankedLaunches(Explanation):
    """Launches by their predicted time, and after them those without one."""

    top: int = 5
    """The most that the ranking has of each GPU."""

    def to_document(self, *, full: bool = False) -> Document:
        """Return the ranking on each GPU; *full* changes nothing."""
        del full
        knobs = varying([settings_of(run) for run in self.runs])
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
            tuple(first_sentence(found, knobs) for found in ranked.values() if found),
            (*sections, Section("", (), tuple(sentences))),
        )

    def _ranked_on(self, title: str) -> list[Record]:
        return [one for one in self.records if one.title == title and one.prediction is not None]

    def _ranking(
        self, title: str, found: Sequence[Record], knobs: Sequence[str], *, caption: bool
    ) -> Section:
        rows = tuple(
            (
                *(setting(settings_of(record), knob) for knob in knobs),
                cell(predicted_us(record)),
                "-" if record.prediction is None else f"{record.prediction.gbs:.0f}",
                *numbers(record),
            )
            for record in found[: self.top]
        )
        headers = (*map(literal, knobs), "predicted us", "GB/s", *number_headers([found[0].gpu]))
        table = Table(headers, rows, f"**{title}**" if caption else "")
        return Section("", (table,), (time_sentence(found[0]),))
