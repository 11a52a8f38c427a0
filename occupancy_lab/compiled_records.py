"""From requests to records: compiled together, counted and with a predicted time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any

from occupancy_lab.asked import Asked, ask
from occupancy_lab.assumed import Assumption, lines_of_trips, trips_at
from occupancy_lab.compiling.compile import failure_of
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.errors import DoesNotFitError, few_of, refuse
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import NamedKernel, check_launch
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.occupancy.calculator import (
    Calculation,
    calculate,
    check_fits,
    check_together,
    plan_launch,
)
from occupancy_lab.record import Failed, Record
from occupancy_lab.values import Config, Failure, Problem, Resources
from occupancy_lab.work.counting import count_launches
from occupancy_lab.workers.child import cores
from occupancy_lab.workers.signals import UnfinishedError


def record_of(asked: Asked, resources: Resources, *, triton: str) -> Record:
    """Return the record of *asked* as the Triton of version *triton* compiled it to *resources*.

    It has no counts and no time yet: `with_counts` adds them. Raises DoesNotFitError if the GPU
    cannot hold one program of it, or holds fewer than wait for each other.
    """
    launch, gpu = asked.launch, asked.gpu
    calculation = calculate(resources, gpu)
    record = Record.of(
        asked.function,
        launch,
        gpu=gpu,
        matrix=asked.matrix,
        usual_options=default_options(gpu.target),
        calculation=calculation,
        plan=plan_launch(launch.grid, launch.work, calculation.resident_programs),
        triton_version=triton,
    )
    if asked.matrix is not None:
        record = dataclasses.replace(record, kernel=asked.matrix.kernel.name)
    # For any other kernel it is not known how many buffers its stages have.
    check_fits(calculation, 1 if asked.matrix is None else record.num_stages)
    check_together(launch.work.together, gpu, calculation.resident_programs)
    return record


def record_in_program(bound: BoundLaunch, calculation: Calculation) -> Record:
    """Return the record of the launch *bound* within a program, without counts and time."""
    launch = dataclasses.replace(bound.launch, in_program=True)
    return Record(
        kernel=bound.kernel,
        launch=launch,
        arguments=bound.arguments,
        constexprs=bound.constexprs,
        options=bound.options,
        tiles=bound.tiles,
        gpu=calculation.gpu,
        usual_options={"num_warps": calculation.resources.num_warps},
        calculation=calculation,
        plan=plan_launch(launch.grid, launch.work, calculation.resident_programs),
        triton_version="",
    )


def failed(
    asked: Asked, failure: Failure, triton: str, resources: Resources | None = None
) -> Failed:
    """Return *asked* as failed, with its *resources* if it was compiled."""
    found: dict[str, Any] = {
        "gpu": asked.gpu,
        "matrix": asked.matrix,
        "triton_version": triton,
        "failure": failure,
        "resources": resources,
    }
    if asked.matrix is None:
        return Failed.of(asked.function, asked.launch, **found)
    # A launch that is not possible has no arguments; its matrix identifies it.
    nothing: dict[str, Any] = {"arguments": {}, "constexprs": (), "options": {}}
    return Failed(kernel=asked.matrix.kernel.name, launch=asked.launch, **nothing, **found)


def records_of(
    asked: Sequence[Asked], outcomes: Sequence[Resources | Failure], *, triton: str
) -> list[Record | Failed]:
    """Return the result of each of *asked*, which the Triton of version *triton* compiled."""
    found: list[Record | Failed] = []
    for one, outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, Failure):
            found.append(failed(one, outcome, triton))
            continue
        try:
            found.append(record_of(one, outcome, triton=triton))
        except DoesNotFitError as error:
            found.append(failed(one, failure_of(error), triton, outcome))
    return found


def compile_runs(asked: Sequence[Asked], compiler: Compiler) -> list[Record | Failed]:
    """Return the record or the failure of each of *asked*, compiled together.

    On Ctrl-C raises UnfinishedError with the results so far.
    """
    triton = compiler.environment.triton
    refused = [one.why_not() for one in asked]
    wanted = [one for one, failure in zip(asked, refused, strict=True) if failure is None]

    def of_all(compiled: Iterable[Resources | Failure]) -> list[Record | Failed]:
        outcomes = iter(compiled)
        of_each = [next(outcomes) if failure is None else failure for failure in refused]
        return records_of(asked, of_each, triton=triton)

    with closing(compiler):
        try:
            return of_all(compiler.compile([one.compilation for one in wanted]))
        except UnfinishedError as interrupt:
            raise UnfinishedError(of_all(interrupt.finished)) from interrupt


def with_counts(  # noqa: PLR0913 - what is counted, by whom and what of it
    runs: Sequence[Record | Failed],
    asked: Sequence[Asked | None],
    compiler: Compiler,
    assume: Mapping[str, Assumption] = MappingProxyType({}),
    *,
    jobs: int | None = None,
    besides: bool = False,
    until: float = math.inf,
) -> list[Record | Failed]:
    """Return *runs* with the counts of each, as *compiler* compiled *asked*.

    Failed runs need no entry in *asked*. *assume* is as in `count_launch`. *jobs* forks of this
    process count, one per core by default; with 1 this process does. *besides* says whether
    `other_launches` are timed too. No count is begun after *until*, as in `count_launches`.
    """
    wanted = [
        one.compilation
        for one, run in zip(asked, runs, strict=True)
        if one is not None and isinstance(run, Record)
    ]
    with closing(compiler):
        texts = compiler.texts(wanted)
    records = [run for run in runs if isinstance(run, Record)]
    others = [record.other_launches() if besides else () for record in records]
    counting = [
        record.counting(own, assume, number)
        for record, own, numbers in zip(records, texts, others, strict=True)
        for number in (None, *numbers)
    ]
    counted = iter(count_launches(counting, compiler.store, jobs or cores(), until))
    timed = iter(
        [
            record.with_counts(next(counted), {number: next(counted) for number in numbers})
            for record, numbers in zip(records, others, strict=True)
        ]
    )
    return [next(timed) if isinstance(run, Record) else run for run in runs]


def check_trips(assume: Collection[str], runs: Iterable[Record | Failed]) -> None:
    """Raise InputError if *assume* has trips that no loop at their line in *runs* can have.

    Runs that are not counted do not tell which loops they have.
    """
    lines = lines_of_trips(assume)
    counts = [run.counts for run in runs if isinstance(run, Record)]
    if not lines or not all(one is not None and one.walked for one in counts):
        return
    loops = [loop for one in counts if one is not None for loop in one.loops]
    allowed = [(loop.place.line, loop.allowed) for loop in loops if loop.allowed is not None]
    for line in lines:
        if any(loop.waits and loop.place.line == line for loop in loops):
            refuse(
                f"--assume {trips_at(line)} is of a loop in which programs wait for others; none is"
                " assumed to wait there"
            )
        if counts and all(at != line for at, _ in allowed):
            others = few_of([str(at) for at in sorted({at for at, _ in allowed})])
            refuse(
                f"--assume {trips_at(line)} is of a line without a loop whose trips depend on data;"
                f" lines with such a loop: {others}"
            )
    for loop in loops:
        limits, trips = loop.allowed, loop.assumed
        if limits is not None and trips is not None and not limits.holds(trips):
            most = "or more" if limits.high is None else f"to {limits.high}"
            refuse(
                f"--assume {trips_at(loop.place.line)}={trips} is of a loop that makes"
                f" {limits.low} {most} trips"
            )


def compile_record(asked: Asked, compiler: Compiler) -> Record:
    """Return the record of *asked* as *compiler* compiles it, with its counts and its time.

    Raises InputError for an invalid launch, CompileError if Triton cannot compile it, and
    DoesNotFitError if the GPU cannot hold one program of it.
    """
    resources = compiler.resources(asked.compilation)
    found = record_of(asked, resources, triton=compiler.environment.triton)
    (counted,) = with_counts([found], [asked], compiler, besides=True)
    assert isinstance(counted, Record)  # noqa: S101 - it was one
    return counted


def compile_matrix(
    named: NamedKernel, problem: Problem, config: Config, gpu: Gpu, compiler: Compiler
) -> Record:
    """Return the record of a kernel on *problem*, as `compile_record` does."""
    check_launch(named.kernel, problem, config, gpu)
    return compile_record(ask(named, problem, config, gpu), compiler)
