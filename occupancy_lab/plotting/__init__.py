"""Pictures: the cliffs around one kernel, a sweep as a heat map, kernels under a GPU's roofs.

This package imports matplotlib; it is imported where a picture is asked for.
"""

from occupancy_lab.plotting.curves import draw_curves
from occupancy_lab.plotting.heatmap import draw_heatmap
from occupancy_lab.plotting.roofline import draw_roofline
from occupancy_lab.plotting.style import save

__all__ = ["draw_curves", "draw_heatmap", "draw_roofline", "save"]
