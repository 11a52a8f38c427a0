"""`tune FILE.py:main`: the configurations of a kernel that a program launches, at each size there.

The program is run dry for each GPU. Its launches say what a command line would have to describe:
the arguments, the sizes and the grid. Another configuration is launched by the program's own grid
function and heuristics, in the program's process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.environment import find_environment
from occupancy_lab.compiling.notes import ScriptLaunch
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.compiling.script import Run, Script
from occupancy_lab.errors import few_of, quoted, refuse, shortened
from occupancy_lab.explaining.dry_run import stand_in
from occupancy_lab.explaining.script_lines import (
    assumed_words,
    calls_of,
    chosen_launches,
    compiler_of,
    missing,
    read_assumed_of,
    read_both,
    read_values,
    takes,
    variant_with,
)
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import AskedGpus, Integer, chosen_gpus
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.measuring.process import DEFAULT_RUNS
from occupancy_lab.signature import Words
from occupancy_lab.tuning.by_size import (
    Candidate,
    Settings,
    Timing,
    Tuner,
    as_values,
    timing_on,
)
from occupancy_lab.tuning.choice import TOP
from occupancy_lab.tuning.tuned_file import LeftOut, Size, TunedFile, in_file, text_of

Values = Mapping[str, tuple[Any, ...]]

USUAL = {"num_warps": 4, "num_stages": 3}
"""From where a search starts if neither the launch nor the command line says."""
HOW = "give several values by --constexpr, --num-warps, --num-stages or --option, or give --search"


def tune_script(  # noqa: PLR0913 - one argument per option of the command line
    name: str,
    *,
    kernel: str | None = None,
    search: bool = False,
    gpu: AskedGpus | None = None,
    triton: str | None = None,
    cache: bool = True,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    progress: Callable[[str], None] = lambda _sentence: None,
    constexprs: Words = (),
    num_warps: Any = None,
    num_stages: Any = None,
    options: Words = (),
    assume: Words = (),
    warm: bool = False,
    measure: bool = False,
    top: Integer = TOP,
    runs: Integer = DEFAULT_RUNS,
) -> TunedFile:
    """Return the fastest predicted configuration of a kernel that `file.py:function` launches.

    The function, which can be called without arguments, is run without a GPU, as by
    `explain_script`. Nothing is launched, except with *measure*: then the function also runs on
    this machine's GPU, and the best predicted are timed with its tensors, as by `tune_sizes`.

    Each size that it launches has a choice on each GPU. Sizes are told apart by the whole numbers
    that the launches pass and by their constexprs, where these differ; strides count only where
    nothing else tells launches apart. Of launches of one size the first counts.

    *kernel* is the name of the kernel; it is needed if several can be tuned. *search* is as
    `tune_sizes` takes it. All other arguments are those of `explain_script`; where *constexprs*,
    *num_warps*, *num_stages* or *options* have several values, these are tuned.

    Raises:
        InputError: the function fails or launches nothing that can be tuned, or what `tune_sizes`
            raises it for.
    """
    values, words = read_both(assumed_words(assume))
    how: dict[str, Any] = {"store": str(store_directory()) if cache else None, "assume": values}
    how |= {"seconds": compile_timeout, "compile_seconds": compile_timeout, "untuned": True}
    by: dict[str, Any] = {"environment": find_environment(triton), "progress": progress}
    gpus = [one for one, _ in chosen_gpus(gpu)]
    checked = {"warm": warm, "other_triton": not by["environment"].is_running}
    timing = timing_on(gpus, name, top, runs, **checked) if measure else None
    with contextlib.ExitStack() as stack:
        scripts = [stack.enter_context(Script(Run(name, one, **how), **by)) for one in gpus]
        for script in scripts:
            if script.ran.failure is not None:
                refuse(script.ran.why_it_failed)
        every = [one for script in scripts for one in script.launches]
        settings: dict[str, Any] = {"constexprs": constexprs, "options": options}
        settings |= {"num_warps": num_warps, "num_stages": num_stages}
        chosen = read_values(name, every, gpus, **settings)
        calls = _of_kernel(name, [*_calls(scripts)], kernel, chosen, search=search)
        _check_dtypes(name, calls)
        there = [one for one in gpus if any(call.script.gpu is one for call in calls)]
        if timing is not None:
            timing = dataclasses.replace(timing, made=tuple(one.bound for one in every))
        own: dict[str, Any] = {"assume": read_assumed_of(every, words), "warm": warm}
        tuner = _tuner(there, calls, search=search, timing=timing, **own)
        try:
            found = tuner.tune(search=search)
        finally:
            for script in scripts:
                if script.interrupted is not None:
                    raise script.interrupted
    why = f"{name} does not launch {found.kernel} there"
    without = [LeftOut(one.key, why) for one in gpus if one not in there]
    notes = dict.fromkeys(said for one in scripts for said in missing(one.ran))
    return dataclasses.replace(found, left_out=(*found.left_out, *without), notes=tuple(notes))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a kernel in a script, with all configurations of its autotuner."""

    script: Script
    launches: Mapping[int, ScriptLaunch]
    """The launches by their index in the script."""
    digest: str
    replaced: Values = field(default_factory=dict)
    """The values that replace what the launch line passes."""

    @property
    def first(self) -> ScriptLaunch:
        return next(iter(self.launches.values()))

    @property
    def bound(self) -> BoundLaunch:
        return self.first.bound

    def has(self, name: str) -> bool:
        """Return whether *name* is tuned here, or can replace something of the launch."""
        return name in self.first.tuned or takes(self.bound, self.script.gpu, name)

    @property
    def settings(self) -> set[str]:
        """The names that a configuration sets."""
        several = {name for name, values in self.replaced.items() if len(values) > 1}
        options = self.replaced.keys() - {*self.bound.constexprs}
        return {*self.first.tuned, *several, *options}

    @property
    def passed(self) -> list[str]:
        """The constexprs that the launch line passes and no configuration sets."""
        given = {*self.first.passed, *self.replaced} - self.settings
        return [name for name in self.bound.constexprs if name in given]

    @property
    def numbers(self) -> dict[str, Any]:
        """What may tell its size from that of another call, by name."""
        constexprs = {*self.passed} - self.replaced.keys()
        return {
            name: in_file(value)
            for name, value in self.bound.arguments.items()
            if name in constexprs or (type(value) is int and name not in self.bound.constexprs)
        }


