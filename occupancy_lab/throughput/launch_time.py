"""How long any launch takes: from what its programs ask of each unit of the GPU.

A program alone takes as long as the replay of one of its warps, with the latency of memory that its
share of cache misses gives. So many programs as are resident take that time together, or as long as
the busiest unit needs for all of them, whichever is longer; where the two are alike, more than
either: a norm of all, whose exponent is fitted. The launch is as many such rounds as there are,
the last one with the programs that are left. Where one round is all, its programs began together
and go on in step: they load, compute and store at the same time, and wait for each other more.

The constants were fitted to launches of 96 public kernels on an H100 and hold for others by their
data sheets; docs/times.md has what is met on kernels that they were not fitted to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from occupancy_lab.gpus import find_device
from occupancy_lab.prediction import NOT_FOLLOWED, Part, Prediction
from occupancy_lab.throughput import l1_cache
from occupancy_lab.throughput.atomics import atomic_cycles
from occupancy_lab.throughput.calibrations import measured_units
from occupancy_lab.throughput.counted_program import counted_program, working_programs
from occupancy_lab.throughput.ranges import (
    LEAST_LOCAL_BYTES,
    LEAST_OPEN,
    RANGES,
    class_of,
    is_open,
    varies,
)
from occupancy_lab.work.counts import (
    CACHED_CYCLES,
    IN_TURN,
    LATENCIES,
    NOTHING,
    SECTOR,
    total,
)
from occupancy_lab.work.pipes import ISSUE, LSU, TENSOR, XU

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.values import Resources
    from occupancy_lab.work.counts import Amount, Counts, Executed, Program
    from occupancy_lab.work.memory import Memory

FITTED_TO = "h100"
"""The key of the GPU whose launches the constants were fitted to."""
FITTED_UNITS: Mapping[str, float] = {"launch_us": 2.976, "read_gbs": 3093.6, "l2_loads": 0.5304}
"""What `calibrate` measures on it, by the names of `calibrating.units.Units`. What it measures on
another GPU counts in proportion to that, in place of the data sheet."""
MEASURED = (FITTED_TO, "h200")
"""The GPUs of which recorded launches show how near the times are."""
LAUNCH_US = 3.0
"""A launch that does nothing, as the lab's timer sees it."""
RAMP_US = 1.8
"""Until device memory or the L2 cache moves at its full rate, of launches that read it all the
time; of others in proportion."""
EVENTS_US = 2.0
"""What of a launch a profiler does not count. It counts no writes either that the L2 cache still
has at the end. By the times that Nsight Compute recorded of 79 launches on an H100; so it is of 541
on an H200."""
DISPATCH_US = 0.0006
"""From the start of one program to the next, of the whole GPU."""
START_CYCLES, WARP_CYCLES = 105.0, 8.0
"""Of a program, before its first instruction and after its last, and for each of its warps: with
133 for all, softmaxes of 32 warps a row were 7 to 8% too short."""
WAIT_CYCLES = 1800.0
"""How far the times lie apart at which programs that wait for each other get there, the way through
the L2 cache included: their deviation. The latest of n times that are normally distributed is
sqrt(2 ln n) late, the leading term of extreme value theory."""
L2_CYCLES, MEMORY_CYCLES = 487.0, 685.0
"""Until a load is there from the L2 cache and from device memory. The second is what `calibrate`
measures; with 286, which it measures of an idle L2 cache, launches are too short."""
LOADED, WAITING_LOADED, AHEAD_LOADED = 1.0, 2.0, 1.0
"""How much longer both take, as a share, where loads and stores keep one of the two busy all the
time: in proportion where it is less. The second is of programs with tensor cores that wait for
loads, and the third of those all of whose loads run ahead."""
IDLE_L2_CYCLES, FEW_MISSED = 300.0, 0.05
"""From the L2 cache where no load goes on to device memory, and the share that goes on from which
it takes L2_CYCLES: in between in proportion. Of launches right after the same one half are met
within 6.2 and 5.4% with it (H100, H200), and within 6.6 and 6.0% by what the one before left."""
BANDWIDTH_SHARE, STRIDING_SHARE, WRITTEN_WEIGHT = 0.765, 0.735, 0.71
"""Of the data sheet's bandwidth what reads reach of programs that begin one after the other, and of
a launch all of whose programs go over their work at once, each at its own pace: they get 3 to 4%
less, as `calibrate` measures too. The third is how much of a read's time a write takes."""
IN_STEP, OUT_OF_STEP = 0.9, 0.3
"""How much of the time in which another program issues or uses lsu, when it would itself, a program
waits: of those that began together, and of those of later rounds. What it meets of the others is
the share of the time for which they do so, as in mean value analysis (Reiser and Lavenberg 1980).
With a constant share of the others' time in its place, loops with 16 to 32 programs a
multiprocessor were up to 28% too long and those with two 15% too short. Products that go on by
themselves do not wait so: with it the first choices of 90 tunes on an H100 lost half more."""
TURN_SHARE, SPECIAL_SHARE = 1.0, 0.25
"""Where tensor cores and special functions take turns in a program, as in attention, those that
share a multiprocessor do the same at the same time: how much of the tensor cores' time, or of that
of what is between if it is shorter, is lost by that; and from which share of the tensor cores' time
on special functions count. With it half of the attentions on an H200 are met within 6.9%, and
within 12.3% without."""
L2_BYTES, PORT_BYTES, MEMORY_PORT_BYTES = 43.0, 72.0, 60.0
"""Bytes a cycle and multiprocessor from the L2 cache where all ask for them (80 slices of an H100
give two sectors each in a cycle of their own, which is 38); where few do, the most that one takes
(an H100 that reads alone takes 107, a Volta 64: Jia et al. 2018), and the most that it takes from
device memory."""
LOADED_LINES, STORED_LINES = 0.53, 0.249
"""Requests a cycle and multiprocessor that the L2 cache serves, each for one cache line or for a
part of it, to load and to store: as `calibrate` measures them. Without them kernels that read or
write a column took up to seven times as long as predicted."""
MERGED = 0.8
"""How many requests the L2 cache does not see for each that it does, of programs with tensor cores,
whose neighbours ask for the same at the same time: the fewer, the more programs share a
multiprocessor and are not in step. Of products on an H100 one program a multiprocessor asks for 1.6
to 1.7 times as many sectors as the L2 cache gives, three ask for 1.2 to 1.3 times (Nsight
Compute). With it the first choices of 60 tunes in 16 bits lose half as much."""
LOCAL_BYTES, LOCAL_PORT_BYTES = 33.5, 47.0
"""The same two of local memory: of all that is stored there, as the L2 cache gets it at once
(Nsight Compute, of 60 launches on an H200), and of what is loaded that the L1 cache does not
hold."""
LOCAL_WAITED, LOCAL_LATENCY = 0.55, 0.5
"""The part of the time of both, and of device memory's for local memory, in which nothing else is
done, and the part of the latency of the L2 cache, or of device memory where that has lost it, that
a load waits for. All four by the 160 recorded launches and the 405 softmaxes for tuning, on an H100
and an H200, that spill more than LEAST_LOCAL_BYTES; the other 1883 softmaxes are met as well."""
LOCAL_TURNS = 0.5
"""How much of both waits is left where tensor cores and special functions take turns: with 1 the
attentions that spill are 8% too long by half, and 25% by nine in ten."""
FIRST_CYCLES = 700.0
"""How much longer the first loads of a launch take between two events, after its caches were filled
with something else: chosen by all recorded launches of an H100. Launches that read nothing do not
have it, nor those right after the same launch, nor what Nsight Compute sees of any."""
TENSOR_CLOCK = 0.886
"""The part of its clock that the GPU keeps where tensor cores are used, however little: 1755 of
1980 MHz. By the cycles and the times that Nsight Compute recorded on an H100 and an H200 it is less
than 1.78 GHz in 62 of 63 long launches that multiply matrices, and more in 51 of 52 others. Device
memory keeps its own."""
OVERLAP = 3.5
"""The exponent of the norm."""
PASSES = 4
"""In which is found what hangs on the time that it makes: the latency of memory, and waiting for
others."""

