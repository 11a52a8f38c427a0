"""The grid: every configuration on every GPU, one row each."""

from occupancy_lab.sweeping.run import sweep

__all__ = ["sweep"]
