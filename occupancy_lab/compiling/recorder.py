"""Launches that are noted instead of made, as if the GPU were here.

An autotuned launch stands for one launch of each configuration that is left after pruning; later
launches with the same tuning key count as further launches of these, as which of them Triton would
take, only times tell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Mapping  # noqa: TC003 - `from_line` reads the fields' types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling.compile import compile_launch
from occupancy_lab.compiling.offline import offline, offline_torch
from occupancy_lab.kernel import Variant, variants
from occupancy_lab.launch import (
    BoundLaunch,
    Launch,
    Plain,
    constant_text,
    is_plain,
    launch_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from occupancy_lab.compiling.offline import Device
    from occupancy_lab.compiling.store import Store
    from occupancy_lab.values import Resources


@dataclass(frozen=True, slots=True)
class ScriptLaunch:
    """A launch that a script makes; what is no plain value in it is its text."""

    bound: BoundLaunch
    place: str
    """The file and line of the launch line that made it first: bench.py:12."""
    call: int
    """Which launch line that was: the configurations of an autotuner are of one."""
    times: int
    """How often it is made."""
    tuned: Mapping[str, Plain]
    """What the autotuner's configuration sets, by name; empty where nothing is tuned."""


class _Compiled:
    """Stands for the CompiledKernel that a launch or a warmup returns; compiles when asked."""

    def __init__(self, recorder: Recorder, variant: Variant) -> None:
        self._recorder = recorder
        self._variant = variant

    @property
    def n_regs(self) -> int:
        """Registers per thread, as the driver would say."""
        return self._recorder.resources_of(self._variant).n_regs

    @property
    def n_spills(self) -> int | None:
        """Spilled registers per thread, as the driver would say."""
        return self._recorder.resources_of(self._variant).n_spills

    def _init_handles(self) -> None:
        """Do nothing: nothing is loaded."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """Return what notes a launch of the kernel as it was compiled."""

        def launch(*_: object, **__: object) -> None:
            function, found = self._variant.function, self._variant.launch
            again = launch_of(function, found.arguments, found.keywords, grid)
            self._recorder.note(Variant(function, again))

        return launch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._recorder.compiled(self._variant), name)


class Recorder:
    """Notes the launches that are made while it is `recording`."""

    def __init__(self, device: Device, store: Store) -> None:
        self._device = device
        self._store = store
        self._compiling = False
        self._found: dict[str, Variant] = {}
        self._plain: dict[str, ScriptLaunch] = {}
        self._calls = 0
        self._times: dict[str, int] = {}
        self._tuned: dict[tuple[Any, ...], list[Variant]] = {}

    def note(self, *variants: Variant) -> None:
        """Count a launch, or all that an autotuner would try for it.

        Raises InputError where an argument is missing.
        """
        self._calls += 1
        for variant in variants:
            key = repr((id(variant.function), variant.launch, variant.tuned))
            if key not in self._found:
                self._plain[key] = ScriptLaunch(
                    _in_plain(variant), _place(), self._calls, 0, _texts(variant.tuned)
                )
                self._found[key] = variant
            self._times[key] = self._times.get(key, 0) + 1

    @property
    def launches(self) -> tuple[ScriptLaunch, ...]:
        """The launches, in the order in which they first appeared."""
        return tuple(
            dataclasses.replace(one, times=self._times[key]) for key, one in self._plain.items()
        )

    def resources(self, index: int, changes: Mapping[str, Plain]) -> Resources:
        """Return what a program of the launch that is *index* takes, with *changes* of keywords."""
        variant = list(self._found.values())[index]
        keywords = {**variant.launch.keywords, **changes}
        launch = dataclasses.replace(variant.launch, keywords=keywords)
        return self.resources_of(dataclasses.replace(variant, launch=launch))

    def resources_of(self, variant: Variant) -> Resources:
        """Return what a program of a launch takes."""
        function, launch = variant.function, variant.launch
        with self._untouched():
            return compile_launch(function, launch, self._device.target, self._store)

    def compiled(self, variant: Variant) -> Any:
        """Return Triton's CompiledKernel of a launch."""
        with self._untouched(), offline(self._device.target):
            return variant.launch.warm_up(variant.function)

    @contextlib.contextmanager
    def _untouched(self) -> Iterator[None]:
        """Let Triton itself run in the block."""
        before, self._compiling = self._compiling, True
        try:
            yield
        finally:
            self._compiling = before

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Note launches in the block instead of making them, as if the device were here."""
        from unittest import mock

        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        run = JITFunction.run

        def note_run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if self._compiling:
                return run(function, *args, grid=grid, warmup=warmup, **kwargs)
            launch = launch_of(function, args, kwargs, None if warmup else grid)
            variant = Variant(function, launch)
            if not warmup:
                self.note(variant)
            return _Compiled(self, variant)

        def note_tuned(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            grid = kwargs.pop("grid")
            kwargs.pop("warmup", None)
            key = (id(tuner), *_tuning_key(tuner, args, kwargs))
            if key not in self._tuned:
                self._tuned[key] = list(variants(tuner, args, kwargs, grid))
            self.note(*self._tuned[key])
            tuner.best_config = tuner.configs[0]
            return _Compiled(self, self._tuned[key][0])

        with (
            mock.patch.object(JITFunction, "run", note_run),
            mock.patch.object(Autotuner, "run", note_tuned),
            offline_torch(self._device),
        ):
            yield


def _place() -> str:
    """Return the file and line of the launch line: the first that is not Triton's or this file."""
    import triton

    frame = sys._getframe(1)  # noqa: SLF001 - what inspect.currentframe calls
    own = (str(Path(triton.__file__).parent), __file__)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _tuning_key(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return what Triton tunes anew for: the values of `key`, and the dtypes of all tensors."""
    named = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
    given = {name: value for name, value in named.items() if name in tuner.arg_names}
    dtypes = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
    return (*(repr(given[name]) for name in tuner.keys if name in given), *dtypes)


def _in_plain(variant: Variant) -> BoundLaunch:
    """Return a launch as another process can be sent it."""
    bound, launch = BoundLaunch.of(variant.function, variant.launch), variant.launch
    arguments = _texts(dict(enumerate(launch.arguments)))
    return dataclasses.replace(
        bound,
        launch=Launch(tuple(arguments.values()), _texts(launch.keywords), launch.grid),
        arguments=_texts(bound.arguments),
        options=_texts(bound.options),
    )


def _texts(values: Mapping[Any, Any]) -> dict[Any, Plain]:
    """Return *values*, with the name or the text of each that is no plain value."""
    return {
        key: value if is_plain(value) else getattr(value, "__name__", None) or constant_text(value)
        for key, value in values.items()
    }
