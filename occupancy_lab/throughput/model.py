"""The throughput model: how long a launch takes, from its features and a GPU's constants.

Programs on a multiprocessor go round: each loads a row, waits for it, computes, stores and begins
again. Rows pass at the rate x at which the time of one such cycle equals programs / x (Little's
law). The cycle grows as the memory and the schedulers fill, so the smallest of latency, memory and
issue is not simply picked: they give way to each other.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.throughput.features import stack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from occupancy_lab.throughput.calibrations import Constants
    from occupancy_lab.throughput.features import Features

WAVEFRONT_BYTES = 128
"""Bytes that the memory pipe of a multiprocessor moves per cycle: 32 banks of 4 bytes (CUDA
Programming Guide, "Shared Memory")."""
SECTOR_BYTES = 32
"""What device memory is read and written in, from Pascal on (CUDA Best Practices Guide)."""
SPECIAL_SLOTS = 8
"""Issue slots for which an exponential or a reciprocal keeps the special function unit of a
scheduler: CUDA Programming Guide, "Throughput of Native Arithmetic Instructions"."""
L2_PORT_BYTES = 64
"""The most bytes per cycle that a multiprocessor reads of the L2 cache (Jia et al. 2018, Volta)."""
CACHED, UNCACHED = 0.95, 1.22
"""Code up to the one share of the instruction cache fits it whole, and from the other on none
is. Straight code of 125, 137, 163 and 200 KB on an H200 with 128 KiB, in a loop, took 2.9, 5.2, 6.4
and 6.5 cycles per instruction (2026-11-21)."""
CROWDING, SATURATION = 3.0, 100.0
"""How sharply instructions wait for each other as the schedulers fill, and a cycle for the memory
as that does; those that came closest on the tuning shapes."""
DEPENDENT_SHUFFLES = 20
"""The most shuffles of a warp that wait for each other: two reductions of 5 steps in each warp and
5 between warps. Those of rows side by side do not wait for each other."""
DRIFT_ROUNDS = 100.0
"""Rounds after which half of the programs that began together no longer load together; it came
closest on the tuning shapes."""
HIDING_STAGES = 3
"""The least num_stages that hide a load, as `cycle_times` says."""
FULLEST = 0.9999
"""The most of the schedulers and of the memory that is taken to be busy: at 1 the waiting time is
infinite, and where the rate is bisected it is tried beyond."""
OVERLAP = 2.0
"""How far a warp's waiting and the issuing of its program's other warps cover each other: 1 is one
after the other, and without end the longer alone. With 2 nine in ten of the tuning shapes' launches
are met within 9.9 %, with 1 within 11.7 %."""
TINY = 1e-9
"""Rows, or us, that are none: what rounding leaves, or what a launch without work takes."""
BISECTIONS = 40
"""Halvings of the rate, which leave 1e-12 of what it can be."""


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """The times of a launch in us, each as if nothing else took any; most of them overlap.

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
    """Issuing the instructions and moving what they move inside the multiprocessor."""
    bandwidth: Any
    """Moving the bytes through device memory."""
    tail: Any
    """The first loads and the last rows, with a part of the GPU idle."""


@dataclass(frozen=True, slots=True)
class RowTimes:
    """What a row takes of a multiprocessor, us."""

    memory: Any
    """Of its share of the device memory's bandwidth."""
    read: Any
    """The part of that before its elements are there."""
    issue: Any
    """Of its schedulers and pipes."""
    compute: Any
    """Waiting for the instructions of its slowest warp, beyond the issue of all."""