def _calls(scripts: Sequence[Script]) -> Iterator[_Call]:
    for script in scripts:
        calls = [*calls_of(script.launches)]
        digests = script.digests([next(iter(launches)) for launches in calls])
        for launches, digest in zip(calls, digests, strict=True):
            yield _Call(script, launches, digest)


def _of_kernel(
    name: str, calls: Sequence[_Call], kernel: str | None, chosen: Values, *, search: bool
) -> list[_Call]:
    """Return the *calls* of the kernel that is to be tuned, with the *chosen* values.

    Raises InputError if there is none, or if several can be tuned and none of them is named.
    """
    launched = list(dict.fromkeys(one.bound.kernel for one in calls))
    if kernel is not None and kernel not in launched:
        refuse(f"{name} launches no kernel {quoted(kernel)}; it launches {few_of(launched)}")
    named = [one for one in calls if kernel in {None, one.bound.kernel}]
    if several := [setting for setting, values in chosen.items() if len(values) > 1]:
        tunable = [one for one in named if any(map(one.has, several))]
    else:
        tunable = [one for one in named if one.first.tuned] or (named if search else [])
    names = list(dict.fromkeys(one.bound.kernel for one in tunable))
    if not tunable and several:
        refuse(f"{kernel} takes no {few_of(several)}")
    if not tunable:
        has = f"no kernel that {name} launches has" if kernel is None else f"{kernel} has no"
        an = f" an autotuner: {few_of(launched)}" if kernel is None else " autotuner"
        refuse(f"{has}{an}; {HOW}")
    if len(names) > 1:
        refuse(
            f"{name} launches several kernels that can be tuned; choose one with --kernel:"
            f" {few_of(names)}"
        )
    if len({one.digest for one in tunable}) > 1:
        refuse(f"{name} launches several kernels called {names[0]}; launch one of them alone")
    if not all(one.digest for one in tunable):
        refuse(f"{names[0]} is launched by another process; let {name} launch it itself")
    autotuned = [one for one in tunable if one.first.tuned]
    tunable = autotuned or tunable
    for setting in chosen:
        if not any(one.has(setting) for one in tunable):
            refuse(f"{names[0]} takes no {shortened(setting)}; leave it out")
    kept = (chosen_launches(one.launches, chosen, one.script.gpu) for one in tunable)
    return [
        dataclasses.replace(one, launches=launches, replaced=replaced)
        for one, (launches, replaced) in zip(tunable, kept, strict=True)
    ]


