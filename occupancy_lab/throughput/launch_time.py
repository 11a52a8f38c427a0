"""How long any launch takes: from what its programs ask of each unit of the GPU.

The constants, in `demand` and `rounds`, were fitted to launches of 96 public kernels on an H100 and
hold for others by their data sheets; docs/times.md has what is met on kernels that they were not
fitted to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from occupancy_lab.gpus import devices
from occupancy_lab.prediction import NOT_FOLLOWED, Prediction
from occupancy_lab.throughput.calibrations import FITTED_TO, measured_units
from occupancy_lab.throughput.demand import demand_of
from occupancy_lab.throughput.ranges import (
    LEAST_LOCAL_BYTES,
    LEAST_OPEN,
    is_open,
    range_of,
    varies,
)
from occupancy_lab.throughput.rounds import Rounds
from occupancy_lab.work.pipes import TENSOR

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.throughput.demand import Doing

MEASURED = (FITTED_TO, "h200")
"""The GPUs of which recorded launches show how near the times are."""
EVENTS_US = 2.0
"""What of a launch a profiler does not count. It counts no writes either that the L2 cache still
has at the end. By the times that Nsight Compute recorded of 79 launches on an H100; so it is of 541
on an H200."""


def predict_launch(doing: Doing) -> Prediction | None:
    """Return how long a launch takes.

    Where its binary was not followed, as on AMD, or has tensor cores of unknown rate, its programs
    are those of `counted_program`. None where it `is_open` how much it does, and for a GPU whose
    size, clock, bandwidth or tensor cores are not known.
    """
    counts, executed, memory, gpu = doing.counts, doing.executed, doing.memory, doing.gpu
    if is_open(counts, executed, memory):
        return None
    if doing.in_program and memory is not None and memory.written_within_bytes is not None:
        memory = replace(memory, dram_written_bytes=memory.written_within_bytes)
    demand = demand_of(replace(doing, memory=memory))
    if demand is None or not gpu.has_rates:
        return None
    found = Rounds(demand, gpu, EVENTS_US if doing.in_program else 0.0)
    us, parts = found.us(), found.parts
    followed = executed if demand.is_followed else None
    unknowns = counts.unknowns or (followed is not None and followed.unknowns)
    amounts = [None if followed is None else followed.instructions]
    if memory is not None:
        amounts += [memory.l2_bytes, memory.dram_read_bytes, memory.dram_written_bytes]
    moving = next((part.us for part in parts if part.name == "bandwidth"), 0.0)
    found_range = range_of(
        varies=bool(unknowns) and varies(amounts, LEAST_OPEN),
        is_followed=followed is not None,
        spills=(doing.resources.local_bytes or 0) > LEAST_LOCAL_BYTES,
        multiplies=bool(demand.program.pipes.get(TENSOR)),
        moves=moving > us / 2,
    )
    is_alike = devices()[FITTED_TO].target == gpu.target
    low, high = found_range.around(us, is_alike=is_alike)
    moved = demand.read_bytes + demand.written_bytes
    return Prediction(
        us=us,
        gbs=moved / us / 1e3 if moved else None,
        copy_gbs=None,
        parts=parts,
        basis=basis_words(gpu, is_followed=followed is not None),
        calibrated=gpu.key in MEASURED,
        low_us=low,
        high_us=high,
        busiest=found.busiest(),
    )


def basis_words(gpu: Gpu, *, is_followed: bool = True) -> str:
    """Return what times for *gpu* rest on."""
    found = "launches of 96 public kernels on an NVIDIA H100"
    if measured_units(gpu):
        found = f"what calibrate measured here and {found}"
    elif gpu.key != FITTED_TO:
        found = f"the data sheet and {found}"
    return found if is_followed else f"what the source does, {NOT_FOLLOWED}, {found}"
