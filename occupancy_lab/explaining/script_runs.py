"""The dry runs of a script's launch lines, whose kernels are in the script's process."""

from __future__ import annotations

import inspect
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import triton_version
from occupancy_lab.explaining.dry_run import DryRun, Launcher
from occupancy_lab.kernel import Variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from occupancy_lab.compiling.recorder import ScriptLaunch
    from occupancy_lab.compiling.script import Script
    from occupancy_lab.launch import BoundLaunch, Launch
    from occupancy_lab.values import Resources, Target


def script_runs(script: Script) -> Iterator[tuple[ScriptLaunch, DryRun]]:
    """Return the first launch of each launch line that *script* came by, and the line's dry run.

    The script must be open while an explanation is made: its process compiles the neighbours. A
    line of which nothing compiles and fits raises what its first launch fails with.
    """
    lines = itertools.groupby(enumerate(script.launches), key=lambda pair: pair[1].call)
    for _, pairs in lines:
        launches = dict(pairs)
        first = next(iter(launches.values()))
        function = _stand_in(first.bound)
        found = [Variant(function, one.bound.launch, one.tuned) for one in launches.values()]
        compiler: Any = _ScriptCompiler(script, launches)
        yield first, Launcher([(script.gpu, False)], compiler, triton_version()).run(found)


def _stand_in(bound: BoundLaunch) -> Any:
    """Return what has the name and the parameters of a kernel, as a JITFunction has them."""
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    arguments, constexprs = bound.arguments, bound.constexprs
    return SimpleNamespace(
        __name__=bound.kernel,
        params=[SimpleNamespace(name=name, is_constexpr=name in constexprs) for name in arguments],
        signature=inspect.Signature(
            [inspect.Parameter(name, either, default=value) for name, value in arguments.items()]
        ),
    )


class _ScriptCompiler:
    """Compiles launches of a script's kernel as a LaunchCompiler does, in the script's process."""

    def __init__(self, script: Script, launches: Mapping[int, ScriptLaunch]) -> None:
        self._script = script
        self._launches = launches

    def prepare(self, wanted: Iterable[tuple[Any, Launch, Target]]) -> None:
        """Do nothing: there is one process."""

    def resources(self, _function: Any, launch: Launch, _target: Target) -> Resources:
        """Return what *launch* takes: one of the script's, or one with other keywords."""

        def changes(index: int) -> dict[str, Any]:
            before = self._launches[index].bound.launch.keywords
            after = launch.keywords
            return {name: after[name] for name in after if after[name] != before.get(name, changes)}

        def distance(index: int) -> tuple[bool, int]:
            other = self._launches[index].bound.launch.arguments != launch.arguments
            return other, len(changes(index))

        nearest = min(self._launches, key=distance)
        return self._script.resources(nearest, changes(nearest))
