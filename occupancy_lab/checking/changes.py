"""A kernel before and after: whether it changed, in what, and how that is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.checking.rows import TIMES, shown
from occupancy_lab.text.words import (
    LIMITS,
    cell,
    count,
    difference_cell,
    duration,
    listed,
    microseconds,
    percent,
    resource_word,
)
from occupancy_lab.values import NOTICEABLE, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from occupancy_lab.checking.rows import Row
    from occupancy_lab.expressions import Value

AMOUNTS: Mapping[str, str] = {
    "local_bytes": "local B",
    "n_regs": "registers",
    "shared": "shared B",
    "static_shared": "static shared B",
}
"""The amounts that are compared, and what a table calls them."""
LAUNCHES = "launches"
"""How often a traced program launches a kernel."""
CALLED: Mapping[str, str] = {
    LAUNCHES: LAUNCHES,
    **{name: f"{words} us" for name, words in TIMES.items()},
    **AMOUNTS,
    "programs_per_multiprocessor": "programs",
}
"""What a table calls the columns whose own name does not say it."""
COMPARED = (*TIMES, LAUNCHES, *AMOUNTS, "programs_per_multiprocessor", "occupancy")
"""The columns in which a change counts, where both tables have them; and the status."""
KINDS: Mapping[str, tuple[str, str]] = {
    "failed": ("failing now", "No longer compile or fit"),
    "slower": ("slower", "Slower"),
    "faster": ("faster", "Faster"),
    "total": ("with another time in all", "Another time of all launches"),
    "spills": ("spilling more", "Spill more"),
    "crossed": ("crossing a step", "Crossed a step"),
    "set": ("differing as sets", "Nothing tells these rows apart: compared as sets"),
    "other": ("changed otherwise", "Changed otherwise"),
}
"""The kinds of changes in the order in which they are shown: in a count, as a title."""


@dataclass(frozen=True, slots=True)
class Change:
    """A kernel before and after; or several of each that nothing tells apart."""

    kind: str
    """One of KINDS."""
    label: str
    before: tuple[Row, ...]
    after: tuple[Row, ...]

    @property
    def order(self) -> tuple[int, float, float, bool, float, str]:
        """What changes are sorted by: kind, time, occupancy lost before gained, and size."""
        one, other = self.before[0], self.after[0]
        lost = (one.number("occupancy") or 0.0) - (other.number("occupancy") or 0.0)
        more = sum(abs((other.number(name) or 0.0) - (one.number(name) or 0.0)) for name in AMOUNTS)
        place = [*KINDS].index(self.kind)
        longer = -abs(slower(one, other)), -abs(_longer_in_all(one, other))
        return place, *longer, lost < 0, -abs(lost) * 1e9 - more, self.label

    @property
    def words(self) -> str:
        """Say what changed: "72 registers instead of 64: 3 programs per SM instead of 4, ..."."""
        if self.kind == "set":
            return "; ".join(_set_words(self.before, self.after))
        return _words(self.before[0], self.after[0])

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain values, for JSON."""
        return {
            "kind": self.kind,
            "row": self.label,
            "words": self.words,
            "before": [dict(one.values) for one in self.before],
            "after": [dict(one.values) for one in self.after],
        }


def times(before: Row, after: Row) -> tuple[str, float, float] | None:
    """Return the column of times that decides, and both times; None where none is known."""
    for name in TIMES:
        if (old := before.number(name)) and (new := after.number(name)):
            return name, old, new
    return None


def slower(before: Row, after: Row) -> float:
    """Return by which share a row takes longer, negative where it is faster; 0 for the same."""
    if (found := times(before, after)) is None:
        return 0.0
    name, old, new = found
    share = new / old - 1
    same = max(before.noticeable(name), after.noticeable(name))
    return share if abs(share) >= same else 0.0