PARTS = {
    "launch": "starting and ending the launch",
    "dispatch": "starting its programs",
    "code": "fetching code, and the first loads",
    "latency": "latency: waits that no busy pipe covers",
    "issue": "issuing instructions",
    "fma": "FP32 and integer multiply-adds",
    "alu": "integer arithmetic and comparisons",
    "xu": "special functions and conversions",
    "fp64": "FP64 arithmetic",
    "uniform": "arithmetic of uniform registers",
    "tensor": "tensor cores",
    "lsu": "shared memory and L1 cache",
    "local": "local memory (register spills)",
    "l2": "L2 cache",
    "atomics": "atomic operations in the L2 cache, and locks",
    "bandwidth": "device memory",
    "tail": "rounds that are not full, and programs that take longer",
}
"""The parts of a time and what they are called."""
BESIDE_UNITS = frozenset({"launch", "dispatch", "code", "latency", "tail"})
"""Parts in which no unit need be busy."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a launch asks of a GPU, a program in the mean."""

    programs: int
    fit: int
    """Programs that fit a multiprocessor."""
    program: Program
    resources: Resources
    read_bytes: float
    written_bytes: float
    """Of device memory."""
    l2_bytes: float
    missed: float
    """The share of what it reads that the L2 cache does not have."""
    again: bool
    """Whether it comes right after the same launch."""
    atomics: float = 0.0
    """Cycles in which the L2 cache does the atomic operations of all programs."""
    is_followed: bool = True
    """Whether the program is a replay of its binary."""
    together: int = 2
    """Programs that wait for each other, where some do."""
    strides: bool = False
    """Whether a program goes over several pieces of work, a fixed number of them apart."""
    local_lost: float = 0.0
    """As `Memory` has it."""
    local_share: float = 0.0
    """The share of device memory's time that it takes for local memory."""

    @property
    def takes_turns(self) -> bool:
        """Whether tensor cores and special functions take turns in a program, as in attention."""
        special, tensor = (self.program.pipes.get(pipe, 0.0) for pipe in (XU, TENSOR))
        return special > SPECIAL_SHARE * tensor > 0.0

    @property
    def local_left(self) -> float:
        """How much of the waits for local memory is left, in times of what most programs wait."""
        return LOCAL_TURNS if self.takes_turns else 1.0

    @property
    def waiting(self) -> float:
        """The share of device memory's time in which a program waits for what it reads."""
        few, many = self.program.transferred
        written = WRITTEN_WEIGHT * self.written_bytes
        reading = self.read_bytes / max(self.read_bytes + written, 1.0)
        return reading * min(max(few + (many - few) * self.missed, 0.0), 1.0)

    def alone(self, busy: float, missing: float) -> float:
        """Return the cycles that it takes with a multiprocessor to itself.

        The L2 cache or device memory is *busy* for so large a share of the time, and *missing* is
        the share of its local memory that the L1 cache does not hold.
        """
        waits = WAITING_LOADED if any(self.program.transferred) else AHEAD_LOADED
        loaded = 1.0 + (waits if self.program.pipes.get(TENSOR) else LOADED) * busy
        cached = L2_CYCLES * loaded
        cached += (IDLE_L2_CYCLES - cached) * max(1.0 - self.missed / FEW_MISSED, 0.0)
        latency = cached + (MEMORY_CYCLES * loaded - cached) * self.missed
        first, middle, last = LATENCIES
        low, between, high = self.program.alone
        if latency < middle:
            found = low + (between - low) * (latency - first) / (middle - first)
        else:
            found = between + (high - between) * (latency - middle) / (last - middle)
        local = cached + (MEMORY_CYCLES * loaded - cached) * self.local_lost - CACHED_CYCLES
        local *= missing * self.program.local_waits * LOCAL_LATENCY * self.local_left
        lateness = math.sqrt(2.0 * math.log(max(self.together, 2)))
        waited = WAIT_CYCLES * lateness * self.program.waits
        return found + local + waited + START_CYCLES + WARP_CYCLES * self.resources.num_warps

    def missing(self, gpu: Gpu, at_once: int) -> float:
        """Return the share of its loads that the L1 cache lacks, with *at_once* programs there."""
        resources, architecture = self.resources, gpu.architecture
        threads = resources.num_warps * architecture.warp_size * at_once
        room = l1_cache.room(architecture, resources.shared or 0, self.fit)
        return l1_cache.missing(self.program.local_reuse.loads, threads, room)


