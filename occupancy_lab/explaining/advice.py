"""What to launch instead and what to try, each with the command that shows it."""

from __future__ import annotations

import dataclasses
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import Store, kernel_launch, resource_key
from occupancy_lab.explaining.case import ROW_KERNELS, Alternative, Alternatives
from occupancy_lab.explaining.compiled import DIVISIBILITY, WIDEST_ACCESS, elements_per_thread
from occupancy_lab.explaining.launch import work_word
from occupancy_lab.explaining.limits import LACKING
from occupancy_lab.explaining.timing import (
    STAGES_REASONS,
    predicted_launches,
    reason,
    recorded_change,
    sees_stages,
    timing,
)
from occupancy_lab.inputs import DEFAULT_ROWS, SOFTMAXES, NamedKernel
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.occupancy import occupancy
from occupancy_lab.text.document import Section
from occupancy_lab.text.words import change, count, microseconds, said_of_each
from occupancy_lab.values import NOTICEABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.sweeping.grid import Task
    from occupancy_lab.values import Config, Resources

MOST_PADDING = 1.1
"""Columns after padding over columns before it, up to which wider loads can be worth it."""
TRIES = 3
"""Suggestions of a short explanation."""


@dataclass(frozen=True, slots=True)
class Change:
    """How much longer another launch takes than this one; both times are of one basis."""

    share: float
    """-0.1 is 10% less."""
    basis: str
    """recorded, predicted, or estimated: predicted of what is not compiled."""
    noticeable: float = NOTICEABLE
    """The share from which on the one is called faster."""

    @property
    def is_faster(self) -> bool:
        """Whether the other launch takes noticeably less time."""
        return self.share <= -self.noticeable

    def __str__(self) -> str:
        return f"{change(self.share)} {self.basis}"


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to try, and what it changes: None is not known."""

    sentence: str
    change: Change | None = None

    @property
    def worth_it(self) -> bool:
        """Whether nothing is known against it: no time that was predicted or recorded."""
        return self.change is None or self.change.is_faster


def with_alternatives(case: Case, directory: Path | None) -> Case:
    """Return *case* with other launches of its problem: those recorded, or else compiled.

    What is compiled is looked up in the store at *directory*; nothing compiles.
    """
    if case.record.prediction is None:
        return case
    # What another Triton makes of them lies under keys that only it knows.
    store = Store(directory if case.triton is None else None)
    rows = ROW_KERNELS.get(case.kernel_name or "")
    if rows is not None:
        single = dataclasses.replace(case.record.config, num_stages=1)
        key = _key(case, load_kernel(rows), single)
        case = dataclasses.replace(case, row_kernel=store.get(key))
    found = _recorded_alternatives(case) or _compiled_alternatives(case, store)
    estimate = _rows_estimate(case)
    ranked = [one for one in found.ranked if not _same(one, estimate)]
    if estimate is not None:
        known = found.find(estimate.kernel, estimate.config)
        recorded_us = None if known is None else known.recorded_us
        ranked.append(dataclasses.replace(estimate, recorded_us=recorded_us))
    ranked.sort(key=lambda one: one.us or math.inf)
    return dataclasses.replace(case, alternatives=dataclasses.replace(found, ranked=tuple(ranked)))


def _same(one: Alternative, other: Alternative | None) -> bool:
    return other is not None and (one.kernel, one.config) == (other.kernel, other.config)


def _key(case: Case, kernel: Kernel, config: Config) -> dict[str, Any]:
    target = case.record.gpu.target
    launch = kernel_launch(kernel, case.record.problem, config, target)
    return resource_key(kernel.function, launch, target)


def _recorded_alternatives(case: Case) -> Alternatives | None:
    """Return the launches that were recorded of the problem; None where none was."""
    from occupancy_lab.sweeping.recorded import recorded_launches

    if case.kernel_name not in SOFTMAXES:
        return None
    single = case.kernel_name, dataclasses.replace(case.record.config, num_stages=1)
    found: dict[tuple[str, Config], Alternative] = {}
    taken = {}
    for one in recorded_launches(case.record.gpu.key, case.record.problem):
        name = one.kernel, one.config
        if one.as_compiled and name not in found:
            taken[name] = case.single_stage if name == single else one.resources
            found[name] = Alternative(*name, one.num_programs, None, one.measurement.us)
    if not found:
        return None
    # Beside a launch that was recorded, predictions only choose between equally fast ones.
    fastest = min(one.recorded_us or math.inf for one in found.values())
    compiled = {
        name: (load_kernel(name[0]), name[1], resources, None)
        for name, resources in taken.items()
        if resources is not None
        and (case.recorded.us is None or found[name].recorded_us == fastest)
    }
    predicted = predicted_launches(case, compiled.values())
    for name, (_, prediction) in zip(compiled, predicted, strict=True):
        us = None if prediction is None else prediction.us
        found[name] = dataclasses.replace(found[name], us=us)
    return Alternatives(tuple(found.values()), len(found), recorded=True)


def _compiled_alternatives(case: Case, store: Store) -> Alternatives:
    """Return what *store* has of what `tune` ranks for *case*.

    A launch whose num_stages the prediction does not see is not ranked against other num_stages.
    """
    from occupancy_lab.sweeping.grid import grid_tasks

    record = case.record
    kernels = [NamedKernel(case.kernel_name, record.kernel)]
    if case.kernel_name in SOFTMAXES:
        kernels = [NamedKernel(name, load_kernel(name)) for name in SOFTMAXES]
    compiled, missing = {}, 0
    tasks = [
        task for task in grid_tasks(kernels, record.problem, record.gpu) if task.why_not() is None
    ]
    for task in tasks:
        key = _key(case, task.kernel, task.config)
        resources = store.get(key)
        if resources is None:
            missing += store.get_failure(key) is None
        elif _comparable(case, task, resources):
            name = task.kernel_name, task.config
            compiled[name] = (task.kernel, task.config, resources, None)
    predicted = predicted_launches(case, compiled.values())
    ranked = tuple(
        Alternative(*name, plan.num_programs, prediction.us)
        for name, (plan, prediction) in zip(compiled, predicted, strict=True)
        if prediction is not None
    )
    return Alternatives(ranked, len(tasks), missing)


def _rows_estimate(case: Case) -> Alternative | None:
    """Return one program per row: as it is compiled, or else from the loop's instructions."""
    rows, timed = ROW_KERNELS.get(case.kernel_name or ""), timing(case)
    if rows is None or timed is None or timed.row_programs is None:
        return None
    single = dataclasses.replace(case.record.config, num_stages=1)
    return Alternative(
        rows,
        single,
        case.record.plan.work,
        timed.row_programs.us,
        estimated=case.row_kernel is None,
    )