def launches_differ(before: Row, after: Row) -> bool:
    """Tell whether a traced program launches it another number of times."""
    numbers = {before.number(LAUNCHES), after.number(LAUNCHES)}
    return None not in numbers and len(numbers) > 1


def more_in_all(before: Row, after: Row) -> float:
    """Return by which share all launches of a trace take longer; 0 for the same or not known."""
    if (found := _totals(before, after)) is None:
        return 0.0
    name, old, new = found
    share = new / old - 1
    return share if abs(share) >= max(before.noticeable(name), after.noticeable(name)) else 0.0


def _longer_in_all(before: Row, after: Row) -> float:
    """Return by how many us all launches take longer; 0 where it is not known."""
    found = _totals(before, after)
    return 0.0 if found is None else found[2] - found[1]


def _totals(before: Row, after: Row) -> tuple[str, float, float] | None:
    """Return what `times` does of the time of all launches of a trace."""
    for name in TIMES:
        if (old := before.total(name)) and (new := after.total(name)):
            return name, old, new
    return None


def changed(before: Row, after: Row) -> list[str]:
    """Return the amounts that differ, or are known on one side alone."""
    return [name for name in AMOUNTS if before.values.get(name) != after.values.get(name)]


def _words(before: Row, after: Row) -> str:
    if before.status != after.status:
        reason = after.values.get("reason") or before.values.get("reason")
        status = f"{after.status} instead of {before.status}"
        return f"{status}: {reason}" if reason else status
    amounts = [_amount_words(name, before, after) for name in changed(before, after)]
    times = [*time_words(before, after), *_total_words(before, after)]
    words = [*times, *amounts] or ["with the same amounts"]
    return f"{listed(words)}: {_occupancy_words(before, after)}"


def time_words(before: Row, after: Row) -> Iterator[str]:
    """Say how the time differs: "634 us predicted instead of 187 us (+239.0%)"."""
    if times(before, after) is None:
        for name, how in TIMES.items():
            if (gone := before.number(name)) and name in after.values:
                yield f"{how} time not known instead of {microseconds(gone)}"
    elif slower(before, after):
        yield difference_words(before, after)


def _total_words(before: Row, after: Row) -> Iterator[str]:
    """Say how all launches of a trace differ: "40 launches instead of 10", and their time."""
    if launches_differ(before, after):
        was, now = (int(row.number(LAUNCHES) or 0) for row in (before, after))
        yield f"{now} launch{'' if now == 1 else 'es'} instead of {was}"
    elif slower(before, after):
        return
    if (found := _totals(before, after)) and more_in_all(before, after):
        name, old, new = found
        yield f"in all {totals_words(old, new, name)}"


def totals_words(old: float, new: float, time: str) -> str:
    """Return two times of many launches: "4.48 ms predicted instead of 3.58 ms (+25.0%)"."""
    if duration(old) == duration(new):
        return f"{duration(new)} {TIMES[time]}, as before"
    words = f"{duration(new)} {TIMES[time]} instead of {duration(old)}"
    return f"{words} ({difference_cell(new, old)})"


def difference_words(before: Row, after: Row) -> str:
    """Return how the time differs; "" where it is not known, or hardly does."""
    if (found := times(before, after)) is None:
        return ""
    name, old, new = found
    if abs(new / old - 1) < NOTICEABLE:
        return ""
    words = f"{microseconds(new)} {TIMES[name]} instead of {microseconds(old)}"
    return f"{words} ({difference_cell(new, old)})"


def _amount_words(name: str, before: Row, after: Row) -> str:
    old, new = before.values.get(name), after.values.get(name)
    if new is None:
        return f"{_word(name, after)} not known instead of {shown(old)}"
    was = ", not known before" if old is None else f" instead of {shown(old)}"
    return f"{shown(new)} {_word(name, after)}{was}"


def _word(name: str, row: Row) -> str:
    amd = row.gpu is not None and row.gpu.vendor == "AMD"
    return "VGPRs" if amd and name == "n_regs" else AMOUNTS[name]


