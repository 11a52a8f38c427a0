"""The HIP formula gives what AMD's hardware was reported to hold, and behaves like a formula."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occupancy_lab.gpus import HipArchitecture, architectures
from occupancy_lab.occupancy import hip, occupancy
from occupancy_lab.occupancy.evaluate import programs
from occupancy_lab.occupancy.rule import UNLIMITED
from occupancy_lab.values import Resources

FIELDS = ("n_regs", "num_warps", "shared", "static_shared", "sgprs", "allocated_vgprs")
GROWING = ("n_regs", "num_warps", "shared", "static_shared", "sgprs")


@pytest.mark.parametrize(
    ("resources", "waves"),
    [
        pytest.param(Resources(126, 4, 0), 16, id="122 VGPRs and 4 AGPRs"),
        pytest.param(Resources(16, 4, 65536), 16, id="64 KiB of LDS"),
        pytest.param(Resources(64, 16, 0, sgprs=76), 32, id="1024 threads"),
    ],
)
def test_equals_measured_waves_on_mi250(resources: Resources, waves: int) -> None:
    """A CU holds the waves that rocprof-compute measured on an MI250 (104 CUs).

    Source: rocprof-compute's docs, occupancy-limiters-example.rst: wavefront occupancies of 1661,
    416 and 3292 on the GPU. The LDS kernel's 4 waves are of 16-wave rows: 4 waves a CU.
    """
    assert occupancy(resources, architectures()["gfx90a"]).warps_per_multiprocessor == waves
