"""What ROCm's runtime and LLVM report for AMD kernels, and the terms they leave out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_files import read_table
from vendors_claims import (
    CLAIMANTS,
    HIP_2024,
    HIP_2025,
    HIP_2026,
    LLVM,
    Claimant,
    claim,
)

from occupancy_lab.gpus import HipArchitecture, architectures
from occupancy_lab.occupancy import occupancy
from occupancy_lab.occupancy.tutorial import programs_without
from occupancy_lab.values import Resources

RECORDED = Path(__file__).parent.parent / "occupancy" / "recorded" / "llvm_occupancy.csv"
HIP = {name: mp for name, mp in architectures().items() if isinstance(mp, HipArchitecture)}


def resources(**changes: int) -> Resources:
    """Return a kernel of one wave with few registers, with *changes*."""
    return Resources(**({"n_regs": 24, "num_warps": 1, "shared": 0, "sgprs": 16} | changes))


def test_llvm_says_what_it_wrote_into_the_assembly() -> None:
    """For each recorded kernel LLVM's programs equal its `; Occupancy:` in whole programs."""
    rows = read_table(RECORDED)
    for row in rows:
        if row["triton"].startswith("3.9"):
            continue
        mp, num_warps = HIP[row["arch"]], int(row["num_warps"])
        taken = Resources(
            n_regs=int(row["vgprs"]),
            num_warps=num_warps,
            shared=0,
            sgprs=int(row["sgprs"]),
            agprs=int(row["agprs"]),
            allocated_vgprs=int(row["allocated_vgprs"]),
        )
        waves = mp.simds * int(row["llvm_occupancy"])
        assert claim(LLVM, taken, mp).programs_per_multiprocessor == waves // num_warps, row
    assert len(rows) > 600


@pytest.mark.parametrize(
    ("claimant", "programs", "missing"),
    [(HIP_2024, 32, "trap handler"), (HIP_2025, 32, "trap handler"), (HIP_2026, 28, None)],
    ids=lambda value: value.name if isinstance(value, Claimant) else None,
)
def test_report_of_too_many_one_wave_blocks(
    claimant: Claimant, programs: int, missing: str | None
) -> None:
    """On gfx942 with 92 SGPRs the runtime reported 32 blocks per CU although 28 fit.

    Source: ROCm/rocm-systems pull request 10618, which fixed it.
    """
    said = claim(claimant, resources(sgprs=92), HIP["gfx942"])
    assert said.programs_per_multiprocessor == programs
    assert said.missing_terms == ((missing,) if missing else ())


def test_report_of_half_the_lds() -> None:
    """On gfx1100 the runtime took the LDS of one CU for that of a WGP until pull request 9571."""
    taken, mp = resources(shared=32 * 1024), HIP["gfx1100"]
    assert claim(HIP_2025, taken, mp).programs_per_multiprocessor == 2
    assert claim(HIP_2025, taken, mp).missing_terms == ("CUs of a WGP",)
    assert claim(HIP_2026, taken, mp).programs_per_multiprocessor == 4


@pytest.mark.parametrize("target", ["gfx950", "gfx1200", "gfx1201", "gfx1250"])
def test_targets_that_the_runtime_of_2024_did_not_know(target: str) -> None:
    """It assumed 256 registers in granules of 4: 4 waves per SIMD with 64 registers."""
    said = claim(HIP_2024, resources(n_regs=64), HIP[target])
    assert said.programs_per_multiprocessor == 4 * HIP[target].simds
    assert said.missing_terms == ("register table",)


def test_llvm_does_not_see_the_lds_of_a_triton_kernel() -> None:
    """For a kernel limited by LDS, LLVM reports more programs than fit."""
    said = claim(LLVM, resources(shared=32 * 1024), HIP["gfx942"])
    assert said.programs_per_multiprocessor == 32
    assert said.missing_terms == ("LDS",)


@given(
    st.sampled_from(sorted(HIP)),
    st.sampled_from(CLAIMANTS),
    st.integers(1, 256),
    st.integers(0, 5),
    st.integers(0, 65536),
    st.integers(1, 102),
)
def test_putting_back_what_is_missed_gives_the_truth(  # noqa: PLR0913, PLR0917 - what a kernel takes
    target: str, claimant: Claimant, n_regs: int, warps: int, shared: int, sgprs: int
) -> None:
    """A right claim misses no term, and a wrong one is right with its missing terms restored."""
    mp, taken = (
        HIP[target],
        resources(n_regs=n_regs, num_warps=2**warps, shared=shared, sgprs=sgprs),
    )
    said, truth = claim(claimant, taken, mp), occupancy(taken, mp).programs_per_multiprocessor
    assert (said.missing_terms == ()) == (said.programs_per_multiprocessor == truth)
    hidden = tuple(term for term in claimant.terms if term.name not in said.missing_terms)
    assert programs_without(hidden, taken, mp) == truth
