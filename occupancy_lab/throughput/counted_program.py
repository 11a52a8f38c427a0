"""What a program needs of its multiprocessor where its binary cannot be replayed.

This is so on AMD, for Blackwell's tensor cores, and for binaries that cannot be followed. The
source gives how often its loop runs, what it multiplies and what it moves; the binary's counters
give the instructions of a pass. In a kernel with several loops, the one that runs most often stands
for all.
"""

from __future__ import annotations

import math

from occupancy_lab.gpus import Gpu
from occupancy_lab.values import Resources
from occupancy_lab.work.counts import Amount, Arithmetic, Counts
from occupancy_lab.work.execution import LATENCIES, LocalReuse, Program
from occupancy_lab.work.pipes import (
    ISSUE,
    LANES,
    LSU,
    SECTORS_OF_WAVEFRONT,
    TENSOR,
    WAVEFRONT,
    XU,
    XU_CYCLES,
)
from occupancy_lab.work.speed_of_light import dot_tflops

TENSOR_SHARE, OPERAND_SHARE = 1.11, 0.515
"""The rate of products of matrices alone, relative to the data sheet's, which assumes a lower
clock; and the share of the passes that read their operands from shared memory which delays other
accesses."""
BASE_CYCLES, PASS_CYCLES = 497.0, 53.1
"""Cycles of a program before its first load and after its last one, and of a pass of its loop, in
addition to what is counted."""
SHUFFLE_CYCLES, BARRIER_CYCLES = 15.0, 26.6
"""The latencies of a shuffle and of a barrier."""
STALL_SHARE, SERIAL_SHARE, AHEAD_SHARE = 1.77, 0.49, 0.534
"""Cycles that a warp takes alone, relative to those scheduled by the compiler; the share of the
busiest pipe's time that does not overlap with anything else of the same program; and the share of a
load's latency, divided by num_stages - 1, that a pass waits for in a loop that prefetches that many
passes ahead."""
STALL_CYCLES = 2.7
"""Stall cycles per instruction where the binary does not give them, as on AMD: the mean of 4,900
recorded launches of the tutorial's softmax (1.7 to 3.6; other kernels 1.5 to 3.9)."""
FLATTENED_SHARE = 0.3
"""The share of instructions that a pass executes in a loop that Triton flattened from two nested
loops: the median of 48 persistent products of matrices (H100)."""
CODE_WAIT = 0.4
"""Cycles to fetch an instruction that is in no cache yet (H100)."""
SPECIAL = ("exp", "log", "sqrt", "div", "sin", "cos", "tanh", "erf")
"""Parts of the names of operations that use the special function units."""
PRODUCT_SIDES = 3
"""The sides of a product: rows, columns and depth."""
GROUP_ROWS, GROUP_WARPS = 64, 4
"""The fewest rows and warps with which a warp group multiplies at the full rate (Hopper)."""


def counted_program(
    counts: Counts, resources: Resources, num_stages: int, gpu: Gpu
) -> Program | None:
    """Return what a program needs, according to *counts* and the counters of *resources*.

    For a cluster it is what each CTA needs for its part of the program's tiles. None where an upper
    limit of its loop or the rate of its tensor cores is not known.
    """
    products = _products(counts, resources, gpu)
    amounts = [one.trips for one in counts.loops] + [one.executions for one in counts.accesses]
    if products is None or any(one.high is None for one in amounts) or not counts.programs:
        return None
    in_cores, operands, multiplied = products
    each = 1 / working_programs(counts)  # the others take next to no time
    loop = max(counts.loops, key=lambda one: _middle(one.trips), default=None)
    part = each / resources.num_ctas
    trips = 0.0 if loop is None else _middle(loop.trips) * each
    passes = max(trips, 1.0) if resources.loop_instructions else 1.0
    if loop is not None and loop.depth and multiplied and num_stages > 1:
        passes *= FLATTENED_SHARE
    looped = resources.loop_instructions or 0
    warps = resources.num_warps
    issued = warps * ((resources.instructions or 0) + looped * passes)
    sectors = sum(_middle(one.sectors) for one in counts.accesses) * part
    inside = (resources.shared_accesses or 0) + (resources.shuffles or 0)
    special = sum(
        _middle(one.flops)
        for one in counts.arithmetic
        if any(name in one.operation for name in SPECIAL)
    )
    pipes = {
        ISSUE: issued / gpu.architecture.issue_rate,
        LSU: sectors / SECTORS_OF_WAVEFRONT + OPERAND_SHARE * operands + warps * inside * passes,
        XU: special * part / LANES * XU_CYCLES / gpu.architecture.schedulers,
        TENSOR: in_cores,
    }
    stalls = resources.stall_cycles
    if stalls is None:
        stalls = round((looped or resources.instructions or 0) * STALL_CYCLES)
    waits = SHUFFLE_CYCLES * (resources.shuffles or 0) + BARRIER_CYCLES * (
        resources.barrier_waits or 0
    )
    fixed = (
        BASE_CYCLES
        + PASS_CYCLES * trips
        + passes * (STALL_SHARE * stalls + waits)
        + SERIAL_SHARE * max(pipes.values())
    )
    loads = max((_middle(one.executions) * each for one in counts.accesses if one.reads), default=0)
    ahead = AHEAD_SHARE / (num_stages - 1) if multiplied and num_stages > 1 else 1.0
    in_turn = 1.0 + max(loads - 1.0, 0.0) * ahead
    local = 4 * gpu.architecture.warp_size * warps * passes
    return Program(
        pipes={name: cycles for name, cycles in pipes.items() if cycles},
        alone=tuple(fixed + latency * in_turn for latency in LATENCIES),
        rounds=None,
        code_cycles=CODE_WAIT * ((resources.instructions or 0) + looped),
        local_reuse=LocalReuse.uniform(resources.local_bytes or 0),
        local_loaded=local * (resources.local_loads or 0),
        local_stored=local * (resources.local_stores or 0),
    )


