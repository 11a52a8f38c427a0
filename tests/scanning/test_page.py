"""The page of a scan."""

import re
from collections.abc import Callable
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
    """Return the page of kernels, for an MI300X unless they say otherwise."""
    found = [ScannedKernel(**{"target": "gfx942", "gpu": "mi300x", **one}) for one in kernels]
    text = write_scan(Scan(tuple(found), ("cache",), GPUS), every=True).to_markdown()
    return re.sub(" +", " ", text.replace("\\_", "_"))


def near(**others: Any) -> dict[str, Any]:
    """Return a kernel that needs 8 registers less for one more program."""
    return {
        **FULL,
        "limiter": "registers",
        "next_step": "VGPRs 176 to 168 (waves_per_eu=3)",
        "next_programs": 3,
        "fewer_registers": 8,
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
def test_amd_kernels_have_amds_terms(limiter: str, words: str) -> None:
    """Limits and amounts of an AMD kernel have AMD's terms; options have Triton's names."""
    text = page(near(limiter=limiter))
    assert f"1 by {words}." in text
    assert f"| {words.replace(' with', ',')} |" in text
    plain = re.sub(r"num_warps|n_regs|next_programs", "", text)
    assert not re.search(r"\bwarps?\b|\bregisters?\b|shared memory|\bSMs?\b|maxnreg", plain)
    assert "8 VGPRs less" in text
    assert "Only a compile shows what waves_per_eu would spill" in text


NVIDIA = near(target="sm_90", gpu="h100", next_step="registers 176 to 168 (maxnreg=168)")
LARGE = {"kernel": "large", "status": "does not fit", "reason": "one program needs more LDS"}
PAGES = {
    "Kernels of both vendors": [near(), near(n_regs=172), NVIDIA],
    "Several kernels that spill": [
        near(local_accesses=8, local_bytes=16, kernel=f"k{number}") for number in range(5)
    ],
    "A kernel that does not fit": [LARGE],
    "The same kernel twice that does not fit": [LARGE, LARGE],
    "Kernels that do not fit": [LARGE | {"kernel": f"kernel_{number}"} for number in range(5)],
}


def test_golden_scan(check_golden: Callable[[str, str], None]) -> None:
    """The golden file has the pages of several caches."""
    pages = (f"# {title}\n\n{page(*kernels)}\n" for title, kernels in PAGES.items())
    check_golden("scan.md", "\n".join(pages))
