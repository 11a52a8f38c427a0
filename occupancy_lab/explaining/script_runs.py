"""A program that is run dry: its launch lines, compiled and explained in its own process."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.asked import check_assumed
from occupancy_lab.compiled_records import check_trips, compile_runs, with_counts
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.assumptions import given_values, names_value
from occupancy_lab.compiling.environment import find_environment
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.compiling.script import Changed, Script
from occupancy_lab.errors import few_of, refuse, shortened
from occupancy_lab.explaining.commands import OF_SCRIPT
from occupancy_lab.explaining.dry_run import asked_of, stand_in
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.neighbours import first_of
from occupancy_lab.explaining.source import SourceView, SourceViews
from occupancy_lab.inputs import chosen_gpus, option_name
from occupancy_lab.kernel import Variant
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.notation import constant_word
from occupancy_lab.options import KNOBS
from occupancy_lab.record import Record
from occupancy_lab.signature import (
    are_chosen,
    check_knob,
    check_number,
    read_assumed,
    read_settings,
)
from occupancy_lab.text.document import literal
from occupancy_lab.tracing.actions import ALL, NO_EFFORT
from occupancy_lab.tracing.lines import dry_run_of
from occupancy_lab.tracing.several import DryTraces
from occupancy_lab.tracing.times import KernelTime
from occupancy_lab.tracing.traced import MOST_COUNTED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from occupancy_lab.asked import Asked
    from occupancy_lab.assumed import Assumption
    from occupancy_lab.compiling.assumptions import Value
    from occupancy_lab.compiling.compiler import Compilation, Compiler
    from occupancy_lab.compiling.notes import ScriptLaunch
    from occupancy_lab.compiling.script import Ran
    from occupancy_lab.compiling.texts import Texts
    from occupancy_lab.explaining.case import Case
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import AskedGpus
    from occupancy_lab.launch import Launch
    from occupancy_lab.record import Failed
    from occupancy_lab.signature import Words
    from occupancy_lab.values import Failure, Resources


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """A launch line of a program on one GPU, with the arguments that it passes."""

    first: ScriptLaunch
    """The first launch of the line."""
    run: Explanation
    """The dry run of its launches: all configurations of an autotuner."""
    gpu: Gpu

    @property
    def record(self) -> Record | None:
        """The best of the line's configurations; None if none compiles and fits."""
        records = self.run.records
        return first_of(records) if records else None

    @property
    def time(self) -> KernelTime | None:
        """The predicted time of all launches of the line; None if there is none."""
        return KernelTime.predicted(self.record, self.first.times)

    @property
    def why_not(self) -> str | None:
        """Why none of its configurations compiles and fits; None if one does."""
        return None if self.run.records else self.run.failures[0].failure.reason

    @property
    def is_tried(self) -> bool:
        """Whether the launches near it have been compiled."""
        return ("cases" if self.run.is_one_launch else "chosen") in vars(self.run)

    def tried(self) -> Case | None:
        """Return its best configuration with the launches near it, which are compiled now."""
        return next(iter(self.run.cases or self.run.chosen), None)


def script_lines(
    script: Script,
    chosen: Mapping[str, tuple[Any, ...]] = MappingProxyType({}),
    assume: Mapping[str, Assumption] = MappingProxyType({}),
    *,
    warm: bool = False,
) -> list[ScriptLine]:
    """Return the launch lines that *script* ran, compiled and counted, within the program.

    Of the *chosen* values by name, those that an autotuner sets choose among its configurations,
    and the others replace what a launch passes: each of several values is a launch. The script must
    be open while neighbours are compiled, which its process does. *assume* is as `explain_asked`
    takes it, *warm* as `explain_launch` does.

    Raises InputError if an autotuner has no configuration with the chosen values, if a launch
    cannot be made with them, or if *assume* has a number that a launch passes.
    """
    firsts: list[ScriptLaunch] = []
    asked: list[list[Asked]] = []
    for every in calls_of(script.launches):
        launches, replaced = chosen_launches(every, chosen, script.gpu)
        first = next(iter(launches.values()))
        set_here = {name: values[0] for name, values in replaced.items()}
        firsts.append(dataclasses.replace(first, tuned={**first.tuned, **set_here}))
        asked.append(_asked_of(script, launches, replaced, warm=warm))
    each = [*itertools.chain.from_iterable(asked)]
    check_assumed(each, assume)
    compiler = compiler_of(script)
    times = [one.times for one, own in zip(firsts, asked, strict=True) for _ in own]
    runs = iter(_counted(compile_runs(each, compiler), each, times, compiler, assume))
    found = []
    for first, own in zip(firsts, asked, strict=True):
        of_line = tuple(itertools.islice(runs, len(own)))
        run = Explanation(of_line, tuple(own), compiler, assume=assume)
        found.append(ScriptLine(first, run, script.gpu))
    return found


