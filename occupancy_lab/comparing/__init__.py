"""What differs between GPUs, Triton versions, kernels and num_stages, and why."""

from occupancy_lab.comparing.comparison import Comparison, compare, write_comparison

__all__ = ["Comparison", "compare", "write_comparison"]
