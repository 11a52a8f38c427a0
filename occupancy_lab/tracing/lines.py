"""The launch lines of a program that was run dry, as the kernels of a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import Pointer
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.script import Script
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.script_lines import ScriptLine
from occupancy_lab.occupancy.calculator import Calculation, calculate
from occupancy_lab.record import Failed, Record
from occupancy_lab.tracing.actions import Effort, with_actions
from occupancy_lab.tracing.fusing import each_handover
from occupancy_lab.tracing.page import Outcome
from occupancy_lab.tracing.several import DryTrace
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
from occupancy_lab.workers import signals

if TYPE_CHECKING:
    Run = Record | Failed


def dry_run_of(
    script: Script, lines: Sequence[ScriptLine], command: tuple[str, ...], effort: Effort
) -> DryTrace:
    """Return the dry run of *command*, whose *lines* the open *script* has run.

    *effort* says how much is compiled to find the changes that save most. The outcome's status is
    the program's, or 1 if launches are missing or none compiles.
    """

    def case_of(kernel: TracedKernel) -> Case | None:
        line = kernel.longest_line
        return None if line is None or script.interrupted else line.tried()

    found = with_actions(traced_lines(script, lines), case_of, effort)
    ran, interrupted = script.ran, script.interrupted
    nothing_compiled = found.kernels and all(one.reason for one in found.kernels)
    status = ran.status or int(bool(nothing_compiled or ran.missing))
    if interrupted is not None:
        status = signals.exit_status(interrupted)
    stopped = interrupted is not None
    ended = Outcome(command, status, started=True, ran=ran, interrupted=stopped)
    return DryTrace(script.gpu, Trace(found, ended))


def traced_lines(script: Script, lines: Sequence[ScriptLine]) -> Traced:
    """Return the kernels that *lines* of *script* launch: those of one binary are one.

    Each configuration of an autotuner is a kernel, and the best one of each line is expected.
    """
    groups: dict[Any, list[tuple[ScriptLine, Run]]] = defaultdict(list)
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
    script: Script, group: Sequence[tuple[ScriptLine, Run]], *, expected: bool
) -> TracedKernel:
    line, run = group[0]
    return TracedKernel(
        kernel=run.kernel,
        hash="",
        launched_by="triton",
        options=unusual({**default_options(script.gpu.target), **run.options}),
        constexprs={name: str(run.arguments.get(name)) for name in run.constexprs},
        target=script.gpu.target,
        calculation=_calculation(run),
        reason=None if isinstance(run, Record) else run.failure.reason,
        gpu_source="the GPU of the dry run",
        grids=merged(grid_launches(*one) for one in group),
        parts=(),
        choices=len(line.run.runs),
        expected=expected,
        lines=tuple(one for one, _ in group) if expected else (),
    )


def _calculation(run: Run) -> Calculation | None:
    if isinstance(run, Record):
        return run.calculation
    return None if run.resources is None else calculate(run.resources, run.gpu)


def grid_launches(line: ScriptLine, run: Run) -> GridLaunches:
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
