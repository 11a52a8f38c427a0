"""Python imports this at its start under `occupancy-lab trace`; it waits for Triton.

A copy of this file is in a folder at the front of PYTHONPATH. Nothing is imported or noted before
the program imports Triton, and the program's own sitecustomize runs as usual.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in typing, which is not imported here
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

FOLDER = "OCCUPANCY_LAB_TRACE"
"""The environment variable that names the folder of the records."""
PACKAGE = "_occupancy_lab_trace"
"""The package name under which the copied modules that note launches are imported."""
STARTED = "started"
"""The file in that folder which shows that a Python ran and could note launches."""
MODULES = frozenset(
    {
        "triton.compiler.compiler",
        "triton.runtime.autotuner",
        "torch.cuda.graphs",
        "torch._inductor.runtime.triton_heuristics",
        "torch._inductor.runtime.benchmarking",
    }
)
"""The modules through which launches go."""


class Finder:
    """A module finder that calls *patch* with each of MODULES once it is imported."""

    def __init__(self, patch: Callable[[str, ModuleType], None]) -> None:
        self.patch = patch

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return how the other finders import *name*, if it is one of MODULES; else None."""
        if name not in MODULES:
            return None
        others = (one.find_spec(name, path, target) for one in sys.meta_path if one is not self)
        spec: Any = next((one for one in others if one is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self.patch(name, module)

            spec.loader.exec_module = exec_module
        return spec


def imported() -> list[ModuleType]:
    """Return those of MODULES that are already imported."""
    found = (sys.modules.get(name) for name in MODULES)
    return [one for one in found if one and not getattr(one.__spec__, "_initializing", False)]


def _patch_first(name: str, module: ModuleType) -> None:
    """Load the noting modules with the first module of Triton, and let them patch it."""
    if not name.startswith("triton."):
        return
    try:
        from importlib import import_module

        package = sys.modules[PACKAGE] = type(sys)(PACKAGE)
        package.__path__ = [os.path.join(os.environ[FOLDER], "start")]
        session = import_module(f"{PACKAGE}.hook").Session.of_process(os.environ[FOLDER])
        found = (one for one in sys.meta_path if getattr(one, "patch", None) is _patch_first)
        finder: Any = next(found)
        finder.patch = session.launchers.patch
        for one in [*imported(), module]:
            finder.patch(one.__name__, one)
    except Exception:  # noqa: BLE001, S110 - no error may reach the program
        pass


def _start() -> None:
    """Wait for Triton, and let the program's own sitecustomize take this module's place."""
    folder, here = os.environ.get(FOLDER), os.path.dirname(__file__)
    if folder and os.path.isdir(folder):
        try:
            os.close(os.open(f"{folder}/{STARTED}", os.O_WRONLY | os.O_CREAT, 0o600))
            sys.meta_path.insert(0, Finder(_patch_first))
        except OSError:
            pass
    sys.path[:] = [one for one in sys.path if one != here]
    # The import system returns what is in sys.modules in the end, or fails if nothing is there.
    del sys.modules[__name__]
    __import__(__name__)


if __name__ == "sitecustomize":
    _start()
