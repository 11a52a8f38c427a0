"""Makes amd-nvidia.md and its picture: `python reports/amd_nvidia.py`, without a GPU.

They are made of data/vendors.csv, which record_vendors.py writes, and of the calibrations in
data/, on which the predictions rest: make them again when either changes.
"""

from __future__ import annotations

from pathlib import Path

from occupancy_lab.reporting.output import write_markdown
from occupancy_lab.reporting.vendors_page import vendors_page

PAGE = Path(__file__).with_name("amd-nvidia.md")


def make(path: Path) -> None:
    """Write the page to *path* and its picture beside it, the same bytes every time."""
    write_markdown(vendors_page(), path)


if __name__ == "__main__":
    make(PAGE)
