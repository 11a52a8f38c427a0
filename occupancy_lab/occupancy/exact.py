"""The exact occupancy, by the formula of the architecture's vendor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.occupancy import cuda, hip
from occupancy_lab.occupancy.evaluate import evaluate

if TYPE_CHECKING:
    from occupancy_lab.gpus import Architecture
    from occupancy_lab.occupancy.rule import Rule
    from occupancy_lab.values import Occupancy, Resources


def exact_rules(architecture: Architecture) -> tuple[Rule, ...]:
    """Return the rules of the architecture's vendor."""
    return cuda.RULES if isinstance(architecture, CudaArchitecture) else hip.RULES


def occupancy(resources: Resources, architecture: Architecture) -> Occupancy:
    """Return the programs of one multiprocessor with every limit, its steps and the limiters.

    Zero programs means that the kernel cannot be launched there.
    """
    return evaluate(exact_rules(architecture), resources, architecture)
