"""The folder of Inductor's cache, and Inductor's kernels in a dry run, which launches none."""

from __future__ import annotations

import contextlib
import getpass
import importlib.abc
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
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


@contextlib.contextmanager
def compiled_models(note: Callable[..., None]) -> Iterator[None]:
    """Pass Inductor's kernels to *note* in the block instead of launching them.

    *note* takes the JITFunction, the keywords and grid of each configuration, and the arguments.
    """
    from unittest import mock

    import torch

    def launch(tuner: Any, *args: Any, **_: Any) -> None:
        heuristics = sys.modules[HEURISTICS]
        note(tuner.fn, list(_configurations(heuristics, tuner, args)), args)

    def empty(size: Any, stride: Any, dtype: Any) -> Any:
        return torch.empty_strided(size, stride, dtype=dtype, device="cuda")

    with contextlib.ExitStack() as stack:

        def patch_helpers(module: Any) -> None:
            stack.enter_context(mock.patch.object(module, "set_driver_to_gpu"))

        def patch_heuristics(module: Any) -> None:
            kernel = module.CachingAutotuner
            stack.enter_context(mock.patch.object(kernel, "precompile"))
            stack.enter_context(mock.patch.object(kernel, "run", launch))

        patches: dict[str, Callable[[Any], None]] = {
            HELPERS: patch_helpers,
            HEURISTICS: patch_heuristics,
        }
        for name, patch in patches.items():
            if name in sys.modules:
                patch(sys.modules[name])
        finder = _Finder(patches)
        sys.meta_path.insert(0, finder)
        stack.callback(sys.meta_path.remove, finder)
        guards: Any = torch._C._dynamo.guards  # noqa: SLF001 - where Inductor finds it
        stack.enter_context(mock.patch.object(guards, "_empty_strided_cuda", empty, create=True))
        config: Any = torch.compiler.config
        stack.enter_context(config.patch(cache_key_tag=CACHE_TAG))
        stack.enter_context(mock.patch.dict(os.environ, ENVIRONMENT))
        yield


def _configurations(
    heuristics: Any, tuner: Any, args: tuple[Any, ...]
) -> Iterator[tuple[dict[str, Any], tuple[int, ...]]]:
    constants = dict(tuner.triton_meta.get("constants", {}))
    for config in tuner.configs:
        set_by_it = heuristics.config_to_dict(config)
        names = [
            name for name in tuner.fn.arg_names if name not in set_by_it and name not in constants
        ]
        names += tuner.inductor_meta.get("extra_launcher_args", ())  # a grid given by the user
        given = {**constants, **set_by_it, **dict(zip(names, args, strict=False))}
        grid = heuristics.GridExpr.from_meta(tuner.inductor_meta, config).eval_slow(given)
        keywords = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        yield keywords, grid