def row_times(f: Features, c: Constants) -> RowTimes:
    """Return what one row takes."""
    import numpy as np

    share = _bandwidth(f, c) / np.minimum(f.multiprocessors, f.work) * 1e3
    fetch = f.instructions * _fetch_cycles(f, c) / f.clock_mhz
    issue = np.maximum(_issue_us(f, c), fetch)
    in_turn = np.minimum(f.shuffles, DEPENDENT_SHUFFLES)
    waits = c.shuffle_cycles * in_turn + c.local_cycles * f.local_loads
    a_warp = waits + np.maximum(_slots(f), c.stall_factor * f.stall_cycles)
    alone = a_warp / f.clock_mhz + fetch
    return RowTimes(
        memory=(f.read_bytes + f.written_bytes) / share,
        read=f.read_bytes / share,
        issue=issue,
        compute=(alone**OVERLAP + issue**OVERLAP) ** (1.0 / OVERLAP) - issue,
    )


def _bandwidth(f: Features, c: Constants) -> Any:
    """Return what the device memory gives this kind of launch, GB/s."""
    import numpy as np

    looping = np.where(f.num_stages > 1, c.copy_bandwidth_gbs, c.loop_bandwidth_gbs)
    split = np.where(f.read_bytes % SECTOR_BYTES > 0, 1.0 - c.split_loss, 1.0)
    # Programs that share rows take their parts in the order of the rows.
    in_order = (f.loops == 0) | ((f.exchanges > 0) & (f.num_stages <= 1))
    return np.where(in_order, c.row_bandwidth_gbs, looping * split)


def _fetch_cycles(f: Features, c: Constants) -> Any:
    """Return the cycles that an instruction waits until it is fetched, the mean of all passes.

    Programs make their first pass together and share what is fetched.
    """
    import numpy as np

    size = f.code_bytes / f.instruction_cache_bytes
    missing = np.clip((size - CACHED) / (UNCACHED - CACHED), 0.0, 1.0)
    first = np.minimum(f.programs * f.multiprocessors / f.work, 1.0)
    return missing * (c.first_fetch_cycles * first + c.fetch_cycles * (1.0 - first))


def _slots(f: Features) -> Any:
    """Return the issue slots that a warp takes of its scheduler for a row."""
    import numpy as np

    return np.maximum(f.instructions, SPECIAL_SLOTS * f.special_functions)


def _issue_us(f: Features, c: Constants) -> Any:
    """Return the time for which a row keeps the schedulers and then the memory pipe busy.

    Or the way to the L2 cache, where that takes longer. The pipe's time comes on top of the
    schedulers', as if no other warp had anything to issue meanwhile: of what was tried this came
    closest, and the longer of the two alone was up to 20 % short where both are busy for half of
    the time (H200). What a mask leaves out of a block, which is a power of two, is not moved; what
    the accesses hold beyond the block is moved, since it is the same elements once more. Local
    memory counts in full: with a part of it in the L1 cache, launches that spill were met worse.
    """
    import numpy as np

    scheduled = f.num_warps * _slots(f) / f.issue_rate
    wavefronts = np.maximum(f.access_bytes * f.warp_size / WAVEFRONT_BYTES, 1)
    accesses = f.num_warps * (f.global_accesses + f.async_copies)
    moved = np.maximum(f.read_bytes + f.written_bytes, 1.0)
    block = np.exp2(np.ceil(np.log2(moved)))
    there = moved / np.clip(accesses * f.access_bytes * f.warp_size, moved, block)
    shared = f.num_warps * c.shared_cycles * f.shared_accesses
    piped = shared + accesses * there * wavefronts + f.local_bytes / WAVEFRONT_BYTES
    share = c.l2_gbs * f.multiprocessors / np.minimum(f.multiprocessors, f.work)
    to_l2 = f.local_bytes / np.minimum(share, L2_PORT_BYTES * f.clock_mhz / 1e3) / 1e3
    return np.maximum((scheduled + piped) / f.clock_mhz, to_l2)


