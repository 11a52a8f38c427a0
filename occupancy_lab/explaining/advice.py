"""What to launch instead and what to try, each with the command that shows it."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.compiling import Store, resource_key
from occupancy_lab.explaining.case import ROW_KERNELS, Alternative, Alternatives, recorded_time
from occupancy_lab.explaining.compiled import DIVISIBILITY, WIDEST_ACCESS, elements_per_thread
from occupancy_lab.explaining.timing import (
    NOTICEABLE,
    predicted_launch,
    recorded_change,
    timing,
)
from occupancy_lab.inputs import DEFAULT_ROWS, NamedKernel
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.occupancy import occupancy
from occupancy_lab.text.document import Section
from occupancy_lab.text.words import change, count, microseconds, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.sweeping.grid import Task
    from occupancy_lab.values import Config, Resources

MOST_PADDING = 1.1
"""Columns after padding over columns before it, up to which wider loads can be worth it."""
TRIES = 3
"""Suggestions of a short explanation."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to try, and how much longer a launch then takes, as a share: None is not known."""

    sentence: str
    change: float | None = None

    @property
    def worth_it(self) -> bool:
        """Whether nothing is known against it: no time that was predicted or recorded."""
        return self.change is None or self.change <= -NOTICEABLE


def find_alternatives(case: Case, directory: Path | None) -> Alternatives:
    """Return what the store at *directory* has of what `tune` ranks for *case*; nothing compiles.

    A launch whose num_stages the prediction does not see is not ranked against other num_stages.
    """
    from occupancy_lab.tuning.search import KERNELS, grid_tasks

    record = case.record
    if record.prediction is None:
        return Alternatives()
    kernels = [NamedKernel(case.kernel_name, record.kernel)]
    if case.kernel_name in KERNELS:
        kernels = [NamedKernel(name, load_kernel(name)) for name in KERNELS]
    # What another Triton makes of them lies under keys that only it knows.
    store = Store(directory if case.triton is None else None)
    ranked, missing = [], 0
    tasks = [
        task
        for task in grid_tasks(kernels, record.problem, record.gpu, (), ())
        if task.why_not() is None
    ]
    for task in tasks:
        launch = task.kernel.launch(task.problem, task.config)
        key = resource_key(task.kernel.function, launch, record.gpu.target)
        resources = store.get(key)
        if resources is None:
            missing += store.get_failure(key) is None
        elif _comparable(case, task, resources):
            found = predicted_launch(case, task.kernel, task.config, resources)
            if found is not None:
                plan, prediction = found
                ranked.append(
                    Alternative(task.kernel_name, task.config, plan.num_programs, prediction.us)
                )
    rows = _rows_estimate(case)
    launches = {(one.kernel, one.config) for one in ranked}
    if rows is not None and (rows.kernel, rows.config) not in launches:
        ranked.append(rows)
    ranked.sort(key=lambda one: one.us)
    return Alternatives(tuple(ranked), len(tasks), missing)


def _rows_estimate(case: Case) -> Alternative | None:
    """Return one program per row as it is predicted from the loop's instructions, uncompiled."""
    rows, timed = ROW_KERNELS.get(case.kernel_name or ""), timing(case)
    if rows is None or timed is None or timed.row_programs is None:
        return None
    single = dataclasses.replace(case.record.config, num_stages=1)
    return Alternative(rows, single, case.record.plan.work, timed.row_programs.us)


def _comparable(case: Case, task: Task, resources: Resources) -> bool:
    """Tell whether the prediction sees all that differs between *case* and *task*."""
    own, other = case.record.config, task.config
    if task.kernel.grid is not Grid.PERSISTENT or own.num_stages == other.num_stages:
        return True
    return _sees_stages(own, case.record.resources) and _sees_stages(other, resources)


def _sees_stages(config: Config, resources: Resources) -> bool:
    return config.num_stages == 1 or bool(resources.async_copies)


def _command(command: str, case: Case, **options: object) -> str:
    problem = case.record.problem
    options = {
        "cols": options.pop("cols", problem.cols),
        "rows": None if problem.rows == DEFAULT_ROWS else problem.rows,
        "dtype": None if problem.dtype == "float32" else problem.dtype,
        "gpu": case.record.gpu.key,
        "triton": case.triton,
        **options,
    }
    if case.kernel_name is None:
        given = (f"{name}={value!r}" for name, value in options.items() if value is not None)
        return f"`occupancy_lab.{command}(kernel=KERNEL, {', '.join(given)})`"
    words = " ".join(
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, value in options.items()
        if value is not None
    )
    return f"`occupancy-lab {command} {words}`"


