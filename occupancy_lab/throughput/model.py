"""The throughput model: how long a launch takes, from its features and a GPU's constants.

Programs on a multiprocessor are customers in a closed queueing network: each loads a row, waits
for it, computes, stores and begins again. Rows pass at the rate x at which the time of one such
cycle equals programs / x (Little's law). The cycle grows as the memory and the schedulers fill,
so the smallest of latency, memory and issue is not simply picked: they give way to each other.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from occupancy_lab.throughput.constants import Constants
    from occupancy_lab.throughput.features import Features

WAVEFRONT_BYTES = 128
"""Bytes that the memory pipe of a multiprocessor moves a cycle."""
SECTOR_BYTES = 32
"""What device memory is read and written in."""
SPECIAL_SLOTS = 8
"""Issue slots that an exponential or a reciprocal keeps the special function unit of a scheduler.
An instruction of half the rate takes 2 slots, and an ordinary one 1: CUDA Programming Guide,
"Throughput of Native Arithmetic Instructions"."""
INSTRUCTION_CYCLES = 4.5
"""Cycles from an instruction of a warp to one that needs its result. Volta to Hopper take 4 for
most arithmetic (Jia et al. 2018, Luo et al. 2024); 4.5 came closest on the tuning shapes."""
BISECTIONS = 40


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a launch in us, each as if nothing else took any; they overlap but the first.

    Numbers or, for many launches, arrays.
    """

    total: Any
    fixed: Any
    """Launching, fetching the code, the instructions before a loop, and draining."""
    dispatch: Any
    """Starting the programs one after the other."""
    latency: Any
    """Waiting, with the programs that are resident taking turns."""
    issue: Any
    """Issuing the instructions, or moving what they move inside the multiprocessor."""
    bandwidth: Any
    """Moving the bytes through device memory."""
    tail: Any
    """Waiting for the multiprocessors that have a row more than the average."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a row takes of a multiprocessor, us."""

    memory: Any
    """Of its share of the device memory's bandwidth."""
    issue: Any
    """Of its schedulers and pipes."""
    load: Any
    """Until its elements are there, with the memory idle."""
    compute: Any
    """Waiting for its own instructions, beyond their issue."""


def row_times(f: Features, c: Constants) -> Row:
    """Give what one row takes."""
    import numpy as np

    bandwidth = _bandwidth(f, c)
    share = np.minimum(bandwidth / np.minimum(f.multiprocessors, f.work), c.port_gbs) * 1e3
    issue = _issue_us(f, c)
    waits = (
        c.shuffle_cycles * f.shuffles
        + c.barrier_cycles * f.barriers
        + c.local_cycles * f.local_loads * _missing_share(f, c)
    )
    alone = np.maximum(_slots(f), INSTRUCTION_CYCLES * f.instructions)
    return Row(
        memory=(f.read_bytes + f.written_bytes) / share,
        issue=issue,
        load=c.latency_us + f.read_bytes / share,
        compute=waits / f.clock_mhz + np.maximum(alone / f.clock_mhz - issue, 0.0),
    )


def _bandwidth(f: Features, c: Constants) -> Any:
    """Give what the device memory gives this kind of launch, GB/s."""
    import numpy as np

    deeper = np.maximum(f.num_stages - 2.0, 0.0)
    ahead = c.copy_bandwidth_gbs * (1.0 - c.stage_loss * deeper)
    looping = np.where(f.num_stages > 1, ahead, c.loop_bandwidth_gbs)
    split = np.where(f.read_bytes % SECTOR_BYTES > 0, 1.0 - c.split_loss, 1.0)
    return np.where(f.loops > 0, looping * split, c.row_bandwidth_gbs)


def _slots(f: Features) -> Any:
    """Give the issue slots that a warp takes of its scheduler for a row."""
    import numpy as np

    return np.maximum(f.instructions + f.half_rate, SPECIAL_SLOTS * f.special_functions)


