"""`early_config_prune` and `perf_model`, for `prune_configs_by` of `triton.autotune`.

Triton tells neither of them which kernel is tuned. Both look for the Autotuner among the frames
that called them: its `prune_configs`, whose signature is the same from Triton 3.6 to 3.9. Without
one, and whenever anything fails, every configuration stays, in order, and the logger
"occupancy_lab" says why: these hooks never end an autotune.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from occupancy_lab.arguments import Descriptor
from occupancy_lab.asked import Asked
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import InputError, refuse
from occupancy_lab.gpus import Gpu, find_gpu, present_gpus
from occupancy_lab.inputs import DEFAULT_GPUS, asked_gpus
from occupancy_lab.kernel import Variant, innermost, variants
from occupancy_lab.launch import Launch
from occupancy_lab.options import OPTIONS
from occupancy_lab.record import Failed, Record
from occupancy_lab.values import Resources, Work

Bytes = int | Callable[[Mapping[str, Any]], int]

logger = logging.getLogger("occupancy_lab")
HEAVY = 1 / 8
"""Accesses to local memory are heavy above this share of a pass's instructions."""
IN_BINARY = frozenset(one.name for one in OPTIONS if one.in_binary)
NOT_ARGUMENTS = frozenset({"grid", "warmup"})
"""The names of Triton's arguments to the hooks besides the kernel's own."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A configuration as it would be launched, and its outcome on the GPU."""

    config: Any
    run: Record | Failed

    @property
    def words(self) -> str:
        """The settings of the configuration in words."""
        usual = {one.name: one.usual for one in OPTIONS}
        return ", ".join(
            f"{name} {value}"
            for name, value in self.config.all_kwargs().items()
            if value not in usual.get(name, ()) and name != "ir_override"
        )

    @property
    def record(self) -> Record:
        """The record of the launch; InputError if it cannot run."""
        if isinstance(self.run, Failed):
            refuse(self.run.failure.reason)
        return self.run

    @property
    def resources(self) -> Resources:
        """The resources that one program takes."""
        return self.record.resources

    @property
    def options(self) -> dict[str, Any]:
        """Every compiler option, whether or not it was asked for."""
        return {**self.record.usual_options, **self.record.options}

    def is_launched_as(self, other: Tried) -> bool:
        """Return whether the launch is the same: binary, arguments, programs and their size."""
        mine, its = (
            {name: value for name, value in one.options.items() if name not in IN_BINARY}
            for one in (self, other)
        )
        return (
            self.resources.binary is not None
            and self.resources == other.resources
            and mine == its
            and self.run.launch.grid == other.run.launch.grid
            and self.run.launch.arguments == other.run.launch.arguments
            and (self.run.launch.grid is not None or self.config.kwargs == other.config.kwargs)
        )

    def is_dominated_by(self, other: Tried) -> bool:
        """Return whether this launch spills heavily and *other* does as much without spilling.

        Both have the same blocks and programs. *other* has no access to local memory, at least as
        many resident warps and stages, and its programs issue no more instructions in a pass. At
        least HEAVY of this one's instructions access local memory.
        """
        mine, its = self.resources, other.resources
        accesses = (mine.local_loads or 0) + (mine.local_stores or 0)
        return (
            self.config.kwargs == other.config.kwargs
            and self.run.launch.grid == other.run.launch.grid
            and accesses >= HEAVY * _instructions(mine) > 0
            and its.local_traffic == 0
            and _warps(other) >= _warps(self)
            and other.record.num_stages >= self.record.num_stages
            and 0 < _instructions(its) * its.num_warps <= _instructions(mine) * mine.num_warps
        )


def _instructions(resources: Resources) -> int:
    return resources.loop_instructions or resources.instructions or 0


def _warps(tried: Tried) -> int:
    return tried.record.occupancy.warps_per_multiprocessor


def early_config_prune(
    configs: list[Any], named_args: Mapping[str, Any], **kwargs: Any
) -> list[Any]:
    """Return those of *configs* that can run on this machine's GPU and are not dominated.

    For `prune_configs_by={"early_config_prune": occupancy_lab.early_config_prune}`. Every
    configuration is compiled, several at a time, and its launch need not compile it again. A
    configuration is dropped only if it

    1. does not compile;
    2. does not fit: the GPU cannot hold one program of it;
    3. is launched as an earlier one is: equal binary, resources, options, arguments and grid;
    4. spills heavily: see `Tried.is_dominated_by`. A spill alone drops nothing.

    If nothing would be left, everything stays. Each drop is logged at level info by
    "occupancy_lab".
    """
    if _is_traced():
        return configs
    try:
        return _prune(list(configs), named_args, kwargs)
    except Exception as error:  # noqa: BLE001 - an autotune does not end because of this
        logger.warning("no configuration is dropped: %s: %s", type(error).__name__, error)
        return list(configs)