def explain_command(case: Case, *, kernel: str | None = None, **changes: int) -> str:
    """Return the explain command of *case* with another *kernel*, cols or knobs of the launch."""
    record, name = case.record, kernel or case.kernel_name
    found = record.kernel if name == case.kernel_name else load_kernel(str(name))
    problem = dataclasses.replace(record.problem, cols=changes.pop("cols", record.problem.cols))
    usual = dataclasses.asdict(found.default_config(problem, case.architecture.max_shared))
    knobs = dataclasses.asdict(dataclasses.replace(record.config, **changes))
    return _command(
        "explain",
        case,
        cols=problem.cols,
        kernel=None if name in {"softmax", None} else name,
        **{knob: value for knob, value in knobs.items() if value != usual[knob]},
    )


def tune_command(case: Case) -> str:
    """Return the command that ranks every configuration for the problem and the GPU of *case*."""
    own = case.kernel_name in {*ROW_KERNELS, *ROW_KERNELS.values()}
    return _command("tune", case, kernel=None if own else case.kernel_name)


def launch_instead(case: Case) -> tuple[Alternative, float | None] | None:
    """Return the best predicted launch that is noticeably faster, and its recorded time, us.

    None where there is none. One that was recorded to be no faster than *case* was is left out.
    """
    own = None if case.recorded.launch is None else case.recorded.launch.us
    for one in case.alternatives.ranked:
        saved = _longer(case, one)
        if saved is None or saved > -NOTICEABLE:
            break
        recorded = recorded_time(case, one.kernel, one.config, one.num_programs)
        if recorded is None or own is None or recorded < own:
            return one, recorded
    return None


def what_instead(case: Case) -> Iterator[str]:
    """Say what to launch instead by the search of `tune`, and what that brings."""
    found = case.alternatives
    if not found.searched:
        return
    instead = launch_instead(case)
    ranks = f"{tune_command(case)} ranks all {found.searched} configurations"
    if instead is None:
        yield (
            f"What to launch instead is not known yet: {ranks}."
            if found.missing
            else (
                f"Launch it as it is: none of the {found.searched} configurations that tune ranks"
                " is predicted to be noticeably faster."
            )
        )
        return
    best, recorded = instead
    measured = "" if recorded is None else f", {microseconds(recorded)} recorded"
    brings = f"{microseconds(best.us)} predicted{_brings(_longer(case, best))}{measured}"
    more = f"{ranks} ({len(found.ranked)} known so far)" if found.missing else None
    yield (
        f"Launch instead {_launch_words(best)}: {brings}."
        f" {more + '.' if more else _alternative(case, best)}"
    )


def _launch_words(one: Alternative) -> str:
    config = one.config
    kernel = "the same kernel" if one.kernel is None else one.kernel
    return f"{kernel}, num_warps {config.num_warps}, num_stages {config.num_stages}"


def _alternative(case: Case, one: Alternative) -> str:
    config = one.config
    return explain_command(
        case,
        kernel=one.kernel,
        block_size=config.block_size,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )


def _fewer_stages(case: Case) -> Iterator[Advice]:
    single = occupancy(case.single_stage, case.architecture).programs_per_multiprocessor
    now = case.record.occupancy.programs_per_multiprocessor
    timed = timing(case)
    longer = recorded_change(case, "single_stage")
    if longer is None and timed is not None and timed.single_stage is not None:
        seen = _sees_stages(case.record.config, case.record.resources)
        longer = timed.change(timed.single_stage) if seen else None
    if single > now:
        yield Advice(
            f"num_stages 1 lets {single} programs fit instead of {now}, whose loads can hide what"
            f" the stages hid{_brings(longer)}: {explain_command(case, num_stages=1)}",
            longer,
        )


def _brings(longer: float | None) -> str:
    return "" if longer is None else f" ({change(longer)})"


def _with_warps(case: Case, num_warps: int) -> float | None:
    """Return how much longer a launch with *num_warps* is predicted to take; None: not compiled."""
    config = dataclasses.replace(case.record.config, num_warps=num_warps)
    return _longer(case, case.alternatives.find(case.kernel_name, config))


def _longer(case: Case, other: Alternative | None) -> float | None:
    prediction = case.record.prediction
    return None if other is None or prediction is None else other.us / prediction.us - 1


