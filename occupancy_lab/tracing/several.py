"""The page of a program that was run dry, for one GPU or for several side by side."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.script import NOT_LAUNCHED, Ran
from occupancy_lab.explaining.kernel_time import KernelTime
from occupancy_lab.explaining.script_lines import ScriptLine, missing
from occupancy_lab.explaining.short import FURTHER_OPTIONS
from occupancy_lab.gpus import Gpu
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import duration, listed, overlap_sentence, range_sentence
from occupancy_lab.tracing.page import (
    NOTHING,
    action_sentence,
    not_tried,
    short_name,
    unknown_resources,
    untimed,
    write_trace,
)
from occupancy_lab.tracing.traced import TracedKernel

if TYPE_CHECKING:
    import pandas as pd

    from occupancy_lab.tracing.trace import Trace

MORE = (
    "`explain FILE.py:main --full` has more of each launch, and `trace --report` a page of more"
    " kernels."
)
PROFILED = (
    "A launch's time is that within its script, as a profiler gives it. `explain"
    " FILE.py:FUNCTION` gives the time between CUDA events, which is some 2 us longer and waits for"
    " the last writes."
)
LONGEST_LINE = (
    "It takes the most time of all launch lines that were tried, so it is the one explained here;"
    " `explain FILE.py:main --full` explains each."
)
FEW_LINES = 2
"""How many launch lines are all explained; of more the longest is, without `--full`."""


@dataclass(frozen=True, slots=True, repr=False)
class DryTrace:
    """A program that was run dry for one GPU."""

    gpu: Gpu
    trace: Trace

    @property
    def ran(self) -> Ran | None:
        """How it was run."""
        return None if self.trace.outcome is None else self.trace.outcome.ran

    @property
    def status(self) -> int:
        """The exit status."""
        return 0 if self.trace.outcome is None else self.trace.outcome.status

    @property
    def shown(self) -> tuple[TracedKernel, ...]:
        """The kernels, an autotuned one only in the configuration predicted to be fastest."""
        return self.trace.found.shown

    @property
    def time(self) -> KernelTime | None:
        """The predicted time of all launches that have a prediction."""
        return KernelTime.total(one.time for one in self.shown)

    @property
    def tried(self) -> bool:
        """Whether nearby launches of its kernels were to be tried."""
        found = self.trace.found
        tried = [one for one in self.shown if one.action is not None]
        return bool(tried or found.minor or found.failed or found.untried)

    @property
    def launches(self) -> int:
        """The number of all launches."""
        return sum(one.launches for one in self.shown)

    def explained(self, *, full: bool, every: bool) -> list[tuple[int, ScriptLine]]:
        """Return the launch lines to explain, with the numbers of their kernels.

        These are *every* line or only the longest; unless *full*, of those that were tried.
        """
        lines = [
            (number, line)
            for number, kernel in enumerate(self.shown, 1)
            for line in kernel.lines
            if line.record is not None and (full or line.is_tried)
        ]
        return lines if every else sorted(lines, key=lambda pair: -pair[1].us)[:1]

    @property
    def of_names(self) -> dict[str, KernelTime | None]:
        """The predicted time of all launches of each kernel, over all its configurations."""
        groups: dict[str, list[KernelTime | None]] = {}
        for one in self.shown:
            groups.setdefault(one.kernel, []).append(one.time)
        return {name: KernelTime.total(times) for name, times in groups.items()}


@dataclass(frozen=True, slots=True, repr=False)
class DryTraces(Answer):
    """A program that was run dry for several GPUs, separately, since it may ask what GPU it has."""

    command: tuple[str, ...]
    traces: tuple[DryTrace, ...]
    """The run for each GPU, in the order in which they were asked for."""

    @property
    def status(self) -> int:
        """The first exit status that is not 0, or else 0."""
        return next((one.status for one in self.traces if one.status), 0)

    def failures(self) -> Iterator[str]:
        """Return sentences on why runs stopped or lack launches, or why no kernel compiles."""
        for one in self.traces:
            if one.ran is None:
                continue
            sentences = tuple(one.ran.why_launches_are_missing())
            if one.status and not sentences:
                sentences = tuple(unknown_resources(one.shown))
            several = len(self.traces) > 1
            yield from (f"{one.gpu.title}: {each}" if several else each for each in sentences)

    def table(self) -> pd.DataFrame:
        """Return a row for each expected kernel and configuration on each GPU."""
        import pandas as pd

        rows = [{**kernel.row(), "gpu": one.gpu.key} for one in self.traces for kernel in one.shown]
        return pd.DataFrame(rows).convert_dtypes()

    def to_document(self, *, full: bool = False) -> Document:
        """Return the page, which explains the launch that takes most time, or with *full* each.

        Nothing is explained whose neighbours were not to be tried.
        """
        explained = tuple(self._explained(full=full))
        if len(self.traces) == 1:
            trace = self.traces[0].trace
            page = write_trace(
                trace.found, trace.outcome, alone=self._is_single and bool(explained)
            )
            return Document(page.title, page.answer, (*page.sections, *explained))
        tables = (_totals(self.traces), *_kernels(self.traces))
        section = Section("", tables, tuple(self._sentences()))
        keys = listed([one.gpu.key for one in self.traces])
        title = f"dry runs of {literal(shlex.join(self.command))} for {keys}"
        return Document(title, tuple(_answer(self.traces)), (section, *explained))

    @property
    def _lines(self) -> list[ScriptLine]:
        return [line for one in self.traces for kernel in one.shown for line in kernel.lines]

    @property
    def _is_single(self) -> bool:
        """Whether all is one launch, made once: its explanation has everything about it."""
        return [line.first.times for line in self._lines] == [1]

    def _explained(self, *, full: bool) -> Iterator[Section]:
        how = {"full": full, "every": full or len(self._lines) <= FEW_LINES}
        chosen = [(one, *found) for one in self.traces for found in one.explained(**how)]
        for one, number, line in chosen:
            page = line.run.to_document(full=full)
            is_numbered = len(self.traces) == 1 and len(one.shown) > 1
            title = f"{number} {page.title}" if is_numbered else page.title
            why = () if how["every"] or line.time is None else (LONGEST_LINE,)
            yield Section(title, (), (*why, *page.answer))
            for section in page.sections:
                said = (one for one in section.sentences if one != FURTHER_OPTIONS)
                yield dataclasses.replace(section, sentences=tuple(said))
        timed = [PROFILED for *_, line in chosen if line.time is not None][:1]
        if chosen:
            yield Section("", (), (*timed, *([] if full else [MORE])))

    def _sentences(self) -> Iterator[str]:
        yield (
            "Times are predicted: the sum of all launches, each as a profiler would give it, with"
            " the L2 cache empty before; range is the sum of the least and of the most that each"
            " may take; lost is the time above the speed of light; ratio is to the least of these"
            " times."
        )
        for one in self.traces:
            predictions = (kernel.prediction for kernel in one.shown)
            if (found := next(filter(None, predictions), None)) is not None:
                yield range_sentence(one.gpu, found.basis, calibrated=found.calibrated)
        tried = [one for one in self.traces if one.tried]
        if not tried:
            yield "What brings most is shown for one GPU, or for each with `--actions SECONDS`."
        for one in tried:
            action = [*action_sentence(one.shown)] or [
                "No launch that was tried is predicted to be noticeably faster."
            ]
            sentences = (*action, *not_tried(one.trace.found))
            yield from (f"**{one.gpu.title}**: {sentence}" for sentence in sentences)
        yield NOT_LAUNCHED
        gpus: dict[str, list[str]] = {}
        for one in self.traces:
            for sentence in (*untimed(one.shown), *unknown_resources(one.shown), *missing(one.ran)):
                gpus.setdefault(sentence, []).append(one.gpu.title)
        for sentence, titles in gpus.items():
            everywhere = len(titles) == len(self.traces)
            yield sentence if everywhere else f"{listed(titles)}: {sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values: the run for one GPU, or the totals and each run."""
        page = self.to_document().to_dict()
        if len(self.traces) == 1:
            return {**self.traces[0].trace.to_dict(), "document": page}
        return {
            "command": list(self.command),
            "status": self.status,
            "rows": [row for one in self.traces for row in one.trace.rows()],
            "totals": [_plain_total(one) for one in self.traces],
            "gpus": {one.gpu.key: one.trace.to_dict() for one in self.traces},
            "document": page,
        }