def cycle_times(f: Features, c: Constants, row: RowTimes) -> Callable[[Any], Any]:
    """Return a function: the time in us from a program's row to its next, of the rows per us.

    Programs that began together load together, until they drift apart, and each waits for the
    loads of all; those of the second round wait for what the first round writes, too. In a launch
    of one round all compute together as well: with less of that up to two rounds, first choices
    lost 0.2 % more on the tuning shapes. With num_stages s the copy of a row is issued s - 1 rows
    before it is needed, at the end of a pass: s - 1 passes hide one load, and 2 stages hide
    nothing. Where it is hidden a pass is longer by pass_us.
    """
    import numpy as np

    rounds = np.maximum(f.work / f.multiprocessors / f.programs, 1.0)
    together = (f.programs - 1.0) / (1.0 + (rounds - 1.0) / DRIFT_ROUNDS)
    late = np.minimum(rounds - 1.0, 1.0) / rounds
    load = c.latency_us + (row.read + late * (row.memory - row.read)) * (1.0 + together)
    others = f.programs - 1.0
    at_once = 1.0 + np.where(rounds > 1.0, 0.0, c.at_once_share * others)
    exchange, passing = c.exchange_us * f.exchanges, _pass_us(f, c)
    hidden = np.maximum(f.num_stages - 1.0, 1.0)

    def cycle_time(rate: Any) -> Any:
        busy = np.minimum(rate * row.issue * others / f.programs, FULLEST)
        issue = row.issue * np.maximum(1.0 / (1.0 - busy**CROWDING), at_once)
        compute = row.compute + issue + exchange + passing
        used = np.minimum(rate * row.memory, FULLEST)
        return np.maximum(compute, (load + compute) / hidden) / (1.0 - used**SATURATION)

    return cycle_time


def _pass_us(f: Features, c: Constants) -> Any:
    """Return what a pass takes longer where a load is hidden."""
    import numpy as np

    return np.where(f.num_stages >= HIDING_STAGES, c.pass_us, 0.0)


def row_rate(f: Features, c: Constants, row: RowTimes) -> Any:
    """Return the rows per us that pass through a multiprocessor with its programs under way."""
    import numpy as np

    low = np.zeros_like(row.memory)
    high = 1.0 / np.maximum(np.maximum(row.memory, row.issue), TINY)
    cycle_time = cycle_times(f, c, row)
    for _ in range(BISECTIONS):
        rate = (low + high) / 2.0
        slow = cycle_time(rate) * rate > f.programs
        high = np.where(slow, rate, high)
        low = np.where(slow, low, rate)
    return (low + high) / 2.0


def launch_times(f: Features, c: Constants) -> LaunchTimes:
    """Return how long a launch takes, and how long each of its parts would alone."""
    import numpy as np

    row = row_times(f, c)
    dispatch = np.where(f.loops > 0, 0.0, c.program_us * f.multiprocessors)
    a_row = np.maximum(1.0 / row_rate(f, c, row), dispatch)
    average = np.maximum(f.work / f.multiprocessors, 1.0)
    prologue = f.programs * f.num_warps * f.prologue / f.issue_rate / f.clock_mhz
    fixed = c.launch_us + c.drain_us + prologue
    tail = _ends_us(f, c, row, a_row) + _tail_us(f, c, row, a_row)
    return LaunchTimes(
        total=fixed + average * a_row + tail,
        fixed=fixed,
        dispatch=average * dispatch,
        latency=average * cycle_times(f, c.replace(at_once_share=0.0), row)(0.0) / f.programs,
        issue=average * row.issue,
        bandwidth=average * row.memory,
        tail=tail,
    )


def _ends_us(f: Features, c: Constants, row: RowTimes, a_row: Any) -> Any:
    """Return the time before the first rows are there and after the last, beyond their share."""
    import numpy as np

    busy = row.memory / a_row
    rows = np.maximum(f.work / f.multiprocessors, 1.0)
    ahead = np.minimum(f.programs * np.maximum(f.num_stages - 1.0, 1.0), rows)
    starting = c.program_us * np.minimum(f.programs * f.multiprocessors, f.work)
    first = c.fill_share * ahead * row.read + c.start_share * starting
    filling = first * np.maximum(1.0 - busy, 0.0)
    uncovered = np.where(f.num_stages >= HIDING_STAGES, 1.0, np.minimum(busy, 1.0))
    last = c.ramp_us * busy + c.last_share * (row.compute + row.issue) * uncovered
    a_pass = c.latency_us + f.programs * row.read + row.compute + row.issue + _pass_us(f, c)
    hidden = np.where(f.num_stages > 1, np.maximum(a_pass - f.programs * a_row, 0.0), 0.0)
    return filling + last + c.pass_share * hidden


