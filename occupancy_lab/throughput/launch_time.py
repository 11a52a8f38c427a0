"""How long any launch takes, from what its programs need of each unit of the GPU.

The constants, in `demand`, `atomics` and `rounds`, were fitted to launches of 96 public kernels on
an H100. For other GPUs they are scaled by data sheets. docs/times.md has the errors for kernels
that they were not fitted to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from occupancy_lab.gpus import Gpu, devices
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.prediction import NOT_FOLLOWED, Prediction
from occupancy_lab.throughput.calibrations import FITTED_TO, measured_units
from occupancy_lab.throughput.demand import Demand, Doing, demand_of
from occupancy_lab.throughput.rounds import Rounds
from occupancy_lab.values import Resources
from occupancy_lab.work.counts import Amount, Counts
from occupancy_lab.work.execution import LATENCIES, Executed, Program
from occupancy_lab.work.memory import Memory
from occupancy_lab.work.pipes import TENSOR

MEASURED = (FITTED_TO, "h200")
"""The GPUs whose recorded launches test the predictions."""
EVENTS_US = 1.6
"""The part of a launch's time between events that a profiler does not count. Nor does a profiler
count writes that are still in the L2 cache at the end. From the times that Nsight Compute recorded
for 79 launches on an H100; it also fits 541 launches on an H200."""


def predict_launch(doing: Doing) -> Prediction | None:
    """Return how long a launch takes.

    Where its binary was not followed, as on AMD, or where it uses tensor cores of unknown rate, its
    programs are those of `counted_program`. None where its amount of work `is_open`, or where the
    GPU's size, clock, bandwidth or tensor cores are not known.
    """
    memory, gpu = doing.memory, doing.gpu
    if is_open(doing.counts, doing.executed, memory):
        return None
    if doing.in_program and memory is not None and memory.written_within_bytes is not None:
        memory = replace(memory, dram_written_bytes=memory.written_within_bytes)
        doing = replace(doing, memory=memory)
    demand = demand_of(doing)
    if demand is None or not gpu.has_rates:
        return None
    found = Rounds(demand, gpu, EVENTS_US if doing.in_program else 0.0)
    us, parts = found.us(), found.parts
    moving = next((part.us for part in parts if part.name == "bandwidth"), 0.0)
    low, high = _range(doing, demand, moves=moving > us / 2)
    wider = 1.0 if devices()[FITTED_TO].target == gpu.target else STRANGER
    total = demand.read_bytes + demand.written_bytes
    return Prediction(
        us=us,
        gbs=total / us / 1e3 if total else None,
        copy_gbs=None,
        parts=parts,
        basis=basis_words(gpu, is_followed=demand.is_followed),
        calibrated=gpu.key in MEASURED,
        low_us=us * low / wider,
        high_us=us * high * wider,
        busiest=found.busiest(),
    )


def basis_words(gpu: Gpu, *, is_followed: bool = True) -> str:
    """Return what predicted times for *gpu* are based on, in words."""
    found = "launches of 96 public kernels on an NVIDIA H100"
    if measured_units(gpu):
        found = f"what calibrate measured here and {found}"
    elif gpu.key != FITTED_TO:
        found = f"the data sheet and {found}"
    return found if is_followed else f"what the source does, {NOT_FOLLOWED}, {found}"


RANGES = {
    "bandwidth": (0.88, 1.20),
    "tensor": (0.84, 1.19),
    "other": (0.83, 1.32),
    "spills": (0.77, 1.23),
    "unknown": (0.64, 1.45),
    "wide": (0.60, 1.80),
    "counted": (0.86, 1.36),
    "counted products": (0.83, 1.87),
}
"""The range in which 80% of a class of launches lie, relative to their predicted times. From 442
launches of kernels of packages that nobody had looked at, on an H200, as they were
predicted before they were timed; "other" and "unknown" are from the last 110 of these, of which 79%
lie inside. "wide" is from 15.
"counted" are launches without a replay of their binary, which was tried on an H100's."""
STRANGER = 1.3
"""How much wider a range is on each side for a GPU of another architecture, none of which was
measured. For the same architecture it is not wider: 97% of the held-out launches on an H200 lie
inside."""
LEAST_OPEN, MOST_OPEN = 1.02, 5.0
"""The most work that unknown values may cause, relative to the least, for a launch to have the
range of launches without unknown values, and for it not to have that of "wide" launches."""
LEAST_LOCAL_BYTES = 64
"""Bytes of local memory per thread up to which a launch does not count as spilling."""


