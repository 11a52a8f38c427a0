"""`dry_run`: a launch line as it stands, compiled for any GPU and explained, and not launched."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import Store, compile_launch, store_directory, triton_version
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.errors import (
    CompileError,
    DoesNotFitError,
    InputError,
    quoted,
)
from occupancy_lab.explaining.any_launch import write_launch, write_variants
from occupancy_lab.explaining.neighbours import try_neighbours
from occupancy_lab.inputs import chosen_gpus
from occupancy_lab.kernel import is_triton_function
from occupancy_lab.launch import launch_of
from occupancy_lab.record import LaunchRecord, Untried, launch_record, untried
from occupancy_lab.text.document import ShownAsTables
from occupancy_lab.text.printing import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

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
    _check_kernel(kernel)
    kind = type(kernel).__name__
    if kind == "Autotuner":
        for setting in _configurations(kernel, arguments, keywords):
            yield from _variants(kernel.fn, arguments, keywords | setting, grid, tuned | setting)
    elif kind == "Heuristics":
        named = {**dict(zip(kernel.arg_names, arguments, strict=False)), **keywords}
        for name, work_out in vars(kernel)["values"].items():
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


@dataclass(frozen=True, slots=True, repr=False)
class DryRun(ShownAsTables):
    """What a launch line compiles to on each GPU, and how it would sit there."""

    runs: tuple[LaunchRecord | Untried, ...]
    """Each configuration on each GPU, in the order in which they were asked for."""
    make: Callable[[Launch, Gpu], LaunchRecord] = field(repr=False, compare=False)
    """What compiles a neighbour of the launch."""

    @property
    def records(self) -> tuple[LaunchRecord, ...]:
        """What compiled and fits."""
        return tuple(run for run in self.runs if isinstance(run, LaunchRecord))

    @property
    def failures(self) -> tuple[Untried, ...]:
        """What does not, and why."""
        return tuple(run for run in self.runs if isinstance(run, Untried))

    def document(self, *, full: bool = False) -> Document:
        """Return the explanation; the neighbours of a single launch are compiled for it."""
        if len({run.gpu.key for run in self.runs}) < len(self.runs):
            return write_variants(self.runs, full=full)
        tried = tuple(try_neighbours(record, self.make) for record in self.records)
        return write_launch(tried, self.failures, full=full)

    def table(self) -> pd.DataFrame:
        """Return a row for each configuration on each GPU, with its constexprs and options."""
        import pandas as pd

        return pd.DataFrame([run.row() for run in self.runs]).convert_dtypes()

    def to_markdown(self, *, full: bool = False) -> str:
        """Return the explanation in GitHub's markdown."""
        return self.document(full=full).to_markdown()

    def to_dict(self) -> dict[str, Any]:
        """Return rows and words as plain values."""
        return {
            "rows": [run.to_dict() for run in self.runs],
            "document": self.document(full=True).to_dict(),
        }

    def to_json(self) -> str:
        """Return rows and words as a JSON document."""
        return json_text(self.to_dict())

    def __repr__(self) -> str:
        """Return a line that says what ran dry."""
        gpus = ", ".join(dict.fromkeys(run.gpu.key for run in self.runs))
        fit = f"{len(self.records)} of {len(self.runs)} compile and fit"
        return f"<DryRun of {self.runs[0].kernel} on {gpus}: {fit}>"

    def __str__(self) -> str:
        """Return the explanation."""
        return self.to_markdown()


def run_dry(
    found: Sequence[Variant],
    gpus: Sequence[Gpu],
    make: Callable[[Any, Launch, Gpu], LaunchRecord],
) -> DryRun:
    """Return what *make*, given a JITFunction, a launch and a GPU, makes of *found* on *gpus*.

    An option of one vendor's compiler alone is passed to that vendor's only, where GPUs of both
    are asked for. Raises what the first launch fails with where all fail.
    """
    runs: list[LaunchRecord | Untried] = []
    errors = []
    for gpu, variant in itertools.product(gpus, found):
        launch = _own_options(variant.function, variant.launch, gpu, gpus)
        try:
            runs.append(make(variant.function, launch, gpu))
        except (CompileError, DoesNotFitError) as error:
            errors.append(error)
            runs.append(untried(variant.function, launch, gpu, error))
    if len(errors) == len(runs):
        raise errors[0]
    return DryRun(tuple(runs), partial(make, found[0].function))


def _own_options(function: Any, launch: Launch, gpu: Gpu, gpus: Sequence[Gpu]) -> Launch:
    own = default_options(gpu.target)
    others = {name for other in gpus for name in default_options(other.target)} - own.keys()
    foreign = others & launch.options(function).keys()
    if not foreign:
        return launch
    kept = {name: value for name, value in launch.keywords.items() if name not in foreign}
    return dataclasses.replace(launch, keywords=kept)


class DryKernel:
    """A kernel whose launches are explained instead: `dry_run(kernel)[grid](...)`."""

    def __init__(self, kernel: Any, gpu: Any = None, *, cache: bool = True) -> None:
        """Take what `dry_run` takes."""
        _check_kernel(kernel)
        self._kernel = kernel
        self._gpus = chosen_gpus(gpu)
        self._store = Store(store_directory() if cache else None)

    def __getitem__(self, grid: Any) -> Callable[..., DryRun]:
        """Return what is called as `kernel[grid]` is, and gives a DryRun."""

        def launch(*arguments: Any, **keywords: Any) -> DryRun:
            found = list(variants(self._kernel, arguments, keywords, grid))
            return run_dry(found, [gpu for gpu, _ in self._gpus], self._make)

        return launch

    def _make(self, function: Any, launch: Launch, gpu: Gpu) -> LaunchRecord:
        present = (gpu, True) in self._gpus
        resources = compile_launch(function, launch, gpu.target, self._store, present=present)
        return launch_record(function, launch, gpu, resources, triton=triton_version())


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
