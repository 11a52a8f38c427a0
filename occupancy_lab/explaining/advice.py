"""What to launch instead and what to try, each with the command that shows it."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from occupancy_lab.record import ask
from occupancy_lab.text.document import Section
from occupancy_lab.text.words import change, count, microseconds, said_of_each
from occupancy_lab.values import NOTICEABLE, Resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from occupancy_lab.compiling.compiler import Compiler
    from occupancy_lab.explaining.case import Case
    from occupancy_lab.explaining.timing import WantedLaunch
    from occupancy_lab.sweeping.recorded import RecordedLaunch
    from occupancy_lab.values import Config

    Name = tuple[str | None, Config]
    """A kernel, by what names it, and how it is launched."""

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
    """recorded or predicted."""
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


def with_alternatives(case: Case, compiler: Compiler) -> Case:
    """Return *case* with the launches that its advice names, whatever a store holds.

    They are the fastest that was recorded of the problem, and others that *compiler* compiles.
    """
    from occupancy_lab.sweeping.recorded import recorded_measurement, recorded_ranking

    gpu, problem = case.record.gpu, case.problem
    if case.record.prediction is None:
        return case
    ranking = recorded_ranking(gpu.key, problem, SOFTMAXES) if case.kernel_name in SOFTMAXES else ()
    wanted = [*_to_compile(case), *((one.kernel, one.config) for one in ranking[:1])]
    names = list(dict.fromkeys(wanted))
    kernels = [
        case.kernel if name == case.kernel_name else load_kernel(str(name)) for name, _ in names
    ]
    asked = [
        ask(NamedKernel(name, kernel), problem, config, gpu)
        for (name, config), kernel in zip(names, kernels, strict=True)
    ]
    outcomes = compiler.compile([one.compilation for one in asked])
    taken: dict[Name, WantedLaunch] = {
        named: (one.launch, outcome, None)
        for named, one, outcome in zip(names, asked, outcomes, strict=True)
        if isinstance(outcome, Resources)
    }
    known: dict[Name, Alternative] = {}
    for named, (plan, found) in zip(taken, predicted_launches(case, taken.values()), strict=True):
        name, config = named
        programs = None if plan is None else plan.num_programs
        recorded = recorded_measurement(gpu.key, str(name), problem, config, programs)
        known[named] = Alternative(
            *named,
            us=found.us if found and _comparable(case, config, taken[named][1]) else None,
            recorded_us=None if recorded is None else recorded.us,
        )
    row_launch = taken.get((ROW_KERNELS.get(case.kernel_name or ""), _single(case)))
    return dataclasses.replace(
        case,
        row_kernel=None if row_launch is None else row_launch[1],
        alternatives=Alternatives(
            tuple(known.values()),
            _fastest(ranking[0], known) if ranking else None,
            len(ranking),
            0 if ranking else _tuned(case),
        ),
    )


def _to_compile(case: Case) -> Iterator[Name]:
    """Return what is compiled to know whether it is worth trying."""
    for num_warps in (_wide_warps(case), _more_warps(case)):
        if num_warps is not None:
            yield case.kernel_name, dataclasses.replace(case.config, num_warps=num_warps)
    rows = ROW_KERNELS.get(case.kernel_name or "")
    if rows is not None:
        yield rows, _single(case)


def _fastest(fastest: RecordedLaunch, known: Mapping[Name, Alternative]) -> Alternative:
    """Return the launch that was recorded to be the fastest, as it was launched then."""
    now, us = known.get((fastest.kernel, fastest.config)), fastest.measurement.us
    if now is not None and now.recorded_us == us:
        return now
    return Alternative(fastest.kernel, fastest.config, None, us, fastest.num_programs)


def _tuned(case: Case) -> int:
    """Return how many configurations `tune` compiles for *case*."""
    from occupancy_lab.sweeping.grid import grid_tasks

    kernels = [NamedKernel(case.kernel_name, case.kernel)]
    if case.kernel_name in SOFTMAXES:
        kernels = [NamedKernel(name, load_kernel(name)) for name in SOFTMAXES]
    tasks = grid_tasks(kernels, case.problem, case.record.gpu)
    return sum(task.why_not() is None for task in tasks)


def _comparable(case: Case, config: Config, resources: Resources) -> bool:
    """Tell whether the prediction sees all that differs between *case* and another launch."""
    own = case.config
    loops = None not in {case.record.resources.loop_instructions, resources.loop_instructions}
    if loops and own.num_stages == config.num_stages:
        return True
    return sees_stages(own, case.record.resources) and sees_stages(config, resources)


def _single(case: Case) -> Config:
    return dataclasses.replace(case.config, num_stages=1)


def _command(command: str, case: Case, **options: object) -> str:
    problem = case.problem
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
    name = kernel or case.kernel_name
    found = case.kernel if name == case.kernel_name else load_kernel(str(name))
    problem = dataclasses.replace(case.problem, cols=changes.pop("cols", case.problem.cols))
    usual = dataclasses.asdict(found.default_config(problem, case.architecture.max_shared))
    knobs = dataclasses.asdict(dataclasses.replace(case.config, **changes))
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
    """Return the fastest launch that was recorded; None where it is not noticeably faster.

    Where *case* was recorded too, its recorded time decides, and else what is predicted of both.
    """
    fastest = case.alternatives.fastest
    found = _change(case, fastest)
    if fastest is None or found is None or not found.is_faster:
        return None
    return fastest, found


def _change(case: Case, other: Alternative | None) -> Change | None:
    """Return how much longer *other* takes: recorded where both are, and else predicted."""
    prediction, own_us = case.record.prediction, case.recorded.us
    if other is None:
        return None
    if own_us is not None and other.recorded_us is not None:
        return Change(other.recorded_us / own_us - 1, "recorded")
    if prediction is None or other.us is None:
        return None
    return Change(other.us / prediction.us - 1, "predicted", prediction.noticeable)


def what_instead(case: Case) -> Iterator[str]:
    """Say what to launch instead, and what that brings, or what finds it.

    What else was recorded to be faster comes first.
    """
    from occupancy_lab.sweeping.recorded import rival_sentences

    yield from rival_sentences(case.recorded.faster)
    found, instead = case.alternatives, launch_instead(case)
    if instead is not None:
        yield _instead(case, *instead)
    elif found.fastest is not None:
        known = _change(case, found.fastest) is not None
        if not (known and any(one.change for one in advice(case))):
            yield _as_it_is(case, found.fastest)
    elif found.tuned > 1:
        yield (
            f"To find the fastest, {tune_command(case)} compiles {found.tuned} configurations for"
            " this matrix and ranks them by predicted time."
        )


def _as_it_is(case: Case, fastest: Alternative) -> str:
    found = _change(case, fastest)
    launches = f"{case.alternatives.recorded} launches recorded of this matrix"
    if found is not None and found.basis == "recorded":
        return f"Launch it as it is: none of {launches} was noticeably faster."
    took = f"{_launch_words(case, fastest)}: {microseconds(fastest.recorded_us or 0)}"
    if found is None:
        return f"The fastest of {launches} is {took}. This one was not recorded."
    return (
        f"Launch it as it is: it is not predicted to be noticeably slower than the fastest of"
        f" {launches}, {took}; it was not recorded."
    )


def _instead(case: Case, best: Alternative, found: Change) -> str:
    of = f"the fastest of {case.alternatives.recorded} launches recorded of this matrix"
    recorded = microseconds(best.recorded_us or 0)
    if found.basis == "recorded":
        times = f"{recorded} recorded against {microseconds(case.recorded.us or 0)}"
        times = f"{times} ({change(found.share)}), {of}"
    else:
        prediction = case.record.prediction
        own = microseconds(0 if prediction is None else prediction.us)
        times = f"{microseconds(best.us or 0)} predicted against {own} ({change(found.share)})"
        times = f"{times}; {recorded} was recorded, {of}"
    return f"Launch instead {_launch_words(case, best)}: {times}. {_alternative(case, best)}"


def _launch_words(case: Case, one: Alternative) -> str:
    config = one.config
    kernel = "the same kernel" if one.kernel is None else one.kernel
    if config.block_size != case.config.block_size:
        kernel = f"{kernel}, BLOCK_SIZE {config.block_size}"
    programs = "" if one.num_programs is None else f", {one.num_programs} programs"
    return f"{kernel}, num_warps {config.num_warps}, num_stages {config.num_stages}{programs}"


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
    if case.config.num_stages == 1 or not case.record.plan.is_persistent:
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
    config = dataclasses.replace(case.config, num_warps=num_warps)
    return _change(case, case.alternatives.find(case.kernel_name, config))


def _wide_warps(case: Case) -> int | None:
    """Return the fewer warps whose threads load as much as they can; None where that is so."""
    elements, item_bytes = elements_per_thread(case), case.problem.item_bytes
    config = case.config
    if elements is None or elements * item_bytes >= WIDEST_ACCESS:
        return None
    if case.record.resources.local_bytes:
        return None  # fewer threads would have to hold as much
    threads = config.block_size * item_bytes // WIDEST_ACCESS
    num_warps = max(1, threads // case.architecture.warp_size)
    return num_warps if num_warps < config.num_warps else None


def _fewer_warps(case: Case) -> Iterator[Advice]:
    num_warps, architecture = _wide_warps(case), case.architecture
    if num_warps is not None:
        more = case.config.block_size / (num_warps * architecture.warp_size)
        longer = _with_warps(case, num_warps)
        if longer is None and LACKING.keys() & case.record.occupancy.limiters:
            return  # as many programs of fewer warps leave more of the multiprocessor empty
        yield Advice(
            f"{count(num_warps, architecture.warp_word)} per program would give each thread"
            f" {more:g} elements instead of {elements_per_thread(case):g}, and a reduction fewer"
            f" {architecture.warp_word}s to cross{_brings(longer)}:"
            f" {explain_command(case, num_warps=num_warps)}",
            longer,
        )


def _wider_loads(case: Case) -> Iterator[Advice]:
    problem, resources = case.problem, case.record.resources
    narrow = resources.load_bytes is not None and resources.load_bytes < WIDEST_ACCESS
    padded = -(-problem.cols // DIVISIBILITY) * DIVISIBILITY
    worth_it = problem.cols < padded <= problem.cols * MOST_PADDING
    kernel = case.kernel
    if narrow and worth_it and kernel.grid is not Grid.BLOCKS and not kernel.rows_alike:
        yield Advice(
            f"If the matrix can be padded with -inf to {padded} columns (stride and n_cols both:"
            f" the mask counts too), loads get wider: {explain_command(case, cols=padded)}"
        )


def _more_warps(case: Case) -> int | None:
    """Return twice the warps for a kernel that spills; None where none is, or they are too many."""
    more = case.config.num_warps * 2
    spills = case.record.resources.local_bytes
    return more if spills and more <= case.architecture.max_warps_per_program else None


def _spills(case: Case) -> Iterator[Advice]:
    resources, more = case.record.resources, _more_warps(case)
    if more is not None:
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
    recorded = recorded_change(case, "row_programs")
    longer = _change(case, case.alternatives.find(rows, _single(case)))
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