def predict_launch(  # noqa: PLR0913, PLR0917 - what a time is made of
    counts: Counts,
    executed: Executed | None,
    memory: Memory | None,
    resources: Resources,
    fit: int,
    gpu: Gpu,
    *,
    num_stages: int = 1,
    in_program: bool = False,
    together: int | None = None,
) -> Prediction | None:
    """Return how long a launch takes on *gpu*, of which *fit* programs fit a multiprocessor.

    *in_program* is as `Launch` has it: otherwise it is the time between two events of CUDA.
    *together* programs wait for each other; where nobody says how many, they are two.

    Where its binary was not followed, as on AMD, or has tensor cores of unknown rate, its programs
    are those of `counted_program`, with *num_stages*. None where it `is_open` how much it does, and
    for a GPU whose size, clock, bandwidth or tensor cores are not known.
    """
    if is_open(counts, executed, memory):
        return None
    program, followed = followed_program(executed, gpu), executed
    if program is None:
        program, followed = counted_program(counts, resources, num_stages, gpu), None
    if in_program and memory is not None and memory.written_within_bytes is not None:
        memory = replace(memory, dram_written_bytes=memory.written_within_bytes)
    if program is not None:
        program = l1_cache.behind_others(program, resources, counts.programs, fit, gpu)
    asked = _asked(counts, program, memory, resources, fit)
    if asked is None or not gpu.has_rates:
        return None
    asked = replace(
        asked,
        atomics=atomic_cycles(counts, executed),
        together=together or asked.together,
        strides=_strides(counts),
    )
    if followed is None:
        asked = replace(asked, programs=working_programs(counts), is_followed=False)
    found = _Time(asked, gpu, EVENTS_US if in_program else 0.0)
    us, parts = found.us(), found.parts()
    unknowns = counts.unknowns or (followed is not None and followed.unknowns)
    amounts = [None if followed is None else followed.instructions]
    if memory is not None:
        amounts += [memory.l2_bytes, memory.dram_read_bytes, memory.dram_written_bytes]
    moving = next((part.us for part in parts if part.name == "bandwidth"), 0.0)
    kind = class_of(
        varies=bool(unknowns) and varies(amounts, LEAST_OPEN),
        is_followed=followed is not None,
        spills=(resources.local_bytes or 0) > LEAST_LOCAL_BYTES,
        multiplies=bool(asked.program.pipes.get(TENSOR)),
        moves=moving > us / 2,
    )
    model = find_device(FITTED_TO)
    is_alike = model is not None and model.target == gpu.target
    low, high = RANGES[kind].around(us, is_alike=is_alike)
    moved = asked.read_bytes + asked.written_bytes
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


