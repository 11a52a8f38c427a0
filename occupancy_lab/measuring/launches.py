"""Times launches of any kernel on this machine's GPU, with a script's tensors or with made-up ones.

A process of its own really runs the script's function. Then it makes the launches that are asked
for, with the tensors that the function passed to the same kernel, as the function left them. A
kernel that was described in words gets tensors of as many bytes as the launch was counted to touch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import Dtype, Plain, Pointer
from occupancy_lab.compiling.inductor import Configured, launched_models
from occupancy_lab.compiling.script import names_script
from occupancy_lab.errors import OccupancyLabError, refuse
from occupancy_lab.kernel import Variant, changed, innermost, kernel_file, load_file, load_function
from occupancy_lab.launch import BoundLaunch, launch_of
from occupancy_lab.measuring.process import DEFAULT_RUNS, TIMEOUT, measuring_child
from occupancy_lab.values import Measurement
from occupancy_lab.workers.child import captured, serve
from occupancy_lab.workers.messages import from_line, to_line

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Wanted:
    """A launch that is to be timed."""

    launch: BoundLaunch
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The bytes of each tensor that is to be made up; empty for the tensors of a script."""


@dataclass(frozen=True, slots=True)
class LaunchBatch:
    """Launches that a process times side by side."""

    source: str
    """`file.py:function`: a script's function, or a kernel."""
    launches: tuple[Wanted, ...]
    runs: int = DEFAULT_RUNS


def time_launches(batch: LaunchBatch, timeout: float = TIMEOUT) -> list[Measurement]:
    """Return a measurement for each launch of *batch*, in order.

    If the process dies or takes longer than *timeout* s, no launch has a time.
    """
    if not batch.launches:
        return []
    with contextlib.closing(measuring_child("occupancy_lab.measuring.launches")) as child:
        line = child.ask(to_line(batch), timeout)
        if line:
            return [*from_line(tuple[Measurement, ...], line)]
        died = f"the process died: {child.last_words}"
    reason = died if line == "" else f"no answer within {timeout:g} s"
    return [Measurement("device lost", None, reason)] * len(batch.launches)


