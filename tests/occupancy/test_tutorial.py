"""The tutorial's formula is the one it prints, with the numbers that drivers report."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from occupancy_lab.gpus import Architecture, architectures
from occupancy_lab.occupancy import Rocm, occupancy, tutorial_occupancy
from occupancy_lab.occupancy.tutorial import programs_without, terms_of
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
"""What CUDA's deviceQuery prints as the opt-in maximum of shared memory a block."""

AMD_PROPERTIES = {
    "gfx908": (65536, 65536, 2560, 64),
    "gfx90a": (131072, 65536, 2048, 64),
    "gfx942": (131072, 65536, 2048, 64),
    "gfx950": (131072, 163840, 2048, 64),
    "gfx1030": (131072, 65536, 2048, 32),
    "gfx1100": (196608, 65536, 2048, 32),
    "gfx1101": (196608, 65536, 2048, 32),
    "gfx1102": (131072, 65536, 2048, 32),
    "gfx1151": (196608, 65536, 2048, 32),
    "gfx1200": (196608, 65536, 2048, 32),
    "gfx1201": (196608, 65536, 2048, 32),
    "gfx1250": (131072, 327680, 2048, 32),
}
"""Of HIP since 2025: max_num_regs, max_shared_mem, max_threads_per_sm, warpSize."""

MAX_NUM_REGS_UNTIL_ROCM_6_3 = 65536


def as_printed(name: str, rocm: Rocm, n_regs: int, num_warps: int, size_smem: int) -> int:
    """Return the `occupancy` of python/tutorials/02-fused-softmax.py, in its own names."""
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


@settings(max_examples=1000)
@given(st.sampled_from(list(architectures())), st.sampled_from(Rocm), st.from_type(Resources))
@example("sm_90", Rocm.CURRENT, Resources(32, 8, 12320))
@example("gfx908", Rocm.OLD, Resources(20, 1, 32))
def test_equals_the_printed_formula(name: str, rocm: Rocm, resources: Resources) -> None:
    """The programs are those that the tutorial's own lines give; None where they divide by zero."""
    found = tutorial_occupancy(resources, architectures()[name], rocm).programs_per_multiprocessor
    if resources.n_regs == 0 or resources.shared == 0:
        with pytest.raises(ZeroDivisionError):
            as_printed(name, rocm, resources.n_regs, resources.num_warps, resources.shared)
        assert found is None
    else:
        assert found == as_printed(
            name, rocm, resources.n_regs, resources.num_warps, resources.shared
        )


ARCHITECTURES = st.sampled_from(list(architectures().values()))

FAULTS = {
    "doubled whole file": ("gfx942", "current", Resources(91, 8, 32, sgprs=60), 4, 2),
    "doubled whole file, 3.5 times": ("gfx942", "current", Resources(277, 2, 16, sgprs=60), 7, 2),
    "doubled separate file": ("gfx908", "current", Resources(77, 8, 32, sgprs=60), 3, 1),
    "VGPR granule on CDNA": ("gfx942", "6.3", Resources(100, 4, 16, sgprs=60), 5, 4),
    "VGPR granule on RDNA 4": ("gfx1201", "current", Resources(97, 4, 16, sgprs=60), 15, 12),
    "VGPR granule on RDNA 3": ("gfx1100", "current", Resources(256, 8, 32, sgprs=60), 3, 2),
    "pooled SIMDs": ("gfx942", "6.3", Resources(88, 2, 16, sgprs=60), 11, 10),
    "LDS granule": ("gfx942", "current", Resources(32, 4, 13000, sgprs=40), 5, 4),
    "LDS pool on RDNA 3": ("gfx1100", "current", Resources(32, 8, 32768, sgprs=40), 2, 4),
    "LDS pool on RDNA 4": ("gfx1201", "current", Resources(32, 4, 40000, sgprs=40), 1, 3),
    "SGPRs": ("gfx942", "current", Resources(32, 8, 32, sgprs=102), 4, 3),
    "SGPRs and the trap handler": ("gfx942", "current", Resources(32, 4, 32, sgprs=92), 8, 7),
    "waves_per_eu": ("gfx942", "current", Resources(23, 8, 32, allocated_vgprs=176), 4, 1),
    "old ROCm on RDNA": ("gfx1100", "6.3", Resources(60, 4, 16, sgprs=60), 8, 16),
    "256 threads of 36 registers": ("sm_86", "current", Resources(36, 8, 8), 7, 6),
}
"""By fault: the architecture, the ROCm, the kernel, the tutorial's programs, and how many fit."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_tutorial_is_wrong_as_known(fault: str) -> None:
    """Both formulas give the known numbers of programs where one of the tutorial's faults shows."""
    name, rocm, resources, said, right = FAULTS[fault]
    architecture = architectures()[name]
    copied = tutorial_occupancy(resources, architecture, Rocm(rocm))
    assert copied.programs_per_multiprocessor == said
    assert occupancy(resources, architecture).programs_per_multiprocessor == right


