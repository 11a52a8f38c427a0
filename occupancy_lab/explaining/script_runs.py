"""The dry runs of a script's launch lines, compiled in the script's process."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiled_records import check_trips
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.assumptions import given_values, names_value
from occupancy_lab.compiling.environment import find_environment
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.compiling.script import NOT_LAUNCHED, Changed, Script
from occupancy_lab.errors import CompileError, DoesNotFitError, few_of, refuse, shortened
from occupancy_lab.explaining.commands import OF_SCRIPT
from occupancy_lab.explaining.dry_run import asked_of
from occupancy_lab.explaining.explanation import Explanation, explain_asked
from occupancy_lab.explaining.overview import Overview, ScriptLine
from occupancy_lab.explaining.source import SourceView, SourceViews
from occupancy_lab.inputs import chosen_gpus, option_name
from occupancy_lab.kernel import Variant
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.notation import constant_word
from occupancy_lab.options import KNOBS
from occupancy_lab.signature import (
    are_chosen,
    check_knob,
    check_number,
    read_assumed,
    read_settings,
)
from occupancy_lab.text.document import Answer, Document, Section, literal
from occupancy_lab.text.words import count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from occupancy_lab.asked import Asked
    from occupancy_lab.assumed import Assumption
    from occupancy_lab.compiling.assumptions import Value
    from occupancy_lab.compiling.compiler import Compilation, Compiler
    from occupancy_lab.compiling.notes import ScriptLaunch
    from occupancy_lab.compiling.script import Ran
    from occupancy_lab.compiling.texts import Texts
    from occupancy_lab.explaining.overview import LaunchError
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import AskedGpus
    from occupancy_lab.launch import Launch
    from occupancy_lab.record import Record
    from occupancy_lab.signature import Words
    from occupancy_lab.values import Failure, Resources


def script_runs(
    script: Script,
    chosen: Mapping[str, tuple[Any, ...]] = MappingProxyType({}),
    assume: Mapping[str, Assumption] = MappingProxyType({}),
    *,
    warm: bool = False,
) -> Iterator[tuple[ScriptLaunch, Explanation | LaunchError]]:
    """Return the first launch of each launch line that *script* ran, and the line's dry run.

    If nothing of a line compiles and fits, the error of its first launch stands for the dry run. Of
    the *chosen* values by name, those that an autotuner sets choose among its configurations, and
    the others replace what a launch passes: each of several values is a launch. The script must be
    open while an explanation is made, because its process compiles the neighbours. *assume* is as
    `explain_asked` takes it, *warm* as `explain_launch` does.

    Raises InputError if an autotuner has no configuration with the chosen values, or if a launch
    cannot be made with them.
    """
    for every in calls_of(script.launches):
        launches, replaced = chosen_launches(every, chosen, script.gpu)
        first = next(iter(launches.values()))
        set_here = {name: values[0] for name, values in replaced.items()}
        first = dataclasses.replace(first, tuned={**first.tuned, **set_here})
        try:
            yield first, explain_launches(script, launches, assume, replaced, warm=warm)
        except (CompileError, DoesNotFitError) as error:
            yield first, error


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


def explain_launches(  # noqa: PLR0913 - a Script, and the fields of a Launch
    script: Script,
    launches: Mapping[int, ScriptLaunch],
    assume: Mapping[str, Assumption] = MappingProxyType({}),
    replaced: Mapping[str, tuple[Any, ...]] = MappingProxyType({}),
    *,
    warm: bool = False,
    in_program: bool = False,
) -> Explanation:
    """Return the dry run of *launches* of one kernel of *script*, given by their index there.

    Each is made with each combination of the *replaced* values of constexprs and options. *warm*
    and *in_program* are as in `Launch`.

    Raises InputError if the script cannot make one of them, and the CompileError or DoesNotFitError
    of the first if all fail.
    """
    function = stand_in(next(iter(launches.values())).bound)
    check_number(len(launches) * math.prod(map(len, replaced.values())))
    found = [
        variant_with(script, index, one, function, dict(zip(replaced, values, strict=True)))
        for index, one in launches.items()
        for values in itertools.product(*replaced.values())
    ]
    compiler = compiler_of(script, launches)
    asked = asked_of(found, [script.gpu], warm=warm, in_program=in_program)
    return explain_asked(asked, compiler, assume)


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


def stand_in(bound: BoundLaunch) -> Any:
    """Return an object with the name and the parameters of a kernel, as a JITFunction has them."""
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    arguments = bound.arguments
    usual = ("annotation_type", "do_not_specialize", "do_not_specialize_on_alignment")
    return SimpleNamespace(
        __name__=bound.kernel,
        tiles=bound.tiles,
        params=[
            SimpleNamespace(
                name=name, is_constexpr=name in bound.constexprs, **dict.fromkeys(usual)
            )
            for name in arguments
        ],
        signature=inspect.Signature(
            [inspect.Parameter(name, either, default=value) for name, value in arguments.items()]
        ),
    )


class _ScriptCompiler:
    """A Compiler that compiles launches of a script's kernel in the script's process."""

    def __init__(self, script: Script, launches: Mapping[int, ScriptLaunch]) -> None:
        self._script = script
        self._launches = launches
        self.environment = script.environment
        self.store = script.store

    def close(self) -> None:
        """Do nothing: the script ends its process."""

    def compile(self, wanted: Sequence[Compilation]) -> list[Resources | Failure]:
        return self._script.outcomes([self._changed(one.launch) for one in wanted])

    def texts(self, wanted: Sequence[Compilation]) -> list[Texts | None]:
        return self._script.texts([self._changed(one.launch) for one in wanted])

    def resources(self, wanted: Compilation) -> Resources:
        """Return the resources of a launch of the script, or of one with changed arguments."""
        changed = self._changed(wanted.launch)
        return self._script.resources(changed.index, changed.changes)

    def _changed(self, launch: Launch) -> Changed:
        """Return the script's launch that is nearest to *launch*, with the differences."""

        def changes(index: int) -> dict[str, Any]:
            bound = self._launches[index].bound
            passed = zip(bound.arguments, bound.launch.arguments, launch.arguments, strict=False)
            before, after = bound.launch.keywords, launch.keywords
            return {
                **{name: new for name, old, new in passed if new != old},
                **{name: after[name] for name in after if after[name] != before.get(name, changes)},
                **{name: None for name in before if name not in after},
            }

        nearest = min(self._launches, key=lambda index: len(changes(index)))
        return Changed(nearest, changes(nearest))