def _asked_of(
    script: Script,
    launches: Mapping[int, ScriptLaunch],
    replaced: Mapping[str, tuple[Any, ...]],
    *,
    warm: bool,
) -> list[Asked]:
    """Return *launches*, by their index in *script*, with each combination of *replaced* values."""
    check_number(len(launches) * math.prod(map(len, replaced.values())))
    function = stand_in(next(iter(launches.values())).bound, launches)
    found = [
        variant_with(script, index, one, function, dict(zip(replaced, values, strict=True)))
        for index, one in launches.items()
        for values in itertools.product(*replaced.values())
    ]
    return asked_of(found, [script.gpu], warm=warm, in_program=True)


def _counted(
    runs: Sequence[Record | Failed],
    asked: Sequence[Asked],
    times: Sequence[int],
    compiler: Compiler,
    assume: Mapping[str, Assumption],
) -> list[Record | Failed]:
    """Return *runs*, made so many *times*, with counts: those of a binary MOST_COUNTED times.

    Its further launches get the counts of another one over the same grid.
    """
    alike: dict[Any, list[int]] = {}
    for place, run in enumerate(runs):
        if isinstance(run, Record):
            of_binary = run.kernel, repr(run.settings), run.resources
            alike.setdefault(of_binary, []).append(place)
    counted_as: dict[int, int] = {}
    programs = [
        number * (one.launch.num_programs or 0) for number, one in zip(times, asked, strict=True)
    ]
    for places in alike.values():
        places.sort(key=programs.__getitem__, reverse=True)
        of_grid: dict[Any, int] = {}
        for number, place in enumerate(places):
            grid = asked[place].launch.grid
            if number < MOST_COUNTED:
                counted_as[place] = place
                of_grid.setdefault(grid, place)
            elif grid in of_grid:
                counted_as[place] = of_grid[grid]
    own = [place for place, other in counted_as.items() if place == other]
    made = with_counts([runs[one] for one in own], [asked[one] for one in own], compiler, assume)
    counted: dict[int, Any] = dict(zip(own, made, strict=True))
    found = [*runs]
    for place, other in counted_as.items():
        run = runs[place]
        found[place] = dataclasses.replace(
            counted[other], launch=run.launch, arguments=run.arguments
        )
    return found


def calls_of(launches: Iterable[ScriptLaunch]) -> Iterator[dict[int, ScriptLaunch]]:
    """Return the launches of each call, all configurations of an autotuner, by their index."""
    for _, pairs in itertools.groupby(enumerate(launches), key=lambda pair: pair[1].call):
        yield dict(pairs)


def chosen_launches(
    launches: Mapping[int, ScriptLaunch], chosen: Mapping[str, tuple[Any, ...]], gpu: Gpu
) -> tuple[dict[int, ScriptLaunch], dict[str, tuple[Any, ...]]]:
    """Return those *launches* of a call that have the *chosen* values, and the values to replace.

    Of the *chosen* values by name, those that an autotuner sets choose among its configurations,
    and the others replace what the launches pass, if they pass something of that name. Raises
    InputError if an autotuner has no configuration with the chosen values.
    """
    tuned = [one.tuned for one in launches.values()]
    own = {name: values for name, values in chosen.items() if any(name in one for one in tuned)}
    kept = dict(itertools.compress(launches.items(), are_chosen(tuned, own)))
    bound = next(iter(kept.values())).bound
    replaced = {
        name: values
        for name, values in chosen.items()
        if name not in own and takes(bound, gpu, name)
    }
    return kept, replaced


