"""A dry run: which kernels a program would launch on GPUs that need not be here, side by side."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import Pointer
from occupancy_lab.compiling.assumptions import given_values
from occupancy_lab.compiling.environment import (
    ANSWERING,
    Environment,
    find_environment,
    running_environment,
)
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.script import Ran, Run, Script
from occupancy_lab.compiling.store import store_directory
from occupancy_lab.errors import InputError, quoted, refuse
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.kernel_time import KernelTime
from occupancy_lab.explaining.script_lines import ScriptLine, missing, script_lines
from occupancy_lab.explaining.short import FURTHER_OPTIONS
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import AskedGpus, asked_gpus, chosen_gpus
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.record import Failed, Record
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import duration, listed, overlap_sentence, range_sentence
from occupancy_lab.tracing.actions import NO_EFFORT, Effort, with_actions
from occupancy_lab.tracing.fusing import each_handover
from occupancy_lab.tracing.page import (
    NOTHING,
    Outcome,
    action_sentence,
    launched_sentence,
    not_tried,
    short_name,
    taken_words,
    unknown_resources,
    untimed,
    write_trace,
)
from occupancy_lab.tracing.trace import Trace
from occupancy_lab.tracing.traced import (
    GridLaunches,
    Launched,
    Traced,
    TracedKernel,
    merged,
    order,
    shortened,
    unusual,
)
from occupancy_lab.workers import child, signals

if TYPE_CHECKING:
    import pandas as pd

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
    command: tuple[str, ...]
    found: Traced
    ran: Ran
    """How it was run."""
    status: int
    """The exit status."""
    lines: tuple[ScriptLine, ...]
    """Its launch lines, in the order in which it first ran them."""

    @property
    def trace(self) -> Trace:
        """The same as the trace of a program."""
        return Trace(self.found, Outcome(self.command, self.status, started=True, ran=self.ran))

    @property
    def shown(self) -> tuple[TracedKernel, ...]:
        """The kernels, an autotuned one only in the configuration predicted to be fastest."""
        return self.found.shown

    @property
    def time(self) -> KernelTime | None:
        """The predicted time of all launches that have a prediction."""
        return KernelTime.total(one.time for one in self.shown)

    @property
    def tried(self) -> bool:
        """Whether nearby launches of its kernels were to be tried."""
        tried = [one for one in self.shown if one.action is not None]
        return bool(tried or self.found.minor or self.found.failed or self.found.untried)

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
    def lines(self) -> tuple[ScriptLine, ...]:
        """The outcome of each launch line, GPU by GPU."""
        return tuple(line for one in self.traces for line in one.lines)

    @property
    def _is_single(self) -> bool:
        """Whether all is one launch, made once: its explanation has everything about it."""
        return [line.first.times for line in self.lines] == [1]

    def _explained(self, *, full: bool) -> Iterator[Section]:
        how = {"full": full, "every": full or len(self.lines) <= FEW_LINES}
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
        records = [line.record for *_, line in chosen if line.time is not None]
        timed = [PROFILED for one in records if one is not None and one.launch.in_program][:1]
        if chosen:
            yield Section("", (), (*timed, *([] if full else [MORE])))

    def _sentences(self) -> Iterator[str]:
        kernels = [kernel for one in self.traces for kernel in one.shown]
        records = [one.record for one in kernels if one.record is not None]
        yield (
            f"Times are predicted: the sum of all launches, each {taken_words(records)}, with the"
            " L2 cache empty before; range is the sum of the least and of the most that each may"
            " take; lost is the time above the speed of light; ratio is to the least of these"
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
            sentences = (*action, *not_tried(one.found))
            yield from (f"**{one.gpu.title}**: {sentence}" for sentence in sentences)
        yield launched_sentence(kernels)
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
    found = [_times(one) for one in traces]
    longest: dict[str, float] = {}
    for times in found:
        for name, time in times.items():
            longest.setdefault(name, 0.0 if time is None else time.us)
    if not longest:
        return
    names = sorted(longest, key=lambda name: longest[name], reverse=True)
    rows = []
    for name in names:
        of_kernel = (times.get(name) for times in found)
        cells = ("-" if one is None else duration(one.us) for one in of_kernel)
        rows.append((short_name(name), *cells))
    yield Table(("kernel", *(one.gpu.key for one in traces)), tuple(rows))


def _times(trace: DryTrace) -> dict[str, KernelTime | None]:
    """Return the predicted time of all launches of each kernel, over all its configurations."""
    groups: dict[str, list[KernelTime | None]] = {}
    for one in trace.shown:
        groups.setdefault(one.kernel, []).append(one.time)
    return {name: KernelTime.total(times) for name, times in groups.items()}


Launch = Record | Failed

_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def dry_traces(  # noqa: PLR0913 - one argument per option of the command line
    command: Sequence[str],
    *,
    gpu: AskedGpus | None = None,
    assume: Sequence[str] = (),
    timeout: float = 120.0,
    retry_failed: bool = False,
    effort: Effort = NO_EFFORT,
    progress: Callable[[str], None] = lambda _said: None,
) -> DryTraces:
    """Return what *command*, `python FILE.py ...`, would launch on each GPU, without a GPU.

    The named Python runs the file as a program, for each GPU separately. Tensors on "cuda" have a
    shape, a dtype and strides; small ones have the values that the program gives them. *gpu* None
    means the GPU of this machine, or the H100. *assume* gives values that only a GPU could compute,
    each as `bool=true`, `int=64`, `float=0.5` or, for a single line, `file.py:12=64`.

    *timeout* is the time limit in seconds, after which the program is stopped wherever it is.
    *retry_failed* compiles again what the store has as a failed compile. *effort* says how much is
    compiled for each GPU to find the changes that save most. *progress* is called with a sentence
    before slow steps, and with "" after them.

    The outcome's status is the program's, or 1 if launches are missing or no kernel compiles. After
    an interrupt the result so far is returned, with the status of the interrupt and without further
    GPUs.

    Raises InputError if *command* names no file, or no Python that has torch and Triton, if the
    file does not end in time, and for GPUs that `asked_gpus` refuses.
    """
    file, arguments = _script(command)
    how: dict[str, Any] = {"arguments": arguments, "assume": given_values(assume)}
    how |= {"store": str(store_directory()), "seconds": timeout, "retry_failed": retry_failed}
    environment = _environment(command[0])
    found = []
    for one in asked_gpus(gpu) if gpu is not None else (chosen_gpus(None)[0][0],):
        with Script(Run(file, one, **how), environment=environment, progress=progress) as script:
            found.append(dry_run_of(script, script_lines(script), tuple(command), effort))
        if script.interrupted is not None:
            break
    return DryTraces(tuple(command), tuple(found))


def dry_trace(command: Sequence[str], **asked: Any) -> Trace:
    """Return what *command* would launch on one GPU; the arguments are those of `dry_traces`."""
    return dry_traces(command, **asked).traces[0].trace


def _script(command: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    for place, word in enumerate(command):
        if word.endswith(".py"):
            if not Path(word).is_file():
                refuse(f"there is no file {quoted(word)} to run dry")
            return word, tuple(command[place + 1 :])
        if place and not word.startswith("-"):
            break
    return refuse(
        f"{quoted(shlex.join(command))} names no FILE.py: give `python FILE.py ...`, with the file"
        " that a `-m` or a script stands for"
    )


def _environment(word: str) -> Environment:
    """Return the Python that the first *word* of a command means, as a shell finds it.

    It is this process's Python if the word names none, or if `python` without a path lacks torch or
    Triton.

    Raises InputError if a path leads to no Python, or to one that lacks them.
    """
    if not re.fullmatch(r"python[\d.]*", Path(word).name):
        return running_environment()
    found = shutil.which(word)
    if found is not None and Path(found).absolute().parent == Path(sys.executable).parent:
        return running_environment()
    try:
        if found is None:
            refuse(f"there is no Python {quoted(word)}")
        environment = find_environment(found)
        if child.run([environment.python, "-c", _HAS_TORCH], ANSWERING).returncode:
            refuse(f"{word} has no torch that it can import")
    except InputError as error:
        if "/" not in word:
            return running_environment()
        refuse(f"{error}; give one that has torch and Triton, such as {sys.executable}")
    return environment


def dry_run_of(
    script: Script, lines: Sequence[ScriptLine], command: tuple[str, ...], effort: Effort
) -> DryTrace:
    """Return the dry run of *command*, whose *lines* the open *script* has run.

    *effort* says how much is compiled to find the changes that save most. The outcome's status is
    the program's, or 1 if launches are missing or none compiles.
    """

    def case_of(kernel: TracedKernel) -> Case | None:
        line = max(kernel.lines, key=lambda line: line.us, default=None)
        return None if line is None or script.interrupted else line.tried()

    found = with_actions(traced_lines(script, lines), case_of, effort)
    ran, interrupted = script.ran, script.interrupted
    nothing_compiled = found.kernels and all(one.reason for one in found.kernels)
    status = ran.status or int(bool(nothing_compiled or ran.missing))
    if interrupted is not None:
        status = signals.exit_status(interrupted)
    return DryTrace(script.gpu, command, found, ran, status, tuple(lines))


def traced_lines(script: Script, lines: Sequence[ScriptLine]) -> Traced:
    """Return the kernels that *lines* of *script* launch: those of one binary are one.

    Each configuration of an autotuner is a kernel, and the best one of each line is expected.
    """
    groups: dict[Any, list[tuple[ScriptLine, Launch]]] = defaultdict(list)
    best: dict[int, tuple[Any, GridLaunches]] = {}
    for line in lines:
        expected = line.record or line.run.ranked[0]
        for run in line.run.ranked:
            alike = run.kernel, repr(run.settings), run.resources, len(line.run.runs)
            groups[*alike, run is expected].append((line, run))
            if run is expected:
                best[line.first.call] = (*alike, True), grid_launches(line, run)
    kernels = {key: _kernel(script, group, expected=key[-1]) for key, group in groups.items()}
    calls = [one.call for one in script.launches]
    sides = [(kernels[key], grid) for key, grid in (best[call] for call in calls)]
    launched = tuple(Launched(*sides[index], 0) for index in script.ran.recent)
    handovers = each_handover([(script.ran.feeds, sides)])
    return Traced(order(kernels.values()), (), launched, handovers=handovers)


def _kernel(
    script: Script, group: Sequence[tuple[ScriptLine, Launch]], *, expected: bool
) -> TracedKernel:
    line, run = group[0]
    calculation = None if run.resources is None else calculate(run.resources, run.gpu)
    return TracedKernel(
        kernel=run.kernel,
        hash="",
        launched_by="triton",
        options=unusual({**default_options(script.gpu.target), **run.options}),
        constexprs={name: str(run.arguments.get(name)) for name in run.constexprs},
        target=script.gpu.target,
        calculation=calculation,
        reason=None if isinstance(run, Record) else run.failure.reason,
        gpu_source="the GPU of the dry run",
        grids=merged(grid_launches(*one) for one in group),
        parts=(),
        choices=len(line.run.runs),
        expected=expected,
        lines=tuple(one for one, _ in group) if expected else (),
    )


def grid_launches(line: ScriptLine, run: Launch) -> GridLaunches:
    """Return the launches of *line* in the configuration of *run*."""
    passed = {name: run.arguments[name] for name in sorted({*run.arguments} - {*line.first.tuned})}
    tensors = {name: one for name, one in passed.items() if isinstance(one, Pointer)}
    return GridLaunches(
        None if run.launch.grid is None else shortened(run.launch.grid),
        line.first.times,
        record=run if isinstance(run, Record) and run.counts is not None else None,
        sizes=tuple(f"{name} {value}" for name, value in passed.items() if type(value) is int),
        dtypes=tuple(
            f"{name} {one.dtype}{'' if one.aligned else ' unaligned'}"
            for name, one in tensors.items()
        ),
        places=(line.first.place,),
    )
