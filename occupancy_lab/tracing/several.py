"""A program that was run dry for several GPUs: what its kernels take on each, side by side."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.explaining.overview import KernelTime
from occupancy_lab.inputs import asked_gpus, chosen_gpus
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import as_sentence, duration, listed, range_sentence
from occupancy_lab.tracing.dry import dry_trace
from occupancy_lab.tracing.page import (
    NOT_LAUNCHED,
    NOTHING,
    action_sentence,
    missing,
    not_tried,
    short_name,
    shown_kernels,
    unknown_resources,
    untimed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import AskedGpus
    from occupancy_lab.tracing.trace import Trace
    from occupancy_lab.tracing.traced import TracedKernel


@dataclass(frozen=True, slots=True, repr=False)
class DryTrace:
    """A program that was run dry for a GPU."""

    gpu: Gpu
    trace: Trace

    @property
    def shown(self) -> tuple[TracedKernel, ...]:
        """Its kernels, of an autotuned one the configuration that is predicted to be fastest."""
        return shown_kernels(self.trace.found)

    @property
    def time(self) -> KernelTime | None:
        """The predicted time of all launches of which one is known."""
        return KernelTime.total(one.time for one in self.shown)

    @property
    def tried(self) -> bool:
        """Whether launches near its kernels were to be tried."""
        found = self.trace.found
        return any(one.action for one in self.shown) or bool(
            found.minor or found.failed or found.untried
        )

    @property
    def launches(self) -> int:
        """All launches."""
        return sum(one.launches for one in self.shown)

    @property
    def of_names(self) -> dict[str, KernelTime | None]:
        """The predicted time of all launches of each kernel, those of all configurations."""
        groups: dict[str, list[KernelTime | None]] = {}
        for one in self.shown:
            groups.setdefault(one.kernel, []).append(one.time)
        return {name: KernelTime.total(times) for name, times in groups.items()}


@dataclass(frozen=True, slots=True, repr=False)
class DryTraces(Answer):
    """A program that was run dry for several GPUs, each by itself: programs ask what they have."""

    command: tuple[str, ...]
    traces: tuple[DryTrace, ...]
    """That of each GPU, in the order in which they were asked for."""

    @property
    def status(self) -> int:
        """The first exit status that is not 0, as that of each GPU's run is."""
        found = (one.trace.outcome.status for one in self.traces if one.trace.outcome is not None)
        return next((status for status in found if status), 0)

    def failures(self) -> Iterator[str]:
        """Say what keeps the runs from their end or their launches, and why nothing compiles."""
        for one in self.traces:
            outcome = one.trace.outcome
            if outcome is None or outcome.ran is None:
                continue
            sentences = tuple(outcome.ran.why_launches_are_missing("program"))
            if outcome.status and not sentences:
                sentences = tuple(unknown_resources(one.shown))
            several = len(self.traces) > 1
            yield from (f"{one.gpu.title}: {each}" if several else each for each in sentences)

    def table(self) -> pd.DataFrame:
        """Return a row for each kernel and configuration on each GPU."""
        import pandas as pd

        rows = [{**kernel.row(), "gpu": one.gpu.key} for one in self.traces for kernel in one.shown]
        return pd.DataFrame(rows).convert_dtypes()

    def to_document(self) -> Document:
        """Return the totals side by side, then each kernel's."""
        tables = (_totals(self.traces), *_kernels(self.traces))
        section = Section("", tables, tuple(self._sentences()))
        keys = listed([one.gpu.key for one in self.traces])
        title = f"dry runs of {literal(shlex.join(self.command))} for {keys}"
        return Document(title, tuple(_answer(self.traces)), (section,))

    def _actions(self) -> Iterator[str]:
        """Say of each GPU what brings most there, or how to have that looked for."""
        if not any(one.tried for one in self.traces):
            yield "What brings most is told of one GPU, and with `--actions SECONDS` of each."
        for one in filter(lambda trace: trace.tried, self.traces):
            said = [*action_sentence(one.shown)] or [
                "No launch that was tried is predicted to be noticeably faster."
            ]
            words = (*said, *not_tried(one.trace.found))
            yield from (f"**{one.gpu.title}**: {sentence}" for sentence in words)

    def _sentences(self) -> Iterator[str]:
        yield (
            "Times are predicted, of all launches one after the other, each as a profiler would"
            " give it, the L2 cache empty before; the range is from the sum of the least to that of"
            " the most that each may take; lost is the time above the speed of light; ratio is to"
            " the least of these times."
        )
        for one in self.traces:
            predictions = (kernel.prediction for kernel in one.shown)
            if (found := next(filter(None, predictions), None)) is not None:
                yield range_sentence(one.gpu, found.basis, calibrated=found.calibrated)
        yield from self._actions()
        yield NOT_LAUNCHED
        said: dict[str, list[str]] = {}
        for one in self.traces:
            for sentence in (*untimed(one.shown), *missing(one.trace.outcome)):
                said.setdefault(sentence, []).append(one.gpu.title)
        for sentence, titles in said.items():
            everywhere = len(titles) == len(self.traces)
            yield sentence if everywhere else f"{listed(titles)}: {sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Return the totals and everything of each GPU as plain values."""
        return {
            "command": list(self.command),
            "status": self.status,
            "rows": [row for one in self.traces for row in one.trace.rows()],
            "totals": [_plain_total(one) for one in self.traces],
            "gpus": {one.gpu.key: one.trace.to_dict() for one in self.traces},
            "document": self.to_document().to_dict(),
        }


