"""The nearest cliffs are those that a scan of every amount finds."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.gpus import Architecture, CudaArchitecture, architectures
from occupancy_lab.occupancy import exact_rules, next_steps, occupancy, programs_after
from occupancy_lab.occupancy.exact import option_for
from occupancy_lab.occupancy.rule import UNLIMITED, programs
from occupancy_lab.values import Resources

ARCHITECTURES = st.sampled_from(list(architectures().values()))
FIELDS = (
    *("n_regs", "num_warps", "shared", "static_shared", "barriers", "tensor_memory"),
    *("sgprs", "agprs", "allocated_vgprs"),
)
MOST_SGPRS = 108


def scan(
    resources: Resources, architecture: Architecture, resource: str
) -> tuple[int | None, int | None]:
    """Return the most of *resource* for one more program and the least for one fewer."""
    usage = SimpleNamespace(**{field: getattr(resources, field) for field in FIELDS})
    if resource == "registers":
        cuda = isinstance(architecture, CudaArchitecture)
        most = architecture.max_registers_per_thread if cuda else architecture.max_vgprs
        usage.n_regs, usage.allocated_vgprs = np.arange(1, most + 1), None
        amounts = usage.n_regs
    else:
        most = {"sgprs": MOST_SGPRS, "tensor_memory": 512}.get(resource, architecture.max_shared)
        amounts = np.arange(0, most + 1)
        setattr(usage, resource, amounts)
    limits = programs(exact_rules(architecture), usage, architecture, np.where)
    limit, now = limits[resource], occupancy(resources, architecture).programs_per_multiprocessor
    # Warps, slots and barriers have no amounts: if one of them is full, no amount makes room.
    fixed = min(int(limits[name]) for name in limits if name in {"warps", "programs", "barriers"})
    more, fewer = amounts[(limit > now) & (fixed > now)], amounts[limit < now]
    return (int(more[-1]) if len(more) else None, int(fewer[0]) if len(fewer) else None)


@given(st.from_type(Resources), ARCHITECTURES)
def test_one_kernel_is_worked_out_like_a_table(
    resources: Resources, architecture: Architecture
) -> None:
    """The scalar formula equals the vectorized one."""
    values = {field: getattr(resources, field) for field in FIELDS}
    usage = {key: value if value is None else np.array([value]) for key, value in values.items()}
    table = programs(exact_rules(architecture), SimpleNamespace(**usage), architecture, np.where)
    found = occupancy(resources, architecture)
    least = np.minimum.reduce(np.broadcast_arrays(*table.values()))
    assert found.programs_per_multiprocessor == least
    assert {
        limit.resource: UNLIMITED if limit.programs is None else limit.programs
        for limit in found.limits
    } == table


@settings(max_examples=150)
@given(st.from_type(Resources), ARCHITECTURES)
def test_equals_a_scan_of_every_amount(resources: Resources, architecture: Architecture) -> None:
    """For each resource both cliffs are where the scan finds them."""
    for step in next_steps(resources, architecture):
        found = (step.most_for_one_more, step.least_for_one_fewer)
        assert found == scan(resources, architecture, step.resource)


@pytest.mark.parametrize("name", [name for name in architectures() if name.startswith("gfx")])
def test_an_option_leaves_as_many_registers_as_may_be(name: str) -> None:
    """Of all waves_per_eu it is the last that leaves the most registers not above the amount.

    LLVM leaves a wave the registers of a SIMD divided by the waves, rounded down to the granule.
    """
    architecture = architectures()[name]
    assert not isinstance(architecture, CudaArchitecture)
    file, granule = architecture.vgprs_per_simd, architecture.vgpr_granule
    left = {
        waves: file // waves // granule * granule
        for waves in range(1, architecture.max_waves_per_simd + 1)
    }
    for amount in range(1, architecture.max_vgprs + 1):
        allowed = [one for one in left.values() if one <= amount] or [min(left.values())]
        waves = max(waves for waves, one in left.items() if one == max(allowed))
        assert option_for(architecture, "registers", amount) == f"waves_per_eu={waves}"


@settings(max_examples=300)
@given(
    st.from_type(Resources),
    ARCHITECTURES,
    st.sampled_from([field for field in FIELDS if field not in {"allocated_vgprs", "agprs"}]),
    st.integers(1, 64),
)
def test_more_of_a_resource_never_runs_more(
    resources: Resources, architecture: Architecture, field: str, more: int
) -> None:
    """More of any resource never runs more programs, or more warps than slots."""
    grown = resources.replace(**{field: (getattr(resources, field) or 0) + more})
    now, then = occupancy(resources, architecture), occupancy(grown, architecture)
    assert then.programs_per_multiprocessor <= now.programs_per_multiprocessor
    assert 0 <= now.warps_per_multiprocessor <= architecture.max_warps
    assert now.limiters


@given(st.from_type(Resources), ARCHITECTURES)
def test_every_limiter_at_its_next_step_makes_room(
    resources: Resources, architecture: Architecture
) -> None:
    """After the next steps more programs fit, unless a limiter has none."""
    now, steps = occupancy(resources, architecture), next_steps(resources, architecture)
    after = programs_after(steps, resources, architecture)
    can = {step.resource for step in steps if step.most_for_one_more is not None}
    assert (after is not None) == (set(now.limiters) <= can)
    if after is not None:
        assert after > now.programs_per_multiprocessor
