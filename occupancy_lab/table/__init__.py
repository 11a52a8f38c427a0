"""Tables of launches: what each column holds, which rows are shown, and the files they go to."""

from occupancy_lab.table.columns import COLUMNS

__all__ = ["COLUMNS"]