def dry_traces(command: Sequence[str], *, gpu: AskedGpus | None, **asked: Any) -> DryTraces:
    """Return what *command* would launch on each of several GPUs, without a GPU.

    It is run for each by itself, as `dry_trace` does, which takes the rest of what is *asked*; None
    is the GPU that that takes. After an interrupt there are no more GPUs than until then.

    Raises InputError as that does, and for GPUs that `asked_gpus` refuses.
    """
    found = []
    for one in asked_gpus(gpu) if gpu is not None else (chosen_gpus(None)[0][0],):
        trace = dry_trace(command, gpu=one, **asked)
        found.append(DryTrace(one, trace))
        if trace.outcome is not None and trace.outcome.interrupted:
            break
    return DryTraces(tuple(command), tuple(found))


def _answer(traces: Sequence[DryTrace]) -> Iterator[str]:
    """Say on which GPU the program is predicted to take least, and which have no times."""
    times = {one.gpu.title: time for one in traces if (time := one.time) is not None}
    without = [one.gpu.title for one in traces if one.gpu.title not in times and one.launches]
    if times:
        first, *others = sorted(times, key=lambda title: times[title].us)
        least = times[first]
        words = [
            f"{times[title].us / least.us:.2f} times that on {title}"
            for title in others
            if least.us
        ]
        yield (
            f"{duration(least.us)} ({least.limits}) are predicted on {first}"
            + (f", {listed(words)}." if words else ".")
        )
        near = [title for title in others if times[title].low_us < least.high_us]
        if near:
            which = "either may be faster" if len(near) == 1 else "any of them may be the fastest"
            yield f"The ranges of {listed([first, *near])} overlap: {which}."
    if without:
        yield f"For {listed(without)} no time is predicted."
    if not any(one.launches for one in traces):
        yield as_sentence(NOTHING)


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
    """Return a row for each GPU; the shortest total is 1."""
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
    """Return each kernel's time of all launches on each GPU, the longest on the first GPU first."""
    found = [one.of_names for one in traces]
    longest: dict[str, float] = {}
    for of_names in found:
        for name, time in of_names.items():
            longest.setdefault(name, 0.0 if time is None else time.us)
    if not longest:
        return
    names = sorted(longest, key=lambda name: longest[name], reverse=True)
    rows = tuple(
        (short_name(name), *(_cell(of_names.get(name)) for of_names in found)) for name in names
    )
    yield Table(("kernel", *(one.gpu.key for one in traces)), rows)


def _cell(time: KernelTime | None) -> str:
    return "-" if time is None else duration(time.us)
