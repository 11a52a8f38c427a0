"""What the formulas say of a kernel when one of its amounts is varied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.occupancy import exact_rules
from occupancy_lab.occupancy.evaluate import programs
from occupancy_lab.occupancy.tutorial import tutorial_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.occupancy.calculator import Calculation

    Array = np.ndarray[Any, np.dtype[Any]]

FIELDS = ("n_regs", "shared", "num_warps")
"""The fields of Resources that can be varied."""


@dataclass(frozen=True, slots=True)
class Series:
    """Programs per multiprocessor over one field of Resources, the others as the kernel has them.

    The arrays have an element an amount.
    """

    field: str
    """One of FIELDS."""
    amounts: Array
    here: int
    """The amount that this kernel takes."""
    exact: Array
    tutorial: Array
    """NaN where the tutorial's formula divides by zero."""
    limiting: Mapping[str, Array]
    """By resource, in the order of the rules: whether it is a limiter."""

    @property
    def at_kernel(self) -> tuple[int, int | None]:
        """What the exact and the tutorial's formula give for the amount that this kernel takes."""
        (at,) = np.flatnonzero(self.amounts == self.here)
        said = self.tutorial[at]
        return int(self.exact[at]), None if np.isnan(said) else int(said)

    @property
    def edges(self) -> Array:
        """The bounds between which each amount is drawn, one more than there are amounts."""
        if self.field != "num_warps":
            return np.append(self.amounts, self.amounts[-1] + 1)
        between = (self.amounts[1:] + self.amounts[:-1]) / 2
        return np.concatenate(([0.75], between, [self.amounts[-1] * 1.5]))


def _amounts(calculation: Calculation, field: str) -> tuple[range | list[int], int]:
    """Return the amounts of *field* that a kernel may take, and what this one takes."""
    architecture, resources = calculation.architecture, calculation.resources
    if field == "num_warps":
        powers = range(architecture.max_warps_per_program.bit_length())
        return [1 << power for power in powers], resources.num_warps
    if field == "shared":
        return range(max(architecture.max_shared, resources.shared) + 1), resources.shared
    if isinstance(architecture, CudaArchitecture):
        most = architecture.max_registers_per_thread
    else:
        most = architecture.max_vgprs
    (here,) = (step.now for step in calculation.next_steps if step.resource == "registers")
    return range(max(most, here) + 1), here


def make_series(calculation: Calculation, field: str) -> Series:
    """Return what both formulas say of *calculation*'s kernel with other amounts of *field*.

    VGPRs are those that the exact formula counts, the padding of the kernel's descriptor included.
    """
    amounts, here = _amounts(calculation, field)
    usage = calculation.resources.replace(**{field: np.asarray(amounts, dtype="int64")})
    if field == "n_regs":
        usage = usage.replace(allocated_vgprs=None)
    architecture, shape = calculation.architecture, len(amounts)

    def limits(rules: Any) -> dict[str, Array]:
        found = programs(rules, usage, architecture, np.where)
        return {name: np.broadcast_to(limit, shape) for name, limit in found.items()}

    exact = limits(exact_rules(architecture))
    least = np.minimum.reduce(list(exact.values()))
    said = np.minimum.reduce(list(limits(tutorial_rules(architecture)).values()))
    fails = np.broadcast_to((usage.shared == 0) | (usage.n_regs == 0), shape)
    return Series(
        field=field,
        amounts=np.asarray(amounts),
        here=here,
        exact=least,
        tutorial=np.where(fails, np.nan, said),
        limiting={name: limit == least for name, limit in exact.items()},
    )