def working_programs(counts: Counts) -> int:
    """Return how many programs run a loop or write anything; all of them where it is not known.

    The others find nothing to do and exit.
    """
    does = [one.entered for one in counts.loops if not one.depth]
    does += [one.executions for one in counts.accesses if one.writes]
    most = max((counts.programs if one.high is None else one.high for one in does), default=0)
    return min(most or counts.programs, counts.programs)


def _products(counts: Counts, resources: Resources, gpu: Gpu) -> tuple[float, float, float] | None:
    """Return what the products of a program need; None where a rate is not known.

    The results are cycles of the tensor cores, passes of shared memory for reading operands, and
    the number of products.
    """
    cycles = operands = times = 0.0
    programs = working_programs(counts)
    for one in counts.arithmetic:
        if one.operation != "dot":
            continue
        rate = _multiply_adds(one, resources, gpu)
        if rate is None:
            return None
        executions = _middle(one.executions) / programs
        cycles += _middle(one.flops) / programs / resources.num_ctas / 2 / rate
        operands += executions * _operands(one, resources) / WAVEFRONT / resources.num_ctas
        times += executions
    return cycles, operands, times


def _multiply_adds(one: Arithmetic, resources: Resources, gpu: Gpu) -> float | None:
    """Return the multiply-adds per cycle of a multiprocessor for a product."""
    tflops, architecture = dot_tflops(gpu, one.dtype), gpu.architecture
    if tflops is None or not gpu.multiprocessors or not gpu.boost_mhz:
        return None
    rate = TENSOR_SHARE * tflops * 1e6 / 2 / gpu.multiprocessors / gpu.boost_mhz
    whole, part = architecture.warpgroup_multiply_adds, architecture.tensor_multiply_adds
    if whole and part and not _is_grouped(one, resources):
        rate *= part / whole
    return rate


def _is_grouped(one: Arithmetic, resources: Resources) -> bool:
    """Tell whether warp groups make a product from shared memory."""
    return one.shape[:1] >= (GROUP_ROWS,) and resources.num_warps % GROUP_WARPS == 0


def _operands(one: Arithmetic, resources: Resources) -> float:
    """Return the bytes of shared memory that warps read for a product.

    Where each warp makes its own part, all warps of a row read the same rows.
    """
    if len(one.shape) != PRODUCT_SIDES:
        return 0.0
    rows, columns, depth = one.shape
    item = 1 if "8" in one.dtype else {"fp16": 2, "bf16": 2, "fp64": 8}.get(one.dtype, 4)
    again = (1.0, 1.0)
    if not _is_grouped(one, resources):
        again = max(resources.num_warps / 2, 1.0), min(resources.num_warps, 2.0)
    return depth * item * (rows * again[0] + columns * again[1])


def _middle(amount: Amount) -> float:
    if amount.high is None or not amount.low:
        return (amount.high or 0) / 2
    return math.sqrt(amount.low * amount.high)