def _answer(traces: Sequence[DryTrace]) -> Iterator[str]:
    times = {one.gpu.title: time for one in traces if (time := one.time) is not None}
    without = [one.gpu.title for one in traces if one.gpu.title not in times and one.launches]
    if times:
        ordered = sorted(times, key=lambda title: times[title].us)
        first, *others = ordered
        least = times[first]
        words = [
            f"it takes {times[title].us / least.us:.2f} times as long on {title}"
            for title in others
            if least.us
        ]
        yield (
            f"{duration(least.us)} ({least.limits}) are predicted on {first}"
            + (f"; {listed(words)}." if words else ".")
        )
        ranges = {title: (times[title].low_us, times[title].high_us) for title in ordered}
        if overlap := overlap_sentence(ranges):
            yield overlap
    if without:
        yield f"No time is predicted for {listed(without)}."
    if not any(one.launches for one in traces):
        yield f"{NOTHING}."


def _plain_total(one: DryTrace) -> dict[str, Any]:
    time = one.time
    return {
        "gpu": one.gpu.key,
        "launches": one.launches,
        "predicted_launches": 0 if time is None else time.launches,
        "predicted_total_us": None if time is None else time.us,
        "predicted_total_low_us": None if time is None else time.low_us,
        "predicted_total_high_us": None if time is None else time.high_us,
        "lost_us": None if time is None else time.lost_us,
    }


def _totals(traces: Sequence[DryTrace]) -> Table:
    """Return a row for each GPU; the ratio of the shortest total is 1."""
    times = [one.time for one in traces]
    least = min((time.us for time in times if time is not None), default=0.0)
    rows = []
    for one, time in zip(traces, times, strict=True):
        known = 0 if time is None else time.launches
        launches = f"{known} of {one.launches}"
        if time is None:
            rows.append((one.gpu.key, launches, *["-"] * 4))
            continue
        lost = "-" if time.lost_us is None else duration(time.lost_us)
        times_least = f"{time.us / least:.2f}" if least else "-"
        rows.append((one.gpu.key, launches, duration(time.us), time.limits, lost, times_least))
    headers = ("GPU", "launches", "predicted", "range", "lost", "ratio")
    return Table(headers, tuple(rows))


def _kernels(traces: Sequence[DryTrace]) -> Iterator[Table]:
    found = [one.of_names for one in traces]
    longest: dict[str, float] = {}
    for of_names in found:
        for name, time in of_names.items():
            longest.setdefault(name, 0.0 if time is None else time.us)
    if not longest:
        return
    names = sorted(longest, key=lambda name: longest[name], reverse=True)
    rows = []
    for name in names:
        times = (of_names.get(name) for of_names in found)
        cells = ("-" if one is None else duration(one.us) for one in times)
        rows.append((short_name(name), *cells))
    yield Table(("kernel", *(one.gpu.key for one in traces)), tuple(rows))