def takes(bound: BoundLaunch, gpu: Gpu, name: str) -> bool:
    """Tell whether *name* is a constexpr of a launched kernel, or a compiler option for *gpu*."""
    if name in bound.arguments:
        return name in bound.constexprs
    return name in KNOBS or name in default_options(gpu.target)


def variant_with(
    script: Script, index: int, one: ScriptLaunch, function: Any, values: Mapping[str, Any]
) -> Variant:
    """Return launch *index* with other *values* of constexprs, and so another grid, and options."""
    launch = one.bound.launch

    def relaunch(changes: Mapping[str, Any]) -> Launch:
        return script.relaunched(index, {**values, **changes})

    if values.keys() & {*one.bound.constexprs}:
        launch = relaunch({})
    elif values:
        launch = dataclasses.replace(launch, keywords={**launch.keywords, **values}, chosen_by="")
    return Variant(function, launch, one.tuned, relaunch)


class _ScriptCompiler:
    """A Compiler that compiles launches of a script's kernels in the script's process."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.environment = script.environment
        self.store = script.store

    def close(self) -> None:
        """Do nothing: the script ends its process."""

    def compile(self, wanted: Sequence[Compilation]) -> list[Resources | Failure]:
        return self._script.outcomes([*map(_changed, wanted)])

    def texts(self, wanted: Sequence[Compilation]) -> list[Texts | None]:
        return self._script.texts([*map(_changed, wanted)])

    def resources(self, wanted: Compilation) -> Resources:
        """Return the resources of a launch of the script, or of one with changed arguments."""
        changed = _changed(wanted)
        return self._script.resources(changed.index, changed.changes)


def _changed(wanted: Compilation) -> Changed:
    """Return the script's launch that is nearest to the *wanted* one, with the differences."""
    launches: Mapping[int, ScriptLaunch] = wanted.function.launches
    launch = wanted.launch

    def changes(index: int) -> dict[str, Any]:
        bound = launches[index].bound
        passed = zip(bound.arguments, bound.launch.arguments, launch.arguments, strict=False)
        before, after = bound.launch.keywords, launch.keywords
        return {
            **{name: new for name, old, new in passed if new is not old and new != old},
            **{
                name: new
                for name, new in after.items()
                if (old := before.get(name, changes)) is not new and old != new
            },
            **{name: None for name in before if name not in after},
        }

    nearest = min(launches, key=lambda index: len(changes(index)))
    return Changed(nearest, changes(nearest))


def compiler_of(script: Script) -> Compiler:
    """Return what compiles changes of the launches of *script* in its process.

    The function of each launch is the `stand_in` of the launches that it may be a change of.
    """
    compiler: Any = _ScriptCompiler(script)
    return compiler  # type: ignore[no-any-return] # it has what records need of a Compiler


