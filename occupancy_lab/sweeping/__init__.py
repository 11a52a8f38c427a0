"""The grid: every configuration on every GPU, a row each."""

from occupancy_lab.sweeping.sweep import COLUMNS, sweep

__all__ = ["COLUMNS", "sweep"]
