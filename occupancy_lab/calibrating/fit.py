"""The constants with which the model comes closest to what a calibration timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.throughput.constants import Constants
from occupancy_lab.throughput.model import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.throughput.features import Features

BOUNDS = {
    "program_us": (2e-4, 6e-4, 2e-3),
    "row_bandwidth_gbs": (0.5, 0.92, 1.05),
    "loop_bandwidth_gbs": (0.5, 0.88, 1.05),
    "copy_bandwidth_gbs": (0.5, 0.88, 1.05),
    "stage_loss": (0.0, 0.02, 0.2),
    "split_loss": (0.0, 0.02, 0.2),
    "latency_us": (0.05, 0.4, 2.0),
    "instruction_cycles": (1.0, 3.5, 8.0),
    "shuffle_cycles": (0.0, 40.0, 120.0),
    "local_cycles": (0.0, 20.0, 300.0),
    "fetch_cycles": (0.0, 5.0, 30.0),
    "first_fetch_cycles": (0.0, 5.0, 30.0),
    "copy_slots": (0.0, 2.0, 20.0),
    "l2_gbs": (5.0, 40.0, 200.0),
    "drain_us": (0.0, 0.5, 5.0),
    "ramp_us": (0.0, 0.5, 5.0),
    "last_share": (0.0, 0.5, 2.0),
    "fill_share": (0.0, 1.0, 4.0),
    "pass_share": (0.0, 0.5, 2.0),
    "tail_share": (0.0, 0.5, 1.5),
    "prologue_factor": (0.0, 1.5, 6.0),
}
"""The least, the first guess and the most of each constant; the bandwidths' are shares of the
peak. What is not here, the launch of an empty program, is measured by itself."""
ROUGH = 0.05
"""Relative error above which a launch pulls less on the fit, as one that the model cannot tell."""


def fit_constants(
    features: Features, measured_us: Sequence[float], *, launch_us: float, peak_gbs: float
) -> Constants:
    """Return the constants that bring the model closest to *measured_us*, in relative error.

    *peak_gbs* is the device memory's bandwidth as the driver gives it, GB/s.
    """
    import numpy as np
    from scipy.optimize import least_squares

    names = list(BOUNDS)
    scale = np.array([peak_gbs if name.endswith("bandwidth_gbs") else 1.0 for name in names])
    low, guess, high = (scale * np.array(column) for column in zip(*BOUNDS.values(), strict=True))
    logs = np.log(np.array(measured_us))

    def constants(values: Sequence[float]) -> Constants:
        found = dict(zip(names, map(float, values), strict=True))
        return Constants(launch_us=launch_us, **found)

    solution = least_squares(
        lambda values: np.log(times(features, constants(values)).total) - logs,
        guess,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=ROUGH,
        x_scale=guess,
    )
    return constants(solution.x)
