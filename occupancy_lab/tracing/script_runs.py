"""`explain FILE.py:main`: a program that is run dry, and an explanation of its launch lines."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from occupancy_lab.asked import Asked
from occupancy_lab.compiled_records import check_trips
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.environment import find_environment
from occupancy_lab.compiling.notes import ScriptLaunch
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.compiling.script import Ran, Run, Script
from occupancy_lab.errors import refuse
from occupancy_lab.explaining.commands import OF_SCRIPT
from occupancy_lab.explaining.explanation import Explanation
from occupancy_lab.explaining.measured import checked_gpu, measured
from occupancy_lab.explaining.script_lines import (
    ScriptLine,
    assumed_words,
    read_assumed_of,
    read_both,
    read_values,
    script_lines,
)
from occupancy_lab.explaining.source import SourceView, SourceViews
from occupancy_lab.inputs import AskedGpus, chosen_gpus, option_name
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.notation import constant_word
from occupancy_lab.options import KNOBS
from occupancy_lab.record import Record
from occupancy_lab.signature import Words
from occupancy_lab.text.document import literal
from occupancy_lab.tracing.actions import ALL, NO_EFFORT
from occupancy_lab.tracing.dry import DryTraces, dry_run_of


@dataclass(frozen=True, slots=True, repr=False)
class ScriptExplanation(DryTraces):
    """What the launches of a script compile to on each GPU, with occupancy and predicted times."""

    @property
    def name(self) -> str:
        """The script, as file.py:function."""
        return self.command[0]

    @property
    def ran(self) -> tuple[Ran, ...]:
        """How the script ran for each GPU."""
        return tuple(one.ran for one in self.traces)

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


def _measured(lines: Sequence[ScriptLine], script: Script, name: str) -> list[ScriptLine]:
    made = [one.bound for one in script.launches]
    runs = measured([line.run for line in lines], name, script.gpu, made)
    return [dataclasses.replace(line, run=run) for line, run in zip(lines, runs, strict=True)]


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
    measure: bool = False,
    compared: bool = True,
) -> ScriptExplanation:
    """Run `file.py:function` without a GPU and explain each launch that it makes.

    Nothing is launched: tensors on "cuda" have a shape, a dtype and strides, but only small ones
    have values. *triton* is as `explain_matrix` takes it; that Python runs the function.
    *constexprs*, *num_warps*, *num_stages* and *options* are as `explain_launch` takes them: they
    choose among the configurations of an autotuner that sets them, and replace what other launches
    pass. *assume* is as `explain_launch` takes it for the parameters of any launched kernel, and as
    `dry_trace` takes it for values that the script reads. *warm* and *measure* are as
    `explain_launch` takes them; to measure, the function is also run on the GPU here.
    *compile_timeout* limits the seconds of the function and of each compile, and *retry_failed*
    compiles again what the store has as a failed compile. Unless *compared*, what the launches are
    compared with is compiled only when it is asked for, which runs the function again.

    Raises InputError, with the line of the script, for what cannot be done without a GPU, if the
    function launches nothing, and for values that no launch takes.
    """
    given = assumed_words(assume)
    values, words = read_both(given)
    settings: dict[str, Any] = {"constexprs": constexprs, "options": options}
    settings |= {"num_warps": num_warps, "num_stages": num_stages}
    how: dict[str, Any] = {"store": str(store_directory()) if cache else None, "assume": values}
    how |= {"seconds": compile_timeout, "compile_seconds": compile_timeout}
    how |= {"retry_failed": retry_failed}
    environment = find_environment(triton)
    gpus = [one for one, _ in chosen_gpus(gpu)]
    here = None
    if measure:
        here = checked_gpu(gpus, name, warm=warm, other_triton=not environment.is_running)
    traces = []
    for one in gpus:
        with Script(Run(name, one, **how), environment=environment, progress=progress) as script:
            chosen = read_values(name, script.launches, gpus, **settings)
            assumed = read_assumed_of(script.launches, words)
            own = [
                dataclasses.replace(
                    line, run=_as_typed(line.run, name, script.launches, chosen, given)
                )
                for line in script_lines(script, chosen, assumed, warm=warm, in_program=not measure)
            ]
            if compared:
                for line in own:
                    line.tried()  # compiles what it compares with while the script is open
            if here is not None and one.key == here.key:
                progress(f"running {name} on the GPU and timing its launches ...")
                own = _measured(own, script, name)
                progress("")
            effort = ALL if compared else NO_EFFORT
            traces.append(dry_run_of(script, own, (name,), effort))
    found = ScriptExplanation((name,), tuple(traces))
    check_trips(assumed, [run for line in found.lines for run in line.run.runs])
    return found
