"""A dry run: which kernels a program would launch on a GPU that need not be here."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from occupancy_lab.arguments import Pointer
from occupancy_lab.compiling.assumptions import given_values
from occupancy_lab.compiling.environment import (
    ANSWERING,
    Environment,
    find_environment,
    running_environment,
)
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.script import Run, Script
from occupancy_lab.compiling.store import store_directory
from occupancy_lab.errors import InputError, quoted, refuse
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.script_lines import ScriptLine, script_lines
from occupancy_lab.inputs import AskedGpus, asked_gpus, chosen_gpus
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.record import Failed, Record
from occupancy_lab.tracing.actions import NO_EFFORT, Effort, with_actions
from occupancy_lab.tracing.fusing import each_handover
from occupancy_lab.tracing.page import Outcome
from occupancy_lab.tracing.several import DryTrace, DryTraces
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
    ended = Outcome(command, status, started=True, ran=ran)
    return DryTrace(script.gpu, Trace(found, ended))


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