def _comparable(case: Case, task: Task, resources: Resources) -> bool:
    """Tell whether the prediction sees all that differs between *case* and *task*."""
    own, other = case.record.config, task.config
    loops = None not in {case.record.resources.loop_instructions, resources.loop_instructions}
    if loops and own.num_stages == other.num_stages:
        return True
    return sees_stages(own, case.record.resources) and sees_stages(other, resources)


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
    return _command(
        "tune", case, kernel=None if case.kernel_name in SOFTMAXES else case.kernel_name
    )


def launch_instead(case: Case) -> tuple[Alternative, Change] | None:
    """Return the launch that is noticeably faster by most; None where there is none.

    Where *case* and others were recorded, their recorded times decide, and else the predicted.
    """
    ranked = case.alternatives.ranked
    known = [(found, one) for one in ranked if (found := _change(case, one)) is not None]
    bases = {found.basis for found, _ in known}
    if "recorded" in bases:
        known = [(found, one) for found, one in known if found.basis == "recorded"]
    best = min(known, key=lambda pair: pair[0].share, default=None)
    if best is None or not best[0].is_faster:
        return None
    return best[1], best[0]


def _change(case: Case, other: Alternative | None) -> Change | None:
    """Return how much longer *other* takes: recorded where both are, and else predicted."""
    prediction, own_us = case.record.prediction, case.recorded.us
    if other is None:
        return None
    if own_us is not None and other.recorded_us is not None:
        return Change(other.recorded_us / own_us - 1, "recorded")
    if prediction is None or other.us is None:
        return None
    basis = "estimated" if other.estimated else "predicted"
    return Change(other.us / prediction.us - 1, basis, prediction.noticeable)


