"""Words and tables from records."""

from occupancy_lab.explaining.explanation import Explanation, write_full
from occupancy_lab.explaining.limits import Calculations, calculate_occupancy
from occupancy_lab.explaining.matrix import explain_matrix

__all__ = [
    "Calculations",
    "Explanation",
    "calculate_occupancy",
    "explain_matrix",
    "write_full",
]
