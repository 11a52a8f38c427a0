"""The nearest launch that fixes a row that breaks a check: another row, or one compiled for it."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from occupancy_lab.asked import Asked
from occupancy_lab.checking.changes import difference_words, slower, time_words, times
from occupancy_lab.checking.conditions import Check
from occupancy_lab.checking.rows import TIMES, TOTALS, Row, Table, make_rows, passed_values, shown
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.neighbours import by_position, caps, changed
from occupancy_lab.expressions import Value
from occupancy_lab.options import CAPS, NAMES
from occupancy_lab.record import Record
from occupancy_lab.text.words import duration, listed
from occupancy_lab.values import Status
from occupancy_lab.workers.child import cores

Judged: TypeAlias = tuple[Row, frozenset[int], frozenset[int]]
"""A row, the checks that it has to meet, and those whose conditions it meets."""
Problem: TypeAlias = frozenset[tuple[str, Value]]
"""What a launch computes, on which GPU, compiled by which Triton."""

MOST_TRIED = 4
"""For how many rows other launches are compiled."""
MOST_CAPS = 3
"""How many caps on registers are tried, each for one more program."""
LOCAL = ("local_bytes", "n_spills", "local_accesses")
"""The columns that say how much local memory a kernel uses."""
_TUNED = re.compile(r"BLOCK|TILE|SPLIT|UNROLL|STAGES|WARPS|GROUP(_SIZE)?_?[MNK]$", re.IGNORECASE)
"""The names of constexprs that a launch may choose; other constexprs say what is computed."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of a launch that fixes a check, or that its explanation recommends.

    A fix breaks no other check and adds no local memory.
    """

    words: str = ""
    """The changes: "num_warps 8 instead of 4"; "" if none is recommended."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """The new values of the knobs that differ, as far as they are known; None is a cap on registers
    that is left out."""
    row: Row | None = None
    """The changed launch, as far as it is known; None without a change."""
    slower: float | None = None
    """By which share it is slower (negative: faster); None if no time is known."""
    time: str = ""
    """How the time differs: "323 us predicted instead of 309 us (+4.5%)"; "" if not noticeably."""
    close: str = ""
    """The same words for a time that is not noticeably different."""
    sentence: str = ""
    """The first sentence of `explain`, if that recommends this launch."""
    still_broken: int = 0
    """How many checks it breaks that the row breaks too."""

    @property
    def values(self) -> Mapping[str, Value]:
        """The value of each column of the changed launch."""
        return {} if self.row is None else self.row.values

    def to_dict(self) -> dict[str, Any]:
        """Return the fix as plain values, for JSON."""
        return {
            "words": self.words,
            "changes": dict(self.changes),
            "values": dict(self.values),
            "slower": self.slower,
        }


class FixFinder:
    """Finds launches that would fix rows of a table."""

    def __init__(self, checks: Sequence[Check], table: Table) -> None:
        self._checks = checks
        self._table = table
        self._chosen: set[int] = set()
        self._said: dict[int, Fix | None] = {}
        self._judged: dict[tuple[Problem, int], list[Judged]] = {}

    def _judge(self, row: Row) -> tuple[frozenset[int], frozenset[int]]:
        """Return the indices of the checks that a row has to meet, and of those that it meets."""
        every = [*enumerate(self._checks)]
        held = (place for place, one in every if one.is_for(row, self._table))
        met = (place for place, one in every if one.kind(row, self._table) in {None, "new"})
        return frozenset(held), frozenset(met)

    def _maker(self, row: Row) -> tuple[Asked, Explanation] | None:
        """Return what *row* was compiled from; None if it was not, or beyond MOST_TRIED rows."""
        if row.maker is not None and len(self._chosen) < MOST_TRIED:
            self._chosen.add(id(row))
        return row.maker if id(row) in self._chosen else None

    def tried(self, row: Row) -> Iterable[Row]:
        """Return launches that differ from *row* in one knob, compiled lazily."""
        found = self._maker(row)
        return () if found is None else compiled_neighbours(row, *found)

    @functools.cached_property
    def _of_problems(self) -> dict[Problem | None, list[Row]]:
        found: dict[Problem | None, list[Row]] = {}
        for row in self._table.rows:
            found.setdefault(_problem(row), []).append(row)
        return found

    def _of_same_problem(self, row: Row) -> list[Judged]:
        problem = _problem(row)
        if problem is None:
            return []
        key = problem, id(row.before)
        if key not in self._judged:
            others = self._of_problems.get(problem, [])
            self._judged[key] = [self._beside(row, one) for one in others]
        return self._judged[key]

    def _beside(self, row: Row, other: Row) -> Judged:
        if other.before is not row.before:
            other = dataclasses.replace(other, before=row.before)
        return other, *self._judge(other)

    def fix(self, row: Row, check: Check) -> Fix | None:
        """Return the best launch that meets *check*, which *row* breaks; None if none is known.

        The first choice is what `explain` recommends for the row, if that meets the check. The
        others are ranked: first those that are not slower, then those without a time, then the
        fastest; among equals, those that break the fewest checks, and then the nearest.
        """

        def rank(one: Fix) -> tuple[float, ...]:
            time = max(one.slower or 0.0, 0.0), one.slower is None
            return *time, one.still_broken, *_distance(row, one.changes)

        if (first := self._first(row, check)) is not None:
            return first
        found = [*self._fixes(row, check, self._of_same_problem(row))]
        best = min(found, key=rank, default=None)
        if best is None or (best.slower or 0.0) > 0 or len(best.changes) > 1 or best.still_broken:
            tried = (self._beside(row, one) for one in self.tried(row))
            for one in self._fixes(row, check, tried):
                found.append(one)
                if (one.slower or 0.0) <= 0 and not one.still_broken:
                    break
        return min(found, key=rank, default=None)

    def advice(self, row: Row) -> Fix | None:
        """Return the change that `explain` or `trace` recommends first for *row*; None if none."""
        if id(row) not in self._said:
            found = self._maker(row)
            self._said[id(row)] = of_trace(row) if found is None else of_launch(row)
        return self._said[id(row)]

    def _still_broken(self, row: Row, check: Check, other: Judged) -> int | None:
        """Return how many checks both *row* and the *other* launch break.

        None if the other launch breaks *check*, or a check that *row* does not break.
        """
        asked, row_met = self._judge(row)
        _, held, met = other
        broken = (asked | held) - met
        fixes = self._checks.index(check) in met and broken <= asked - row_met
        return len(broken) if fixes else None

    def _first(self, row: Row, check: Check) -> Fix | None:
        said = self.advice(row)
        if said is None or said.row is None:
            return None
        if self._still_broken(row, check, self._beside(row, said.row)) is None:
            return None
        share = None if times(row, said.row) is None else slower(row, said.row)
        return dataclasses.replace(said, slower=share)

    def _fixes(self, row: Row, check: Check, others: Iterable[Judged]) -> Iterator[Fix]:
        for other in others:
            one, broken = other[0], self._still_broken(row, check, other)
            if one.status != Status.OK or broken is None or _adds_local(row, one):
                continue
            if changes := _differences(row, one):
                share = None if times(row, one) is None else slower(row, one)
                time = ", ".join(time_words(row, one))
                close = "" if share else difference_words(row, one)
                words = _words(row, changes)
                yield Fix(words, changes, one, share, time, close, still_broken=broken)


def _words(row: Row, changes: Mapping[str, Value]) -> str:
    words = listed([_change(row, name, value) for name, value in changes.items()])
    own = any(name not in NAMES for name in changes)
    return f"{words}, if its results stay right" if own else words


def _change(row: Row, name: str, value: Value) -> str:
    now = row.setting(name)
    if value is None:
        return f"without {name} {shown(now)}"
    return f"{name} {shown(value)}" + ("" if now is None else f" instead of {shown(now)}")


def _is_knob(name: str) -> bool:
    return name in NAMES or _TUNED.search(name) is not None


def _problem(row: Row) -> Problem | None:
    """Return what identifies the problem of a launch, without its knobs.

    None for an entry of a cache whose program is not known, because caches keep no constexprs.
    """
    program = row.values.get("program")
    if row.values.get("entry") is not None and program is None:
        return None
    named = {name: value for name, value in row.names.items() if not _is_knob(name)}
    version = row.values.get("triton_version")
    return frozenset({**named, "triton_version": version, "program": program}.items())


def _differences(row: Row, other: Row) -> dict[str, Value]:
    """Return the knobs of *other* that differ; {} if one of the values is not known."""
    knobs = [name for name in dict.fromkeys([*row.names, *other.names]) if _is_knob(name)]
    pairs = {name: (row.setting(name), other.setting(name)) for name in knobs}
    pairs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    unknown = any(None in pair for name, pair in pairs.items() if name not in CAPS)
    return {} if unknown else {name: new for name, (_, new) in pairs.items()}


def _distance(row: Row, differences: Mapping[str, Value]) -> tuple[int, int, float]:
    """Return a key for the distance: changed constexprs, changed knobs, and their log ratios."""
    times = [
        abs(math.log2(new) - math.log2(now))
        for name, new in differences.items()
        if isinstance(new, int | float)
        and isinstance(now := row.setting(name), int | float)
        and new > 0 < now
    ]
    own = sum(name not in NAMES for name in differences)
    return own, len(differences), sum(times)


def _adds_local(row: Row, other: Row) -> bool:
    """Tell whether *other* has, or may have, more local memory than *row*."""
    pairs = [(row.number(name), other.number(name)) for name in LOCAL]
    known = [(now, new) for now, new in pairs if now is not None and new is not None]
    return not known or any(new > now for now, new in known)


def compiled_neighbours(row: Row, asked: Asked, explained: Explanation) -> Iterator[Row]:
    """Return launches like that of *row* with one option changed, compiled lazily.

    As many as there are cores are compiled at a time, with predicted times if possible. *explained*
    is the explanation that the row is from.

    The order is: without the cap on registers; more warps, so that each thread holds less; fewer
    warps; fewer stages; and caps on registers if the launch spills nothing.
    """
    record = row.record
    if record is None or asked.matrix is not None:
        return
    most = record.gpu.architecture.max_warps_per_program
    warps, stages = record.num_warps, record.num_stages
    capped = [name for name in CAPS if record.options.get(name)]
    changes: list[dict[str, Any]] = [dict.fromkeys(capped)] if capped else []
    changes += [{"num_warps": 1 << place} for place in range(6) if warps < 1 << place <= most]
    changes += [{"num_warps": 1 << place} for place in reversed(range(6)) if 1 << place < warps]
    changes += [{"num_stages": number} for number in reversed(range(1, stages))]
    changes += [] if capped or record.resources.local_bytes else caps(record, MOST_CAPS)
    allowed = (one for one in changes if not by_position(record) & one.keys())
    wanted = [tried for one in allowed if (tried := changed(asked, one)) is not None]
    compiler, assume = explained.compiler, explained.assume
    for first in range(0, len(wanted), cores()):
        some = wanted[first : first + cores()]
        for made in with_counts(compile_runs(some, compiler), some, compiler, assume):
            if isinstance(made, Record):
                (one,) = make_rows([made.to_dict()], "compiled neighbours")
                yield dataclasses.replace(one, record=made)


_KEPT = ("kernel", "gpu", "target", "status", "expected", "launches", "grids")
"""The columns of a trace that a change does not affect; besides times, others become unknown."""
_RANGE = ("predicted_low_us", "predicted_high_us")


def of_trace(row: Row) -> Fix | None:
    """Return the change that a trace recommends for *row*; None if it has none."""
    change, saved = row.values.get("action"), row.number("saved_us")
    said = row.values.get("advice")
    time = next((time for time in TIMES if row.total(time)), None)
    if not change or not saved or time is None:
        return None if said is None else Fix(sentence=f"{said}")
    share = 1 - saved / (row.total(time) or saved)
    values = {name: row.values[name] for name in _KEPT if name in row.values}
    for name in (*TIMES, *TOTALS.values(), *_RANGE):
        number = row.number(name)
        values[name] = None if number is None else number * share
    lost = row.number("lost_us")
    values["lost_us"] = None if lost is None else max(lost - saved, 0.0)
    sentence = f"{change}: a total of {duration(saved)} less is predicted."
    changed = dataclasses.replace(row, values=values)
    return Fix(f"{change}", row=changed, sentence=sentence if said is None else f"{said}")


def of_launch(row: Row) -> Fix | None:
    """Return the change that `explain` recommends for a launch; None if it has none."""
    from occupancy_lab.explaining.advice import best_action

    if row.record is None or row.maker is None or row.maker[0].matrix is not None:
        return None
    action = best_action(row.maker[1].case_of(row.record))
    if action is None:
        return None
    if action.record is None:
        return Fix(sentence=action.plain)
    (changed,) = make_rows([passed_values(action.record)], "compiled neighbours")
    return Fix(action.change, action.changes, changed, sentence=action.plain)
