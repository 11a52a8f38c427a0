"""The grid: every configuration on every GPU, one row each."""

from occupancy_lab.sweeping.grid import COLUMNS, sweep

__all__ = ["COLUMNS", "sweep"]
