"""What differs between GPUs, Triton versions, kernels and num_stages, and why."""

from occupancy_lab.comparing.comparison import Comparison, compare, write_comparison
from occupancy_lab.comparing.environment import Environment, find_environment, triton_python

__all__ = [
    "Comparison",
    "Environment",
    "compare",
    "find_environment",
    "triton_python",
    "write_comparison",
]