def _range(doing: Doing, demand: Demand, *, moves: bool) -> tuple[float, float]:
    """Return the range of a launch, by the errors of its class.

    *moves* says whether device memory takes most of its time. Unknown values make the range no
    narrower on either side.
    """
    multiplies = bool(demand.program.pipes.get(TENSOR))
    if not demand.is_followed:
        low, high = RANGES["counted products" if multiplies else "counted"]
    elif (doing.resources.local_bytes or 0) > LEAST_LOCAL_BYTES:
        low, high = RANGES["spills"]
    elif multiplies:
        low, high = RANGES["tensor"]
    else:
        low, high = RANGES["bandwidth" if moves else "other"]
    executed, memory = doing.executed if demand.is_followed else None, doing.memory
    unknowns = doing.counts.unknowns or (executed is not None and executed.unknowns)
    done = [None if executed is None else executed.instructions]
    moved = []
    if memory is not None:
        done.append(memory.l2_bytes)
        moved = [memory.dram_read_bytes, memory.dram_written_bytes]
    if not unknowns or not varies((*done, *moved), LEAST_OPEN):
        return low, high
    wider = RANGES["wide" if varies(done, MOST_OPEN) else "unknown"]
    return min(low, wider[0]), max(high, wider[1])


def is_open(counts: Counts, executed: Executed | None, memory: Memory | None) -> bool:
    """Tell whether unknown values make a launch's work too uncertain for a prediction.

    They do where nothing limits the work. Within limits, the middle is predicted.
    """
    through = None if memory is None else memory.l2_bytes
    instructions = None if executed is None else executed.instructions
    done = (through, instructions)
    return bool(counts.unknowns) and any(one is not None and one.high is None for one in done)


def varies(amounts: Iterable[Amount | None], times: float) -> bool:
    """Tell whether any amount's upper limit is more than *times* its lower one."""
    known = (one for one in amounts if one is not None)
    return any(one.high is None or one.high > times * one.low for one in known)


BLOCK_BYTES, THREAD_BYTES = 4096, 16
"""Bytes that a program of the copy reads and writes, and bytes per thread."""
PROGRAM = Program(
    pipes={"issue": 46.0, "alu": 52.0, "fma": 20.0, "uniform": 4.0, "lsu": 73.6},
    alone=tuple(91.2 + latency for latency in LATENCIES),
    rounds=None,
    code_cycles=0.0,
    transferred=(1.0, 1.0),
    loaded_lines=32.0,
    stored_lines=32.0,
)
"""The needs of such a program: those of the calibration's row copy as compiled for an H200."""
SOONER_US = 0.15
"""How much earlier the driver's copy begins, fitted to 261 copies on each of an H100 and an
H200."""
LARGE_BYTES, WHOLE_BYTES, UNEVEN_US = 2**20, 4096, 2.5
"""CUDA copies of LARGE_BYTES or more that are no multiple of WHOLE_BYTES take UNEVEN_US longer,
whatever their size: the median of 103 copies recorded on an H200 is 2.5 us. They are still one
copy: a profiler shows 1.4 us for 2 MiB, and 7.6 us for 2 bytes more (H200, 2026-11-23)."""


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
        l2_bytes=total_bytes,
        stored_bytes=written,
        missed=1.0,
        first=1.0,
        memory=Memory(),
    )
    uneven = written >= LARGE_BYTES and written % WHOLE_BYTES and gpu.target.backend == "cuda"
    return Rounds(demand, gpu).us() - SOONER_US + (UNEVEN_US if uneven else 0.0)


def beside_copy(prediction: Prediction, total_bytes: int, gpu: Gpu) -> Prediction:
    """Return *prediction*, of a launch that moves *total_bytes*, beside that of a plain copy."""
    us = copy_us(total_bytes, gpu)
    return replace(
        prediction,
        gbs=total_bytes / prediction.us / 1e3,
        copy_gbs=None if us is None else total_bytes / us / 1e3,
    )