@dataclass(frozen=True, slots=True, repr=False)
class ScriptExplanation(DryTraces):
    """What the launches of a script compile to on each GPU, with occupancy and predicted times."""

    lines: tuple[ScriptLine, ...] = ()
    """The outcome of each launch line, GPU by GPU."""

    @property
    def name(self) -> str:
        """The script, as file.py:function."""
        return self.command[0]

    @property
    def ran(self) -> tuple[Ran, ...]:
        """How the script ran for each GPU."""
        outcomes = (one.trace.outcome for one in self.traces)
        return tuple(one.ran for one in outcomes if one is not None and one.ran is not None)

    @property
    def runs(self) -> tuple[Explanation, ...]:
        """The explanation of each launch line that compiles."""
        return tuple(line.run for line in self.lines if line.run.records)

    @property
    def source(self) -> SourceViews:
        """The source of each kernel, with what each line does in the first launch on each GPU."""
        of_names: dict[str, list[tuple[Record, Path]]] = {}
        for line in self.lines:
            if line.record is not None:
                place = Path(line.first.place)
                name = f"{literal(line.first.bound.kernel)}, {literal(place.name)}"
                of_names.setdefault(name, []).append((line.record, place.parent))
        views = (
            SourceView(tuple(record for record, _ in found), name, near=found[0][1])
            for name, found in of_names.items()
        )
        return SourceViews(literal(self.name), tuple(views))

    @property
    def has_failed(self) -> bool:
        """Whether launches are missing, or none compiles."""
        return not self.runs or any(one.missing or one.failure is not None for one in self.ran)

    def to_dict(self) -> dict[str, Any]:
        """Return what a dry run has, and each launch line with its rows and words."""

        def each(field: str) -> list[Any]:
            return [*dict.fromkeys(found for one in self.ran for found in getattr(one, field))]

        def page(run: Explanation) -> Any:
            return run.to_document().to_dict() if run.records else None

        return {
            **super(ScriptExplanation, self).to_dict(),
            "script": self.name,
            "stopped": [*dict.fromkeys(filter(None, (one.failure for one in self.ran)))],
            "faults": each("faults"),
            "missing": each("missing"),
            "assumed": [dataclasses.asdict(one) for one in each("assumed")],
            "lines": [
                {
                    "kernel": line.first.bound.kernel,
                    "place": line.first.place,
                    "gpu": line.gpu.key,
                    "launches": line.first.times,
                    "rows": [one.to_dict() for one in line.run.ranked],
                    "reason": line.why_not,
                    "changes": line.run.tried if line.run.records else [],
                    "document": page(line.run),
                }
                for line in self.lines
            ],
        }


def check_described(script: str, names: Collection[str], function: Callable[..., Any]) -> None:
    """Raise InputError if *names* has an argument of a launch that *function* does not take."""
    unused = sorted({*names} - {*inspect.signature(function).parameters})
    if unused:
        refuse(f"{option_name(unused[0])} has no use for {script}, which makes its launches itself")


def read_values(
    script: str,
    launches: Sequence[ScriptLaunch],
    gpus: Sequence[Gpu],
    *,
    constexprs: Words,
    options: Words,
    **knobs: Any,
) -> dict[str, tuple[Any, ...]]:
    """Return the values of constexprs and options by name that *launches* of *script* are to have.

    Raises InputError if none of them has one of the names on any of *gpus*, or a value is invalid.
    """
    check = functools.partial(_check_setting, script, launches, gpus)
    chosen = read_settings(check, constexprs, options, knobs)
    for knob in KNOBS:
        check_knob(knob, chosen.get(knob, ()))
    return chosen


def assumed_words(assume: Words) -> list[str]:
    """Return *assume* as a command line has it."""
    if isinstance(assume, Mapping):
        return [f"{name}={value}" for name, value in assume.items()]
    return [assume] if isinstance(assume, str) else [*assume]


def read_both(assume: Sequence[str]) -> tuple[dict[str, Value], list[str]]:
    """Return what *assume* has for values that a script reads, and the words for its kernels."""
    words = [word for word in assume if not names_value(word)]
    return given_values(filter(names_value, assume)), words


def _as_typed(
    run: Explanation,
    script: str,
    launches: Sequence[ScriptLaunch],
    chosen: Mapping[str, tuple[Any, ...]],
    assume: Sequence[str],
) -> Explanation:
    """Return *run* with a description of each launch, from which `tune` finds it in *script*.

    There is none of a kernel that is launched with an autotuner, or with several dtypes.
    """
    own = [one for one in launches if one.bound.kernel == run.runs[0].kernel]
    if any(one.tuned or one.bound.dtypes != own[0].bound.dtypes for one in own):
        return run
    others = len({one.bound.kernel for one in launches}) > 1

    def typed(one: Asked) -> dict[str, Any]:
        bound = BoundLaunch.of(one.function, one.launch)
        passed = {**bound.arguments, **bound.options}
        given = {name: passed[name] for name in chosen if name in passed}
        words = {name: constant_word(given[name]) for name in given.keys() - {*KNOBS}}
        constexprs = {name: word for name, word in words.items() if name in bound.constexprs}
        return {
            "kernel": script,
            OF_SCRIPT: bound.kernel if others else None,
            "constexprs": constexprs,
            "options": {name: words[name] for name in words.keys() - constexprs.keys()},
            **{name: given[name] for name in KNOBS if name in given},
            "assume": assume,
        }

    asked = (dataclasses.replace(one, typed=typed(one)) for one in run.asked)
    return dataclasses.replace(run, asked=tuple(asked))


