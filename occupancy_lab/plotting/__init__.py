"""Pictures: occupancy curves of a kernel, a sweep as a heat map, and a roofline.

This package imports matplotlib, so it is only imported if a picture is asked for.
"""

from occupancy_lab.plotting.curves import draw_curves
from occupancy_lab.plotting.heatmap import draw_heatmap
from occupancy_lab.plotting.roofline import draw_roofline
from occupancy_lab.plotting.style import save

__all__ = ["draw_curves", "draw_heatmap", "draw_roofline", "save"]
