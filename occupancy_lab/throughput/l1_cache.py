"""The L1 cache: how much of it a launch has, and which of its loads hit there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from occupancy_lab.gpus import Architecture, CudaArchitecture, Gpu
from occupancy_lab.occupancy.calculator import Calculation
from occupancy_lab.values import Resources
from occupancy_lab.work.counts import Amount
from occupancy_lab.work.execution import LOADS, Executed, Program
from occupancy_lab.work.memory import beyond

SHARED_KIB = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
"""The sizes of shared memory between which the driver partitions the cache, up to an architecture's
maximum: it takes the smallest that the programs need (CUDA C++ Programming Guide, compute
capabilities, "Shared Memory")."""
MOST_SHARED = 48 * 1024
"""With more bytes of shared memory per program, Triton asks for as much shared memory as possible
(cuFuncSetCacheConfig in its driver), which leaves 28 KiB of cache on an H100, as Nsight Compute
confirms."""
KEPT, LOST = 0.5, 1.5
"""Distances, relative to the cache's room, up to which a place always hits and from which on it
always misses; it is interpolated in between. The L1 miss rates of 35 launches on an H200 are then
within 0.05 in the mean, and within 0.14 at the 90th percentile (Nsight Compute)."""


def l1_room(architecture: Architecture, shared: int, programs: int) -> int:
    """Return the bytes left for caching beside *programs* programs of *shared* bytes each.

    0 where the cache's size is not known.
    """
    whole = architecture.l1_bytes or 0
    if not isinstance(architecture, CudaArchitecture):
        return whole
    most = architecture.shared_per_multiprocessor
    taken = (shared + architecture.reserved_shared) * programs
    steps = (one * 1024 for one in SHARED_KIB if taken <= one * 1024 < most)
    return whole - (most if shared > MOST_SHARED else next(steps, most))


def l1_share(
    calculation: Calculation, grid: Sequence[int] | None, fit: int | None = None
) -> int | None:
    """Return the bytes of the L1 cache for each program of a *grid* that runs at once with others.

    *fit* programs fit on a multiprocessor; by default as many as *calculation* says. None where
    that, the grid, or the cache's size, is not known.
    """
    gpu, resources = calculation.gpu, calculation.resources
    fit = fit or calculation.occupancy.programs_per_multiprocessor
    if grid is None or not fit or not gpu.multiprocessors or resources.shared is None:
        return None
    at_once = max(min(fit, -(-math.prod(grid) // gpu.multiprocessors)), 1)
    return l1_room(gpu.architecture, resources.shared, at_once) // at_once or None


def l1_missing(distances: Sequence[float], threads: int, size: int) -> float:
    """Return the miss rate of loads in a cache of *size* bytes.

    *distances* are their reuse distances in bytes, for each of *threads* threads.
    """
    if not distances:
        return 0.0
    shares = (one * threads / max(size, 1) / KEPT for one in distances)
    return sum(beyond(one, LOST / KEPT) for one in shares) / len(distances)


def behind_others(
    program: Program, resources: Resources, programs: int, fit: int, gpu: Gpu
) -> Program:
    """Return a program's mean needs, where earlier programs left common tables in the L1 cache.

    Of *programs* programs, the first ones on each multiprocessor load the tables that all load. The
    other *fit* programs that begin with them wait for this as well, and later ones find the data.
    """
    common, size = program.common, gpu.multiprocessors or programs
    if common is None:
        return program
    left = l1_room(gpu.architecture, resources.shared, fit)
    kept = 1.0 - l1_missing((common.distinct_bytes,), 1, left)
    firsts = (common.turns * size, common.turns * fit * size)
    there, ahead = (max(1.0 - first / programs, 0.0) for first in firsts)
    return program.with_common(kept * there, kept * ahead)


def hits(loaded: Amount, executed: Executed | None, program: Program) -> float:
    """Return the share of the *loaded* sectors of a *program* behind others which hit in L1.

    An operation of the source loads a sector once, and its instructions perhaps several times, each
    time but the first from the L1 cache.
    """
    if executed is None or not loaded.is_exact or "bulk_copies" in executed.kinds:
        return program.cached
    loads = [one for one in executed.accesses if one.operation in LOADS]
    if not all(one.is_known for one in loads) or not loaded.low:
        return program.cached
    asked = sum(one.sectors.middle * (1.0 - one.shared) for one in loads)
    return max(1.0 - asked * (1.0 - program.cached) / loaded.low, 0.0)
