"""The tutorial's formula equals its printed code, with the drivers' numbers."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from occupancy_lab.gpus import architectures
from occupancy_lab.occupancy import Rocm, known_to, tutorial_occupancy
from occupancy_lab.values import Resources

NVIDIA_MAX_NUM_REGS = 65536
NVIDIA_MAX_SHARED_MEM = {
    "sm_70": 98304,
    "sm_75": 65536,
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_87": 166912,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_100": 232448,
    "sm_103": 232448,
    "sm_120": 101376,
    "sm_121": 101376,
}
"""CUDA's opt-in maximum of shared memory per block, as deviceQuery prints it."""

AMD_PROPERTIES = {
    "gfx908": (65536, 65536, 2560, 64),
    "gfx90a": (131072, 65536, 2048, 64),
    "gfx942": (131072, 65536, 2048, 64),
    "gfx950": (131072, 163840, 2048, 64),
    "gfx1030": (131072, 65536, 2048, 32),
    "gfx1100": (196608, 65536, 2048, 32),
    "gfx1101": (196608, 65536, 2048, 32),
    "gfx1102": (131072, 65536, 2048, 32),
    **dict.fromkeys(("gfx1103", "gfx1150", "gfx1152", "gfx1153"), (131072, 65536, 2048, 32)),
    "gfx1151": (196608, 65536, 2048, 32),
    "gfx1200": (196608, 65536, 2048, 32),
    "gfx1201": (196608, 65536, 2048, 32),
    "gfx1250": (131072, 327680, 2048, 32),
}
"""HIP's values since 2025: max_num_regs, max_shared_mem, max_threads_per_sm, warpSize."""

MAX_NUM_REGS_UNTIL_ROCM_6_3 = 65536


def as_printed(name: str, rocm: Rocm, n_regs: int, num_warps: int, size_smem: int) -> int:
    """Return the `occupancy` in python/tutorials/02-fused-softmax.py, in its own names."""
    if name.startswith("gfx"):
        max_num_regs, max_shared_mem, max_threads_per_sm, warp_size = AMD_PROPERTIES[name]
        num_gprs = MAX_NUM_REGS_UNTIL_ROCM_6_3 if rocm is Rocm.OLD else max_num_regs
        if name in {"gfx940", "gfx941", "gfx942", "gfx90a", "gfx908"}:
            num_gprs *= 2
        max_num_waves = max_threads_per_sm // warp_size
        occupancy = min(num_gprs // warp_size // n_regs, max_num_waves) // num_warps
    else:
        max_shared_mem = NVIDIA_MAX_SHARED_MEM[name]
        occupancy = NVIDIA_MAX_NUM_REGS // (n_regs * 32 * num_warps)
    return min(occupancy, max_shared_mem // size_smem)


CASES = [
    (name, rocm)
    for name, architecture in architectures().items()
    for rocm in known_to(architecture) or (Rocm.CURRENT,)
]


@settings(max_examples=200)
@given(st.sampled_from(CASES), st.from_type(Resources))
@example(("sm_90", Rocm.CURRENT), Resources(32, 8, 12320))
@example(("gfx908", Rocm.OLD), Resources(20, 1, 32))
def test_equals_the_printed_formula(case: tuple[str, Rocm], resources: Resources) -> None:
    """Programs equal the tutorial's own code; None if it divides by zero."""
    name, rocm = case
    found = tutorial_occupancy(resources, architectures()[name], rocm).programs_per_multiprocessor
    if resources.n_regs == 0 or resources.shared == 0:
        with pytest.raises(ZeroDivisionError):
            as_printed(name, rocm, resources.n_regs, resources.num_warps, resources.shared)
        assert found is None
    else:
        assert found == as_printed(
            name, rocm, resources.n_regs, resources.num_warps, resources.shared
        )


@pytest.mark.parametrize(
    ("target", "known"),
    [
        ("sm_90", ()),
        ("gfx942", (Rocm.CURRENT, Rocm.OLD)),
        ("gfx1100", (Rocm.CURRENT, Rocm.OLD)),
        ("gfx950", (Rocm.CURRENT,)),
        ("gfx1201", (Rocm.CURRENT,)),
    ],
)
def test_old_rocm_is_not_asked_for_gpus_that_it_did_not_know(
    target: str, known: tuple[Rocm, ...]
) -> None:
    """ROCm up to 6.3 lacks gfx950 and gfx12, and every ROCm NVIDIA."""
    assert known_to(architectures()[target]) == known
