"""The folder of Inductor's cache, and the launches of Inductor's kernels, dry or real."""

from __future__ import annotations

import contextlib
import getpass
import importlib.abc
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""The environment variable that names Inductor's cache."""
HELPERS = "torch._inductor.runtime.triton_helpers"
HEURISTICS = "torch._inductor.runtime.triton_heuristics"
ENVIRONMENT = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""Makes Inductor load its kernels in this process: its workers would compile for a real GPU."""
CACHE_TAG = "occupancy-lab, attention of the GPU"
"""Separates what a dry run compiles in Inductor's cache, whose keys know nothing of a dry run."""


def cache_directory() -> str:
    """Return Inductor's cache folder as torch's `cache_dir_utils` does; it may not exist."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return chosen
    try:
        name = getpass.getuser()
    except (KeyError, ImportError, OSError):
        name = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", name)
    return f"{tempfile.gettempdir()}/torchinductor_{name}"


class _Finder(importlib.abc.MetaPathFinder):
    """Patches modules of Inductor when they are imported, which a program does late or never."""

    def __init__(self, patches: dict[str, Callable[[Any], None]]) -> None:
        self._patches = patches

    def find_spec(self, name: str, path: Any, _target: object = None) -> ModuleSpec | None:
        if name not in self._patches:
            return None
        others = (one.find_spec(name, path) for one in sys.meta_path if one is not self)
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_patched(module: Any) -> None:
                execute(module)
                self._patches[name](module)

            loader.exec_module = execute_patched
        return spec


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration in which a kernel of Inductor can be launched."""

    tuned: Mapping[str, Any]
    """What the configuration sets, by name."""
    arguments: Mapping[str, Any]
    """The other arguments, by name."""
    grid: tuple[int, ...]


@contextlib.contextmanager
def compiled_models(note: Callable[[Any, Sequence[Configured]], None]) -> Iterator[None]:
    """Pass Inductor's kernels to *note* in the block instead of launching them.

    *note* takes the JITFunction and its configurations.
    """
    from unittest import mock

    import torch

    def launch(tuner: Any, *args: Any, **_: Any) -> None:
        note(tuner.fn, list(_configurations(tuner, tuner.configs, args)))

    def empty(size: Any, stride: Any, dtype: Any) -> Any:
        return torch.empty_strided(size, stride, dtype=dtype, device="cuda")

    with contextlib.ExitStack() as stack:

        def patch_helpers(module: Any) -> None:
            stack.enter_context(mock.patch.object(module, "set_driver_to_gpu"))

        def patch_heuristics(module: Any) -> None:
            kernel = module.CachingAutotuner
            stack.enter_context(mock.patch.object(kernel, "precompile"))
            stack.enter_context(mock.patch.object(kernel, "run", launch))

        stack.enter_context(_patched({HELPERS: patch_helpers, HEURISTICS: patch_heuristics}))
        guards: Any = torch._C._dynamo.guards  # noqa: SLF001 - where Inductor finds it
        stack.enter_context(mock.patch.object(guards, "_empty_strided_cuda", empty, create=True))
        config: Any = torch.compiler.config
        stack.enter_context(config.patch(cache_key_tag=CACHE_TAG))
        stack.enter_context(mock.patch.dict(os.environ, ENVIRONMENT))
        yield


@contextlib.contextmanager
def launched_models(note: Callable[[Any, Sequence[Configured]], None]) -> Iterator[None]:
    """Pass Inductor's kernels to *note* in the block, as `compiled_models` does, once launched.

    Nothing is taken from Inductor's caches, whose kernels have no source.
    """
    from unittest import mock

    import torch

    configs: dict[Any, Sequence[Any]] = {}

    with contextlib.ExitStack() as stack:

        def patch(module: Any) -> None:
            kernel = module.CachingAutotuner
            precompile, run = kernel.precompile, kernel.run

            def keep_and_precompile(tuner: Any, *args: Any, **kwargs: Any) -> None:
                configs.setdefault(tuner, tuner.configs or ())  # it forgets them
                precompile(tuner, *args, **kwargs)

            def launch_and_note(tuner: Any, *args: Any, **kwargs: Any) -> Any:
                result = run(tuner, *args, **kwargs)
                note(tuner.fn, list(_configurations(tuner, configs.get(tuner, ()), args)))
                return result

            stack.enter_context(mock.patch.object(kernel, "precompile", keep_and_precompile))
            stack.enter_context(mock.patch.object(kernel, "run", launch_and_note))

        stack.enter_context(_patched({HEURISTICS: patch}))
        config: Any = torch.compiler.config
        stack.enter_context(config.patch(force_disable_caches=True))
        stack.enter_context(mock.patch.dict(os.environ, ENVIRONMENT))
        yield


@contextlib.contextmanager
def _patched(patches: dict[str, Callable[[Any], None]]) -> Iterator[None]:
    """Patch modules now, or in the block when they are imported."""
    for name, patch in patches.items():
        if name in sys.modules:
            patch(sys.modules[name])
    finder = _Finder(patches)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _configurations(
    tuner: Any, configs: Sequence[Any], args: Sequence[Any]
) -> Iterator[Configured]:
    """Return the configurations *configs* of a launch of *tuner* with *args*."""
    heuristics = sys.modules[HEURISTICS]
    constants = dict(tuner.triton_meta.get("constants", {}))
    for config in configs:
        set_by_it = heuristics.config_to_dict(config)
        names = [
            name for name in tuner.fn.arg_names if name not in set_by_it and name not in constants
        ]
        names += tuner.inductor_meta.get("extra_launcher_args", ())  # a grid given by the user
        given = {**constants, **set_by_it, **dict(zip(names, args, strict=False))}
        grid = heuristics.GridExpr.from_meta(tuner.inductor_meta, config).eval_slow(given)
        tuned = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        others = [name for name in tuner.fn.arg_names if name not in tuned]
        yield Configured(tuned, dict(zip(others, args, strict=False)), grid)
