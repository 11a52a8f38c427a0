"""Tables of launches: their columns, which rows are shown, and their files."""

from occupancy_lab.table.columns import COLUMNS

__all__ = ["COLUMNS"]