def asked_us(asked: Asked, gpu: Gpu) -> float | None:
    """Return how long a launch takes that asks so much; None of a GPU that is not known."""
    return _Time(asked, gpu).us() if gpu.has_rates else None


def launch_us(gpu: Gpu) -> float:
    """Return how long a launch takes that does nothing, as the lab's timer sees it."""
    fitted = FITTED_UNITS["launch_us"]
    return LAUNCH_US + measured_units(gpu).get("launch_us", fitted) - fitted


def followed_program(executed: Executed | None, gpu: Gpu) -> Program | None:
    """Return what a program asks for by a replay of its binary; None where that is not known."""
    if executed is None or executed.program is None or executed.instructions.high is None:
        return None
    uses = executed.kinds.get("tensor_instructions", NOTHING) != NOTHING
    return None if uses and gpu.architecture.tensor_multiply_adds is None else executed.program


def basis_words(gpu: Gpu, *, is_followed: bool = True) -> str:
    """Return what times for *gpu* rest on."""
    found = "launches of 96 public kernels on an NVIDIA H100"
    if measured_units(gpu):
        found = f"what calibrate measured here and {found}"
    elif gpu.key != FITTED_TO:
        found = f"the data sheet and {found}"
    return found if is_followed else f"what the source does, {NOT_FOLLOWED}, {found}"


