"""The quality of predictions: compared with measurements, and with simpler ways to choose."""

from occupancy_lab.evaluating.evaluation import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
