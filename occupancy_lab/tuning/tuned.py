"""`tuned`: launches a kernel with the choices of `tune --output`, without timing anything.

A repeated launch finds its configuration by one dictionary lookup. Launches that the file does not
cover are made without it, and a warning says so once. For torch.compile, and for other users of
Triton's Autotuner, it is an Autotuner whose `early_config_prune` leaves one configuration.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from triton.compiler.errors import CompilationError
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.errors import OutOfResources, PTXASError

from occupancy_lab.arguments import TRITON_DTYPES, dtype_name, plain
from occupancy_lab.digest import source_digest
from occupancy_lab.errors import InputError, few_of, quoted, refuse
from occupancy_lab.gpus import find_gpu, present_gpus
from occupancy_lab.kernel import autotuner_of, innermost, is_triton_function, source_file
from occupancy_lab.tuning.autotuner import early_config_prune
from occupancy_lab.tuning.tuned_file import TunedFile, TunedLaunch, in_file, text_of

NOT_PASSED = inspect.Parameter.empty
"""Stands for an argument that a launch does not pass."""
NO_GPU = -1
"""Stands for the GPU's number if Triton has no driver."""


class UntunedWarning(UserWarning):
    """A launch does not take its configuration from the file of `tune --output`; says why."""


def tuned(file: str | Path) -> Callable[[Any], Tuned]:
    """Return a decorator that launches a kernel of Triton with the configurations of *file*.

    It replaces `@triton.autotune` or stands above it, and nothing is timed. A size that is not in
    the file takes the choice of the nearest size. The file does not cover a launch if it is for
    another kernel, if the kernel has changed, or if it lacks the GPU, a dtype or a constexpr of the
    launch. Then the autotuner launches or, without one, the first configuration is launched, and an
    UntunedWarning says so once.

    If several decorators are stacked, the first file that covers the launch is used.

    Args:
        file: What `occupancy-lab tune --output` wrote; a relative path starts at the folder of the
            kernel's file. It is read when the kernel is decorated.
    """

    def decorate(kernel: Any) -> Tuned:
        if not is_triton_function(kernel):
            name = getattr(kernel, "__name__", kernel)
            refuse(f"tuned is given {quoted(name)}, which is no function that triton.jit made")
        if not isinstance(kernel, Autotuner) and autotuner_of(kernel) is not None:
            name = innermost(kernel).__name__
            refuse(f"tuned stands above the heuristics of {name}; put it right above autotune")
        return Tuned(kernel, file)

    return decorate


