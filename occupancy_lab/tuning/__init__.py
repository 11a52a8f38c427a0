"""Choosing a configuration: by prediction, and by measuring only what is predicted best."""

from occupancy_lab.tuning.autotuner import early_config_prune, perf_model, perf_model_of
from occupancy_lab.tuning.choice import Choice, Cost, Tuning
from occupancy_lab.tuning.search import config_pruner, tune

__all__ = [
    "Choice",
    "Cost",
    "Tuning",
    "config_pruner",
    "early_config_prune",
    "perf_model",
    "perf_model_of",
    "tune",
]
