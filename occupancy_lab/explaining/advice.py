"""What to launch instead and what to try, each with the command that shows it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import ALIGNMENT, Pointer
from occupancy_lab.asked import ask
from occupancy_lab.explaining.case import Alternative, Alternatives
from occupancy_lab.explaining.commands import explain_command, tune_command
from occupancy_lab.explaining.neighbours import WIDEST_ACCESS, predicted_us
from occupancy_lab.explaining.tried import (
    change_if,
    in_one_sentence,
    neighbour_tables,
    of_neighbours,
)
from occupancy_lab.inputs import NamedKernel
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.prediction import NOTICEABLE
from occupancy_lab.text.document import Section, literal, spans
from occupancy_lab.text.words import change, listed, microseconds, prediction_words, said_of_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from occupancy_lab.asked import Asked
    from occupancy_lab.explaining.case import Case
    from occupancy_lab.record import Record
    from occupancy_lab.sweeping.recorded import RecordedLaunch
    from occupancy_lab.values import Config, Problem

MOST_PADDING = 1.1
"""The largest ratio of padded columns to columns for which padding is tried."""
PADDED = "padded"
"""The key of the launch with padded arguments among the other compiled launches."""


@dataclass(frozen=True, slots=True)
class Change:
    """The time of another launch beside that of this one, both recorded or both predicted."""

    us: float
    """The time of the other launch, us."""
    own_us: float
    basis: str
    """recorded or predicted."""
    noticeable: float = NOTICEABLE
    """The smallest relative difference at which one launch is called faster."""

    @property
    def share(self) -> float:
        """The relative difference: -0.1 means that the other launch takes 10% less time."""
        return self.us / self.own_us - 1

    @property
    def is_faster(self) -> bool:
        """Whether the other launch takes noticeably less time."""
        return self.share <= -self.noticeable

    def __str__(self) -> str:
        return f"{change(self.share)} {self.basis}"


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to try, and what it changes."""

    sentence: str
    change: Change
    words: str = ""
    """The arguments to change and the condition: "stride 2064 instead of 2050 (if the launch can
    pass that)"; "" if the advice is not about arguments."""


def wanted_besides(case: Case) -> dict[Any, Asked]:
    """Return the launches to compile so that advice can compare *case* with them.

    These are the launch that was recorded to be the fastest for this matrix; for a persistent
    kernel, the launch with one program per row; and where loads are narrow, the launch on a matrix
    that is padded for wider loads.
    """
    if not _is_compared(case):
        return {}
    gpu, names = case.record.gpu, []
    if case.by_rows is not None:
        names.append((case.by_rows, _single(case)))
    names += [(one.kernel, one.config) for one in _ranking(case)[:1]]
    wanted: dict[Any, Asked] = {
        (name, config): ask(NamedKernel(name, load_kernel(name)), case.record.problem, config, gpu)
        for name, config in names
    }
    if (padded := _padded(case)) is not None:
        named = NamedKernel(case.kernel_name, case.kernel)
        wanted[PADDED] = ask(named, padded, case.record.config, gpu)
    return wanted


def _is_compared(case: Case) -> bool:
    """Tell whether other kernels' launches for the same matrix can be compared with *case*."""
    record = case.record
    return not (record.matrix is None or record.prediction is None or record.matrix.options)


def _ranking(case: Case) -> Sequence[RecordedLaunch]:
    from occupancy_lab.sweeping.recorded import recorded_ranking

    return (
        recorded_ranking(case.record.gpu.key, case.record.problem, case.alike) if case.alike else ()
    )