def compiler_of(script: Script, launches: Mapping[int, ScriptLaunch]) -> Compiler:
    """Return what compiles changes of *launches*, given by their index, in the script's process."""
    compiler: Any = _ScriptCompiler(script, launches)
    return compiler  # type: ignore[no-any-return] # it has what records need of a Compiler


FEW_LINES = 2
"""How many launch lines are explained below the table of all lines without `--full`."""


@dataclass(frozen=True, slots=True, repr=False)
class ScriptExplanation(Answer):
    """What the launches of a script compile to on each GPU, with occupancy and predicted times."""

    name: str
    """The script, as file.py:function."""
    lines: tuple[ScriptLine, ...]
    """The outcome of each launch line, GPU by GPU."""
    ran: tuple[Ran, ...]
    """How the script ran for each GPU."""

    @property
    def runs(self) -> tuple[Explanation, ...]:
        """The explanation of each launch line that compiles."""
        return tuple(line.run for line in self.lines if isinstance(line.run, Explanation))

    @property
    def source(self) -> SourceViews:
        """The source of each kernel, with what each line does in the first launch on each GPU."""
        of_names: dict[str, list[tuple[Record, Path]]] = {}
        for line in self.lines:
            if line.record is not None:
                folder = Path(line.first.place).parent
                of_names.setdefault(line.name, []).append((line.record, folder))
        views = (
            SourceView(tuple(record for record, _ in found), name, near=found[0][1])
            for name, found in of_names.items()
        )
        return SourceViews(literal(self.name), tuple(views))

    @property
    def has_failed(self) -> bool:
        """Whether launches are missing, or none compiles."""
        return not self.runs or any(one.missing or one.failure is not None for one in self.ran)

    def to_document(self, *, full: bool = False) -> Document:
        """Return the overview of all launches, with each explanation if few or with *full*."""
        overview = Overview(self.lines)
        sentences = [*overview.sentences()]
        sentences += sentences_of(self.ran)
        sections = [Section("", tuple(overview.tables()), tuple(sentences))]
        if full or len(self.runs) <= FEW_LINES:
            for number, line in zip(overview.numbers, self.lines, strict=True):
                if isinstance(line.run, Explanation):
                    page = line.run.to_document(full=full)
                    title = f"{number} {page.title}" if max(overview.numbers) > 1 else page.title
                    sections += [Section(title, (), page.answer), *page.sections]
        else:
            basis = (*overview.basis(), "`--full` explains each.")
            sections.append(Section("", (), basis))
        return Document(
            f"{literal(self.name)}: {count(len(overview.names), 'launch line')}",
            (*overview.answer(), NOT_LAUNCHED),
            tuple(sections),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return each launch line with its rows and words as plain values."""

        def outcome(run: Explanation | LaunchError) -> dict[str, Any]:
            if isinstance(run, Explanation):
                rows = [one.to_dict() for one in run.ranked]
                page = run.to_document().to_dict()
                return {"rows": rows, "reason": None, "changes": run.tried, "document": page}
            return {"rows": [], "reason": str(run), "changes": [], "document": None}

        return {
            "script": self.name,
            "stopped": [*dict.fromkeys(filter(None, (one.failure for one in self.ran)))],
            "faults": self._each("faults"),
            "missing": self._each("missing"),
            "assumed": [dataclasses.asdict(one) for one in self._each("assumed")],
            "lines": [
                {
                    "kernel": line.first.bound.kernel,
                    "place": line.first.place,
                    "gpu": line.gpu.key,
                    "launches": line.first.times,
                    **outcome(line.run),
                }
                for line in self.lines
            ],
        }

    def _each(self, field: str) -> list[Any]:
        return [*dict.fromkeys(found for one in self.ran for found in getattr(one, field))]


def sentences_of(ran: Sequence[Ran]) -> list[str]:
    """Return why launches of a script may be missing, and what was assumed while it *ran*."""
    missing = (sentence for one in ran for sentence in one.why_launches_are_missing("script"))
    assumed = (f"Assumed: {literal(str(value))}." for one in ran for value in one.assumed)
    unused = (sentence for one in ran for sentence in one.unused_assumptions())
    return [*dict.fromkeys((*missing, *assumed, *unused))]


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
    lines, ran, environment = [], [], find_environment(triton)
    settings: dict[str, Any] = {"constexprs": constexprs, "options": options}
    settings |= {"num_warps": num_warps, "num_stages": num_stages}
    gpus = [one for one, _ in chosen_gpus(gpu)]
    for one in gpus:
        how: dict[str, Any] = {"compile_timeout": compile_timeout, "progress": progress}
        how |= {"timeout": compile_timeout, "assume": values, "environment": environment}
        how |= {"retry_failed": retry_failed}
        with Script(name, one, directory, **how) as script:
            ran.append(script.ran)
            chosen = read_values(name, script.launches, gpus, **settings)
            assumed = read_assumed_of(script.launches, words)
            for first, found in script_runs(script, chosen, assumed, warm=warm):
                run = found
                if isinstance(found, Explanation):
                    run = _as_typed(found, name, script.launches, chosen, given)
                    if compared:
                        run.to_document()  # compiles what it compares with while it is open
                lines.append(ScriptLine(first, run, one))
    runs = [one.run for one in lines]
    check_trips(assumed, [run for one in runs if isinstance(one, Explanation) for run in one.runs])
    return ScriptExplanation(name, tuple(lines), tuple(ran))
