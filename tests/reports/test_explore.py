"""The page of explore and its kernels are remade byte for byte."""

import json
from pathlib import Path

import explore

from occupancy_lab.exploring.page import make_page

REPORTS = Path(__file__).parent.parent.parent / "reports"


def test_page_is_what_the_command_writes() -> None:
    """The committed page is what the command writes."""
    assert make_page() == (REPORTS / "explore.html").read_text(encoding="utf-8")


def test_kernels_are_what_the_recorded_rows_make() -> None:
    """Predicted and recorded times are those of the compiled rows, without a calibration."""
    assert explore.kernels() == json.loads(explore.KNOWN.read_text(encoding="utf-8"))
