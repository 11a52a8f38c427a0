"""The HIP formula equals what AMD's hardware was reported to hold."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.gpus import HipArchitecture, architectures
from occupancy_lab.occupancy import occupancy
from occupancy_lab.values import Resources


@pytest.mark.parametrize(
    ("resources", "waves"),
    [
        pytest.param(Resources(126, 4, 0), 1661, id="122 VGPRs and 4 AGPRs"),
        pytest.param(Resources(16, 4, 65536), 415.5, id="64 KiB of LDS"),
        pytest.param(Resources(64, 16, 0, sgprs=76), 3292, id="1024 threads"),
    ],
)
def test_equals_measured_waves_on_mi250(resources: Resources, waves: float) -> None:
    """The 104 CUs of an MI250 hold the waves that rocprof-compute measured on one, within 2 %.

    Source: rocprof-compute's documentation, occupancy-limiters-example.rst.
    """
    found = occupancy(resources, architectures()["gfx90a"])
    assert found.warps_per_multiprocessor * 104 == pytest.approx(waves, rel=0.02)


@pytest.mark.parametrize(("sgprs", "programs"), [(29, 32), (92, 28), (106, 24)])
def test_equals_what_a_cu_held_of_one_wave_programs(sgprs: int, programs: int) -> None:
    """A CU of gfx942 holds 28 programs of one wave with 92 SGPRs, where 32 hung a launch.

    Source: ROCm/rocm-systems#10618; by its formula 106 SGPRs cost a wave a SIMD more.
    """
    found = occupancy(Resources(16, 1, 0, sgprs=sgprs), architectures()["gfx942"])
    assert found.programs_per_multiprocessor == programs


@pytest.mark.parametrize(
    ("name", "resources", "resource", "programs"),
    [
        pytest.param("gfx1201", Resources(16, 1, 512), "shared", 128, id="RDNA steps of 1 KiB"),
        pytest.param("gfx942", Resources(16, 1, 513), "shared", 64, id="CDNA 3 steps of 512 B"),
        pytest.param("gfx950", Resources(16, 1, 1281), "shared", 64, id="CDNA 4 steps of 1280 B"),
        pytest.param("gfx1250", Resources(16, 1, 2049), "shared", 80, id="gfx1250 steps of 2 KiB"),
        pytest.param("gfx1100", Resources(16, 1, 65536), "shared", 2, id="a WGP has two pools"),
        pytest.param("gfx1100", Resources(16, 1, 65537), "shared", 0, id="one program has one"),
        pytest.param("gfx942", Resources(16, 2, 0), "programs", 16, id="barrier slots of a CU"),
        pytest.param("gfx1100", Resources(16, 2, 0), "programs", 32, id="barrier slots of a WGP"),
        pytest.param("gfx942", Resources(16, 1, 0), "programs", None, id="one wave needs no slot"),
        pytest.param("gfx942", Resources(16, 1, 0), "shared", None, id="no LDS, no limit"),
        pytest.param("gfx942", Resources(16, 17, 0), "warps", 0, id="1024 threads a program"),
        pytest.param("gfx1100", Resources(257, 1, 0), "registers", 0, id="256 VGPRs a wave"),
        pytest.param("gfx942", Resources(512, 1, 0), "registers", 4, id="512 VGPRs a wave"),
        pytest.param(
            "gfx942", Resources(23, 8, 0, allocated_vgprs=176), "registers", 1, id="waves_per_eu=2"
        ),
        pytest.param(
            "gfx1201", Resources(97, 1, 0, allocated_vgprs=104), "registers", 48, id="steps of 24"
        ),
        pytest.param("gfx942", Resources(16, 1, 0, sgprs=0), "sgprs", None, id="no SGPRs"),
    ],
)
def test_each_limit(name: str, resources: Resources, resource: str, programs: int | None) -> None:
    """Each granule, pool, slot and maximum sets the limit in its source."""
    limit = occupancy(resources, architectures()[name]).limit(resource)
    assert limit.programs == programs
    assert (limit.steps == ()) == (programs is None)


@settings(max_examples=100)
@given(st.from_type(Resources), st.from_type(HipArchitecture))
def test_programs_fit_and_no_more_would(resources: Resources, mp: HipArchitecture) -> None:
    """Programs equal those found by placing waves on the emptiest SIMD."""
    resources = resources.replace(allocated_vgprs=None, sgprs=None, shared=0, static_shared=0)
    held = occupancy(resources, mp).limit("registers").programs
    if held is None or resources.n_regs > mp.max_vgprs:
        return
    free = [mp.vgprs_per_simd // mp.vgpr_granule] * mp.simds
    granules = -(-resources.n_regs // mp.vgpr_granule)
    placed = 0
    while max(free) >= granules:
        free[free.index(max(free))] -= granules
        placed += 1
    assert held == placed // resources.num_warps
