"""Words and tables from records."""

from occupancy_lab.explaining.explanation import Explanation, write_full
from occupancy_lab.explaining.limits import Calculations, calculate_occupancy, write_calculation
from occupancy_lab.explaining.matrix import explain, explain_matrix
from occupancy_lab.text.document import Document, Section, Table

__all__ = [
    "Calculations",
    "Document",
    "Explanation",
    "Section",
    "Table",
    "calculate_occupancy",
    "explain",
    "explain_matrix",
    "write_calculation",
    "write_full",
]
