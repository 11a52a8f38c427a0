"""Choosing a configuration by prediction, and measuring only the best predicted ones."""

from occupancy_lab.tuning.autotuner import early_config_prune, perf_model
from occupancy_lab.tuning.choice import Choice, Cost, Tuning
from occupancy_lab.tuning.search import tune

__all__ = [
    "Choice",
    "Cost",
    "Tuning",
    "early_config_prune",
    "perf_model",
    "tune",
]
