"""Times launches of any kernel on this machine's GPU, with a script's tensors or with made-up ones.

A process of its own really runs the script's function. Then it repeats the launches that are asked
for, with the tensors that the function passed, as the function left them. A kernel that was
described in words gets tensors of as many bytes as the launch was counted to touch.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.arguments import Dtype, Plain, Pointer
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.compiling.script import names_script
from occupancy_lab.errors import OccupancyLabError, refuse
from occupancy_lab.kernel import Variant, changed, innermost, kernel_file, load_file, load_function
from occupancy_lab.launch import BoundLaunch, launch_of
from occupancy_lab.measuring.process import DEFAULT_RUNS, TIMEOUT, measuring_child
from occupancy_lab.values import Measurement, Target
from occupancy_lab.workers.child import captured, serve
from occupancy_lab.workers.messages import from_line, to_line

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Wanted:
    """A launch that is to be timed."""

    launch: BoundLaunch
    """The launch as the script makes it, or as it was described."""
    changes: Mapping[str, Plain] = field(default_factory=dict)
    """Other values of constexprs and options; None for an option that is left out."""
    grid: tuple[int, ...] | None = None
    """The grid with the changes; None for the launch's own."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The bytes of each tensor that is to be made up; empty for a script's launch."""


@dataclass(frozen=True, slots=True)
class LaunchBatch:
    """Launches that a process times side by side."""

    source: str
    """`file.py:function`: a script's function, or a kernel."""
    target: Target
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

    def with_changes(self, wanted: Wanted) -> _Call:
        changes = wanted.changes
        arguments, keywords = changed(self.function, self.arguments, self.keywords, changes)
        left_out = {name for name, value in changes.items() if value is None}
        keywords = {name: value for name, value in keywords.items() if name not in left_out}
        return _Call(self.function, arguments, keywords, wanted.grid or self.grid)

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

    That raises InputError if the script makes no such launch.
    """
    if not names_script(batch.source):
        kernel = innermost(load_function(batch.source)[0])
        return (functools.partial(_with_tensors, kernel, one) for one in batch.launches)
    texts = [_identity(one.launch, batch.target) for one in batch.launches]
    with _noting(texts, batch.target) as noted:
        try:
            _run(batch.source)
        except BaseException as error:  # noqa: BLE001 - a script may raise anything
            ended = f", and ended with {type(error).__name__}: {error}"
        else:
            ended = ""

    def made(text: str, wanted: Wanted) -> _Call:
        if text not in noted:
            refuse(f"{batch.source} made no such launch on this GPU{ended}")
        return noted[text].with_changes(wanted)

    return (
        functools.partial(made, text, one) for text, one in zip(texts, batch.launches, strict=True)
    )


def _run(source: str) -> None:
    from occupancy_lab.compiling.script_process import prepare, script_function

    name, _, entry = source.partition(".py:")
    prepare(Path(f"{name}.py"))
    with captured():
        script_function(load_file(kernel_file(source)), source, entry)()


@contextlib.contextmanager
def _noting(texts: Collection[str], target: Target) -> Iterator[dict[str, _Call]]:
    """Yield the launches of the block that *texts* identify, each when it is first made."""
    from unittest import mock

    from triton.runtime.jit import JITFunction

    from occupancy_lab.compiling.recorder import in_plain

    noted: dict[str, _Call] = {}
    run = JITFunction.run

    def run_and_note(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        result = run(function, *args, grid=grid, warmup=warmup, **kwargs)
        if not warmup:
            with contextlib.suppress(OccupancyLabError):
                launch = launch_of(function, args, kwargs, grid)
                text = _identity(in_plain(Variant(function, launch)), target)
                if text in texts and text not in noted and launch.grid is not None:
                    noted[text] = _Call(function, args, kwargs, launch.grid)
        return result

    with mock.patch.object(JITFunction, "run", run_and_note):
        yield noted


_usual_options = functools.cache(default_options)  # for every launch of a script


def _identity(bound: BoundLaunch, target: Target) -> str:
    """Return a text that is equal for the same launch of a dry run and of a real one.

    Options with their default values are left out, as a launch may pass them or not.
    """
    usual = _usual_options(target)
    options = {
        name: value
        for name, value in bound.options.items()
        if value is not None and value != usual.get(name)
    }
    return repr(
        (bound.kernel, sorted(bound.arguments.items()), sorted(options.items()), bound.launch.grid)
    )


def _with_tensors(kernel: Any, wanted: Wanted) -> _Call:
    import triton.language as tl

    def passed(name: str, value: Plain) -> Any:
        if isinstance(value, Dtype):
            return tl.dtype(value.triton_name)
        if isinstance(value, Pointer):
            return _made_up(name, value.dtype, wanted.sizes.get(name, 0), aligned=value.aligned)
        return value

    launch, grid = wanted.launch, wanted.launch.launch.grid
    assert grid is not None  # noqa: S101 - `measured` refuses such launches
    arguments = {name: passed(name, value) for name, value in launch.arguments.items()}
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