@dataclass(frozen=True, slots=True)
class _Way:
    run: Callable[..., Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The values passed in addition to the launch line's arguments."""
    pre_hook: Callable[[dict[str, Any]], Any] | None = None
    config: Any = None
    """Triton's Config; None without one, or if an autotuner chooses."""
    only: Mapping[str, Any] | None = None
    """The numbers that a launch must pass, as in `TunedLaunch.only`; None accepts any."""
    elsewhere: _Way | None = None
    """The way of any other launch."""


class Tuned(Autotuner):  # type: ignore[misc] # Triton has no types
    """A kernel with the configurations of a file."""

    def __init__(self, kernel: Any, file: str | Path) -> None:
        self.untuned = getattr(kernel, "untuned", kernel)
        """The kernel, with its own autotuner if it has one."""
        self._author: Any = self.untuned if isinstance(self.untuned, Autotuner) else None
        self._own: Any = kernel if isinstance(kernel, Autotuner) else None
        self._jit = innermost(kernel)
        self._path = str(Path(source_file(self._jit)).parent / file)
        self._unreadable = ""
        try:
            self._file = TunedFile.read(self._path)
        except InputError as error:
            self._unreadable = str(error)
            self._file = TunedFile("", "", "", (), {}, {}, {})
        own = [] if self._own is None else list(self._own.configs)
        self._chosen = self._file.configs if self._file.kernel == self._jit.__name__ else []
        super().__init__(
            kernel if self._own is None else kernel.fn,
            kernel.arg_names,
            [*own, *map(_config, self._chosen)],
            key=[],
            reset_to_zero=None,
            restore_value=None,
            prune_configs_by={"early_config_prune": _pruning(self, self._file, self._own)},
        )
        self._first = len(self.configs) - len(self._chosen)
        """The index of the file's first configuration."""
        self._ways: dict[tuple[Any, ...], _Way] = {}
        self._warned: set[str] = set()
        places = {name: place for place, name in enumerate(self.arg_names)}
        names = (*self._file.sizes, *self._file.constexprs)
        self._values = [(places.get(name, len(places)), name) for name in names]
        self._tensors = [(places.get(name, len(places)), name) for name in self._file.tensors]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the kernel, as `kernel[grid](...)` does."""
        passed = len(args)
        key: list[Any] = [_device()]
        for place, name in self._values:
            key.append(args[place] if place < passed else kwargs.get(name, NOT_PASSED))
        for place, name in self._tensors:
            one = args[place] if place < passed else kwargs.get(name)
            key.append(getattr(one, "dtype", None))
        way = self._ways.get(tuple(key))
        if way is None:
            return self._first_run(key, args, kwargs)
        if way.only is not None:
            way = self._which(way, self._named(args, kwargs))
        if way.config is not None:
            self.best_config = way.config
        if way.pre_hook is not None:
            way.pre_hook({**self._named(args, kwargs), **way.settings})
        return way.run(*args, **kwargs, **way.settings)

    def _autotune(self, *args: Any, **kwargs: Any) -> Any:
        launched = self._own.run(*args, **kwargs)
        self.best_config = getattr(self._own, "best_config", None)
        return launched

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**dict(zip(self.arg_names, args, strict=False)), **kwargs}

    def _which(self, way: _Way, named: Mapping[str, Any]) -> _Way:
        """Return *way*, or its alternative if the launch does not pass what *way* requires."""
        if way.only is None or _passes({**self._defaults, **named}, way.only, way.settings):
            return way
        return cast("_Way", way.elsewhere)

    def _first_run(self, key: list[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Find out how to launch, keep that for launches with the same *key*, and launch.

        A dry run notes the launch as that of an autotuner, with what chose its configuration.
        """
        if key[0] != NO_GPU and getattr(driver.active, "gpu", None) is not None:
            return super().run(*args, **kwargs)
        device, *told = key
        named = self._named(args, kwargs)
        found = self._way(device, told, named)
        way = self._fallback(found, device, named) if isinstance(found, str) else found
        if twice := sorted(kwargs.keys() & way.settings.keys()):
            refuse(f"{few_of(twice)} is tuned by {self._path}, and given too; leave it out")
        self._ways[tuple(key)] = way
        try:
            return self.run(*args, **kwargs)
        except (OutOfResources, CompilationError, PTXASError) as error:
            if isinstance(found, str) or self._own is None:
                raise
            reason = next(iter(str(error).strip().splitlines()), "")
            why = f"{way.settings} cannot be launched: {type(error).__name__}: {reason}"
            self._ways[tuple(key)] = self._fallback(why, device, named)
            return self.run(*args, **kwargs)

    def _way(self, device: int, told: Sequence[Any], named: Mapping[str, Any]) -> _Way | str:
        """Return how the file launches, or why it does not cover the launch."""
        found = self._find(device, told)
        if isinstance(found, str):
            return found
        choice, is_near = found
        if choice.only is None:
            return self._way_of(choice.config, named, is_near=is_near)
        elsewhere = self._way_of(choice.elsewhere, named, is_near=is_near)
        if is_near or isinstance(elsewhere, str):
            return elsewhere
        way = self._way_of(choice.config, named, is_near=True)
        if isinstance(way, str):
            return elsewhere
        return dataclasses.replace(way, only=choice.only, elsewhere=elsewhere)

    def _way_of(
        self, settings: Mapping[str, Any], named: Mapping[str, Any], *, is_near: bool
    ) -> _Way | str:
        """Return how to launch with a configuration of the file, or why that is not possible."""
        config = self.configs[self._place(settings)]
        if is_near and not self._is_left(config, named):
            return "its early_config_prune drops what was chosen at the nearest size"
        own = [] if self._author is None else self._author.configs
        hooks = {one.pre_hook for one in own if _same(one, config)} or {one.pre_hook for one in own}
        if len(hooks) > 1:
            return "its configurations have several pre_hooks, and none is of what was chosen"
        return _Way(self.fn.run, settings, next(iter(hooks), None), config)

    def _place(self, settings: Mapping[str, Any]) -> int:
        return self._first + self._chosen.index(settings)

    def place_of(self, *told: Any, named: Mapping[str, Any] | None = None) -> int | None:
        """Return the index in `configs` of the choice for a launch; without one warn, return None.

        *told* are the values of its sizes and constexprs, and the dtypes of its tensors; *named* is
        everything that it passes, with the grid, if that is known. Without a GPU nothing is
        launched, so there is no warning.
        """
        device = _device()
        settings: Mapping[str, Any] | str
        found = self._find(device, told)
        if named is None:
            settings = found if isinstance(found, str) else found[0].elsewhere or found[0].config
        else:
            way = self._way(device, told, named)
            settings = way if isinstance(way, str) else self._which(way, named).settings
        if not isinstance(settings, str):
            place = self._place(settings)
            if named is not None and not isinstance(found, str):
                choice, is_near = found
                near = f", nearest size {text_of(choice.sizes)}" if is_near else ""
                self.configs[place].chosen_by = f"{Path(self._path).name}{near}"
            return place
        if device != NO_GPU:
            self._fallback(settings, device, None)
        return None

    def _find(self, device: int, told: Sequence[Any]) -> tuple[TunedLaunch, bool] | str:
        """Return the file's choice for a launch and whether it is for another size, or why not.

        *told* is as in `place_of`.
        """
        if self._not_mine:
            return self._not_mine
        names = [name for _, name in self._values]
        defaults = [self._defaults.get(name) for name in names]
        given = {
            name: _value(default if value is NOT_PASSED else value)
            for name, value, default in zip(names, told, defaults, strict=False)
        }
        dtypes = zip(self._file.tensors, map(_triton_dtype, told[len(names) :]), strict=True)
        for mine, its in ((self._file.tensors, dict(dtypes)), (self._file.constexprs, given)):
            for name, value in mine.items():
                if its[name] != value:
                    return f"{name} is {its[name]}, and the file is of {value}"
        gpu = self._gpu(device)
        if gpu not in self._file.gpus:
            return f"the file has {few_of([*self._file.gpus])}, and this is {gpu}"
        sizes = {name: given[name] for name in self._file.sizes}
        choice = self._file.choice(gpu, sizes)
        if choice is None:
            return f"the file has no launch like {sizes}"
        return choice, choice.sizes != sizes

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        parameters = inspect.signature(self._jit.fn).parameters.values()
        return {one.name: one.default for one in parameters if one.default is not NOT_PASSED}

    @cached_property
    def _not_mine(self) -> str:
        """Why no launch of this kernel uses the file; "" if the file is this kernel's."""
        name = self._jit.__name__
        if self._unreadable:
            return self._unreadable
        if self._file.kernel != name:
            return f"the file is of the kernel {self._file.kernel}"
        # The digest is made only now, because functions may be defined after the kernel.
        if self._file.digest != source_digest(self._jit):
            return f"{name} has changed since the file was written"
        return ""

    def _gpu(self, device: int) -> str:
        """Return the key of the GPU on which kernels launch.

        In a dry run it is the GPU that was asked for. If Triton compiles for a GPU that is not
        here, or for an architecture, it is the first GPU of that target in the file.
        """
        if device == NO_GPU:
            return "none"
        asked = getattr(driver.active, "gpu", None)
        if asked is not None and asked.multiprocessors is not None:
            return str(asked.key)
        target = driver.active.get_current_target()
        name = f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)
        here = [one for one in present_gpus() if one.gpu.target.name == name]
        same = [one.gpu.key for one in here if one.index == device]
        alike = [one for one in self._file.gpus if find_gpu(one).target.name == name]
        return next(iter([*same, *alike]), name)

    def _is_left(self, config: Any, named: Mapping[str, Any]) -> bool:
        prune = None if self._author is None else self._author.early_config_prune
        if prune is None or prune is early_config_prune:  # which drops what would be slow
            return True
        others = {name: value for name, value in named.items() if name not in self.arg_names}
        arguments = {name: named[name] for name in named.keys() - others.keys()}
        return any(_same(one, config) for one in prune([config], arguments, **others))

    def _fallback(self, why: str, device: int, named: Mapping[str, Any] | None) -> _Way:
        """Return how to launch without the file, and warn with *why* unless that was done before.

        Raises InputError if no configuration is known and the launch with *named* needs one.
        """
        config = self.configs[0]
        if self._own is not None and device != NO_GPU:
            way, then = _Way(self._autotune), "Triton's autotuner chooses"
        elif self._own is not None:
            way = _Way(self.fn.run, config.all_kwargs(), config.pre_hook, config)
            then = f"{config} is launched"
        elif self._chosen and config.kwargs.keys() <= set(self.arg_names):
            way = _Way(self.fn.run, self._chosen[0], None, config)
            then = f"{config} is launched"
        else:
            way, then = _Way(self.fn.run), "it is launched as it is"
            self._check_complete(why, named)
        # Another file beneath may cover the launch, and warns itself if it does not.
        if why not in self._warned and not isinstance(self._own, Tuned):
            self._warned.add(why)
            message = f"{self._jit.__name__} is not launched by {self._path}: {why}; {then}"
            warnings.warn(message, UntunedWarning, stacklevel=5)
        return way

    def _check_complete(self, why: str, named: Mapping[str, Any] | None) -> None:
        if named is None or self.fn is not self._jit:
            return
        parameters = getattr(self._jit, "params", ())
        constexprs = [one.name for one in parameters if one.is_constexpr]
        if missing := [one for one in constexprs if one not in {*named, *self._defaults}]:
            because = why if why == self._unreadable else f"{self._path} gives none, as {why}"
            refuse(
                f"{self._jit.__name__} is launched without a value for {few_of(missing)}; {because}"
            )


