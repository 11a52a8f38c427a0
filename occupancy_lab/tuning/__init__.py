"""Choosing a configuration: by prediction, and by measuring only what is predicted best."""

from occupancy_lab.tuning.choice import Choice, Cost, Tuning
from occupancy_lab.tuning.search import config_pruner, tune

__all__ = ["Choice", "Cost", "Tuning", "config_pruner", "tune"]
