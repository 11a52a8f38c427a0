"""Occupancy: how many programs of a kernel one multiprocessor holds, and why no more.

Three formulas stand behind one signature, Resources and an architecture in, an occupancy out:
NVIDIA's and AMD's exact ones (`occupancy`) and the Triton tutorial's own (`tutorial_occupancy`).
"""

from occupancy_lab.occupancy.exact import exact_rules, next_steps, occupancy, programs_after
from occupancy_lab.occupancy.tutorial import Rocm, known_to, tutorial_occupancy

__all__ = [
    "Rocm",
    "exact_rules",
    "known_to",
    "next_steps",
    "occupancy",
    "programs_after",
    "tutorial_occupancy",
]