def _issue_us(f: Features, c: Constants) -> Any:
    """Give the time that a row keeps the busiest of schedulers, memory pipe and way to the L2."""
    import numpy as np

    scheduled = f.num_warps * _slots(f) / f.issue_rate
    wavefronts = np.maximum(f.access_bytes * f.warp_size / WAVEFRONT_BYTES, 1)
    accesses = (f.global_accesses + f.async_copies) * wavefronts + c.copy_slots * f.async_copies
    a_warp = f.shuffles + f.shared_accesses + c.barrier_slots * f.barriers + accesses
    piped = f.num_warps * a_warp + f.local_bytes / WAVEFRONT_BYTES
    local = np.maximum(f.local_loads + f.local_stores, 1)
    passing = (f.local_stores + f.local_loads * _missing_share(f, c)) / local
    to_l2_us = f.local_bytes * passing / c.l2_gbs / 1e3
    return np.maximum(np.maximum(scheduled, piped) / f.clock_mhz, to_l2_us)


def _missing_share(f: Features, c: Constants) -> Any:
    """Give the part of the loads of local memory that the L1 cache cannot answer."""
    import numpy as np

    kept = np.maximum(c.l1_share * f.l1_bytes, 1.0)
    return np.clip(1.0 - kept / np.maximum(f.local_footprint, 1.0), 0.0, 1.0)


def cycle_time(rate: Any, f: Features, c: Constants, row: Row) -> Any:
    """Give the time in us from a program's row to its next, at *rate* rows a us a multiprocessor.

    With num_stages s the copy of a row is issued s - 1 rows before it is needed, at the end of a
    pass: s - 1 passes hide one load, and 2 stages hide nothing.
    """
    import numpy as np

    used = np.minimum(rate * row.memory, 0.9999)
    load = row.load + c.queue_us * used / (1.0 - used**4)
    others = np.minimum(rate * row.issue * (f.programs - 1.0) / f.programs, 0.9999)
    compute = row.compute + row.issue / (1.0 - others**1.5)
    hidden = np.maximum(f.num_stages - 1.0, 1.0)
    return np.maximum(compute, (load + compute) / hidden)


def row_rate(f: Features, c: Constants, row: Row) -> Any:
    """Give the rows a us that pass through a multiprocessor with its programs under way."""
    import numpy as np

    low = np.zeros_like(row.memory)
    high = 1.0 / np.maximum(np.maximum(row.memory, row.issue), 1e-9)
    for _ in range(BISECTIONS):
        rate = (low + high) / 2.0
        slow = cycle_time(rate, f, c, row) * rate > f.programs
        high = np.where(slow, rate, high)
        low = np.where(slow, low, rate)
    return (low + high) / 2.0


def times(f: Features, c: Constants) -> Times:
    """Give how long a launch takes, and how long each of its parts would alone."""
    import numpy as np

    row = row_times(f, c)
    dispatch = np.where(f.loops > 0, 0.0, c.program_us * f.multiprocessors)
    a_row = np.maximum(1.0 / row_rate(f, c, row), dispatch)
    average = np.maximum(f.work / f.multiprocessors, 1.0)
    tail = _tail_us(f, c, row, a_row)
    prologue = f.programs * f.num_warps * f.prologue / f.issue_rate / f.clock_mhz
    fixed = c.launch_us + c.drain_us + c.prologue_factor * prologue
    fixed = fixed + c.ramp_us * row.memory / a_row
    return Times(
        total=fixed + average * a_row + tail,
        fixed=fixed,
        dispatch=average * dispatch,
        latency=average * cycle_time(0.0, f, c, row) / f.programs,
        issue=average * row.issue,
        bandwidth=average * row.memory,
        tail=tail,
    )


def _tail_us(f: Features, c: Constants, row: Row, a_row: Any) -> Any:
    """Give the time at the end in which some multiprocessors, or places for programs, are idle."""
    import numpy as np

    most = np.ceil(f.work / f.multiprocessors)
    average = np.maximum(f.work / f.multiprocessors, 1.0)
    # Bandwidth that multiprocessors without a last row leave is the others' to use.
    unshared = np.maximum(1.0 - row.memory / a_row, 1.0 / f.programs**2)
    left = most % f.programs
    few = dataclasses.replace(f, programs=np.maximum(left, 1.0))
    last_round = left / row_rate(few, c, row) - left * a_row
    slower = np.where(left > 0, np.maximum(last_round, 0.0), 0.0)
    return (most - average) * unshared * a_row + c.tail_share * slower
