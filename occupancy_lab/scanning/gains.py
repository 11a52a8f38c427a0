"""What there is to win for a kernel in a cache: one number, how many times faster, and why.

Where the launch of an entry is known it is by its predicted time: with a further program, without
its spills, or as another entry of the same function has it. Of others a cache has neither the size
nor the data, so that no time can be predicted. What can be said is an estimate for a full GPU, from
what one program does in a pass over its code, in which every instruction counts once. What other
warps or a cap on registers make of the code is not in it, so that a launch may gain more. A pass
takes a multiprocessor at least

- memory: the bytes of its global accesses, at the multiprocessor's share of the bandwidth;
- issue: its instructions, at the rate of the schedulers;
- local: the bytes of its local memory, at the rate of the way to the L2 cache;

and the program itself as long as it waits: one latency of the memory, then its bytes, then its
instructions, each after the one before, and its local memory. (Copies ahead, as num_stages makes
them, let the first two and the others overlap.) While one program waits others work, so that with
P resident programs a pass takes the multiprocessor the longest of the three, or the wait divided by
P. Where the last is the longest, the kernel is short of programs: one more helps, by no more than
the ratio of the programs and no further than to the longest of the others. Elsewhere more occupancy
brings nothing, and the gain is 1. Spills are worth what a pass is shorter without their bytes and
instructions. To a kernel that spills a step is worth nothing that is known: it may add to them.

Latency, bandwidth and rates are those of the model of time, by the GPU's data sheet. Matrix
multiplications on tensor cores take longer than their issue, which is not in these numbers. More
occupancy is therefore worth something to a kernel with them only where the bytes that its programs
can have in flight are too few to keep the memory busy (Little's law: latency times bandwidth), and
its tensor cores have that to wait for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from occupancy_lab.options import CAPS
from occupancy_lab.prediction import RATIO_ERROR
from occupancy_lab.scanning.page import LEAST
from occupancy_lab.text.words import listed, microseconds
from occupancy_lab.throughput.counted_program import STALL_CYCLES, STALL_SHARE
from occupancy_lab.throughput.launch_time import (
    BANDWIDTH_SHARE,
    LOCAL_BYTES,
    MEMORY_CYCLES,
    PARTS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.scanning.cache import Mix
    from occupancy_lab.scanning.page import ScannedKernel
    from occupancy_lab.values import Resources

MEMORY, ISSUE, LOCAL, PROGRAMS, TENSOR = "bandwidth", "issue", "local", "latency", "tensor"
"""What can take a pass longest, as the parts of a predicted time are called."""
ALIKE = 1 + RATIO_ERROR
"""Times of launches of a kernel that are no further apart are predicted to be alike."""
TENSOR_WORDS = "tensor cores do its work, which seldom gains by more warps"


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times faster a kernel gets by this estimate, and why."""

    factor: float | None
    """None where it is not known."""
    by: str
    bound: str = ""
    """What takes longest now, by the names of `launch_time.PARTS`."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """What a multiprocessor of a GPU does, per us."""

    memory: float
    """Bytes of device memory."""
    local: float
    """Bytes of local memory from and to the L2 cache."""
    issued: float
    """Instructions of its warps."""
    latency_us: float
    """A load from device memory."""
    instruction_us: float
    """From an instruction of a warp to its next."""

    @property
    def in_flight(self) -> float:
        """Return the bytes in flight that keep the memory busy."""
        return self.latency_us * self.memory


@cache
def speeds_of(gpu: Gpu) -> Speeds | None:
    """Return the speeds of *gpu*; None where its size, clock or bandwidth is not known."""
    if gpu.bandwidth_gbs is None or gpu.multiprocessors is None or gpu.boost_mhz is None:
        return None
    return Speeds(
        memory=BANDWIDTH_SHARE * gpu.bandwidth_gbs * 1e3 / gpu.multiprocessors,
        local=LOCAL_BYTES * gpu.boost_mhz,
        issued=gpu.architecture.issue_rate * gpu.boost_mhz,
        latency_us=MEMORY_CYCLES / gpu.boost_mhz,
        instruction_us=STALL_SHARE * STALL_CYCLES / gpu.boost_mhz,
    )


@dataclass(frozen=True, slots=True)
class Pass:
    """What a program does in one pass over its code."""

    moved: int
    """Bytes of global memory."""
    local: int
    """Bytes of local memory."""
    num_warps: int
    instructions: int
    """Of each warp."""
    ahead: bool
    """Whether copies run ahead of the warps."""

    def times(self, speeds: Speeds, programs: int) -> dict[str, float]:
        """Return how long each part takes a multiprocessor that holds *programs*, us."""
        memory = self.moved / speeds.memory
        issue = self.num_warps * self.instructions / speeds.issued
        local = self.local / speeds.local
        load = (speeds.latency_us if self.moved else 0.0) + memory
        own = max(issue, self.instructions * speeds.instruction_us) + local
        wait = max(load, own) if self.ahead else load + own
        return {MEMORY: memory, ISSUE: issue, LOCAL: local, PROGRAMS: wait / programs}

    def us(self, speeds: Speeds, programs: int) -> float:
        """Return how long a pass takes a multiprocessor that holds *programs*."""
        return max(self.times(speeds, programs).values())


def pass_of(mix: Mix, resources: Resources, warp_size: int) -> Pass:
    """Return what a program of the kernel does in one pass.

    Copies ahead move no more than the shared memory that they fill.
    """
    threads = resources.num_warps * warp_size
    return Pass(
        moved=mix.global_bytes * threads + (resources.shared if mix.copies else 0),
        local=mix.local_bytes * threads,
        num_warps=resources.num_warps,
        instructions=mix.instructions,
        ahead=mix.copies > 0,
    )


def find_gain(  # noqa: PLR0913 - what a gain depends on
    mix: Mix | None,
    resources: Resources,
    gpu: Gpu,
    *,
    programs: int,
    after: int | None,
    step: str,
    cost: str,
    spill_advice: str,
) -> Gain:
    """Return what the kernel would gain by its next step, or without its spills.

    *programs* are resident per multiprocessor, *after* with the next *step*, in words; None where
    nothing brings a further one. *cost* is what the step may cost for all that is known without a
    compile, "it may spill", and "" where a compile shows that it costs nothing. *spill_advice* is
    what to do against spills.
    """
    speeds = speeds_of(gpu)
    if mix is None:
        return Gain(None, "not known: its instructions are not")
    if speeds is None:
        return Gain(None, f"not known: the size or speed of {gpu.title} is not")
    work = pass_of(mix, resources, gpu.architecture.warp_size)
    if mix.tensor_instructions:
        more = _of_tensor_kernel(work, speeds, programs, after, step)
    else:
        more = _of_programs(work, speeds, programs, after, step)
    spills = mix.local_loads + mix.local_stores > 0
    if spills:
        spilled = _without_spills(mix, work, speeds, programs, spill_advice)
        if (spilled.factor or 0) > LEAST:
            return spilled
    if spills and (more.factor or 0) > 1:
        return Gain(None, more.by, more.bound)
    if (more.factor or 0) <= LEAST or not cost:
        return more
    return Gain(None, f"not known before a compile, as {cost}: {more.by}", more.bound)


def predicted_gain(  # noqa: PLR0913 - as `find_gain`
    record: Record, mix: Mix | None, *, after: int | None, step: str, cost: str, spill_advice: str
) -> Gain | None:
    """Return what the launch of *record* would gain as `find_gain` does, by its predicted time.

    None where there is none.
    """
    now, resources = record.prediction, record.resources
    if now is None:
        return None
    programs = record.occupancy.programs_per_multiprocessor
    spills = 0 if mix is None else mix.local_loads + mix.local_stores
    if spills:
        free = record.time_with(programs, replace(resources, local_bytes=0))
        factor = 1.0 if free is None else now.us / free.us
        why = f"{spill_advice}: {spills} loads and stores of local memory"
        return Gain(factor, why, now.bound) if factor > ALIKE else Gain(None, step, now.bound)
    then = None if after is None else record.time_with(after, resources)
    factor = 1.0 if then is None else now.us / then.us
    if then is None or factor <= ALIKE:
        return Gain(1.0, f"{PARTS[now.bound]} takes longest", now.bound)
    words = f"{step}: {microseconds(then.us)} instead of {microseconds(now.us)}"
    if cost:
        return Gain(None, f"not known before a compile, as {cost}: {words}", now.bound)
    return Gain(factor, words, now.bound)


def beside_others(kernels: Sequence[ScannedKernel]) -> Iterator[ScannedKernel]:
    """Return *kernels*, each with what it gains by being launched as a faster entry is.

    That is of the same function with other blocks, warps, stages or caps.
    """
    fastest: dict[tuple[str, ...], ScannedKernel] = {}
    for one in sorted(kernels, key=_us):
        fastest.setdefault(_function(one), one)
    for one in kernels:
        best = fastest[_function(one)]
        factor = _us(one) / _us(best) if one.predicted_us else 1.0
        if factor <= ALIKE or factor <= (one.gain or 1.0):
            yield one
            continue
        own, other = _settings(one), _settings(best)
        changes = listed([f"{name} {other[name]}" for name in own if other.get(name) != own[name]])
        times = f"{microseconds(_us(best))} instead of {microseconds(_us(one))}"
        yield replace(one, gain=factor, gain_by=f"{changes}, as another entry: {times}")


def _function(one: ScannedKernel) -> tuple[str, ...]:
    return one.kernel, one.source, one.arguments, one.gpu


def _settings(one: ScannedKernel) -> dict[str, Any]:
    names = ("num_warps", "num_stages", *CAPS)
    return {**one.constexprs, **{name: getattr(one, name) for name in names}}


def _us(one: ScannedKernel) -> float:
    return one.predicted_us or math.inf


def _without_spills(mix: Mix, work: Pass, speeds: Speeds, programs: int, advice: str) -> Gain:
    accesses = mix.local_loads + mix.local_stores
    left = max(work.instructions - accesses, 1)
    rest = Pass(work.moved, 0, work.num_warps, left, work.ahead)
    factor = work.us(speeds, programs) / rest.us(speeds, programs)
    why = f"{accesses} loads and stores of local memory, {mix.global_accesses} of global"
    return Gain(factor, f"{advice}: {why}", LOCAL)


def _of_programs(work: Pass, speeds: Speeds, programs: int, after: int | None, step: str) -> Gain:
    now = work.times(speeds, programs)
    bound = max(now, key=lambda part: now[part])
    if bound != PROGRAMS:
        words = {
            MEMORY: "the memory is kept busy",
            ISSUE: "the schedulers are kept busy",
            LOCAL: "the way to its local memory is kept busy",
        }
        return Gain(1.0, words[bound], bound)
    others = max(value for part, value in now.items() if part != PROGRAMS)
    enough = math.ceil(now[PROGRAMS] * programs / others) if others else programs
    held = programs * work.moved
    if work.moved and held < speeds.in_flight:
        short = f"{_kib(held)} of the {_kib(speeds.in_flight)} KiB in flight that keep memory busy"
    else:
        short = f"{programs} of the {enough} programs that hide waits"
    if after is None:
        return Gain(1.0, f"{step}: {short}", PROGRAMS)
    return Gain(now[PROGRAMS] / work.us(speeds, after), f"{step}: {short}", PROGRAMS)


def _of_tensor_kernel(
    work: Pass, speeds: Speeds, programs: int, after: int | None, step: str
) -> Gain:
    held = programs * work.moved
    if not held or held >= speeds.in_flight or after is None:
        return Gain(1.0, TENSOR_WORDS, TENSOR)
    flight = f"{_kib(held)} of the {_kib(speeds.in_flight)} KiB in flight"
    factor = min(after / programs, speeds.in_flight / held)
    return Gain(factor, f"{step}: {flight}, where its tensor cores wait for memory", PROGRAMS)


def _kib(number: float) -> str:
    return f"{number / 1024:.3g}"