def _asked(
    counts: Counts,
    program: Program | None,
    memory: Memory | None,
    resources: Resources,
    fit: int,
) -> Asked | None:
    """Return what a launch asks for; None where that is not known."""
    if program is None or memory is None or not fit or not counts.programs:
        return None
    amounts = (memory.dram_read_bytes, memory.dram_written_bytes, memory.l2_bytes)
    if any(one is None or one.high is None for one in amounts):
        return None
    is_indexed = _is_indexed(counts)

    def taken(amount: Amount) -> float:
        return amount.most if is_indexed else amount.typical

    if not resources.local_bytes:  # or its time without its spills is asked for
        program = replace(program, local_loaded=0.0, local_stored=0.0, local_waits=0.0)
    read, written, through = (taken(one) for one in amounts if one is not None)
    local = memory.local_read_bytes + WRITTEN_WEIGHT * memory.local_written_bytes
    wanted = taken(total(one.sectors for one in counts.accesses if one.reads)) * SECTOR
    cached = wanted * program.cached
    missed = min(read / max(wanted - cached, read, 1.0), 1.0)
    if not all(one is not None and one.is_exact for one in amounts[:1]):
        missed = max(missed, FEW_MISSED)  # nobody knows that so few are
    return Asked(
        programs=counts.programs,
        fit=fit,
        program=program,
        resources=resources,
        read_bytes=read,
        written_bytes=written,
        l2_bytes=through - cached,
        missed=missed,
        again=memory.kept is not None,
        local_lost=memory.local_lost,
        local_share=local / max(read + WRITTEN_WEIGHT * written, local, 1.0),
    )


