"""Occupancy: how many programs of a kernel run at once per multiprocessor, and what limits them.

Three formulas take Resources and an architecture and return an occupancy: NVIDIA's and AMD's exact
formulas (`occupancy`) and the Triton tutorial's own (`tutorial_occupancy`).
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