def _check_dtypes(name: str, calls: Sequence[_Call]) -> None:
    first, *others = (one.bound.dtypes for one in calls)
    for other in others:
        for tensor in dict.fromkeys((*first, *other)):
            if (mine := first.get(tensor)) != (its := other.get(tensor)):
                refuse(
                    f"{name} launches {calls[0].bound.kernel} with {tensor} of {mine} and of"
                    f" {its}, and a file has one dtype for each tensor; launch each in a function"
                    " of its own"
                )


def size_names(
    launches: Sequence[Sequence[Mapping[str, Any]]], constexprs: Collection[str]
) -> list[str]:
    """Return the names of the values that tell the sizes of *launches* apart, on each GPU.

    These are the numbers that differ on a GPU, or all numbers if none does, and the *constexprs*
    that differ, between GPUs too. A stride is among them only if it tells launches apart that
    nothing else does.
    """
    every = [one for of_gpu in launches for one in of_gpu]
    names = list(dict.fromkeys(name for one in every for name in one))

    def count(names: Sequence[str], among: Sequence[Mapping[str, Any]] = every) -> int:
        return len({repr([one.get(name) for name in names]) for one in among})

    numbers = [name for name in names if name not in constexprs and not _is_stride(name)]
    differing = [one for one in numbers if any(count([one], of_gpu) > 1 for of_gpu in launches)]
    found = (differing or numbers) + [name for name in constexprs if count([name]) > 1]
    for name in filter(_is_stride, names):
        if name not in found and count([*found, name]) > count(found):
            found.append(name)
    return [name for name in names if name in found]


def _is_stride(name: str) -> bool:
    return "stride" in name.lower()


def _tuner(
    gpus: Sequence[Gpu],
    calls: Sequence[_Call],
    *,
    search: bool,
    timing: Timing | None,
    **how: Any,
) -> Tuner:
    of_gpus = [[one for one in calls if one.script.gpu is gpu] for gpu in gpus]
    numbers = [[one.numbers for one in own] for own in of_gpus]
    names = size_names(numbers, dict.fromkeys(name for one in calls for name in one.passed))
    first: dict[tuple[str, str], _Call] = {}
    given: dict[str, list[Candidate]] = {gpu.key: [] for gpu in gpus}
    compilers: dict[str, Compiler] = {}
    for gpu, own in zip(gpus, of_gpus, strict=True):
        for call in own:
            size = {name: call.numbers.get(name) for name in names}
            if (gpu.key, text_of(size)) not in first:
                first[gpu.key, text_of(size)] = call
                given[gpu.key] += _given(call, size, search=search)
        compilers[gpu.key] = compiler_of(own[0].script)

    def at(size: Size, config: Settings, gpu: Gpu) -> Candidate:
        call = first[gpu.key, text_of(size)]
        return _candidate(call, next(iter(call.launches)), size, config)

    call, variant = next(iter(first.values())), given[gpus[0].key][0].variant
    arguments = BoundLaunch.of(variant.function, variant.launch).arguments
    return Tuner(
        gpus=gpus,
        digest=call.digest,
        is_autotuned=bool(call.first.tuned),
        compilers=compilers,
        given=given,
        at=at,
        passed={name: arguments[name] for name in call.passed},
        in_program=timing is None,
        timing=timing,
        instead="leave {tiles} to the launch line, and let the grid follow what is tuned",
        **how,
    )


def _given(call: _Call, size: Size, *, search: bool) -> Iterator[Candidate]:
    usual = {}
    if search and not call.first.tuned:
        usual = {name: call.bound.options.get(name, value) for name, value in USUAL.items()}
    for index, one in call.launches.items():
        for values in itertools.product(*call.replaced.values()):
            replaced = dict(zip(call.replaced, values, strict=True))
            settings = {name: replaced[name] for name in replaced if name in call.settings}
            config = as_values({**usual, **one.tuned, **settings})
            yield _candidate(call, index, size, config)


def _candidate(call: _Call, index: int, size: Size, config: Settings) -> Candidate:
    one = call.launches[index]
    fixed = {name: values[0] for name, values in call.replaced.items() if name not in call.settings}
    changed = {name: config[name] for name in config if one.tuned.get(name) != config[name]}
    function = stand_in(one.bound, call.launches)
    variant = variant_with(call.script, index, one, function, {**fixed, **changed})
    return Candidate(size, config, variant)
