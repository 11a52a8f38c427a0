"""The launch lines of a program that was run dry, compiled and counted in its own process.

And what the user sets and assumes for them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from occupancy_lab.asked import Asked, check_assumed
from occupancy_lab.assumed import Assumption
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling.assumptions import Value, given_values, names_value
from occupancy_lab.compiling.compiler import Compilation, Compiler
from occupancy_lab.compiling.notes import ScriptLaunch
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.script import Changed, Ran, Script
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.errors import few_of, refuse, shortened
from occupancy_lab.explaining.case import Case
from occupancy_lab.explaining.dry_run import asked_of, stand_in
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.kernel_time import KernelTime
from occupancy_lab.explaining.neighbours import first_of
from occupancy_lab.gpus import Gpu
from occupancy_lab.kernel import Variant
from occupancy_lab.launch import BoundLaunch, Launch
from occupancy_lab.options import KNOBS
from occupancy_lab.record import Failed, Record
from occupancy_lab.signature import (
    Words,
    are_chosen,
    check_knob,
    check_number,
    read_assumed,
    read_settings,
)
from occupancy_lab.text.document import literal
from occupancy_lab.values import Failure, Resources

MOST_ASSUMED = 10
"""How many assumptions are shown."""
MOST_COUNTED = 16
"""For how many grids of a kernel the work of launches is counted."""


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
    def us(self) -> float:
        """The predicted time of all its launches; 0 if there is none."""
        return 0.0 if self.time is None else self.time.us

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
    in_program: bool = True,
) -> list[ScriptLine]:
    """Return the launch lines that *script* ran, compiled and counted.

    Of the *chosen* values by name, those that an autotuner sets choose among its configurations,
    and the others replace what a launch passes: each of several values is a launch. The script must
    be open while neighbours are compiled, which its process does. *assume* is as `explain_asked`
    takes it, *warm* as `explain_launch` does; *in_program* is as in `Launch`.

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
        how: dict[str, Any] = {"warm": warm, "in_program": in_program}
        asked.append(_asked_of(script, launches, replaced, how))
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
    how: Mapping[str, Any],
) -> list[Asked]:
    """Return *launches*, by their index in *script*, with each combination of *replaced* values."""
    check_number(len(launches) * math.prod(map(len, replaced.values())))
    function = stand_in(next(iter(launches.values())).bound, launches)
    found = [
        variant_with(script, index, one, function, dict(zip(replaced, values, strict=True)))
        for index, one in launches.items()
        for values in itertools.product(*replaced.values())
    ]
    return asked_of(found, [script.gpu], **how)


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
    programs = [
        number * (one.launch.num_programs or 0) for number, one in zip(times, asked, strict=True)
    ]
    counted_as: dict[int, int] = {}
    number_of: Counter[Any] = Counter()
    of_grid: dict[Any, int] = {}
    for place in sorted(range(len(runs)), key=programs.__getitem__, reverse=True):
        run = runs[place]
        if isinstance(run, Record):
            binary = run.kernel, repr(run.settings), run.resources
            grid = binary, asked[place].launch.grid
            if number_of[binary] < MOST_COUNTED:
                counted_as[place] = place
                of_grid.setdefault(grid, place)
            elif grid in of_grid:
                counted_as[place] = of_grid[grid]
            number_of[binary] += 1
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
    return cast("Compiler", _ScriptCompiler(script))  # it has what records need of one


def missing(ran: Ran | None) -> Iterator[str]:
    """Say what a dry run may lack, and what was assumed in it."""
    if ran is None:
        return
    yield from ran.why_launches_are_missing()
    yield from (f"Assumed: {literal(str(one))}." for one in ran.assumed[:MOST_ASSUMED])
    if len(ran.assumed) > MOST_ASSUMED:
        yield f"{len(ran.assumed) - MOST_ASSUMED} more values were assumed; --json has all."
    yield from ran.unused_assumptions()


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
