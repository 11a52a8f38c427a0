"""occupancy-lab: how a Triton kernel will sit on a GPU, and why, before it is launched."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from occupancy_lab.comparing import Comparison, compare
    from occupancy_lab.errors import (
        BinaryError,
        CompileError,
        DoesNotFitError,
        DriverError,
        InputError,
        OccupancyLabError,
        TargetError,
    )
    from occupancy_lab.explaining import Explanation, explain
    from occupancy_lab.gpus import Gpu, find_gpu, present_gpus
    from occupancy_lab.kernel import Kernel, load_kernel
    from occupancy_lab.sweeping import sweep
    from occupancy_lab.tuning import Tuning, config_pruner, tune
    from occupancy_lab.values import Config, Occupancy, Problem, Resources

__version__ = "0.1.0"

_HOMES = {
    "occupancy_lab.comparing": ("Comparison", "compare"),
    "occupancy_lab.errors": (
        "BinaryError",
        "CompileError",
        "DoesNotFitError",
        "DriverError",
        "InputError",
        "OccupancyLabError",
        "TargetError",
    ),
    "occupancy_lab.explaining": ("Explanation", "explain"),
    "occupancy_lab.gpus": ("Gpu", "find_gpu", "present_gpus"),
    "occupancy_lab.kernel": ("Kernel", "load_kernel"),
    "occupancy_lab.sweeping": ("sweep",),
    "occupancy_lab.tuning": ("Tuning", "config_pruner", "tune"),
    "occupancy_lab.values": ("Config", "Occupancy", "Problem", "Resources"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BinaryError",
    "Comparison",
    "CompileError",
    "Config",
    "DoesNotFitError",
    "DriverError",
    "Explanation",
    "Gpu",
    "InputError",
    "Kernel",
    "Occupancy",
    "OccupancyLabError",
    "Problem",
    "Resources",
    "TargetError",
    "Tuning",
    "compare",
    "config_pruner",
    "explain",
    "find_gpu",
    "load_kernel",
    "present_gpus",
    "sweep",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import occupancy_lab` itself is free."""
    if name not in _HOME_OF:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
