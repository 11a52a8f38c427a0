"""The grid: every configuration on every GPU, a row each."""

from occupancy_lab.sweeping.grid import COLUMNS, sweep

__all__ = ["COLUMNS", "sweep"]
