"""Occupancy: how many programs of a kernel one multiprocessor holds, and why no more.

Three formulas stand behind one signature, Resources and an architecture in, an occupancy out:
NVIDIA's and AMD's exact ones (`occupancy`) and the Triton tutorial's own (`tutorial_occupancy`).
What ROCm's runtime and LLVM say of AMD kernels is the exact one, less what they miss (`claim`).
"""

from occupancy_lab.occupancy.claims import CLAIMANTS, Claim, Claimant, claim
from occupancy_lab.occupancy.exact import exact_rules, next_steps, occupancy, programs_after
from occupancy_lab.occupancy.tutorial import Rocm, tutorial_occupancy

__all__ = [
    "CLAIMANTS",
    "Claim",
    "Claimant",
    "Rocm",
    "claim",
    "exact_rules",
    "next_steps",
    "occupancy",
    "programs_after",
    "tutorial_occupancy",
]