@dataclass(frozen=True, slots=True)
class _Call:
    """A launch that can be made any number of times."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    grid: tuple[int, ...]

    def __call__(self) -> None:
        self.function[self.grid](*self.arguments, **self.keywords)

    @property
    def kept(self) -> tuple[torch.Tensor, ...]:
        """The tensors that the launch may ask the L2 cache to keep."""
        from occupancy_lab.measuring.measure import may_keep_lines

        if not may_keep_lines(self.function):
            return ()
        passed = (*self.arguments, *self.keywords.values())
        tensors = (getattr(one, "base", one) for one in passed)
        return tuple(one for one in tensors if hasattr(one, "untyped_storage"))


def _measured(batch: LaunchBatch) -> list[Measurement]:
    """Return the measurements of *batch*, in the process that has the GPU."""
    import torch

    from occupancy_lab.measuring.measure import conditions, timed, why_failed

    ready: dict[int, _Call] = {}
    failures: dict[int, Measurement] = {}
    for place, make in enumerate(_calls(batch)):
        try:
            call = make()
            call()
            torch.cuda.synchronize()
        except OccupancyLabError as error:  # there is no such launch
            failures[place] = Measurement("launch failed", conditions(), str(error))
        except Exception as error:  # noqa: BLE001 - any error of a launch is its row's reason
            status, reason = why_failed(error)
            failures[place] = Measurement(status, conditions(), reason)
        else:
            ready[place] = call
    kept = {id(one): one for call in ready.values() for one in call.kept}
    errors = [None] * len(ready)  # nothing is compared
    times = timed([*ready.values()], [*kept.values()], runs=batch.runs, errors=errors)
    found = failures | dict(zip(ready, times, strict=True))
    return [found[place] for place in sorted(found)]


def _calls(batch: LaunchBatch) -> Iterator[Callable[[], _Call]]:
    """Return for each launch of *batch* a function that returns how it is made.

    That raises InputError if the script launches the kernel with no such arguments.
    """
    if not names_script(batch.source):
        kernel = innermost(load_function(batch.source)[0])
        return (functools.partial(_with_tensors, kernel, one) for one in batch.launches)
    with _noting({passed(one.launch) for one in batch.launches}) as noted:
        try:
            _run(batch.source)
        except BaseException as error:  # noqa: BLE001 - a script may raise anything
            ended = f", and ended with {type(error).__name__}: {error}"
        else:
            ended = ""

    def made(wanted: BoundLaunch) -> _Call:
        alike = noted.get(passed(wanted))
        if not alike:
            refuse(f"{batch.source} made no such launch on this GPU{ended}")
        launched, call = min(alike, key=lambda one: len(_changes(one[0], wanted)))
        return _changed(call, _changes(launched, wanted), wanted.launch.grid or call.grid)

    return (functools.partial(made, one.launch) for one in batch.launches)


def _run(source: str) -> None:
    from occupancy_lab.compiling.script_process import prepare, script_function

    name, _, entry = source.partition(".py:")
    prepare(Path(f"{name}.py"))
    with captured():
        script_function(load_file(kernel_file(source)), source, entry)()


@contextlib.contextmanager
def _noting(texts: Collection[str]) -> Iterator[Mapping[str, list[tuple[BoundLaunch, _Call]]]]:
    """Yield the different launches of the block by what they pass, which is among *texts*."""
    from unittest import mock

    from triton.runtime.jit import JITFunction

    from occupancy_lab.compiling.recorder import in_plain

    noted: dict[str, list[tuple[BoundLaunch, _Call]]] = defaultdict(list)
    run = JITFunction.run

    def note(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> None:
        with contextlib.suppress(OccupancyLabError):
            launch = launch_of(function, args, kwargs, grid)
            bound = in_plain(Variant(function, launch))
            text = passed(bound)
            is_new = text in texts and all(_changes(one, bound) for one, _ in noted[text])
            if is_new and launch.grid is not None:
                noted[text].append((bound, _Call(function, args, kwargs, launch.grid)))

    def run_and_note(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        result = run(function, *args, grid=grid, warmup=warmup, **kwargs)
        if not warmup:
            note(function, args, kwargs, grid)
        return result

    def note_compiled(function: Any, configurations: Sequence[Configured]) -> None:
        for one in configurations:
            note(function, (), {**one.arguments, **one.tuned}, one.grid)

    with mock.patch.object(JITFunction, "run", run_and_note), launched_models(note_compiled):
        yield noted


def passed(bound: BoundLaunch) -> str:
    """Return a text that is equal for launches of a kernel with the same numbers and dtypes.

    The sizes of tensors do not count: a dry run only assumes them where they depend on data.
    """
    others = {name: bound.arguments[name] for name in bound.arguments.keys() - bound.constexprs}
    for name, value in others.items():
        if isinstance(value, Pointer):
            others[name] = dataclasses.replace(value, storage_bytes=0)
    return repr((bound.kernel, sorted(others.items())))


def _changes(launched: BoundLaunch, wanted: BoundLaunch) -> dict[str, Plain]:
    """Return the arguments and options that differ; None for an option that is left out."""
    before = {**launched.arguments, **launched.options}
    after = {**wanted.arguments, **wanted.options}
    return {
        name: after.get(name)
        for name in (*before, *(after.keys() - before))
        if before.get(name) != after.get(name)
    }


def _changed(call: _Call, changes: Mapping[str, Plain], grid: tuple[int, ...]) -> _Call:
    changes = {name: one for name, one in changes.items() if not isinstance(one, Pointer)}
    given = {name: _value(value) for name, value in changes.items()}
    arguments, keywords = changed(call.function, call.arguments, call.keywords, given)
    names = call.function.arg_names
    left_out = {name for name, value in changes.items() if value is None and name not in names}
    keywords = {name: value for name, value in keywords.items() if name not in left_out}
    return _Call(call.function, arguments, keywords, grid)


def _value(value: Plain) -> Any:
    """Return what a launch passes for a value that is no tensor."""
    import triton.language as tl

    return tl.dtype(value.triton_name) if isinstance(value, Dtype) else value


def _with_tensors(kernel: Any, wanted: Wanted) -> _Call:
    launch, grid = wanted.launch, wanted.launch.launch.grid
    assert grid is not None  # noqa: S101 - `measured` refuses such launches
    arguments = {
        name: _made_up(name, value.dtype, wanted.sizes.get(name, 0), aligned=value.aligned)
        if isinstance(value, Pointer)
        else _value(value)
        for name, value in launch.arguments.items()
    }
    return _Call(kernel, (), {**arguments, **launch.options}, grid)


@functools.cache
def _made_up(name: str, dtype: str, size: int, *, aligned: bool) -> torch.Tensor:  # noqa: ARG001 - each parameter has its own
    """Return a tensor of *size* bytes: normally distributed numbers, or zeros."""
    import torch

    kind = getattr(torch, dtype)
    first = 0 if aligned else 1
    number = max(1, -(-size // kind.itemsize)) + first
    if kind.is_floating_point and kind.itemsize > 1:
        return torch.randn(number, dtype=kind, device="cuda")[first:]
    return torch.zeros(number, dtype=kind, device="cuda")[first:]


def answer(line: str) -> str:
    """Return the measurements of the batch *line*."""
    batch: LaunchBatch = from_line(LaunchBatch, line)
    return to_line(_measured(batch))


def main() -> None:
    """Serve requests once torch has found the GPU."""
    from occupancy_lab.measuring.measure import conditions

    conditions()
    serve(answer)