def what_instead(case: Case) -> Iterator[str]:
    """Say what to launch instead, what that brings, and of how many launches it is the best.

    What else was recorded to be faster comes first.
    """
    from occupancy_lab.sweeping.recorded import rival_sentences

    yield from rival_sentences(case.recorded.faster)
    if case.alternatives.searched:
        instead = launch_instead(case)
        if instead is not None:
            yield _instead(case, *instead)
        elif not any(one.change for one in advice(case)):
            yield _as_it_is(case)


def _as_it_is(case: Case) -> str:
    found = case.alternatives
    if found.missing:
        rows = any(one.estimated for one in found.ranked)
        estimate = ", nor one program per row by an estimate," if rows else ""
        return (
            f"Nothing of the {_compiled(found)}{estimate} is predicted to be noticeably faster;"
            f" {tune_command(case)} compiles the rest."
        )
    if not found.recorded:
        return (
            f"Launch it as it is: none of the {found.searched} configurations that tune ranks is"
            " predicted to be noticeably faster."
        )
    launches = f"none of the {found.searched} launches of this matrix that were recorded"
    if case.recorded.us is not None:
        return f"Launch it as it is: {launches} was noticeably faster."
    return (
        f"Launch it as it is: {launches} is predicted to be noticeably faster; this one was not"
        " recorded."
    )


def _compiled(found: Alternatives) -> str:
    return f"{found.searched - found.missing} of {found.searched} configurations compiled so far"


def _instead(case: Case, best: Alternative, found: Change) -> str:
    search = case.alternatives
    if found.basis == "recorded":
        us, own = best.recorded_us, case.recorded.us
        of = f", the fastest of {search.searched} launches recorded of this matrix"
    else:
        us, own = best.us, None if case.record.prediction is None else case.record.prediction.us
        of = ""
        if search.recorded:
            of = f", the best of {search.searched} launches recorded of this matrix; this was not"
        elif search.missing and not best.estimated:
            of = f", best of {_compiled(search)}"
    sentence = (
        f"Launch instead {_launch_words(case, best)}: {microseconds(us or 0)} {found.basis} against"
        f" {microseconds(own or 0)} ({change(found.share)}){of}"
    )
    if not search.missing:
        return f"{sentence}. {_alternative(case, best)}"
    first = f", with {_compiled(search)}" if best.estimated else ""
    return f"{sentence}{first}; {tune_command(case)} compiles the rest."


def _launch_words(case: Case, one: Alternative) -> str:
    config = one.config
    kernel = "the same kernel" if one.kernel is None else one.kernel
    if config.block_size != case.record.config.block_size:
        kernel = f"{kernel}, BLOCK_SIZE {config.block_size}"
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
    if case.record.config.num_stages == 1 or case.record.kernel.grid is not Grid.PERSISTENT:
        return
    single = occupancy(case.single_stage, case.architecture).programs_per_multiprocessor
    now = case.record.occupancy.programs_per_multiprocessor
    found, why, verb = _single_stage_change(case), "", "is faster"
    timed = timing(case)
    if found is not None and timed is not None and timed.single_stage is not None:
        faster = found.share < 0
        why = reason(timed, timed.single_stage, STAGES_REASONS, found.share) if faster else ""
    elif single > now:
        why = f"{single} programs fit instead of {now}, whose loads can hide what the stages hid"
        verb = "may be faster"
    else:
        return
    yield Advice(
        f"num_stages 1 {verb}{_brings(found)}{why and f', as {why}'}:"
        f" {explain_command(case, num_stages=1)}",
        found,
    )


