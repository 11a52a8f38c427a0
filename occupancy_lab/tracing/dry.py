"""A dry run: which kernels a program would launch on a GPU that need not be here."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import shutil
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.script import Changed
from occupancy_lab.compiling.store import store_directory
from occupancy_lab.errors import DoesNotFitError, InputError, quoted, refuse
from occupancy_lab.explaining.script_runs import explain_launches
from occupancy_lab.gpus import find_gpu
from occupancy_lab.inputs import chosen_gpus
from occupancy_lab.launch import Pointer
from occupancy_lab.occupancy.calculator import calculate, check_fits
from occupancy_lab.tracing.actions import NOTHING, Effort, with_actions
from occupancy_lab.tracing.page import Outcome
from occupancy_lab.tracing.trace import Trace
from occupancy_lab.tracing.traced import (
    MOST_COUNTED,
    GridLaunches,
    Launched,
    LaunchWork,
    Traced,
    TracedKernel,
    merged,
    order,
    shortened,
    unusual,
)
from occupancy_lab.values import Resources
from occupancy_lab.work.counting import count_launch
from occupancy_lab.workers import signals
from occupancy_lab.workers.child import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from occupancy_lab.compiling.script import Script
    from occupancy_lab.explaining.case import Case
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.launch import BoundLaunch

_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def dry_trace(  # noqa: PLR0913 - one argument per option of the command line
    command: Sequence[str],
    *,
    gpu: str | Gpu | None = None,
    assume: Sequence[str] = (),
    timeout: float = 120.0,
    effort: Effort = NOTHING,
    progress: Callable[[str], None] = lambda _said: None,
) -> Trace:
    """Return what *command*, `python FILE.py ...`, would launch on *gpu*, without a GPU.

    The file is run as a program by the Python that is named. Its tensors on "cuda" have a shape, a
    dtype and strides; small ones have the values that the program gives them. *gpu* None is the GPU
    at hand, or the H100. *assume* is what values are taken to be that only a GPU could tell, each
    `bool=true`, `int=64`, `float=0.5` or, for a single line, `file.py:12=64`.

    *timeout* is how many seconds it may take; after that it is stopped where it is. *effort* is
    what is compiled to find what would bring most. *progress* is told what is done, and "" when
    that is done.

    The outcome's status is the program's, or 1 where launches are missing or none compiles. After
    an interrupt what there is is returned, with the status of the interrupt.

    Raises InputError where *command* names no file, or no Python that has torch and Triton, or the
    file does not end in time.
    """
    from occupancy_lab.compiling.assumptions import given_values
    from occupancy_lab.compiling.script import Script

    file, arguments = _script(command)
    given = given_values(assume)
    asked = find_gpu(gpu) if isinstance(gpu, str) else gpu or chosen_gpus(None)[0][0]
    python = _python(command[0])
    how: dict[str, Any] = {"arguments": arguments, "python": python, "assume": given}
    how |= {"timeout": timeout, "progress": progress}
    with Script(file, asked, store_directory(), **how) as script:
        found = dry_kernels(script, effort)
        ran, interrupted = script.ran, script.interrupted
    nothing_compiled = found.kernels and all(one.reason for one in found.kernels)
    status = ran.status or int(bool(nothing_compiled or ran.missing))
    if interrupted is not None:
        status = signals.exit_status(interrupted)
    ended = Outcome(tuple(command), status, True, ran, interrupted is not None)  # noqa: FBT003
    return Trace(found, ended)


def _script(command: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the file that *command* has Python run, and its arguments."""
    for place, word in enumerate(command):
        if word.endswith(".py") and Path(word).is_file():
            return word, tuple(command[place + 1 :])
        if place and not word.startswith("-"):
            break
    return refuse(
        f"a dry run takes `python FILE.py ...`, and {quoted(shlex.join(command))} names no FILE.py"
    )


def _python(word: str) -> str:
    """Return the Python that the first *word* of a command stands for, as a shell finds it.

    It is the one that runs this where the word names none, and where `python` without a path is one
    without torch or Triton.

    Raises InputError where a path leads to no Python, or to one without them.
    """
    from occupancy_lab.compiling.environment import ANSWERING, find_environment

    if not re.fullmatch(r"python[\d.]*", Path(word).name):
        return sys.executable
    found = shutil.which(word)
    if found is not None and Path(found).absolute().parent == Path(sys.executable).parent:
        return sys.executable
    try:
        if found is None:
            refuse(f"there is no Python {quoted(word)}")
        python = find_environment(found).python
        if run([python, "-c", _HAS_TORCH], ANSWERING).returncode:
            refuse(f"{word} has no torch that it can import")
    except InputError as error:
        if "/" not in word:
            return sys.executable
        msg = f"{error}; give one that has torch and Triton, such as {sys.executable}"
        raise InputError(msg) from error
    return python


