"""What the L1 cache of a multiprocessor has of local memory, and of what all programs load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.gpus import CudaArchitecture
from occupancy_lab.work.memory import beyond

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.gpus import Architecture, Gpu
    from occupancy_lab.values import Resources
    from occupancy_lab.work.counts import Program

SHARED_KIB = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
"""What of the cache the driver makes shared memory, up to what an architecture has of it: the
smallest that the programs need (CUDA C++ Programming Guide, compute capabilities, "Shared Memory").
"""
MOST_SHARED = 48 * 1024
"""Bytes of shared memory of a program beyond which Triton asks for as much of the cache as can be
(cuFuncSetCacheConfig in its driver): then an H100 has 28 KiB left, as Nsight Compute says too."""
KEPT, LOST = 0.5, 1.5
"""How many times what there is room for lies between two touches of a place that is still there,
and from where on it is lost; in between in proportion. With it the share that 35 launches on an
H200 lack is met within 0.05 in the mean, and within 0.14 in nine of ten (Nsight Compute)."""


def room(architecture: Architecture, shared: int, programs: int) -> int:
    """Return the bytes left for data beside so many *programs* of *shared* bytes each.

    0 where the cache is not known.
    """
    whole = architecture.l1_bytes or 0
    if not isinstance(architecture, CudaArchitecture):
        return whole
    most = architecture.shared_per_multiprocessor
    taken = (shared + architecture.reserved_shared) * programs
    steps = (one * 1024 for one in SHARED_KIB if taken <= one * 1024 < most)
    return whole - (most if shared > MOST_SHARED else next(steps, most))


def missing(distances: Sequence[float], threads: int, size: int) -> float:
    """Return the share of loads that a cache of *size* bytes lacks.

    *distances* are theirs, bytes of each of *threads*.
    """
    if not distances:
        return 0.0
    shares = (one * threads / max(size, 1) / KEPT for one in distances)
    return sum(beyond(one, LOST / KEPT) for one in shares) / len(distances)


def behind_others(
    program: Program, resources: Resources, programs: int, fit: int, gpu: Gpu
) -> Program:
    """Return what a program asks for in the mean, as others left in the cache what all load.

    Of a launch of so many *programs* the first on each multiprocessor brings it there; the others
    of the *fit* that begin with it wait for it as well, and later ones find it.
    """
    common, size = program.common, gpu.multiprocessors or programs
    if common is None:
        return program
    left = room(gpu.architecture, resources.shared, fit)
    kept = 1.0 - missing((common.distinct_bytes,), 1, left)
    there, ahead = (max(1.0 - first / programs, 0.0) for first in (size, fit * size))
    return program.with_common(kept * there, kept * ahead)