@settings(max_examples=1000)
@given(st.from_type(Resources), ARCHITECTURES, st.sampled_from(Rocm))
def test_without_all_terms_the_exact_formula_is_the_tutorials(
    resources: Resources, architecture: Architecture, rocm: Rocm
) -> None:
    """The exact formula with every term hidden is the tutorial's: no difference goes unnamed."""
    copied = tutorial_occupancy(resources, architecture, rocm).programs_per_multiprocessor
    assume(copied is not None)
    assert programs_without(terms_of(architecture), resources, architecture, rocm) == copied


@settings(max_examples=500)
@given(st.from_type(Resources), ARCHITECTURES, st.sampled_from(Rocm))
def test_missing_terms_are_the_fewest_that_give_the_truth(
    resources: Resources, architecture: Architecture, rocm: Rocm
) -> None:
    """With the missing terms put back the formula is right; with fewer of any kind it is not."""
    copied = tutorial_occupancy(resources, architecture, rocm)
    assume(copied.programs_per_multiprocessor is not None)
    terms = terms_of(architecture)
    truth = occupancy(resources, architecture).programs_per_multiprocessor
    for count in range(len(copied.missing_terms)):
        for restored in itertools.combinations(terms, count):
            hidden = tuple(term for term in terms if term not in restored)
            assert programs_without(hidden, resources, architecture, rocm) != truth
    hidden = tuple(term for term in terms if term.name not in copied.missing_terms)
    assert programs_without(hidden, resources, architecture, rocm) == truth
    assert (copied.missing_terms == ()) == (copied.programs_per_multiprocessor == truth)


@pytest.mark.parametrize(
    ("name", "resources", "missing"),
    [
        ("sm_75", Resources(32, 8, 64), ("warp slots",)),
        ("sm_90", Resources(16, 1, 16), ("program slots",)),
        ("sm_90", Resources(16, 4, 15000), ("driver reserve",)),
        ("sm_90", Resources(41, 4, 16), ("register granule",)),
        ("sm_90", Resources(40, 2, 16), ("register quarters",)),
        ("sm_75", Resources(16, 1, 5000), ("shared granule",)),
        ("sm_75", Resources(16, 1, 4096, static_shared=4096), ("static shared",)),
        ("sm_90", Resources(16, 2, 16, barriers=4), ("named barriers",)),
        ("sm_90", Resources(16, 33, 16), ("launch limits",)),
        ("gfx942", Resources(91, 8, 32), ("register file",)),
        ("gfx908", Resources(20, 4, 32), ("wave slots",)),
        ("gfx1201", Resources(97, 4, 16), ("register granule",)),
        ("gfx1201", Resources(97, 4, 16, allocated_vgprs=104), ("register granule",)),
        ("gfx950", Resources(100, 4, 16, allocated_vgprs=104), ("register granule",)),
        ("gfx950", Resources(88, 2, 16), ("registers per SIMD",)),
        ("gfx950", Resources(24, 8, 32, allocated_vgprs=176), ("padded registers",)),
        ("gfx942", Resources(32, 8, 32, sgprs=102), ("SGPRs",)),
        ("gfx1100", Resources(32, 8, 32768), ("LDS pool",)),
        ("gfx942", Resources(32, 4, 13000), ("LDS granule",)),
        ("gfx1250", Resources(32, 2, 16), ("program slots",)),
        ("gfx942", Resources(32, 4, 16384, static_shared=16384), ("static shared",)),
        ("gfx1100", Resources(16, 33, 16), ("launch limits",)),
    ],
)
def test_each_term_is_named_where_it_alone_decides(
    name: str, resources: Resources, missing: tuple[str, ...]
) -> None:
    """A kernel on which one fault of the tutorial shows is told that fault."""
    assert tutorial_occupancy(resources, architectures()[name]).missing_terms == missing


@pytest.mark.parametrize("resources", [Resources(32, 1, 0), Resources(0, 1, 16)])
@pytest.mark.parametrize("name", ["sm_90", "gfx942"])
def test_a_formula_that_fails_misses_no_terms(name: str, resources: Resources) -> None:
    """Where the tutorial divides by zero there is no number, and no terms that would mend it."""
    copied = tutorial_occupancy(resources, architectures()[name])
    assert (copied.programs_per_multiprocessor, copied.missing_terms) == (None, ())