def _fewer_warps(case: Case) -> Iterator[Advice]:
    elements, item_bytes = elements_per_thread(case), case.record.problem.item_bytes
    config, architecture = case.record.config, case.architecture
    if elements * item_bytes >= WIDEST_ACCESS or config.num_warps == 1:
        return
    threads = config.block_size * item_bytes // WIDEST_ACCESS
    num_warps = max(1, threads // architecture.warp_size)
    if num_warps < config.num_warps:
        more = config.block_size / (num_warps * architecture.warp_size)
        longer = _with_warps(case, num_warps)
        yield Advice(
            f"{count(num_warps, architecture.warp_word)} per program would give each thread"
            f" {more:g} elements instead of {elements:g}, and a reduction fewer"
            f" {architecture.warp_word}s to cross{_brings(longer)}:"
            f" {explain_command(case, num_warps=num_warps)}",
            longer,
        )


def _wider_loads(case: Case) -> Iterator[Advice]:
    problem, resources = case.record.problem, case.record.resources
    narrow = resources.load_bytes is not None and resources.load_bytes < WIDEST_ACCESS
    padded = -(-problem.cols // DIVISIBILITY) * DIVISIBILITY
    worth_it = problem.cols < padded <= problem.cols * MOST_PADDING
    if narrow and worth_it and case.record.kernel.grid is not Grid.BLOCKS:
        yield Advice(
            f"If the matrix can be padded with -inf to {padded} columns (stride and n_cols both:"
            f" the mask counts too), loads get wider: {explain_command(case, cols=padded)}"
        )


def _spills(case: Case) -> Iterator[Advice]:
    resources, config = case.record.resources, case.record.config
    more = config.num_warps * 2
    if resources.local_bytes and more <= case.architecture.max_warps_per_program:
        longer = _with_warps(case, more)
        yield Advice(
            f"{resources.local_bytes} B of local memory per thread: with more warps a row takes"
            f" fewer registers of each{_brings(longer)}: {explain_command(case, num_warps=more)}",
            longer,
        )


def _row_kernel(case: Case) -> Iterator[Advice]:
    """Suggest one program per row, with the warps of *case*: other warps are another launch."""
    rows = ROW_KERNELS.get(case.kernel_name or "")
    if rows is None:
        return
    single = dataclasses.replace(case.record.config, num_stages=1)
    longer = recorded_change(case, "row_programs")
    if longer is None:
        longer = _longer(case, case.alternatives.find(rows, single))
    yield Advice(
        f"One program per row needs no loop and no num_programs{_brings(longer)}:"
        f" {explain_command(case, kernel=rows, num_stages=1)}",
        longer,
    )


def advice(case: Case) -> tuple[Advice, ...]:
    """Return what is worth trying, what is known to bring most first."""
    kinds = (_fewer_stages, _fewer_warps, _wider_loads, _spills, _row_kernel)
    found = [one for kind in kinds for one in kind(case) if one.worth_it]
    return tuple(sorted(found, key=lambda one: one.change or 0.0))


def _others(case: Case) -> Iterator[Advice]:
    """Return what is worth trying besides the launch to take instead."""
    instead = launch_instead(case)
    command = None if instead is None else _alternative(case, instead[0])
    return (one for one in advice(case) if command is None or not one.sentence.endswith(command))


def what_to_try(cases: tuple[Case, ...]) -> Section:
    """Return what this kernel's own numbers suggest, each suggestion with its command."""

    def sentences(case: Case) -> Iterator[str]:
        if case.record.occupancy.occupancy >= 1:
            yield (
                f"Every {case.architecture.warp_word} slot is taken: more occupancy is not to be"
                " had, and what is left to win is in the loads, the reduction and the tail."
            )
        yield from what_instead(case)
        yield from (one.sentence for one in advice(case))

    return Section("What to try", sentences=said_of_each(cases, sentences))


def three_to_try(cases: tuple[Case, ...]) -> tuple[str, ...]:
    """Return at most TRIES suggestions, each GPU's first before any GPU's second."""
    lists = [[(case, one) for one in _others(case)] for case in cases]
    longest = max(map(len, lists))
    turns = [found[place] for place in range(longest) for found in lists if place < len(found)]
    several = len(cases) > 1
    return tuple(
        f"**{case.title}**: {one.sentence}" if several else one.sentence
        for case, one in turns[:TRIES]
    )
