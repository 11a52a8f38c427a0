"""Reports: measured times on a GPU beside predicted ones, as a page with pictures.

`contents` puts the chapters of a page together; each file of `chapters` is one chapter. This
package imports matplotlib, so it is only imported if a report is asked for.
"""

from occupancy_lab.reporting.contents import make_report
from occupancy_lab.reporting.page import Page

__all__ = ["Page", "make_report"]
