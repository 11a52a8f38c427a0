"""Reports: what was measured on a GPU, beside what was predicted, as a page with pictures.

`contents` says which chapters a page has; each file of `chapters` is one of them. This package
imports matplotlib; it is imported where a report is asked for.
"""

from occupancy_lab.reporting.contents import make_report
from occupancy_lab.reporting.page import Page

__all__ = ["Page", "make_report"]