def _single_stage_change(case: Case) -> Change | None:
    recorded, timed = recorded_change(case, "single_stage"), timing(case)
    if recorded is not None:
        return Change(recorded, "recorded")
    if timed is None or timed.single_stage is None:
        return None
    return Change(timed.change(timed.single_stage), "predicted", timed.prediction.noticeable)


def _brings(found: Change | None) -> str:
    return "" if found is None else f" ({found})"


def _with_warps(case: Case, num_warps: int) -> Change | None:
    """Return what a launch with *num_warps* changes; None where nothing is known of it."""
    config = dataclasses.replace(case.record.config, num_warps=num_warps)
    return _change(case, case.alternatives.find(case.kernel_name, config))


def _fewer_warps(case: Case) -> Iterator[Advice]:
    elements, item_bytes = elements_per_thread(case), case.record.problem.item_bytes
    config, architecture = case.record.config, case.architecture
    if elements is None or elements * item_bytes >= WIDEST_ACCESS or config.num_warps == 1:
        return
    if case.record.resources.local_bytes:
        return  # fewer threads would have to hold as much
    threads = config.block_size * item_bytes // WIDEST_ACCESS
    num_warps = max(1, threads // architecture.warp_size)
    longer = _with_warps(case, num_warps)
    if longer is None and LACKING.keys() & case.record.occupancy.limiters:
        return  # as many programs of fewer warps leave more of the multiprocessor empty
    if num_warps < config.num_warps:
        more = config.block_size / (num_warps * architecture.warp_size)
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
    kernel = case.record.kernel
    if narrow and worth_it and kernel.grid is not Grid.BLOCKS and not kernel.rows_alike:
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
            f"{resources.local_bytes} B of local memory per thread: with more warps a"
            f" {work_word(case)} takes fewer registers of each{_brings(longer)}:"
            f" {explain_command(case, num_warps=more)}",
            longer,
        )


def _row_kernel(case: Case) -> Iterator[Advice]:
    """Suggest one program per row, with the warps of *case*: other warps are another launch."""
    rows = ROW_KERNELS.get(case.kernel_name or "")
    if rows is None:
        return
    single = dataclasses.replace(case.record.config, num_stages=1)
    recorded = recorded_change(case, "row_programs")
    longer = _change(case, case.alternatives.find(rows, single))
    if recorded is not None:
        longer = Change(recorded, "recorded")
    yield Advice(
        f"One program per row needs no loop and no num_programs{_brings(longer)}:"
        f" {explain_command(case, kernel=rows, num_stages=1)}",
        longer,
    )


def advice(case: Case) -> tuple[Advice, ...]:
    """Return what is worth trying, what is known to bring most first."""
    kinds = (_fewer_stages, _fewer_warps, _wider_loads, _spills, _row_kernel)
    found = [one for kind in kinds for one in kind(case) if one.worth_it]
    return tuple(sorted(found, key=lambda one: 0.0 if one.change is None else one.change.share))


def _others(case: Case) -> Iterator[Advice]:
    """Return what is worth trying besides the launch to take instead, and its kernel."""
    found, instead = advice(case), launch_instead(case)
    if instead is None:
        return iter(found)
    command, other = _alternative(case, instead[0]), f"--kernel {instead[0].kernel}"
    own = instead[0].kernel == case.kernel_name
    return (
        one
        for one in found
        if not one.sentence.endswith(command) and (own or other not in one.sentence)
    )


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
    """Return at most TRIES suggestions, each GPU's first before any GPU's second.

    They are fewer by what else is said to be faster, so that all fits a screen.
    """
    lists = [[(case, one) for one in _others(case)] for case in cases]
    longest = max(map(len, lists))
    turns = [found[place] for place in range(longest) for found in lists if place < len(found)]
    several = len(cases) > 1
    most = max(TRIES - max(len(case.recorded.faster) for case in cases), 1)
    return tuple(
        f"**{case.title}**: {one.sentence}" if several else one.sentence
        for case, one in turns[:most]
    )