def _occupancy_words(before: Row, after: Row) -> str:
    """Say what fits after and before, and the resource that decides it."""
    gpu = after.gpu
    word = "multiprocessor" if gpu is None else gpu.architecture.multiprocessor_word
    old, new = (row.number("programs_per_multiprocessor") for row in (before, after))
    shares = (row.number("occupancy") for row in (before, after))
    held, holds = ("not known" if one is None else percent(one) for one in shares)
    if old is None or new is None:
        return "the programs that fit are not known"
    programs = f"{count(int(new), 'program')} per {word}"
    if old == new:
        return f"still {programs} ({holds if held == holds else f'{holds} instead of {held}'})"
    share = f"still {holds}" if held == holds else f"{holds} instead of {held}"
    fewer = new < old
    limiters = str((after if fewer else before).values.get("limiter") or "").split("+")
    vendor = "" if gpu is None else gpu.vendor
    limited = listed([resource_word(vendor, one) for one in limiters if one in LIMITS] or [""])
    why = f", limited by {limited}" if fewer else f", which {limited} limited before"
    words = f"{programs} instead of {int(old)} ({share})"
    return f"{words}{why if limited else ''}"


def _set_words(before: Sequence[Row], after: Sequence[Row]) -> Iterator[str]:
    """Say how the values of rows differ that nothing tells apart."""
    yield f"{count(len(before), 'row')} before and {len(after)} after differ"
    for name, words in CALLED.items():
        one, other = (_values(name, rows) for rows in (before, after))
        if one != other:
            yield f"{words} {one} before, {other} after"


def _values(name: str, rows: Sequence[Row]) -> str:
    """Return what *rows* hold in a column, in the order of size, equal values once."""
    found = sorted((row.number(name) for row in rows), key=lambda one: (one is None, one))
    counts = Counter(cell(one) if name in TIMES else shown(one) for one in found)
    return ", ".join(
        f"{one} ({times} times)" if times > 1 else one for one, times in counts.items()
    )


def kind_of(before: Row, after: Row) -> str:
    """Return the kind of the change, one of KINDS."""
    if after.status != Status.OK and before.status == Status.OK:
        return "failed"
    if share := slower(before, after):
        return "slower" if share > 0 else "faster"
    if more_in_all(before, after) or launches_differ(before, after):
        return "total"
    if (after.number("local_bytes") or 0.0) > (before.number("local_bytes") or 0.0):
        return "spills"
    old, new = (row.number("programs_per_multiprocessor") for row in (before, after))
    return "other" if old is None or new is None or old == new else "crossed"


def are_alike(before: Row, after: Row, names: Sequence[str]) -> bool:
    """Tell whether two rows are alike in *names* and in time."""
    same = _results(before, names) == _results(after, names)
    return same and not slower(before, after) and not more_in_all(before, after)


def take_alike(olds: list[Row], news: list[Row], names: Sequence[str]) -> list[tuple[Row, Row]]:
    """Take the pairs that are alike in *names* and time out of both, and return them."""
    by_results: dict[tuple[Value, ...], list[Row]] = {}
    for row in _by_time(news):
        by_results.setdefault(_results(row, names), []).append(row)
    left, pairs = [], []
    for old in _by_time(olds):
        alike = by_results.get(_results(old, names), [])
        place = next((n for n, new in enumerate(alike) if are_alike(old, new, names)), None)
        if place is None:
            left.append(old)
        else:
            pairs.append((old, alike.pop(place)))
    taken = {id(new) for _, new in pairs}
    olds[:] = left
    news[:] = [row for row in news if id(row) not in taken]
    return pairs


def _by_time(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(row.number(name) or 0.0 for name in TIMES))


def _results(row: Row, names: Sequence[str]) -> tuple[Value, ...]:
    values = ((name, row.values.get(name)) for name in names)
    return (row.status, *(one is None if name in TIMES else one for name, one in values))