class _Time:
    """The time of what is asked of a GPU."""

    def __init__(self, asked: Asked, gpu: Gpu, events_us: float = 0.0) -> None:
        self.asked, self.gpu = asked, gpu
        self.own = asked.program.pipes
        issue, special, self.tensor = (self.own.get(pipe, 0.0) for pipe in (ISSUE, XU, TENSOR))
        self.issued = issue + self.own.get(LSU, 0.0)
        self.turn = TURN_SHARE * min(max(special, issue), self.tensor) * asked.takes_turns
        self.size = gpu.multiprocessors or 1
        self.at_once = min(asked.fit, math.ceil(asked.programs / self.size))
        """Programs of the multiprocessor that has most."""
        units = measured_units(gpu)
        self.slices = _slices(gpu, units.get("l2_loads"))
        self.mhz = (gpu.boost_mhz or 1) * (TENSOR_CLOCK if self.tensor else 1.0)
        is_cold = not asked.again and not events_us
        self.first = FIRST_CYCLES if is_cold and asked.read_bytes else 0.0
        self.launch_us = launch_us(gpu) - events_us
        self.in_step = asked.programs <= asked.fit * self.size
        few = asked.programs < 2 * asked.fit * self.size  # no second round that is full
        share = STRIDING_SHARE if few and asked.strides else BANDWIDTH_SHARE
        self.bandwidth = _bandwidth(gpu, units.get("read_gbs")) * share * 1e3
        """Of device memory, bytes a us."""

    def outside(self, active: int, each: float, most: float) -> dict[str, float]:
        """Return the cycles of what *active* multiprocessors share.

        They have *each* programs in the mean, and the busiest one has *most*.
        """
        asked, programs = self.asked, self.asked.programs
        share = self.size / active
        bandwidth = self.bandwidth / self.mhz
        moved = asked.read_bytes + WRITTEN_WEIGHT * asked.written_bytes
        through, memory = asked.l2_bytes / programs, moved / programs
        return {
            "l2": max(through * most / PORT_BYTES, self.l2_cycles() * each / share),
            "bandwidth": memory * max(most / MEMORY_PORT_BYTES, each * active / bandwidth),
            "atomics": asked.atomics / programs * each * active,
            "dispatch": each * DISPATCH_US * active * self.mhz,
        }

    def l2_cycles(self) -> float:
        """Return for how many cycles a program needs a multiprocessor's part of the L2 cache.

        Slices serve requests side by side.
        """
        asked, program = self.asked, self.asked.program
        seen = 1.0 / (1.0 + MERGED / self.at_once) if self.tensor and asked.is_followed else 1.0
        lines = seen * program.loaded_lines / LOADED_LINES + program.stored_lines / STORED_LINES
        moved = seen * asked.l2_bytes / asked.programs / L2_BYTES
        return max(lines, moved) / self.slices

    def spilled(self, missing: float, active: int) -> float:
        """Return the cycles in which a program's local memory comes from and goes to the L2 cache.

        So large a share of its loads is *missing* in the L1 cache of each of *active*
        multiprocessors; what is stored goes to the L2 cache in any case.
        """
        rate = min(LOCAL_PORT_BYTES, LOCAL_BYTES * self.size / active)
        program = self.asked.program
        return (program.local_stored + missing * program.local_loaded) / rate

    def round_us(self, at_once: int, active: int, each: float) -> float:
        """Return how long the programs of *active* multiprocessors take.

        The busiest one has *at_once* of them. What all share does the work of *each*, their mean:
        device memory does not wait for multiprocessors that have a program less. Programs that
        began together are in step: each waits until the bytes of all are there, the less the more
        share a multiprocessor, as some compute meanwhile. However long they take, they do not begin
        before they are started.
        """
        missing = self.asked.missing(self.gpu, at_once)
        spilled = self.spilled(missing, active)
        own = [at_once * one for one in (*self.own.values(), spilled)]
        outside = self.outside(active, each, at_once)
        started, moving = outside.pop("dispatch"), outside["bandwidth"]
        together = max(each, 1.0)  # without those that have nothing to do
        loading = moving * self.asked.waiting / together**2 if self.in_step else 0.0
        met, turn = 0.0, self.turn if at_once > 1 else 0.0
        if not self.tensor or self.turn:
            met = (IN_STEP if self.in_step else OUT_OF_STEP) * (together - 1.0) * self.issued**2
        inside = max(self.own.values(), default=0.0) ** OVERLAP  # is in its time alone
        most = sum(one**OVERLAP for one in (*own, *outside.values())) - inside
        less = most - moving**OVERLAP + (moving - loading) ** OVERLAP
        cycles = math.inf
        for _ in range(PASSES):
            busy = min(max(outside["l2"], moving) / cycles, 1.0)
            alone = max(self.asked.alone(busy, missing), *self.own.values(), 0.0)
            free = 1.0 - self.tensor / max(alone, 1.0)
            local = spilled + moving * self.asked.local_share
            alone += LOCAL_WAITED * self.asked.local_left * local + turn
            alone += free * met / max(min(cycles, 1e9), together * self.issued, 1.0)
            cycles = max(_norm(alone, most), _norm(alone + loading, less))
        return max(cycles, started) / self.mhz

    def us(self) -> float:
        rounds = self.rounds_us()
        through_l2 = self.l2_cycles() * self.asked.programs / self.size / self.mhz
        busy = max(self.asked.read_bytes / self.bandwidth, through_l2) / rounds
        return self.launch_us + self.code_us() + rounds + RAMP_US * min(busy, 1.0)

    def code_us(self) -> float:
        """Return the time in which programs wait for their code, and for their first loads.

        Right after the same launch the L2 cache has it: that takes as much less as a load does.
        """
        warm = L2_CYCLES / MEMORY_CYCLES if self.asked.again else 1.0
        return (self.first + self.asked.program.code_cycles * warm) / self.mhz

    def rounds_us(self) -> float:
        asked = self.asked
        rounds = asked.program.rounds
        if rounds is not None:
            active = min(asked.programs, self.size)
            return rounds * self.round_us(self.at_once, active, asked.programs / active / rounds)
        full, left = divmod(asked.programs, asked.fit * self.size)
        found = full * self.round_us(asked.fit, self.size, asked.fit) if full else 0.0
        if left:
            active = min(left, self.size)
            found += self.round_us(math.ceil(left / self.size), active, left / active)
        return found

    def parts(self) -> tuple[Part, ...]:
        """Return the time of each part as if there were nothing else."""
        asked = self.asked
        active = min(asked.programs, self.size)
        each = asked.programs / active
        missing = asked.missing(self.gpu, asked.fit)
        own = {**self.own, "local": self.spilled(missing, active)}
        even = each / self.at_once
        busiest, refetched = max(self.own.values(), default=0.0), asked.program.refetch_cycles
        turns = max(even, 1.0)
        found = {
            "launch": self.launch_us,
            "code": self.code_us() + turns * refetched / self.mhz,
            "latency": turns * (asked.alone(0.0, missing) - busiest - refetched) / self.mhz,
            **{name: each * cycles / self.mhz for name, cycles in own.items()},
            **{name: one / self.mhz for name, one in self.outside(active, each, each).items()},
            "tail": self.rounds_us() - even * self.round_us(self.at_once, active, self.at_once),
        }
        return tuple(Part(name, found[name]) for name in PARTS if found.get(name, 0.0) > 0)

    def busiest(self) -> Part | None:
        """Return the unit that works for longest, with its time at its peak rate.

        It is the mean of all multiprocessors, those without a program among them.
        """
        asked = self.asked
        share = min(asked.programs, self.size) / self.size
        peaks = {
            "bandwidth": (asked.read_bytes + asked.written_bytes)
            / (self.gpu.bandwidth_gbs or 1)
            / 1e3,
            "l2": self.l2_cycles() * asked.programs / self.size / self.mhz,
        }
        units = [
            Part(one.name, peaks.get(one.name, one.us * share))
            for one in self.parts()
            if one.name not in BESIDE_UNITS
        ]
        return max(units, key=lambda one: one.us, default=None)


