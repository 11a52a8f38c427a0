"""A plain copy of as many bytes, as one more launch for the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.occupancy.planning import plan_launch
from occupancy_lab.throughput.features import features
from occupancy_lab.values import Resources, Work

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.throughput.features import Features

BLOCK_BYTES = 4096
"""What a program of the copy reads, and writes; each of its threads moves THREAD_BYTES."""
THREAD_BYTES = 16
LARGE_BYTES, WHOLE_BYTES = 2**20, 4096
"""Where CUDA copies LARGE_BYTES or more that are no multiple of WHOLE_BYTES, it takes about one
launch longer: 2.5 us in the median of 103 copies recorded on an H200, whatever their size. It is
one copy all the same: a profiler has 1.4 us for 2 MiB, 7.6 for 2 bytes more (H200, 2026-11-23)."""


def copy_launch(total_bytes: int, gpu: Gpu) -> Features | None:
    """Return the launch of a copy that reads and writes *total_bytes* in all.

    It has the resources of the calibration's copy of rows of BLOCK_BYTES, as compiled for an H200.
    None where the size or the clock of *gpu* is not known.
    """
    resources = Resources(
        n_regs=16,
        num_warps=BLOCK_BYTES // THREAD_BYTES // gpu.architecture.warp_size,
        shared=0,
        load_bytes=THREAD_BYTES,
        instructions=23,
        stall_cycles=72,
        global_accesses=2,
    )
    programs = calculate(resources, gpu).occupancy.programs_per_multiprocessor
    written = total_bytes // 2
    work = Work(total_bytes - written, written)
    plan = plan_launch((max(-(-written // BLOCK_BYTES), 1),), work, None)
    return None if plan is None else features(work, 1, resources, programs, plan, gpu)


def further_launches(total_bytes: int, gpu: Gpu) -> int:
    """Return how many launches longer the driver's copy takes than one of whole pages."""
    size = total_bytes // 2
    uneven = gpu.target.backend == "cuda" and size >= LARGE_BYTES and size % WHOLE_BYTES > 0
    return int(uneven)
