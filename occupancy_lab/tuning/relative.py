"""How long configurations of one launch take beside each other, where no time is predicted.

A binary alone does not say how often a loop runs, so there is no time in it. But all configurations
of a launch do the same work, and a pass of the loop does a part of it that the binary does show:
the multiply-adds of the tensor cores or, without them, the bytes that are moved. So a launch of N
programs that do w in a pass takes, but for a factor that is the same for all,

    (full waves x t(P) + t(n)) / (N w)      t: a pass of as many programs on a multiprocessor,

with P programs resident on a multiprocessor and n <= P in the last wave. Without loops a program
makes one pass, and it takes full waves x t(P) + t(n).

In a pass, a program waits for its loads and for its own instructions, and queues with the others
for three units: the issue slots and memory pipes (`throughput.model`), where local memory counts
too, the tensor cores, and what is loaded from the L2 cache. A loop that loads s stages has s - 1
passes under way at once. A pass takes no less than what a program takes alone.

Left out: how much the caches save, device memory's bandwidth, the code before and after a loop, and
passes that only some programs make. Nothing is fitted to launches of the kernels that are ranked:
the latency and the rates of instructions are those of the GPU's calibration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.errors import refuse
from occupancy_lab.throughput.calibrations import calibration_for
from occupancy_lab.throughput.features import launch_features
from occupancy_lab.throughput.model import row_times
from occupancy_lab.values import LaunchPlan, Traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.throughput.calibrations import Basis
    from occupancy_lab.values import Resources

WARPGROUP_SIZE = 2048
"""Multiply-adds of a warp above which an instruction is a warpgroup's: m16n8k16 has as many."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A launch of one configuration as it sits on the GPU."""

    resources: Resources
    programs_per_multiprocessor: int
    resident_programs: int | None
    num_programs: int
    num_stages: int


def relative_times(launches: Sequence[Placed], gpu: Gpu) -> list[float]:
    """Return a number for each of *launches*: how long it takes beside the others.

    Raises InputError where the GPU's size or clock, or what a binary issues, is not known.
    """
    basis = calibration_for(gpu)
    if basis is None:
        refuse(f"the bandwidth or the clock of {gpu.title} is not known")
    multiplies = all(map(_multiply_adds, launches))
    loops = any(one.resources.loop_instructions is not None for one in launches)
    times = []
    for one in launches:
        work = _multiply_adds(one) if multiplies else _loaded(one, gpu) if loops else 0
        times.append(_waves_us(one, gpu, basis) / (one.num_programs * work if work else 1))
    return times


def _multiply_adds(one: Placed) -> int:
    """Return the multiply-adds that a program does on tensor cores in a pass."""
    taken = one.resources
    return (taken.tensor_instructions or 0) * (taken.tensor_size or 0) * taken.num_warps


def _loaded(one: Placed, gpu: Gpu) -> int:
    """Return the bytes that a program moves in a pass; a bulk copy's are those of its buffers."""
    taken = one.resources
    threads = taken.num_warps * gpu.architecture.warp_size
    accesses = (taken.global_accesses or 0) + (taken.async_copies or 0)
    counted = accesses * threads * (taken.load_bytes or taken.store_bytes or 4)
    return max(counted, (taken.pipeline_shared or 0) // max(one.num_stages - 1, 1))


def _waves_us(one: Placed, gpu: Gpu, basis: Basis) -> float:
    """Return the time of as many passes as there are waves of programs."""
    resident, size = one.resident_programs, gpu.multiprocessors
    if not resident or size is None:
        refuse(f"how many programs {gpu.title} holds is not known")
    waves, rest = divmod(one.num_programs, resident)
    full = waves * _pass_us(one, one.programs_per_multiprocessor, gpu, basis) if waves else 0.0
    return full + (_pass_us(one, -(-rest // size), gpu, basis) if rest else 0.0)


def _pass_us(one: Placed, programs: int, gpu: Gpu, basis: Basis) -> float:
    """Return the time in which each of *programs* on one multiprocessor makes a pass."""
    taken, architecture = one.resources, gpu.architecture
    features = launch_features(
        taken,
        Traffic(0, 0),
        one.programs_per_multiprocessor,
        LaunchPlan(one.num_programs, one.num_programs, one.resident_programs),
        gpu,
        num_stages=one.num_stages,
        loops=taken.loop_instructions is not None,
    )
    if features is None:
        refuse(f"what the binary issues, or the clock of {gpu.title}, is not known")
    row = row_times(features, basis.constants)
    mhz = float(features.clock_mhz)
    tensor = _tensor_cycles(one, gpu) / mhz
    load = _loaded(one, gpu) / architecture.l2_load_bytes / mhz
    idle = architecture.schedulers / min(taken.num_warps, architecture.schedulers)
    alone = float(row.compute + row.issue) + tensor * idle
    ahead = one.num_stages - 1 if taken.async_copies or taken.pipeline_shared else 1
    ahead = max(ahead, 1)
    waits = basis.constants.latency_us + float(row.compute)
    cycle = _cycle_us(programs * ahead, waits, (float(row.issue), tensor, load))
    return max(cycle / ahead, alone)


def _cycle_us(passes: int, waits: float, demands: Sequence[float]) -> float:
    """Return the time of a pass when so many go round, each of which *waits*, then queues.

    Mean value analysis of a closed network of queues (Reiser and Lavenberg, 1980): a pass that
    comes to a unit finds the queue of a network with one pass fewer.
    """
    queues = [0.0] * len(demands)
    cycle = waits
    for number in range(1, passes + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands, queues, strict=True)]
        cycle = waits + sum(times)
        queues = [number * time / cycle for time in times]
    return cycle


def _tensor_cycles(one: Placed, gpu: Gpu) -> float:
    """Return the cycles for which a pass of a program keeps the tensor cores busy."""
    architecture = gpu.architecture
    grouped = (one.resources.tensor_size or 0) > WARPGROUP_SIZE
    rate = architecture.warpgroup_multiply_adds if grouped else None
    rate = rate or architecture.tensor_multiply_adds
    return 0.0 if rate is None else _multiply_adds(one) / rate
