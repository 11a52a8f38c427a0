"""The contents of the page that sets AMD's GPUs beside NVIDIA's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.reporting.page import Page
from occupancy_lab.reporting.vendors import recorded_vendors
from occupancy_lab.reporting.vendors_claims import make_claims
from occupancy_lab.reporting.vendors_claims_view import the_claims
from occupancy_lab.reporting.vendors_formula import make_formulas
from occupancy_lab.reporting.vendors_formula_view import the_formulas
from occupancy_lab.reporting.vendors_short_view import vendors_in_short
from occupancy_lab.reporting.vendors_stages import make_stages
from occupancy_lab.reporting.vendors_times import make_times
from occupancy_lab.reporting.vendors_times_view import the_times
from occupancy_lab.reporting.vendors_view import side_by_side, the_stages, what_was_compiled

if TYPE_CHECKING:
    from occupancy_lab.reporting.vendors import Vendors

SHOWN_WARPS = 4
"""With 4 warps a program what num_stages takes limits the programs on either vendor's GPUs."""


def vendors_page(vendors: Vendors | None = None) -> Page:
    """Return the page of *vendors*, None for what was recorded and comes with the lab.

    Its predictions rest on the calibrations that are known where it is made.
    """
    vendors = recorded_vendors() if vendors is None else vendors
    stages, formulas = make_stages(vendors, SHOWN_WARPS), make_formulas(vendors)
    times = make_times(vendors)
    return Page(
        "AMD against NVIDIA: fused softmax",
        (
            vendors_in_short(stages, formulas, times),
            what_was_compiled(vendors),
            side_by_side(vendors),
            the_stages(stages),
            the_formulas(formulas),
            the_claims(make_claims(vendors)),
            the_times(times, stages),
        ),
    )