def _bandwidth(gpu: Gpu, read_gbs: float | None) -> float:
    """Return the bandwidth of device memory on the data sheet, GB/s.

    Where reading was measured it is what the data sheet of an H100 makes of that.
    """
    model = find_device(FITTED_TO)
    if read_gbs is None or model is None or model.bandwidth_gbs is None:
        return gpu.bandwidth_gbs or 1.0
    return model.bandwidth_gbs * read_gbs / FITTED_UNITS["read_gbs"]


def _slices(gpu: Gpu, l2_loads: float | None) -> float:
    """Return how much of the L2 cache a multiprocessor has, in times of what an H100's has.

    Where that was not measured, it is by the size of the cache, as all slices of an architecture
    are alike: 96 of an H200 and 80 of an H100, of 640 KiB each (Nsight Compute). 1 for another
    architecture, of whose slices nothing is known.
    """
    if l2_loads is not None:
        return l2_loads / FITTED_UNITS["l2_loads"]
    model = find_device(FITTED_TO)
    if model is None or model.target != gpu.target:
        return 1.0
    own, fitted = ((one.l2_bytes or 0) / (one.multiprocessors or 1) for one in (gpu, model))
    return own / fitted if own and fitted else 1.0


def _norm(alone: float, others: float) -> float:
    """Return the cycles of what takes so many *alone*; of *others* it is the sum of powers."""
    return float((alone**OVERLAP + max(others, 0.0)) ** (1 / OVERLAP))


def _strides(counts: Counts) -> bool:
    """Tell whether programs go over their work in a loop, and do not take it in turn."""
    in_turn = any(one.assumed == IN_TURN for one in counts.unknowns)
    return not in_turn and any(one.trips.typical > one.entered.typical for one in counts.loops)


def _is_indexed(counts: Counts) -> bool:
    """Tell whether all that is not known are places in tensors, by numbers in other tensors.

    Those are taken to differ, as rows of an embedding do: with fewer of them its launches were
    predicted up to a third too short. Where it is not known which tensor is meant, as in a grouped
    product, programs share what they read.
    """
    unknowns = counts.unknowns
    return bool(unknowns) and all(one.steers == "address" and one.tensor for one in unknowns)
