"""A dry run: which kernels a program would launch on a GPU that need not be here."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.script import NOT_LAUNCHED, Changed
from occupancy_lab.compiling.store import store_directory
from occupancy_lab.errors import DoesNotFitError, InputError, quoted, refuse
from occupancy_lab.explaining.overview import KernelTime, argument_classes, together
from occupancy_lab.explaining.script_runs import explain_launches
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import asked_gpus, chosen_gpus
from occupancy_lab.occupancy.calculator import calculate, check_fits
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import duration, listed, overlap_sentence, range_sentence
from occupancy_lab.tracing.actions import NO_EFFORT, Effort, with_actions
from occupancy_lab.tracing.fusing import each_handover
from occupancy_lab.tracing.page import (
    NOTHING,
    Outcome,
    action_sentence,
    missing,
    not_tried,
    short_name,
    shown_kernels,
    unknown_resources,
    untimed,
)
from occupancy_lab.tracing.trace import Trace
from occupancy_lab.tracing.traced import (
    GridLaunches,
    Launched,
    Traced,
    TracedKernel,
    counted_grids,
    launch_record,
    merged,
    order,
    shortened,
    unusual,
)
from occupancy_lab.values import Resources
from occupancy_lab.work.counting import Counting, count_launch
from occupancy_lab.workers import signals
from occupancy_lab.workers.child import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from occupancy_lab.compiling.environment import Environment
    from occupancy_lab.compiling.notes import ScriptLaunch
    from occupancy_lab.compiling.script import Script
    from occupancy_lab.explaining.case import Case
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import AskedGpus
    from occupancy_lab.values import Failure

_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def dry_trace(  # noqa: PLR0913 - one argument per option of the command line
    command: Sequence[str],
    *,
    gpu: str | Gpu | None = None,
    assume: Sequence[str] = (),
    timeout: float = 120.0,
    retry_failed: bool = False,
    effort: Effort = NO_EFFORT,
    progress: Callable[[str], None] = lambda _said: None,
) -> Trace:
    """Return what *command*, `python FILE.py ...`, would launch on *gpu*, without a GPU.

    The named Python runs the file as a program. Tensors on "cuda" have a shape, a dtype and
    strides; small ones have the values that the program gives them. *gpu* None means the GPU of
    this machine, or the H100. *assume* gives values that only a GPU could compute, each as
    `bool=true`, `int=64`, `float=0.5` or, for a single line, `file.py:12=64`.

    *timeout* is the time limit in seconds, after which the program is stopped wherever it is.
    *retry_failed* compiles again what the store has as a failed compile. *effort* says how much is
    compiled to find the changes that save most. *progress* is called with a sentence before slow
    steps, and with "" after them.

    The outcome's status is the program's, or 1 if launches are missing or no kernel compiles. After
    an interrupt the result so far is returned, with the status of the interrupt.

    Raises InputError if *command* names no file, or no Python that has torch and Triton, or if the
    file does not end in time.
    """
    from occupancy_lab.compiling.assumptions import given_values
    from occupancy_lab.compiling.script import Script

    file, arguments = _script(command)
    given = given_values(assume)
    asked = find_gpu(gpu) if isinstance(gpu, str) else gpu or chosen_gpus(None)[0][0]
    environment = _environment(command[0])
    how: dict[str, Any] = {"arguments": arguments, "environment": environment, "assume": given}
    how |= {"timeout": timeout, "retry_failed": retry_failed, "progress": progress}
    with Script(file, asked, store_directory(), **how) as script:
        found = dry_kernels(script, effort)
        ran, interrupted = script.ran, script.interrupted
    nothing_compiled = found.kernels and all(one.reason for one in found.kernels)
    status = ran.status or int(bool(nothing_compiled or ran.missing))
    if interrupted is not None:
        status = signals.exit_status(interrupted)
    stopped = interrupted is not None
    ended = Outcome(tuple(command), status, started=True, ran=ran, interrupted=stopped)
    return Trace(found, ended)


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
    from occupancy_lab.compiling.environment import (
        ANSWERING,
        find_environment,
        running_environment,
    )

    if not re.fullmatch(r"python[\d.]*", Path(word).name):
        return running_environment()
    found = shutil.which(word)
    if found is not None and Path(found).absolute().parent == Path(sys.executable).parent:
        return running_environment()
    try:
        if found is None:
            refuse(f"there is no Python {quoted(word)}")
        environment = find_environment(found)
        if run([environment.python, "-c", _HAS_TORCH], ANSWERING).returncode:
            refuse(f"{word} has no torch that it can import")
    except InputError as error:
        if "/" not in word:
            return running_environment()
        refuse(f"{error}; give one that has torch and Triton, such as {sys.executable}")
    return environment


def dry_kernels(script: Script, effort: Effort = NO_EFFORT) -> Traced:
    """Return what *script* launches on its GPU, which need not be here.

    *effort* says how much is compiled to find the changes that save most.
    """
    choices = Counter(one.call for one in script.launches)
    outcomes = script.outcomes()
    kernels = [
        _kernel(script, one, outcome, choices[one.call])
        for one, outcome in zip(script.launches, outcomes, strict=True)
    ]
    alike: dict[Any, list[int]] = defaultdict(list)
    for index, one in enumerate(kernels):
        resources = None if one.calculation is None else one.calculation.resources
        settings = repr(one.constexprs), repr(one.options)
        alike[one.kernel, settings, resources, one.choices].append(index)
    kernels = _with_work(script, kernels, [*alike.values()])
    chosen = _chosen(script, kernels)
    expectations = {*chosen.values()}
    found: dict[int, TracedKernel] = {}
    for indices in alike.values():
        for expected in (True, False):
            some = [one for one in indices if (one in expectations) == expected]
            if some:
                grids = merged(grid for one in some for grid in kernels[one].grids)
                told = together([kernels[one].arguments for one in some])
                kernel = dataclasses.replace(kernels[some[0]], grids=grids, arguments=told)
                kernel = dataclasses.replace(kernel, expected=expected)
                found |= dict.fromkeys(some, kernel)
    rows = {id(one): one for one in found.values()}

    def case_of(kernel: TracedKernel) -> Case | None:
        index = next(
            place
            for place, one in found.items()
            if one is kernel
            and kernels[place].grids[0].key == (kernel.longest and kernel.longest.key)
        )
        launches = {index: script.launches[index]}
        if script.interrupted:
            return None
        return explain_launches(script, launches, in_program=True).cases[0]

    places = [chosen[one.call] for one in script.launches]
    sides = [(found[place], kernels[place].grids[0]) for place in places]
    launched = tuple(Launched(*sides[index], 0) for index in script.ran.recent)
    handovers = each_handover([(script.ran.feeds, sides)])
    traced = Traced(order([*rows.values()]), (), launched, handovers=handovers)
    return with_actions(traced, case_of, effort)


def _kernel(
    script: Script, launch: ScriptLaunch, outcome: Resources | Failure, choices: int
) -> TracedKernel:
    bound, calculation, reason = launch.bound, None, None
    if isinstance(outcome, Resources):
        try:
            calculation = calculate(outcome, script.gpu)
            check_fits(calculation)
        except (DoesNotFitError, InputError) as error:
            reason = str(error)
    else:
        reason = outcome.reason
    grid = None if bound.launch.grid is None else shortened(bound.launch.grid)
    not_tuned = sorted(bound.arguments.keys() - launch.tuned.keys())
    numbers = {name: bound.arguments[name] for name in not_tuned}
    sizes = tuple(f"{name} {one}" for name, one in numbers.items() if type(one) is int)
    return TracedKernel(
        kernel=bound.kernel,
        hash="",
        launched_by="triton",
        options=unusual({**default_options(script.gpu.target), **bound.options}),
        constexprs={name: str(bound.arguments.get(name)) for name in bound.constexprs},
        target=script.gpu.target,
        calculation=calculation,
        reason=reason,
        gpu_source="the GPU of the dry run",
        grids=(GridLaunches(grid, launch.times, sizes=sizes),),
        parts=(),
        choices=choices,
        arguments=argument_classes(bound),
    )


def _chosen(script: Script, kernels: Sequence[TracedKernel]) -> dict[int, int]:
    """Return the index of the configuration that each launch line is expected to launch.

    That is the one with the shortest predicted time. If not all that fit have a prediction, it is
    the one with the least local memory, and then the highest occupancy.
    """
    calls: dict[int, list[int]] = defaultdict(list)
    for index, one in enumerate(script.launches):
        calls[one.call].append(index)

    def rank(index: int) -> tuple[Any, ...]:
        found = kernels[index].calculation
        if found is None or kernels[index].reason is not None:
            return (True,)
        return False, found.resources.local_bytes or 0, -found.occupancy.occupancy

    chosen = {}
    for call, group in calls.items():
        fit = [one for one in group if not rank(one)[0]]
        times = {one: found.us for one in fit if (found := kernels[one].prediction) is not None}
        known = fit and len(times) == len(fit)
        chosen[call] = min(fit, key=times.__getitem__) if known else min(group, key=rank)
    return chosen


def _with_work(
    script: Script, kernels: Sequence[TracedKernel], alike: Sequence[Sequence[int]]
) -> list[TracedKernel]:
    """Return *kernels* with the counted work of the launches of each grid and sizes.

    *alike* groups the indices of equal kernels. Sizes beyond those that are counted get the work of
    others over the same grid.
    """
    wanted: dict[int, list[int]] = {}
    for indices in alike:
        of_sizes: dict[Any, list[int]] = defaultdict(list)
        for one in indices:
            if kernels[one].calculation is not None:
                of_sizes[kernels[one].grids[0].key].append(one)
        of_grid: dict[Any, list[int]] = {}
        for launches in counted_grids(merged(one for i in indices for one in kernels[i].grids)):
            if same := of_sizes.pop(launches.key, []):
                wanted[same[0]] = same
                of_grid.setdefault(launches.grid, same)
        for (grid, _), others in of_sizes.items():
            of_grid.get(grid, []).extend(others)
    texts = script.texts([Changed(index, {}) for index in wanted])
    found = list(kernels)
    for (index, same), text in zip(wanted.items(), texts, strict=True):
        bound, calculation = script.launches[index].bound, kernels[index].calculation
        if calculation is None:
            continue
        resident = calculation.resident_programs
        counting = Counting(text, bound, bound.launch.grid, {}, resident)
        counted = count_launch(counting, script.store)
        record = launch_record(bound, counted, calculation)
        for one in same:
            grids = tuple(dataclasses.replace(grid, record=record) for grid in kernels[one].grids)
            found[one] = dataclasses.replace(kernels[one], grids=grids)
    return found


@dataclass(frozen=True, slots=True, repr=False)
class DryTrace:
    """A program that was run dry for one GPU."""

    gpu: Gpu
    trace: Trace

    @property
    def shown(self) -> tuple[TracedKernel, ...]:
        """The kernels, an autotuned one only in the configuration predicted to be fastest."""
        return shown_kernels(self.trace.found)

    @property
    def time(self) -> KernelTime | None:
        """The predicted time of all launches that have a prediction."""
        return KernelTime.total(one.time for one in self.shown)

    @property
    def tried(self) -> bool:
        """Whether nearby launches of its kernels were to be tried."""
        found = self.trace.found
        return any(one.action for one in self.shown) or bool(
            found.minor or found.failed or found.untried
        )

    @property
    def launches(self) -> int:
        """The number of all launches."""
        return sum(one.launches for one in self.shown)

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
        found = (one.trace.outcome.status for one in self.traces if one.trace.outcome is not None)
        return next((status for status in found if status), 0)

    def failures(self) -> Iterator[str]:
        """Return sentences on why runs stopped or lack launches, or why no kernel compiles."""
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
        """Return the totals side by side, and then those of each kernel."""
        tables = (_totals(self.traces), *_kernels(self.traces))
        section = Section("", tables, tuple(self._sentences()))
        keys = listed([one.gpu.key for one in self.traces])
        title = f"dry runs of {literal(shlex.join(self.command))} for {keys}"
        return Document(title, tuple(_answer(self.traces)), (section,))

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
            for sentence in (*untimed(one.shown), *missing(one.trace.outcome)):
                gpus.setdefault(sentence, []).append(one.gpu.title)
        for sentence, titles in gpus.items():
            everywhere = len(titles) == len(self.traces)
            yield sentence if everywhere else f"{listed(titles)}: {sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Return the totals and all of each GPU's run as plain values."""
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

    It is run for each GPU separately, by `dry_trace`, which takes the arguments *asked*; *gpu* None
    means the default of `dry_trace`. An interrupt leaves out further GPUs.

    Raises InputError as `dry_trace` does, and for GPUs that `asked_gpus` refuses.
    """
    found = []
    for one in asked_gpus(gpu) if gpu is not None else (chosen_gpus(None)[0][0],):
        trace = dry_trace(command, gpu=one, **asked)
        found.append(DryTrace(one, trace))
        if trace.outcome is not None and trace.outcome.interrupted:
            break
    return DryTraces(tuple(command), tuple(found))


def _answer(traces: Sequence[DryTrace]) -> Iterator[str]:
    times = {one.gpu.title: time for one in traces if (time := one.time) is not None}
    without = [one.gpu.title for one in traces if one.gpu.title not in times and one.launches]
    if times:
        ordered = sorted(times, key=lambda title: times[title].us)
        first, *others = ordered
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
