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
from occupancy_lab.kernel import is_triton_function
from occupancy_lab.launch import launch_of
from occupancy_lab.record import LaunchRecord, launch_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.launch import Launch
    from occupancy_lab.text.document import Document


@dataclass(frozen=True, slots=True)
class Variant:
    """One launch of those that a launch line stands for: an autotuner tries several."""

    function: Any
    """The JITFunction."""
    launch: Launch
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """What the autotuner's configuration sets, by name; empty where nothing is tuned."""


def variants(
    kernel: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], grid: Any = None
) -> Iterator[Variant]:
    """Return the launches of `kernel[grid](*arguments, **keywords)`.

    An autotuner gives one for each configuration that its `prune_configs_by` leaves, heuristics
    are worked out, and both may be wrapped around each other, as Triton runs them.

    Raises InputError where *kernel* is no function of Triton, or an argument is missing.
    """
    return _variants(kernel, tuple(arguments), dict(keywords), grid, {})


def _variants(
    kernel: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    grid: Any,
    tuned: dict[str, Any],
) -> Iterator[Variant]:
    kind = type(kernel).__name__
    if not is_triton_function(kernel):
        msg = f"{quoted(getattr(kernel, '__name__', kernel))} is no function that triton.jit made"
        raise InputError(msg)
    if kind == "Autotuner":
        for setting in _configurations(kernel, arguments, keywords):
            yield from _variants(kernel.fn, arguments, keywords | setting, grid, tuned | setting)
    elif kind == "Heuristics":
        named = {**dict(zip(kernel.arg_names, arguments, strict=False)), **keywords}
        for name, work_out in kernel.values.items():
            named[name] = keywords[name] = work_out(named)
        yield from _variants(kernel.fn, arguments, keywords, grid, tuned)
    else:
        yield Variant(kernel, launch_of(kernel, arguments, keywords, grid), tuned)


def _check_kernel(kernel: Any) -> None:
    if not is_triton_function(kernel):
        name = getattr(kernel, "__name__", kernel)
        msg = f"{quoted(name)} is no function that triton.jit made"
        raise InputError(msg)


def _configurations(
    tuner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Return what each configuration of an autotuner sets, with its pre_hook called before it."""
    tuner.nargs = dict(zip(tuner.arg_names, arguments, strict=False))
    try:
        configurations = tuner.prune_configs(keywords) if len(tuner.configs) > 1 else tuner.configs
        for configuration in configurations:
            setting = configuration.all_kwargs()
            if twice := sorted(keywords.keys() & configuration.kwargs.keys()):
                msg = f"{', '.join(twice)} is tuned, and given too; leave it to the autotuner"
                raise InputError(msg)
            if configuration.pre_hook is not None:
                configuration.pre_hook({**tuner.nargs, **keywords, **setting})
            yield setting
    finally:
        tuner.nargs = None


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

    def make(function: Any, launch: Launch, gpu: Gpu) -> LaunchRecord:
        resources = compile_launch(function, launch, gpu.target, store, present=gpu in here)
        return launch_record(function, launch, gpu, resources, triton=triton_version())

    here = {gpu for gpu, present in gpus if present}
    records, failures = [], []
    alone = len(found) * len(gpus) == 1
    for (gpu, _), variant in itertools.product(gpus, found):
        try:
            records.append(make(variant.function, variant.launch, gpu))
        except (CompileError, DoesNotFitError) as error:
            if alone:
                raise
            status = "compile failed" if isinstance(error, CompileError) else "does not fit"
            failures.append(Untried(gpu, variant, status, str(error)))
    return DryRun(tuple(records), tuple(failures), make=partial(make, found[0].function))


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
