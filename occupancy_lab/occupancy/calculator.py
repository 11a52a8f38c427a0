"""The occupancy of given resources on a GPU: every formula, without a kernel or a compile."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError, quoted
from occupancy_lab.inputs import asked_gpus, check_fits, check_num_warps
from occupancy_lab.occupancy import next_steps, occupancy, programs_after, tutorial_occupancy
from occupancy_lab.values import Resources

if TYPE_CHECKING:
    from occupancy_lab.gpus import Architecture, Gpu
    from occupancy_lab.inputs import AskedGpus
    from occupancy_lab.values import NextStep, Occupancy, TutorialOccupancy


@dataclass(frozen=True, slots=True)
class Calculation:
    """What the exact and the tutorial's formula say of one kernel's resources on one GPU."""

    gpu: Gpu
    resources: Resources
    occupancy: Occupancy
    next_steps: tuple[NextStep, ...]
    tutorial: TutorialOccupancy

    @property
    def title(self) -> str:
        """What the GPU is called."""
        return self.gpu.title

    @property
    def architecture(self) -> Architecture:
        """The limits of the GPU."""
        return self.gpu.architecture

    @property
    def resident_programs(self) -> int | None:
        """Programs that the whole GPU holds; None where its multiprocessors are not known."""
        if self.gpu.multiprocessors is None:
            return None
        return self.occupancy.programs_per_multiprocessor * self.gpu.multiprocessors

    @property
    def next_programs(self) -> int | None:
        """Programs that fit with every limiter at its next step; None where one has none."""
        return programs_after(self.next_steps, self.resources, self.architecture)

    def to_dict(self) -> dict[str, Any]:
        """Return the calculation as nested plain values, for JSON."""
        return {
            "gpu": self.gpu.key,
            "gpu_title": self.gpu.title,
            "target": self.gpu.target.name,
            "multiprocessors": self.gpu.multiprocessors,
            "resources": {
                **dataclasses.asdict(self.resources),
                "n_spills": self.resources.n_spills,
            },
            "programs_per_multiprocessor": self.occupancy.programs_per_multiprocessor,
            "warps_per_multiprocessor": self.occupancy.warps_per_multiprocessor,
            "max_warps": self.occupancy.max_warps,
            "occupancy": self.occupancy.occupancy,
            "limiters": list(self.occupancy.limiters),
            "limits": [dataclasses.asdict(limit) for limit in self.occupancy.limits],
            "next_steps": [dataclasses.asdict(step) for step in self.next_steps],
            "tutorial": dataclasses.asdict(self.tutorial),
            "resident_programs": self.resident_programs,
        }


def calculate(resources: Resources, gpu: Gpu) -> Calculation:
    """Return what every formula says of *resources* on *gpu*."""
    architecture = gpu.architecture
    return Calculation(
        gpu=gpu,
        resources=resources,
        occupancy=occupancy(resources, architecture),
        next_steps=next_steps(resources, architecture),
        tutorial=tutorial_occupancy(resources, architecture),
    )


def calculate_for(
    asked: AskedGpus, *, n_regs: int, shared: int, num_warps: int, **others: int | None
) -> tuple[Calculation, ...]:
    """Return the calculation of these resources on each GPU, asked for as `asked_gpus` says.

    *others* are further fields of Resources: sgprs, static_shared, barriers.

    Raises InputError for an unknown GPU, a negative amount, or a num_warps that no program has,
    and DoesNotFitError where a GPU holds not one such program.
    """
    amounts = {"n_regs": n_regs, "shared": shared, **others}
    for name, amount in amounts.items():
        if amount is not None and amount < 0:
            msg = f"{name} is {amount}; it counts something and is 0 or more"
            raise InputError(msg)
    resources = Resources(n_regs, num_warps, shared).replace(**others)
    gpus = asked_gpus(asked)
    for gpu in gpus:
        check_num_warps(num_warps, gpu.architecture)
    calculations = tuple(calculate(resources, gpu) for gpu in gpus)
    for calculation in calculations:
        check_fits(calculation)
    counted = {limit.resource for one in calculations for limit in one.occupancy.limits}
    for name in ("sgprs", "barriers"):
        if others.get(name) is not None and name not in counted:
            keys = quoted(",".join(gpu.key for gpu in gpus))
            msg = f"{name} is {others[name]}, and no limit of {keys} depends on it"
            raise InputError(msg)
    return calculations