def _device() -> int:
    try:
        return int(driver.active.get_current_device())
    except RuntimeError:
        return NO_GPU


def _pruning(tuner: Tuned, file: TunedFile, own: Any) -> Callable[..., list[Any]]:
    """Return the `early_config_prune` of *tuner*, which torch.compile can trace.

    torch.compile takes the result of `chosen` without looking inside. A size that torch.compile
    leaves symbolic is made a number, for which it compiles a graph.
    """
    values, tensors = [*file.sizes, *file.constexprs], [*file.tensors]
    others = 1 if own is None else len(own.configs)
    prune_others = None if own is None else own.early_config_prune

    def chosen(*told: Any) -> int | None:
        return tuner.place_of(*told)

    # What torch.compiler.assume_constant_result sets, without an import of torch.
    chosen._dynamo_marked_constant = True  # type: ignore[attr-defined] # noqa: SLF001

    def prune(configs: list[Any], named_args: Mapping[str, Any], **kwargs: Any) -> list[Any]:
        given = {**named_args, **kwargs}
        told = [given.get(name, NOT_PASSED) for name in values]
        told = [
            operator.index(one) if isinstance(one, int) and not isinstance(one, bool) else one
            for one in told
        ]
        passed = [given.get(name) for name in tensors]
        told += [getattr(one, "dtype", one) for one in passed]  # `warmup` may be given a dtype
        # torch.compile passes no grid.
        place = tuner.place_of(*told, named=given) if "grid" in kwargs else chosen(*told)
        if place is not None:
            return [configs[place]]
        left = configs[:others]
        return left if prune_others is None else prune_others(left, named_args, **kwargs)

    return prune


def _config(settings: Mapping[str, Any]) -> Any:
    own = inspect.signature(Config).parameters.keys() - {"kwargs", "pre_hook"}
    options = {name: value for name, value in settings.items() if name in own}
    return Config({name: settings[name] for name in settings if name not in own}, **options)


def _passes(named: Mapping[str, Any], only: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether a launch with *named* has the numbers and the grid of *only*."""
    grid = named.get("grid")
    grid = grid({**named, **settings}) if callable(grid) else grid
    sizes = [*grid] if isinstance(grid, tuple | list) else [grid]
    ones = [1] * 3
    return [*sizes, *ones][:3] == [*only["grid"], *ones][:3] and all(
        plain(named.get(name)) == value for name, value in only.items() if name != "grid"
    )


def _same(one: Any, other: Any) -> bool:
    mine, its = (
        {name: _value(value) for name, value in config.all_kwargs().items()}
        for config in (one, other)
    )
    return mine == its


def _value(value: Any) -> Any:
    return in_file(plain(value))


def _triton_dtype(dtype: Any) -> str | None:
    try:
        return None if dtype is None else TRITON_DTYPES[dtype_name(dtype)]
    except InputError:
        return None
