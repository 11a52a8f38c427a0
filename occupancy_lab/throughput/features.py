"""What the throughput model needs to know of a launch, as plain numbers or columns of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.values import LaunchPlan, Resources, Traffic, Work

STALL_CYCLES = 2.7
"""Stall cycles per instruction where the binary does not tell, as AMD's do not: the mean of 4,900
recorded launches of the tutorial's softmax (1.7 to 3.6; other kernels 1.5 to 3.9)."""

COUNTED = (
    *("shuffles", "shared_accesses", "global_accesses", "async_copies"),
    *("special_functions", "local_loads"),
)
"""The counters of Resources that are features as they are; what is not known counts as none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """One launch, or, with numpy arrays for its numbers, many."""

    work: Any
    """Rows, blocks or other pieces of work in all."""
    multiprocessors: Any
    clock_mhz: Any
    programs: Any
    """Programs resident on a multiprocessor, no more than there is work for."""
    num_warps: Any
    num_stages: Any
    loops: Any
    """Whether a program does several rows in a loop."""
    read_bytes: Any
    """Bytes of device memory read per row."""
    written_bytes: Any
    instructions: Any
    """Instructions of a warp for a row; those below are among them."""
    stall_cycles: Any
    """Cycles of a warp from each of them to its next, as the compiler scheduled them."""
    prologue: Any
    """Instructions of a warp before and after a loop."""
    shuffles: Any
    shared_accesses: Any
    global_accesses: Any
    async_copies: Any
    special_functions: Any
    access_bytes: Any
    """Bytes that a thread moves by its widest load."""
    local_loads: Any
    local_bytes: Any
    """Bytes that a program moves from and to local memory for a row."""
    exchanges: Any
    """How often a program waits for what other programs write, per row, times how late the slowest
    of them is, in deviations."""
    code_bytes: Any
    """Code that a warp goes through for a row."""
    instruction_cache_bytes: Any
    warp_size: Any
    issue_rate: Any
    """Instructions of any warp that a multiprocessor issues per cycle."""


def features(  # noqa: PLR0913, PLR0917 - the values of a record, in their order
    work: Work,
    num_stages: int,
    resources: Resources,
    programs_per_multiprocessor: int,
    plan: LaunchPlan,
    gpu: Gpu,
) -> Features | None:
    """Return a launch's features; None where one is not known of the launch, the GPU or the binary.

    None too where the kernel has a loop and *work* does not say how often it runs, for tensor cores
    and clusters, which the model does not know, and where fewer programs fit than wait for each
    other.
    """
    looped = resources.loop_instructions is not None
    unknown = work.traffic is None or (looped and work.passes is None) or plan.num_programs == 0
    if unknown or resources.tensor_instructions or resources.num_ctas > 1 or work.traffic is None:
        return None
    passes = (work.passes or 1) if looped else 1
    if passes > 1 and plan.num_programs and gpu.multiprocessors:
        # A block is a piece of work, and the programs of few rows are on few multiprocessors.
        gpu = dataclasses.replace(gpu, multiprocessors=min(gpu.multiprocessors, plan.num_programs))
        plan = dataclasses.replace(plan, work=plan.work * passes)
    return launch_features(
        resources,
        work.traffic,
        programs_per_multiprocessor,
        plan,
        gpu,
        num_stages=num_stages,
        loops=looped and (passes > 1 or plan.is_persistent),
        item_bytes=work.item_bytes,
        exchanges=work.exchanges * _slowest(work.together),
    )


def _slowest(together: int | None) -> float:
    """Return how late the slowest is of programs that wait for each other, in deviations.

    Where it is not said how many wait *together*, they are two.

    The latest of n times that are normally distributed is sqrt(2 ln n) late, the leading term of
    extreme value theory. With the doublings of n instead, 16 to 32 programs were predicted 20 % too
    slow, and with one time for any number 2 programs 6 % (H200).
    """
    return math.sqrt(2.0 * math.log(2 if together is None else together))


def launch_features(  # noqa: PLR0913 - what a launch's time depends on
    resources: Resources,
    moved: Traffic,
    programs_per_multiprocessor: int,
    plan: LaunchPlan,
    gpu: Gpu,
    *,
    num_stages: int = 1,
    loops: bool = False,
    item_bytes: int = 4,
    exchanges: float = 0,
) -> Features | None:
    """Return the features of a launch that moves *moved*, as `features` does.

    With *loops* a program does several pieces of the work, one in each pass of its loop.
    *item_bytes* is how wide an access is where the binary does not tell, *exchanges* how often a
    program waits for others in each pass.
    """
    needed = (gpu.multiprocessors, gpu.boost_mhz, plan.num_programs, resources.instructions)
    if None in needed or gpu.multiprocessors is None or not plan.work:
        return None
    threads = resources.num_warps * gpu.architecture.warp_size
    each = -(-(plan.num_programs or 1) // gpu.multiprocessors)
    instructions = (resources.loop_instructions if loops else resources.instructions) or 0
    # A binary's are those of its loop where it has one.
    stalls = resources.stall_cycles if loops or resources.loop_instructions is None else None
    return Features(
        work=plan.work,
        multiprocessors=gpu.multiprocessors,
        clock_mhz=gpu.boost_mhz,
        programs=min(programs_per_multiprocessor, each),
        num_warps=resources.num_warps,
        num_stages=num_stages if resources.async_copies else 1,
        loops=loops,
        read_bytes=moved.read_bytes / plan.work,
        written_bytes=moved.written_bytes / plan.work,
        instructions=instructions,
        stall_cycles=instructions * STALL_CYCLES if stalls is None else stalls,
        prologue=_around_loop(resources, num_stages, gpu) if loops else 0,
        **{name: getattr(resources, name) or 0 for name in COUNTED},
        access_bytes=resources.load_bytes or item_bytes,
        local_bytes=(resources.local_traffic or 0) * threads,
        exchanges=exchanges,
        code_bytes=instructions * gpu.architecture.instruction_bytes,
        instruction_cache_bytes=gpu.architecture.instruction_cache_bytes,
        warp_size=gpu.architecture.warp_size,
        issue_rate=gpu.architecture.issue_rate,
    )


def _around_loop(resources: Resources, num_stages: int, gpu: Gpu) -> int:
    """Return the instructions of a warp before and after a loop, those of whole passes left out.

    For AMD, Triton pipelines through registers and peels num_stages - 1 passes off the loop, which
    the loop then does not make.
    """
    around, a_pass = resources.instructions or 0, resources.loop_instructions or 0
    peeled = num_stages - 1 if gpu.target.backend == "hip" else 0
    return max(around - peeled * a_pass, 0)


def stack(launches: Sequence[Features]) -> Features:
    """Return one Features whose numbers are arrays, one element per launch."""
    import numpy as np

    return Features(
        **{
            field.name: np.array([getattr(one, field.name) for one in launches], dtype=float)
            for field in dataclasses.fields(Features)
        }
    )