def _prune(
    configs: list[Any], named_args: Mapping[str, Any], keywords: Mapping[str, Any]
) -> list[Any]:
    tuner, _ = _calling_tuner(named_args)
    began = time.perf_counter()
    gpu, tried = _try(tuner.fn, configs, named_args, keywords)
    dropped = dict(_dropped(tried))
    name = innermost(tuner.fn).__name__
    for place, (_, why) in sorted(dropped.items()):
        logger.info("%s: dropped %s: %s", name, tried[place].words, why)
    kept = [one.config for place, one in enumerate(tried) if place not in dropped]
    counts = ", ".join(
        f"{n} {rule}" for rule, n in Counter(why for why, _ in dropped.values()).items()
    )
    summary = (
        f"{name} on {gpu.title}: {len(kept)} of {len(configs)} configurations are"
        f" {'kept' if kept else 'usable, so all are kept'} ({counts or 'none dropped'}),"
        f" after {time.perf_counter() - began:.2f} s"
    )
    logger.log(logging.INFO if kept else logging.WARNING, "%s", summary)
    return kept or configs


def _dropped(tried: Sequence[Tried]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Return the index of each dropped configuration, the rule in a few words, and the reason."""
    usable: list[Tried] = []
    for place, one in enumerate(tried):
        if isinstance(one.run, Failed):
            yield place, ("cannot run", one.run.failure.reason)
        elif (same := next(filter(one.is_launched_as, usable), None)) is not None:
            yield place, ("equal to another", f"it is launched as {same.words} is")
        else:
            usable.append(one)
    for place, one in enumerate(tried):
        if one in usable and (better := next(filter(one.is_dominated_by, usable), None)):
            share = (one.resources.local_loads or 0) + (one.resources.local_stores or 0)
            why = (
                f"{share} of {_instructions(one.resources)} instructions of a pass access local"
                f" memory, and none with {better.words}"
            )
            yield place, ("spilling heavily", why)


def perf_model(
    bytes_read: Bytes | None = None, bytes_written: Bytes | None = None, /, **arguments: Any
) -> float:
    """Return a number that is smaller the faster a configuration should be.

    For `prune_configs_by={"perf_model": occupancy_lab.perf_model, "top_k": 8}`. It is the predicted
    time of the launch in milliseconds, as `explain` has it. What cannot run has infinity, and what
    has no predicted time, as where values steer a loop without an end, comes after what has one.
    Where none has one, or the kernel is not known, every configuration has 0: they stay in their
    order.

    `functools.partial(occupancy_lab.perf_model, bytes_read, bytes_written)` says what the launch
    moves from and to global memory where that is not counted: two numbers, or functions of its
    arguments by name.
    """
    if _is_traced():
        return 0.0
    try:
        tuner, configs = _calling_tuner(arguments)
        asked = next(one for one in configs if _sets(one, arguments))
        keywords = {name: arguments[name] for name in arguments.keys() - tuner.nargs.keys()}
        for name in asked.all_kwargs():
            keywords.pop(name, None)
        launch = _variant(tuner.fn, asked, tuner.nargs, keywords).launch
        if not any(launch == ranked for ranked, _ in _ranked.get(tuner, ())):
            launches = [_variant(tuner.fn, one, tuner.nargs, keywords).launch for one in configs]
            _ranked[tuner] = [(one, 0.0) for one in launches]  # kept if an error follows
            work = Work()
            if bytes_read is not None and bytes_written is not None:
                moved = (bytes_read, bytes_written)
                read, written = (int(one(arguments) if callable(one) else one) for one in moved)
                work = Work(read, written)
            _, tried = _try(tuner.fn, configs, tuner.nargs, keywords, work)
            _ranked[tuner] = list(zip(launches, _times(tried), strict=True))
        return next(time for ranked, time in _ranked[tuner] if launch == ranked)
    except Exception as error:  # noqa: BLE001 - an autotune does not end because of this
        logger.warning("configurations are not ranked: %s: %s", type(error).__name__, error)
        return 0.0


def _is_traced() -> bool:
    """Return whether torch.compile traces this call, which shows neither kernel nor tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


_ranked: WeakKeyDictionary[Any, list[tuple[Launch, float]]] = WeakKeyDictionary()
"""The launches that were last ranked for each Autotuner, each with its time."""


def _sets(config: Any, arguments: Mapping[str, Any]) -> bool:
    return all(
        name in arguments and (arguments[name] is value or arguments[name] == value)
        for name, value in config.all_kwargs().items()
    )


def _times(tried: Sequence[Tried]) -> list[float]:
    """Return the predicted milliseconds of each; infinity if it cannot run.

    Configurations without a prediction come after those with one.
    """
    predicted = [one.run.prediction for one in tried]
    times = [None if one is None else one.us / 1e3 for one in predicted]
    known = [time for time in times if time is not None]
    last = math.nextafter(max(known), math.inf) if known else 0.0
    return [
        math.inf if isinstance(one.run, Failed) else last if time is None else time
        for one, time in zip(tried, times, strict=True)
    ]


def _calling_tuner(arguments: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Return the Autotuner that tunes a launch with *arguments*, and its configurations.

    *arguments* include those that the launch passes by position. Raises InputError if no Autotuner
    of Triton is among the frames that called this.
    """
    from triton.runtime.autotuner import Autotuner

    frame = sys._getframe(1)  # noqa: SLF001 - what inspect.currentframe calls
    while frame is not None:
        if frame.f_code.co_name == "prune_configs":
            tuner = frame.f_locals.get("self")
            if isinstance(tuner, Autotuner) and _has_all(arguments, tuner.nargs):
                return tuner, list(frame.f_locals.get("pruned_configs", tuner.configs))
        frame = frame.f_back  # type: ignore[assignment] # the last has None
    msg = "no Autotuner of Triton called, so that the kernel is not known"
    raise InputError(msg)


def _has_all(arguments: Mapping[str, Any], named: Mapping[str, Any] | None) -> bool:
    missing = object()
    return named is not None and all(
        arguments.get(name, missing) is value for name, value in named.items()
    )


def _variant(
    function: Any, config: Any, named_args: Mapping[str, Any], keywords: Mapping[str, Any]
) -> Variant:
    """Return the launch of *function* with *config*, as the Autotuner would make it."""
    given = {name: value for name, value in keywords.items() if name not in NOT_ARGUMENTS}
    given |= config.all_kwargs()

    def made() -> Variant:
        found = list(variants(function, tuple(named_args.values()), given, keywords.get("grid")))
        if len(found) != 1:
            refuse("there is another autotuner inside")
        return found[0]

    found = made()
    has_blocks = any(isinstance(value, Descriptor) for value in found.launch.arguments)
    if config.pre_hook is not None and has_blocks:
        # It sets the block_shape of the descriptors, for which the kernel is compiled.
        config.pre_hook({**named_args, **given})
        return made()
    return found


def _try(
    function: Any,
    configs: Sequence[Any],
    named_args: Mapping[str, Any],
    keywords: Mapping[str, Any],
    moved: Work | None = None,
) -> tuple[Gpu, list[Tried]]:
    """Return this machine's GPU and the outcome of each of *configs* on it.

    With *moved*, the bytes that each configuration moves if they are given, each has a predicted
    time.
    """
    gpu, here = _gpu_at_hand()
    asked = []
    for config in configs:
        one = _variant(function, config, named_args, keywords)
        launch = dataclasses.replace(one.launch, work=moved or Work())
        asked.append(Asked(one.function, launch, gpu))
    targets = {gpu.target} if here else ()
    compiler = Compiler(store_directory(), here=targets, threads=True)
    runs = compile_runs(asked, compiler)
    if moved is not None:
        runs = with_counts(runs, asked, compiler, jobs=1)  # the program has threads and a GPU
    return gpu, [Tried(config, run) for config, run in zip(configs, runs, strict=True)]


def _gpu_at_hand() -> tuple[Gpu, bool]:
    """Return the GPU for which Triton's active driver compiles, and whether there is a driver.

    In a dry run it is the GPU that was asked for. Without a driver it is the first of the usual
    GPUs. For a target that is not here, it is the target's usual GPU.
    """
    from triton.runtime import driver

    usual = asked_gpus(DEFAULT_GPUS)
    here = tuple(present.gpu for present in present_gpus())
    try:
        if asked := getattr(driver.active, "gpu", None):
            return asked, True
        active = driver.active.get_current_target()
    except (RuntimeError, AssertionError):  # no driver, or no libcuda.so where Triton looks
        return (*here, *usual)[0], False
    name = f"sm_{active.arch}" if active.backend == "cuda" else str(active.arch)
    return next((gpu for gpu in (*here, *usual) if gpu.target.name == name), None) or find_gpu(
        name
    ), True