def dry_kernels(script: Script, effort: Effort = NOTHING) -> Traced:
    """Return what *script* launches on its GPU, that need not be here.

    *effort* is what is compiled to find what would bring most.
    """
    usual = default_options(script.gpu.target)
    choices = Counter(one.call for one in script.launches)
    groups: dict[Any, list[tuple[TracedKernel, int]]] = defaultdict(list)
    for index, outcome in enumerate(script.outcomes()):
        one = script.launches[index]
        bound = one.bound
        constexprs = {name: str(bound.arguments.get(name)) for name in bound.constexprs}
        options = {**usual, **bound.options}
        calculation, reason = None, None
        if isinstance(outcome, Resources):
            try:
                calculation = calculate(outcome, script.gpu)
                check_fits(calculation)
            except (DoesNotFitError, InputError) as error:
                reason = str(error)
        else:
            reason = outcome.reason
        grid = None if bound.launch.grid is None else shortened(bound.launch.grid)
        kernel = TracedKernel(
            kernel=bound.kernel,
            hash="",
            launched_by="triton",
            options=unusual(options),
            constexprs=constexprs,
            target=script.gpu.target,
            calculation=calculation,
            reason=reason,
            gpu_source="for which it was run dry",
            grids=(GridLaunches(grid, one.times),),
            parts=(),
            choices=choices[one.call],
            tuned=frozenset(one.tuned),
            arguments=_classes(bound),
        )
        resources = None if calculation is None else calculation.resources
        same = (bound.kernel, repr(constexprs), repr(kernel.options), resources, kernel.choices)
        groups[same].append((kernel, index))
    found, first, members = [], [], []
    for group in groups.values():
        members.append([place for _, place in group])
        grids = merged(grid for same, _ in group for grid in same.grids)
        found.append(dataclasses.replace(group[0][0], grids=grids))
        first.append({same.usual_grid: place for same, place in reversed(group)})
    known = [*_with_work(script, found, first)]
    of_launch = {
        place: kernel for kernel, places in zip(known, members, strict=True) for place in places
    }
    usual_launch = {
        id(one): of_grid[one.usual_grid] for one, of_grid in zip(known, first, strict=True)
    }

    def case_of(kernel: TracedKernel) -> Case | None:
        index = usual_launch[id(kernel)]
        launches = {index: script.launches[index]}
        return None if script.interrupted else explain_launches(script, launches).cases[0]

    traced = Traced(order(known), (), tuple(_recent(script, of_launch)))
    return with_actions(traced, case_of, effort)


def _recent(script: Script, kernels: Mapping[int, TracedKernel]) -> Iterator[Launched]:
    """Return the last launches of *script*, whose *kernels* are given by the launch's index.

    Of an autotuned one it is the configuration that is predicted to be fastest, where any is.
    """
    of_call: dict[int, list[Launched]] = defaultdict(list)
    for index, one in enumerate(script.launches):
        grid = None if one.bound.launch.grid is None else shortened(one.bound.launch.grid)
        launches = [each for each in kernels[index].grids if each.grid == grid]
        of_call[one.call] += [Launched(kernels[index], each, 0) for each in launches]

    def us(one: Launched) -> float:
        found = one.grid.predicted
        return math.inf if found is None else found.us / max(found.launches, 1)

    for index in script.ran.recent:
        if choices := of_call[script.launches[index].call]:
            yield min(choices, key=us)


def _with_work(
    script: Script,
    kernels: Sequence[TracedKernel],
    first: Sequence[Mapping[tuple[int, ...] | None, int]],
) -> Iterator[TracedKernel]:
    """Return *kernels* with what their launches do that are *first* of each grid in the script."""
    wanted = {
        (place, grid.grid): first[place][grid.grid]
        for place, one in enumerate(kernels)
        if one.calculation is not None
        for grid in one.grids[:MOST_COUNTED]
    }
    texts = script.texts([Changed(index, {}) for index in wanted.values()])
    known = dict(zip(wanted, texts, strict=True))

    def work(place: int, grid: tuple[int, ...] | None) -> LaunchWork | None:
        calculation = kernels[place].calculation
        if calculation is None or (place, grid) not in known:
            return None
        bound, resident = script.launches[wanted[place, grid]].bound, calculation.resident_programs
        counted = count_launch(
            *(known[place, grid], bound, bound.launch.grid, script.store),
            assume={},
            resident=resident,
        )
        return LaunchWork.of(bound, counted, calculation)

    for place, one in enumerate(kernels):
        grids = (dataclasses.replace(each, work=work(place, each.grid)) for each in one.grids)
        yield dataclasses.replace(one, grids=tuple(grids))


def _classes(bound: BoundLaunch) -> dict[str, str]:
    """Return the dtype of each tensor, and of each integer whether it is 1 or a multiple of 16."""
    found = {}
    for name, value in bound.arguments.items():
        if name in bound.constexprs:
            continue
        if isinstance(value, Pointer):
            found[name] = f"{value.dtype}{'' if value.aligned else ' unaligned'}"
        elif isinstance(value, int):
            found[name] = "1" if value == 1 else "any" if value % 16 else "multiple of 16"
    return found
