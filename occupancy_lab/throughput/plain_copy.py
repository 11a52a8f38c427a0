"""A plain copy of as many bytes, as one more launch for the model."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.throughput.demand import Demand
from occupancy_lab.throughput.rounds import Rounds
from occupancy_lab.values import Resources
from occupancy_lab.work.counts import Program

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.prediction import Prediction

BLOCK_BYTES, THREAD_BYTES = 4096, 16
"""What a program of the copy reads, and writes, and how much of it each of its threads."""
PROGRAM = Program(
    pipes={"issue": 46.0, "alu": 52.0, "fma": 20.0, "uniform": 4.0, "lsu": 73.6},
    alone=(391.2, 691.2, 1091.2),
    rounds=None,
    code_cycles=0.0,
    transferred=(1.0, 1.0),
    loaded_lines=32.0,
    stored_lines=32.0,
)
"""What it asks of its multiprocessor: the calibration's copy of rows, as compiled for an H200."""
SOONER_US = 0.27
"""How much sooner the driver's copy begins: as 261 copies recorded on an H100 and as many on an
H200 are met best."""
LARGE_BYTES, WHOLE_BYTES, UNEVEN_US = 2**20, 4096, 2.5
"""Where CUDA copies LARGE_BYTES or more that are no multiple of WHOLE_BYTES, it takes so much
longer, whatever their size: the median of 103 copies recorded on an H200 is 2.5 us. It is one copy
all the same: a profiler has 1.4 us for 2 MiB, 7.6 for 2 bytes more (H200, 2026-11-23)."""


def copy_us(total_bytes: int, gpu: Gpu) -> float | None:
    """Return how long a copy takes that reads and writes *total_bytes* in all.

    None where the size, the clock or the bandwidth of *gpu* is not known.
    """
    if not gpu.has_rates:
        return None
    resources = Resources(
        n_regs=16, num_warps=BLOCK_BYTES // THREAD_BYTES // gpu.architecture.warp_size, shared=0
    )
    written = total_bytes // 2
    demand = Demand(
        programs=max(-(-written // BLOCK_BYTES), 1),
        fit=calculate(resources, gpu).occupancy.programs_per_multiprocessor,
        program=PROGRAM,
        resources=resources,
        read_bytes=total_bytes - written,
        written_bytes=written,
        evicted_bytes=0.0,
        l2_bytes=total_bytes,
        stored_bytes=written,
        missed=1.0,
        again=False,
    )
    uneven = written >= LARGE_BYTES and written % WHOLE_BYTES and gpu.target.backend == "cuda"
    return Rounds(demand, gpu).us() - SOONER_US + (UNEVEN_US if uneven else 0.0)


def beside_copy(prediction: Prediction, total_bytes: int, gpu: Gpu) -> Prediction:
    """Return *prediction* of a launch that moves *total_bytes*, with the speed of a plain copy."""
    us = copy_us(total_bytes, gpu)
    return dataclasses.replace(
        prediction,
        gbs=total_bytes / prediction.us / 1e3,
        copy_gbs=None if us is None else total_bytes / us / 1e3,
    )
