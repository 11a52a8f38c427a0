"""The exact occupancy, and how far a kernel is from its next cliffs."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace

from occupancy_lab.gpus import Architecture, CudaArchitecture
from occupancy_lab.occupancy import cuda, hip
from occupancy_lab.occupancy.hip import needed_vgprs
from occupancy_lab.occupancy.rule import Rule, Where, limits, programs, scalar_where
from occupancy_lab.values import NextStep, Occupancy, Resources


def exact_rules(architecture: Architecture) -> tuple[Rule, ...]:
    """Return the rules of the architecture's vendor."""
    return cuda.RULES if isinstance(architecture, CudaArchitecture) else hip.RULES


def occupancy(resources: Resources, architecture: Architecture) -> Occupancy:
    """Return the programs per multiprocessor with every limit, its steps and the limiters.

    Zero programs means that the kernel cannot be launched there.
    """
    found = limits(exact_rules(architecture), resources, architecture)
    return Occupancy(
        programs_per_multiprocessor=min(
            limit.programs for limit in found if limit.programs is not None
        ),
        num_warps=resources.num_warps,
        max_warps=architecture.max_warps,
        limits=found,
    )


FIELDS = tuple(field.name for field in dataclasses.fields(Resources))


def stepped_amounts(
    resources: Resources, architecture: Architecture, where: Where = scalar_where
) -> dict[str, tuple[int, int]]:
    """Return each resource of which a kernel can use less or more: its use and the maximum."""
    if isinstance(architecture, CudaArchitecture):
        n_regs = (resources.n_regs, architecture.max_registers_per_thread)
        amounts = {"registers": n_regs, "shared": (resources.shared, architecture.max_shared)}
        if resources.tensor_memory and architecture.tensor_memory is not None:
            amounts["tensor_memory"] = (resources.tensor_memory, architecture.tensor_memory)
        return amounts
    vgprs = needed_vgprs(resources, architecture, where)
    amounts = {"registers": (vgprs, architecture.max_vgprs)}
    if resources.sgprs is not None and architecture.max_sgprs is not None:
        amounts["sgprs"] = (resources.sgprs, architecture.max_sgprs)
    return {**amounts, "shared": (resources.shared, architecture.max_shared)}


def option_for(
    architecture: Architecture, resource: str, amount: int | None, where: Where = scalar_where
) -> str | None:
    """Return the launch option that asks the compiler for at most *amount* of *resource*.

    On AMD this is waves_per_eu: a wave gets the registers of a SIMD divided by the number of waves,
    rounded down to the granule (LLVM's getMaxNumVGPRs). Among the values that leave a wave no more
    than *amount*, it is one that leaves most; if there is none, the value that leaves fewest.
    """
    if resource != "registers" or amount is None:
        return None
    if isinstance(architecture, CudaArchitecture):
        return f"maxnreg={amount}"
    file, granule = architecture.vgprs_per_simd, architecture.vgpr_granule
    fewest = file // (amount // granule * granule + granule) + 1
    registers = file // fewest // granule * granule
    waves = file // where(registers == 0, 1, registers)
    most = architecture.max_waves_per_simd
    return f"waves_per_eu={where(waves > most, most, waves)}"


def _changes(resource: str, amount: int) -> dict[str, int | None]:
    if resource == "registers":
        return {"n_regs": amount, "allocated_vgprs": None}
    return {resource: amount}


def limiting(resources: Resources, architecture: Architecture) -> dict[str, int]:
    """Return the programs per multiprocessor that each resource allows; UNLIMITED for no limit."""
    return programs(exact_rules(architecture), resources, architecture)


def programs_after(
    steps: Sequence[NextStep], resources: Resources, architecture: Architecture
) -> int | None:
    """Return the programs that fit once every limiter is at the amount for one more program.

    These may be several more programs, because amounts come in steps. Return None if a limiter has
    no such amount.
    """
    most = {step.resource: step.most_for_one_more for step in steps}
    allowed = limiting(resources, architecture)
    for resource in (name for name in allowed if allowed[name] == min(allowed.values())):
        amount = most.get(resource)
        if amount is None:
            return None
        resources = resources.replace(**_changes(resource, amount))
    return min(limiting(resources, architecture).values())


def next_steps(resources: Resources, architecture: Architecture) -> tuple[NextStep, ...]:
    """Return the cliffs on either side for each resource of which a kernel can use less or more.

    These are registers, shared memory, SGPRs and tensor memory, each considered alone: one more
    program needs every limiter to allow it. If warps, slots or barriers allow no more programs than
    now, no amount of another resource does.
    """
    rules = {rule.resource: rule for rule in exact_rules(architecture)}
    allowed_now = limiting(resources, architecture)
    amounts_of = stepped_amounts(resources, architecture)
    now = min(allowed_now.values())
    full = any(allowed_now[resource] == now for resource in allowed_now.keys() - amounts_of.keys())
    steps = []
    for resource, (used, most) in amounts_of.items():
        # A namespace is changed in place, because replacing fields of Resources is 10 times slower.
        usage = SimpleNamespace(**{name: getattr(resources, name) for name in FIELDS})

        def allowed(amount: int, usage: SimpleNamespace = usage, resource: str = resource) -> int:
            vars(usage).update(_changes(resource, amount))
            return -int(programs((rules[resource],), usage, architecture)[resource])

        # A limit never rises with the amount, so its negative is sorted and can be bisected.
        amounts = range(1 if resource == "registers" else 0, most + 1)
        allow_one_more = bisect.bisect_right(amounts, -(now + 1), key=allowed)
        allow_as_many = bisect.bisect_right(amounts, -now, key=allowed)
        more = amounts[allow_one_more - 1] if allow_one_more and not full else None
        fewer = amounts[allow_as_many] if allow_as_many < len(amounts) else None
        option = option_for(architecture, resource, more if more is None or more < used else None)
        steps.append(NextStep(resource, used, more, fewer, option))
    return tuple(steps)
