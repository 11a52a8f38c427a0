"""The page of a scan: each vendor's words, and the names of what could not be worked out."""

from __future__ import annotations

import re
from typing import Any

import pytest

from occupancy_lab.gpus import find_gpu
from occupancy_lab.scanning.page import Scan, ScannedKernel, write_scan

GPUS = {"sm_90": find_gpu("h100"), "gfx942": find_gpu("mi300x")}
FULL: dict[str, Any] = {
    "kernel": "scale",
    "num_warps": 4,
    "n_regs": 176,
    "local_bytes": 0,
    "local_accesses": 0,
    "occupancy": 0.25,
    "programs_per_multiprocessor": 2,
}


def page(*kernels: dict[str, Any]) -> str:
    """Return the page of kernels, for an MI300X where nothing else is said."""
    found = [ScannedKernel(**{"target": "gfx942", "gpu": "mi300x", **one}) for one in kernels]
    text = write_scan(Scan(tuple(found), ("cache",), GPUS, 0), every=True).to_markdown()
    return re.sub(" +", " ", text.replace("\\_", "_"))


def near(**others: Any) -> dict[str, Any]:
    """Return a kernel that is 8 registers from a further program."""
    return {
        **FULL,
        "limiter": "registers",
        "next_step": "VGPRs 176 to 168 (waves_per_eu=3)",
        "next_programs": 3,
        "fewer_registers": 8,
        "gain": 1.5,
        **others,
    }


@pytest.mark.parametrize(
    ("limiter", "words"),
    [
        ("warps", "waves"),
        ("registers", "VGPRs"),
        ("shared", "LDS"),
        ("registers+warps", "VGPRs with waves"),
        ("programs", "program slots"),
        ("sgprs", "SGPRs"),
    ],
)
def test_amds_words_are_used_of_amds_kernels(limiter: str, words: str) -> None:
    """Of an AMD kernel no limit or amount has NVIDIA's name; options have the names of Triton."""
    text = page(near(limiter=limiter))
    assert f"1 by {words}." in text
    assert f"| {words.replace(' with', ',')} |" in text
    plain = re.sub(r"num_warps|n_regs|next_programs", "", text)
    assert not re.search(r"\bwarps?\b|\bregisters?\b|shared memory|\bSMs?\b|maxnreg", plain)
    assert "8 VGPRs fewer" in text
    assert "What waves_per_eu would spill" in text


def test_each_vendor_has_its_own_words() -> None:
    """On a page of both, limits are counted by their vendor's names."""
    nvidia = near(target="sm_90", gpu="h100", next_step="registers 176 to 168 (maxnreg=168)")
    text = page(near(), near(gain=1.4), nvidia)
    assert "2 by VGPRs and 1 by registers." in text
    assert "within 8 VGPRs or registers" in text


def test_a_step_that_gains_nothing_is_not_named() -> None:
    """Kernels near a step are counted, and the step is named where it is worth something."""
    text = page(near(gain=1.0, bound="bandwidth"), near(kernel="other", gain=1.2))
    assert "**2** are within" in text
    assert "Most is freed by 8 VGPRs fewer in other (" in text
    assert "program.\n" in page(near(gain=1.0, bound="bandwidth"))
    assert "Most is freed" not in page(near(gain=1.0, bound="bandwidth"))


@pytest.mark.parametrize(
    ("spills", "words"),
    [(0, "by more programs only a compile tells"), (8, "by more programs is not known")],
)
def test_what_is_not_known_names_its_kernels(spills: int, words: str) -> None:
    """One kernel is told from its variants, and of more some names are given."""
    unknown = near(gain=None, bound="latency", local_accesses=spills)
    one, several = page(unknown), page(*[unknown | {"kernel": f"k{n}"} for n in range(5)])
    assert f"What scale (gfx942, num_warps 4, 176 VGPRs) would win {words}" in one
    assert f"What 5 (k0, k1, k2 and 2 more) would win {words}" in several


def test_what_does_not_fit_has_its_name() -> None:
    """Kernels that are not worked out are named beside the reason, and counted where many are."""
    large = {"kernel": "large", "status": "does not fit", "reason": "one program needs more LDS"}
    names = [{**large, "kernel": f"kernel_{number}"} for number in range(5)]
    assert "| 1 | does not fit | large | one program needs more LDS |" in page(large)
    assert "| 2 | does not fit | large | " in page(large, large)
    text = page(*names)
    assert "kernel_0, kernel_1, kernel_2 and 2 more" in text


def test_reasons_for_no_gain_read_as_one_sentence() -> None:
    """Each bound has its number and a verb that goes with it, joined into one sentence."""
    bounds = ("latency", "latency", "bandwidth")
    text = page(*(near(gain=1.0, bound=bound) for bound in bounds))
    assert (
        "**3** are not estimated to gain by more occupancy: 2 need programs that no known step"
        " lets in and 1 keeps the memory busy."
    ) in text
    assert "What 1 has to win is not known" in page(near(gain=None, bound=""))
