"""Launches of any kernel, ranked by their predicted time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError
from occupancy_lab.explaining.dry_run import explain_launch
from occupancy_lab.explaining.duration import time_sentence, why_no_time
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.facts import (
    number_headers,
    numbers,
    setting,
    settings_of,
)
from occupancy_lab.explaining.neighbours import predicted_us
from occupancy_lab.explaining.variants import first_sentence, varying
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import cell, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.record import Record


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