def _padded(case: Case) -> Problem | None:
    """Return the matrix with enough columns added for wider loads; None if padding cannot help."""
    problem, load_bytes = case.record.problem, case.record.resources.load_bytes
    cols = -(-problem.cols // ALIGNMENT) * ALIGNMENT
    few = problem.cols < cols <= problem.cols * MOST_PADDING
    narrow = load_bytes is not None and load_bytes < WIDEST_ACCESS
    if not (few and narrow) or case.kernel.grid is Grid.BLOCKS or case.kernel.rows_alike:
        return None
    return dataclasses.replace(problem, cols=cols)


def with_alternatives(case: Case, found: Mapping[Any, Record]) -> Case:
    """Return *case* with the compiled launches that its advice compares it with."""
    case = dataclasses.replace(case, padded=found.get(PADDED))
    if not _is_compared(case):
        return case
    if ranking := _ranking(case):
        now = found.get((ranking[0].kernel, ranking[0].config))
        alternatives = Alternatives(_fastest(case, ranking[0], now), len(ranking))
    else:
        alternatives = Alternatives(tuned=_tuned(case))
    rows = found.get((case.by_rows, _single(case)))
    return dataclasses.replace(case, row_kernel=rows, alternatives=alternatives)


def _fastest(case: Case, fastest: RecordedLaunch, now: Record | None) -> Alternative:
    """Return the fastest recorded launch, with a predicted time if it still compiles the same.

    *now* is that launch as it compiles today; None if it does not compile.
    """
    from occupancy_lab.sweeping.recorded import recorded_measurement

    kernel, config, us = fastest.kernel, fastest.config, fastest.measurement.us or 0.0
    if now is not None:
        same = recorded_measurement(
            now.gpu.key, kernel, case.record.problem, config, now.num_programs
        )
        if same is not None and same.us == us:
            predicted = None if now.prediction is None else now.prediction.us
            return Alternative(kernel, config, predicted, us)
    return Alternative(kernel, config, None, us, fastest.num_programs)


def _tuned(case: Case) -> int:
    """Return how many configurations `tune` compiles for the matrix of *case*."""
    from occupancy_lab.sweeping.grid import grid_tasks

    kernels = [NamedKernel(case.kernel_name, case.kernel)]
    if case.alike:
        kernels = [NamedKernel(name, load_kernel(name)) for name in case.alike]
    tasks = grid_tasks(kernels, case.record.problem, case.record.gpu)
    return sum(task.why_not() is None for task in tasks)


def _single(case: Case) -> Config:
    return dataclasses.replace(case.record.config, num_stages=1)


def launch_instead(case: Case) -> tuple[Alternative, Change] | None:
    """Return the fastest recorded launch and how it compares; None if not noticeably faster."""
    fastest = case.alternatives.fastest
    if fastest is None:
        return None
    found = _change(case, fastest.us, fastest.recorded_us)
    return None if found is None or not found.is_faster else (fastest, found)


def _change(case: Case, us: float | None, recorded_us: float | None = None) -> Change | None:
    """Compare with a launch predicted to take *us*, or by recorded times if both were recorded."""
    if case.recorded.us is not None and recorded_us is not None:
        return Change(recorded_us, case.recorded.us, "recorded")
    own = case.record.prediction
    if own is None or us is None:
        return None
    return Change(us, own.us, "predicted", own.noticeable)


def what_finds_it(case: Case) -> Iterator[str]:
    """Name the command that finds the fastest launch for a matrix, unless the answer has it."""
    tuned = case.alternatives.tuned
    if tuned > 1 and not _tune_hint(case):
        yield (
            f"To find the fastest, {tune_command(case)} compiles {tuned} configurations for"
            " this matrix and ranks them by predicted time."
        )


def by_recorded(case: Case) -> str:
    """Say what to launch, by the launches recorded for the matrix; "" if they do not tell."""
    fastest, instead = case.alternatives.fastest, launch_instead(case)
    if instead is not None:
        return _launch_other(case, *instead)
    if fastest is None:
        return ""
    found = _change(case, fastest.us, fastest.recorded_us)
    if found is not None and not is_recorded_best(case) and (advice(case) or case.best):
        return ""
    return _keep_launch(case, fastest, found)


def is_recorded_best(case: Case) -> bool:
    """Tell whether the launch was recorded and nothing recorded or advised is noticeably faster."""
    if case.alternatives.fastest is None or case.recorded.us is None:
        return False
    return launch_instead(case) is None and not advice(case)


def _keep_launch(case: Case, fastest: Alternative, found: Change | None) -> str:
    launches = f"{case.alternatives.recorded} launches recorded for this matrix"
    if found is not None and found.basis == "recorded":
        return f"Launch it as it is: none of {launches} was noticeably faster."
    took = f"{_launch_words(case, fastest)}: {microseconds(fastest.recorded_us)}"
    if found is None:
        return f"The fastest of {launches} is {took}. This launch was not recorded."
    return (
        f"Launch it as it is: it is not predicted to be noticeably slower than the fastest of"
        f" {launches}, {took}; it was not recorded."
    )


def _launch_other(case: Case, best: Alternative, found: Change) -> str:
    times = f"{microseconds(found.us)} {found.basis} against {microseconds(found.own_us)}"
    times = f"{times} ({change(found.share)})"
    fastest = f"the fastest of {case.alternatives.recorded} launches recorded for this matrix"
    said = f"{times}, {fastest}"
    if found.basis == "predicted":
        said = f"{microseconds(best.recorded_us)} was recorded, {fastest}; {times}"
    return f"Launch {_launch_words(case, best)} instead: {said}. {_explain_alternative(case, best)}"


def _launch_words(case: Case, one: Alternative) -> str:
    kernel, config = one.kernel, one.config
    if config.block_size != case.record.config.block_size:
        kernel = f"{kernel}, BLOCK_SIZE {config.block_size}"
    programs = "" if one.num_programs is None else f", {one.num_programs} programs"
    return f"{kernel}, num_warps {config.num_warps}, num_stages {config.num_stages}{programs}"


def _explain_alternative(case: Case, one: Alternative) -> str:
    return explain_command(case, kernel=one.kernel, **dataclasses.asdict(one.config))


def _wider_loads(case: Case) -> Iterator[Advice]:
    padded = case.padded
    if padded is None:
        return
    found = _change(case, predicted_us(padded))
    more = (padded.resources.local_bytes or 0) > (case.record.resources.local_bytes or 0)
    if found is None or not found.is_faster or more:
        return
    if padded.matrix is None:
        yield from _if_aligned(case.record, padded, found)
    else:
        cols = padded.matrix.problem.cols
        yield Advice(
            f"If the matrix can be padded with -inf to {cols} columns (stride and n_cols both:"
            f" the mask counts too), loads get wider ({found}):"
            f" {explain_command(case, cols=cols)}",
            found,
        )


def _if_aligned(record: Record, other: Record, found: Change) -> Iterator[Advice]:
    """Say how much wider loads get, and the launch faster, with *other*'s multiples of 16."""
    loads = record.resources.load_bytes or 0, other.resources.load_bytes or 0
    if loads[1] <= loads[0] or other.prediction is None:
        return
    now = record.arguments
    rounded = [
        f"{literal(name)} at a multiple of {ALIGNMENT} bytes"
        if isinstance(value, Pointer)
        else f"{literal(name)} {value} instead of {now[name]}"
        for name, value in other.arguments.items()
        if value != now[name]
    ]
    words = listed(rounded)
    yield Advice(
        f"If the launch can pass {words}, a thread's loads are up to {loads[1]} B wide instead of"
        f" {loads[0]}, because Triton then knows that {ALIGNMENT} divides each:"
        f" {prediction_words(other.prediction.as_chosen)} predicted instead of"
        f" {microseconds(predicted_us(record))}.",
        found,
        f"{words} (if the launch can pass that)",
    )


def _row_kernel(case: Case) -> Iterator[Advice]:
    rows = case.by_rows
    if rows is None:
        return
    recorded, found = case.recorded.row_programs, case.row_kernel
    us = None if found is None else predicted_us(found)
    longer = _change(case, us, None if recorded is None else recorded.us)
    if longer is None or not longer.is_faster:
        return
    yield Advice(
        f"One program per row needs no loop and no num_programs ({longer}):"
        f" {explain_command(case, kernel=rows, num_stages=1)}",
        longer,
    )


def advice(case: Case) -> tuple[Advice, ...]:
    """Return what is worth trying, the largest gain first."""
    found = [*_wider_loads(case), *(() if case.record.matrix is None else _row_kernel(case))]
    return tuple(sorted(found, key=lambda one: one.change.share))


def first_advice(case: Case) -> Iterator[str]:
    """Say first what helps the launch most, and then what else helps.

    For a matrix, what was recorded comes before what is predicted, and `what_to_try` has the rest.
    """
    from occupancy_lab.sweeping.recorded import rival_sentences

    own = in_one_sentence(case)
    if case.record.matrix is None:
        action = best_action(case)
        said = ["" if action is None else action.sentence, own]
        said += [one.sentence for one in advice(case)]
    else:
        own = f"{own}{_command_of_best(case)}" if own and not is_recorded_best(case) else ""
        own = f"{own[:-1]}: {hint}" if (hint := _tune_hint(case)) else own
        said = [*rival_sentences(case.recorded.faster), by_recorded(case), own]
    yield from (f"**{case.title}**: {one}" for one in dict.fromkeys(said) if one)


def _tune_hint(case: Case) -> str:
    """Name the `tune` command if no neighbour of a matrix's launch is faster; else ""."""
    tuned = case.alternatives.tuned
    if tuned < 2 or case.best is not None or not in_one_sentence(case):  # noqa: PLR2004 - several
        return ""
    return f"{tune_command(case)} ranks all {tuned}."


def _command_of_best(case: Case) -> str:
    best = case.best
    if best is None or best.record is None or best.record.matrix is None:
        return ""
    made = best.record.matrix
    command = explain_command(case, **dataclasses.asdict(made.config))
    return "" if made.options else f" {command}"


def _further_advice(case: Case) -> Sequence[Advice]:
    """Return the advice for a matrix that does not repeat what `launch_instead` recommends."""
    if case.record.matrix is None:
        return ()
    found, instead = advice(case), launch_instead(case)
    if instead is None:
        return found
    command, other = _explain_alternative(case, instead[0]), f"--kernel {instead[0].kernel}"
    own = instead[0].kernel == case.kernel_name
    return [
        one
        for one in found
        if not one.sentence.endswith(command) and (own or other not in one.sentence)
    ]


def what_to_try(cases: Sequence[Case], *more: str) -> Section:
    """Return the section on other settings and other advice, with commands; *more* comes last."""
    sentences = (
        *said_of_each(cases, of_neighbours),
        *said_of_each(cases, lambda case: [one.sentence for one in _further_advice(case)]),
        *more,
    )
    return Section("What to try", neighbour_tables(cases), sentences)


@dataclass(frozen=True, slots=True)
class Action:
    """The best change of a launch among those that were tried, as its explanation words it."""

    change: str
    """The change and its condition: "BLOCK 128 instead of 64 (if its results stay right)".

    "" if no change is noticeably faster."""
    sentence: str
    """The first sentence that `explain` prints of the launch."""
    now_us: float
    """The predicted time of the launch."""
    us: float
    """The predicted time with the change; `now_us` without a change."""
    times: str
    """Both times in words: "61 us (55 to 68) instead of 83 us"; "" without a change."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """The new value of each setting that changes."""
    record: Record | None = field(default=None, compare=False, repr=False)
    """The changed launch; None without a change."""

    @property
    def plain(self) -> str:
        """The sentence without markup, for a cell of a table."""
        return "".join(one.text for one in spans(self.sentence))

    @property
    def share(self) -> float:
        """The share of the launch's time that the change saves."""
        return 1 - self.us / self.now_us if self.now_us else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the words and the times as plain values."""
        names = ("change", "sentence", "now_us", "us", "times")
        return {name: getattr(self, name) for name in names}


def best_action(case: Case) -> Action | None:
    """Return the best change of a launch; None if none was tried or no time is predicted."""
    own, sentence = case.record.prediction, in_one_sentence(case)
    if own is None or not sentence:
        return None
    found: list[tuple[Record, str, str, Mapping[str, Any]]] = []
    best = case.best
    if best is not None and best.record is not None and best.prediction is not None:
        found.append((best.record, change_if(best, case.record), sentence, best.changes))
    if (wider := case.padded) is not None and wider.prediction is not None:
        found += [(wider, one.words, one.sentence, {}) for one in advice(case) if one.words]
    if not found:
        return Action("", sentence, own.us, own.us, "")
    record, change, said, changes = min(found, key=lambda one: predicted_us(one[0]))
    times = microseconds(own.us)
    if record.prediction is not None:
        times = f"{prediction_words(record.prediction.as_chosen)} instead of {times}"
    return Action(change, said, own.us, predicted_us(record), times, changes, record)