def read_assumed_of(launches: Iterable[ScriptLaunch], words: Words) -> dict[str, Assumption]:
    """Return the assumed values of the parameters of the kernels of *launches*."""
    names = dict.fromkeys(name for one in launches for name in one.bound.arguments)
    return read_assumed(words, names)


def _check_setting(
    script: str, launches: Sequence[ScriptLaunch], gpus: Sequence[Gpu], option: str, name: str
) -> None:
    """Raise InputError if *option* sets what none of the *launches* of *script* has on any GPU."""
    if any(name in one.tuned for one in launches):
        return
    constexprs = dict.fromkeys(known for one in launches for known in one.bound.constexprs)
    if option == "--constexpr" and name not in constexprs:
        there = few_of([*constexprs]) if constexprs else "none"
        refuse(
            f"no kernel that {script} launches has the constexpr {shortened(name)}; what they have"
            f" is {there}"
        )
    if option == "--option" and name in constexprs:
        refuse(f"{shortened(name)} is a constexpr of a kernel of {script}; give it by --constexpr")
    if not any(takes(one.bound, gpu, name) for one in launches for gpu in gpus):
        refuse(f"{option} {shortened(name)} is no option of Triton's compiler for these GPUs")


def explain_script(  # noqa: PLR0913 - one argument per option of the command line
    name: str,
    *,
    gpu: AskedGpus | None = None,
    triton: str | None = None,
    cache: bool = True,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    retry_failed: bool = False,
    progress: Callable[[str], None] = lambda _sentence: None,
    constexprs: Words = (),
    num_warps: Any = None,
    num_stages: Any = None,
    options: Words = (),
    assume: Words = (),
    warm: bool = False,
    compared: bool = True,
) -> ScriptExplanation:
    """Run `file.py:function` without a GPU and explain each launch that it makes.

    Nothing is launched: tensors on "cuda" have a shape, a dtype and strides, but only small ones
    have values. *triton* is as `explain_matrix` takes it; that Python runs the function.
    *constexprs*, *num_warps*, *num_stages* and *options* are as `explain_launch` takes them: they
    choose among the configurations of an autotuner that sets them, and replace what other launches
    pass. *assume* is as `explain_launch` takes it for the parameters of any launched kernel, and as
    `dry_trace` takes it for values that the script reads. *warm* is as `explain_launch` takes it.
    *compile_timeout* limits the seconds of the function and of each compile, and *retry_failed*
    compiles again what the store has as a failed compile. Unless *compared*, what the launches are
    compared with is compiled only when it is asked for, which runs the function again.

    Raises InputError, with the line of the script, for what cannot be done without a GPU, if the
    function launches nothing, and for values that no launch takes.
    """
    directory = store_directory() if cache else None
    given = assumed_words(assume)
    values, words = read_both(given)
    settings: dict[str, Any] = {"constexprs": constexprs, "options": options}
    settings |= {"num_warps": num_warps, "num_stages": num_stages}
    how: dict[str, Any] = {"compile_timeout": compile_timeout, "progress": progress}
    how |= {"timeout": compile_timeout, "assume": values, "environment": find_environment(triton)}
    how |= {"retry_failed": retry_failed}
    gpus = [one for one, _ in chosen_gpus(gpu)]
    lines, traces = [], []
    for one in gpus:
        with Script(name, one, directory, **how) as script:
            chosen = read_values(name, script.launches, gpus, **settings)
            assumed = read_assumed_of(script.launches, words)
            own = [
                dataclasses.replace(
                    line, run=_as_typed(line.run, name, script.launches, chosen, given)
                )
                for line in script_lines(script, chosen, assumed, warm=warm)
            ]
            if compared:
                for line in own:
                    line.tried()  # compiles what it compares with while the script is open
            effort = ALL if compared else NO_EFFORT
            traces.append(dry_run_of(script, own, (name,), effort))
            lines += own
    check_trips(assumed, [run for line in lines for run in line.run.runs])
    return ScriptExplanation((name,), tuple(traces), lines=tuple(lines))
