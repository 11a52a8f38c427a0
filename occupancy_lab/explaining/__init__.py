"""Words and tables from records."""

from occupancy_lab.explaining.explanation import Explanation, explain, write_document
from occupancy_lab.explaining.limits import write_calculation
from occupancy_lab.text.document import Document, Section, Table

__all__ = [
    "Document",
    "Explanation",
    "Section",
    "Table",
    "explain",
    "write_calculation",
    "write_document",
]