def _tail_us(f: Features, c: Constants, row: RowTimes, a_row: Any) -> Any:
    """Return the time at the end in which some multiprocessors, or slots for programs, are idle."""
    import numpy as np

    most = np.ceil(f.work / f.multiprocessors)
    average = np.maximum(f.work / f.multiprocessors, 1.0)
    # Bandwidth that multiprocessors without a last row leave is the others' to use.
    nothing = np.zeros_like(row.memory)
    alone = dataclasses.replace(row, memory=nothing, read=nothing)
    last_row = np.minimum(1.0 / row_rate(f, c, alone), a_row)
    left = most % f.programs
    few = dataclasses.replace(f, programs=np.maximum(left, 1.0))
    last_round = left / row_rate(few, c, row) - left * a_row
    slower = np.where(left > 0, np.maximum(last_round, 0.0), 0.0)
    return (most - average) * last_row + c.tail_share * slower


PACE_SPREAD = 0.1
"""How much faster or slower than the others a program goes. At one pace all would end at one time,
and those left over cost 4 % more than they do; with 0.1 the median of 515 recorded launches (H200,
2026-11-21; none of the held-out shapes) is met within 1 %."""
GOLDEN = 0.618034
"""Its multiples spread evenly over the range from 0 to 1, in whatever order they are taken."""


def overfull_us(launch: Features, constants: Constants, num_programs: int) -> float:
    """Return how much longer, in us, *launch* takes with *num_programs* programs than as planned.

    *launch* has as many programs as fit, and *num_programs* is more than that. A program
    keeps its place until it has done all its rows, so those left over run nearly alone at the end.
    It is negative where rows come out more evenly.
    """
    rates = row_rates(launch, constants)
    planned = int(launch.programs * launch.multiprocessors)
    return _time_us(launch, rates, num_programs) - _time_us(launch, rates, planned)


def row_rates(launch: Features, constants: Constants) -> Sequence[float]:
    """Return the rows per us of a multiprocessor with 1, 2, ... of the launch's programs."""
    places = range(1, int(launch.programs) + 1)
    some = stack([dataclasses.replace(launch, programs=place) for place in places])
    return [float(rate) for rate in row_rate(some, constants, row_times(some, constants))]


def _time_us(launch: Features, rates: Sequence[float], num_programs: int) -> float:
    """Return the time until the first multiprocessor has done its rows.

    Program p does rows p, p + num_programs, ...; the first multiprocessor has the programs
    0, multiprocessors, 2 x multiprocessors, ... of which as many run at once as fit.
    """
    work = int(launch.work)
    own = enumerate(range(0, min(num_programs, work), int(launch.multiprocessors)))
    waiting = deque((len(range(first, work, num_programs)), _pace(place)) for place, first in own)
    running: list[tuple[float, float]] = []
    time = 0.0
    while waiting or running:
        while waiting and len(running) < len(rates):
            running.append(waiting.popleft())
        step = min(rows / pace for rows, pace in running)
        time += step * sum(pace for _, pace in running) / rates[len(running) - 1]
        left = ((rows - step * pace, pace) for rows, pace in running)
        running = [(rows, pace) for rows, pace in left if rows > TINY]
    return time


def _pace(place: int) -> float:
    """Return how fast the program at *place* goes beside the others, 1 being the middle."""
    return 1.0 + PACE_SPREAD * (2.0 * (place * GOLDEN % 1.0) - 1.0)
