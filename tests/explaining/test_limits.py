"""The page of the calculator: each limit that a launch may meet has its words."""

from __future__ import annotations

from typing import Any

import pytest

from occupancy_lab.explaining import write_calculation
from occupancy_lab.occupancy.calculator import calculate_for


def page(names: str, **amounts: Any) -> str:
    """Return the calculator's page on one line."""
    asked = {"n_regs": 32, "shared": 0, "num_warps": 8} | amounts
    return " ".join(write_calculation(calculate_for(names, **asked)).to_markdown().split())


def test_clusters_are_counted_whole() -> None:
    """The answer counts whole clusters; their arithmetic, source and a better num_ctas follow."""
    found = page("h200", num_ctas=4)
    assert "the 132 SMs hold 248 clusters of 4 CTAs at once." in found
    assert "2 groups of 18 SMs: 18 x 8 CTAs / 4 = 36 clusters" in found
    assert "248 clusters in all, 992 CTAs in 1056 places. Source: Derived from" in found
    assert "With num_ctas 2 more CTAs run at once." in found
    assert "more CTAs run at once" not in page("h200", num_ctas=2)
    assert "Clusters" not in page("h200")


def test_an_sm_holds_ctas_where_a_program_has_several() -> None:
    """Of clusters every number per SM is one of CTAs, and nothing there is called a program."""
    found = page("h200", num_ctas=4, n_regs=64, shared=49152)
    assert "4 CTAs per SM, 32 of 64 warps (50%)" in found
    assert "64 warps per SM / 8 warps per CTA = 8 CTAs" in found
    assert "CTA 5 takes at most 48 registers per thread" in found
    assert "program" not in found.replace("program slots", "").lower()
    assert "CTA" not in page("h200", n_regs=64, shared=49152)


def test_clusters_that_nobody_can_count_are_not_known() -> None:
    """A GPU whose groups of SMs are not known has no number of clusters, and the page says so."""
    found = page("b200", num_ctas=2)
    assert "How many clusters it holds at once is not known" in found
    assert "at once." not in found.split("## The limits")[0]


def test_tensor_memory_has_its_steps() -> None:
    """Tensor memory is a limit with its arithmetic, its next step and the term that is missed."""
    found = page("b200", n_regs=40, shared=12320, tensor_memory=100)
    assert "limited by tensor memory" in found
    assert "100 columns, rounded up to a power of two from 32 = 128 per program" in found
    assert "Program 5 takes at most 64 columns of tensor memory per program" in found
    assert "the formula says 6 programs per SM where 4 fit" in found.lower().replace("sm", "SM")
    assert "an SM has 512 columns of tensor memory" in found


@pytest.mark.parametrize(
    ("name", "option"), [("h100", "`maxnreg=80`"), ("mi300x", "`waves_per_eu=6`")]
)
def test_registers_that_limit_name_what_can_be_tried(name: str, option: str) -> None:
    """Where registers limit, the launch's option is named, and that spills are not known."""
    found = page(name, n_regs=91)
    assert f"{option} in the launch asks the compiler for as many" in found
    assert "what it would spill is not known before a compile" in found
    assert "in the launch asks" not in page(name, n_regs=16)


def test_agprs_are_told_apart() -> None:
    """The registers of an MFMA kernel are its ArchVGPRs and its AGPRs, in one file."""
    assert "256 ArchVGPRs + 252 AGPRs = 508 VGPRs" in page(
        "mi300x", n_regs=508, agprs=252, num_warps=4
    )
