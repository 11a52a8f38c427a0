"""How good the predictions are: set against measurements, beside simpler ways to choose."""

from occupancy_lab.evaluating.evaluation import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
