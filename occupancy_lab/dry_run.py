"""`dry_run`: a launch line as it stands, compiled for any GPU and explained, and not launched."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import Store, compile_launch, store_directory, triton_version
from occupancy_lab.errors import (
    CompileError,
    DoesNotFitError,
    InputError,
    quoted,
)
from occupancy_lab.explaining.any_launch import write_launch
from occupancy_lab.explaining.neighbours import try_neighbours
from occupancy_lab.inputs import chosen_gpus
from occupancy_lab.kernel import Variant, is_triton_function, variants
from occupancy_lab.launch import bound_launch
from occupancy_lab.record import LaunchRecord, launch_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from occupancy_lab.compiling.recorder import ScriptLaunch
    from occupancy_lab.compiling.script import Script
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.launch import Launch
    from occupancy_lab.text.document import Document


@dataclass(frozen=True, slots=True)
class Untried:
    """A launch on a GPU that has no record, and why."""

    gpu: Gpu
    variant: Variant
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a launch line compiles to on each GPU, and how it would sit there."""

    records: tuple[LaunchRecord, ...]
    failures: tuple[Untried, ...] = ()
    make: Callable[[Launch, Gpu], LaunchRecord] = field(kw_only=True, repr=False, compare=False)
    """What compiles a neighbour of the launch."""

    def document(self, *, full: bool = False) -> Document:
        """Return the explanation; the neighbours of a launch are compiled for it."""
        return write_launch(
            tuple(try_neighbours(record, self.make) for record in self.records), full=full
        )

    def to_markdown(self, *, full: bool = False) -> str:
        """Return the explanation in GitHub's markdown."""
        return self.document(full=full).to_markdown()

    def __str__(self) -> str:
        """Return the explanation."""
        return self.to_markdown()


def run_dry(found: Sequence[Variant], gpus: Sequence[tuple[Gpu, bool]], store: Store) -> DryRun:
    """Compile *found* for *gpus*, in this process, and work out how they would sit there.

    A configuration that cannot be compiled, or does not fit, is a failure among several; alone it
    raises what it fails with.
    """

    def make(variant: Variant, gpu: Gpu) -> LaunchRecord:
        function, launch = variant.function, variant.launch
        resources = compile_launch(function, launch, gpu.target, store, present=gpu in here)
        bound = bound_launch(function, launch)
        return launch_record(bound, gpu, resources, triton=triton_version())

    here = {gpu for gpu, present in gpus if present}
    return _run_dry(found, [gpu for gpu, _ in gpus], make)


def _run_dry(
    found: Sequence[Variant],
    gpus: Sequence[Gpu],
    make: Callable[[Variant, Gpu], LaunchRecord],
) -> DryRun:
    records, failures = [], []
    alone = len(found) * len(gpus) == 1
    for gpu, variant in itertools.product(gpus, found):
        try:
            records.append(make(variant, gpu))
        except (CompileError, DoesNotFitError) as error:
            if alone:
                raise
            status = "compile failed" if isinstance(error, CompileError) else "does not fit"
            failures.append(Untried(gpu, variant, status, str(error)))

    def make_neighbour(launch: Launch, gpu: Gpu) -> LaunchRecord:
        return make(Variant(found[0].function, launch), gpu)

    return DryRun(tuple(records), tuple(failures), make=make_neighbour)


def script_runs(script: Script) -> Iterator[tuple[ScriptLaunch, DryRun]]:
    """Return the first launch of each launch line that *script* came by, and the line's dry run.

    The script must be open while an explanation is made: its process compiles the neighbours. A
    launch that alone cannot be compiled or does not fit raises what it fails with.
    """
    lines = itertools.groupby(enumerate(script.launches), key=lambda pair: pair[1].call)
    for _, pairs in lines:
        launches = dict(pairs)
        found = [Variant(None, one.bound.launch, one.tuned) for one in launches.values()]
        first = next(iter(launches.values()))
        yield first, _run_dry(found, [script.gpu], partial(_script_record, script, launches))


def _script_record(
    script: Script, launches: Mapping[int, ScriptLaunch], variant: Variant, gpu: Gpu
) -> LaunchRecord:
    """Return the record of *variant*, which is one of *launches* or has other keywords than it."""

    def changes(index: int) -> dict[str, Any]:
        before = launches[index].bound.launch.keywords
        after = variant.launch.keywords
        return {name: after[name] for name in after if after[name] != before.get(name, changes)}

    def distance(index: int) -> tuple[bool, int]:
        other = launches[index].bound.launch.arguments != variant.launch.arguments
        return other, len(changes(index))

    nearest = min(launches, key=distance)
    bound = launches[nearest].bound.with_keywords(changes(nearest))
    resources = script.resources(nearest, changes(nearest))
    return launch_record(bound, gpu, resources, triton=triton_version())


class DryKernel:
    """A kernel whose launches are explained instead: `dry_run(kernel)[grid](...)`."""

    def __init__(self, kernel: Any, gpu: Any = None, *, cache: bool = True) -> None:
        """Take what `dry_run` takes."""
        if not is_triton_function(kernel):
            msg = (
                f"{quoted(getattr(kernel, '__name__', kernel))} is no function that triton.jit made"
            )
            raise InputError(msg)
        self._kernel = kernel
        self._gpus = chosen_gpus(gpu)
        self._store = Store(store_directory() if cache else None)

    def __getitem__(self, grid: Any) -> Any:
        """Return what is called as `kernel[grid]` is, and gives a DryRun."""

        def launch(*arguments: Any, **keywords: Any) -> DryRun:
            found = list(variants(self._kernel, arguments, keywords, grid))
            return run_dry(found, self._gpus, self._store)

        return launch


def dry_run(kernel: Any, gpu: Any = None, *, cache: bool = True) -> DryKernel:
    """Return a stand-in for *kernel* whose launch line is compiled and explained, not launched.

    `dry_run(kernel, gpu="h100,mi300x")[grid](x, y, n, BLOCK_SIZE=1024, num_warps=8)` needs no GPU.

    Args:
        kernel: A function of Triton, with or without autotune and heuristics.
        gpu: GPUs or targets, as `explain` takes them.
        cache: Whether to use the store of compiled resources.

    Raises:
        InputError: *kernel* is no function of Triton, or a GPU is not known.
    """
    return DryKernel(kernel, gpu, cache=cache)
