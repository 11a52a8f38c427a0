"""How long a GPU takes for what a launch asks of it: rounds of programs, one after the other.

So many programs as are resident take the time of one alone together, or as long as the busiest unit
needs for all of them, whichever is longer; where the two are alike, more than either: a norm of
all, whose exponent is fitted. The launch is as many such rounds as there are, the last one with the
programs that are left. Where one round is all, its programs began together and go on in step: they
load, compute and store at the same time, and wait for each other more.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from occupancy_lab.gpus import devices
from occupancy_lab.prediction import BESIDE_UNITS, PARTS, Part, Quotient
from occupancy_lab.throughput.calibrations import FITTED_TO, FITTED_UNITS, measured_units
from occupancy_lab.throughput.demand import (
    L2_CYCLES,
    LOCAL_WAITED,
    MEMORY_CYCLES,
)
from occupancy_lab.work.pipes import ISSUE, LSU, TENSOR, XU

if TYPE_CHECKING:
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.throughput.demand import Demand

CALIBRATE, LAUNCHES = "calibrate here", "launches on an H100"
"""Where rates are from that no data sheet has."""
LAUNCH_US = 3.0
"""A launch that does nothing, as the lab's timer sees it."""
RAMP_US = 1.9
"""Until device memory or the L2 cache moves at its full rate, of launches that read it all the
time; of others in proportion."""
DISPATCH_US = 0.0006
"""From the start of one program to the next, of the whole GPU."""
BANDWIDTH_SHARE, STRIDING_SHARE = 0.923, 0.887
"""Of the data sheet's bandwidth what reads reach of programs that begin one after the other, and of
a launch all of whose programs go over their work at once, each at its own pace: they get 3 to 4%
less, as `calibrate` measures too."""
IN_STEP, OUT_OF_STEP = 0.9, 0.3
"""How much of the time in which another program issues or uses lsu, when it would itself, a program
waits: of those that began together, and of those of later rounds. What it meets of the others is
the share of the time for which they do so, as in mean value analysis (Reiser and Lavenberg 1980).
With a constant share of the others' time in its place, loops with 16 to 32 programs a
multiprocessor were up to 28% too long and those with two 15% too short. Products that go on by
themselves do not wait so: with it the first choices of 90 tunes on an H100 lost half more."""
L2_BYTES, PORT_BYTES, MEMORY_PORT_BYTES = 43.0, 72.0, 60.0
"""Bytes a cycle and multiprocessor from the L2 cache where all ask for them (80 slices of an H100
give two sectors each in a cycle of their own, which is 38); where few do, the most that one takes
(an H100 that reads alone takes 107, a Volta 64: Jia et al. 2018), and the most that it takes from
device memory."""
LOADED_LINES, STORED_LINES = 0.53, 0.249
"""Requests a cycle and multiprocessor that the L2 cache serves, each for one cache line or for a
part of it, to load and to store: as `calibrate` measures them. Without them kernels that read or
write a column took up to seven times as long as predicted."""
STORED_BYTES = 15.5
"""Bytes a cycle and multiprocessor that the L2 cache takes of stores: those of 8 to 24 MiB right
after themselves write 3.9 TB/s on an H100, while device memory takes 3.3."""
MERGED = 0.8
"""How many requests the L2 cache does not see for each that it does, of programs with tensor cores,
whose neighbours ask for the same at the same time: the fewer, the more programs share a
multiprocessor and are not in step. Of products on an H100 one program a multiprocessor asks for 1.6
to 1.7 times as many sectors as the L2 cache gives, three ask for 1.2 to 1.3 times (Nsight
Compute). With it the first choices of 60 tunes in 16 bits lose half as much."""
LOCAL_BYTES, LOCAL_PORT_BYTES = 33.5, 47.0
"""Bytes a cycle and multiprocessor of local memory, to the L2 cache and back: where all move some
(what is stored comes there at once: Nsight Compute, of 60 launches on an H200), and the most of
one."""
FIRST_CYCLES = 700.0
"""How much longer the first loads of a launch take between two events, after its caches were filled
with something else: chosen by all recorded launches of an H100. Launches that read nothing do not
have it, nor those right after the same launch, nor what Nsight Compute sees of any."""
TENSOR_CLOCK = 0.886
"""The part of its clock that the GPU keeps where tensor cores are used, however little: 1755 of
1980 MHz. By the cycles and the times that Nsight Compute recorded on an H100 and an H200 it is less
than 1.78 GHz in 79 of 80 long launches that multiply matrices, and more in 61 of 63 others. Device
memory keeps its own."""
OVERLAP = 3.5
"""The exponent of the norm."""
PASSES = 4
"""In which is found what hangs on the time that it makes: the latency of memory, and waiting for
others."""


class Rounds:
    """The programs of a launch on a GPU."""

    def __init__(self, demand: Demand, gpu: Gpu, events_us: float = 0.0) -> None:
        self.demand, self.gpu = demand, gpu
        self.own = demand.program.pipes
        issue, special, self.tensor = (self.own.get(pipe, 0.0) for pipe in (ISSUE, XU, TENSOR))
        self.issued = issue + self.own.get(LSU, 0.0)
        self.turn = min(max(special, issue), self.tensor) if demand.takes_turns else 0.0
        """Cycles that programs lose where their tensor cores and special functions take turns: they
        do the same at the same time. With it half of the attentions on an H200 were met within
        6.9%, and within 12.3% without."""
        self.size = gpu.multiprocessors or 1
        self.at_once = min(demand.fit, math.ceil(demand.programs / self.size))
        """Programs of the multiprocessor that has most."""
        self.awaited = demand.awaited(self.size)
        units = measured_units(gpu)
        self.slices = _slices(gpu, units.get("l2_loads"))
        self.mhz = (gpu.boost_mhz or 1) * (TENSOR_CLOCK if self.tensor else 1.0)
        is_cold = not demand.again and not events_us
        self.first = FIRST_CYCLES if is_cold and demand.read_bytes else 0.0
        self.launch_us = launch_us(gpu) - events_us
        self.in_step = demand.programs <= demand.fit * self.size
        few = demand.programs < 2 * demand.fit * self.size  # no second round that is full
        share = STRIDING_SHARE if few and demand.strides else BANDWIDTH_SHARE
        self.bandwidth = _bandwidth(gpu, units.get("read_gbs")) * share * 1e3
        """Of device memory, bytes a us."""

    def outside(self, active: int, each: float, most: float) -> dict[str, float]:
        """Return the cycles of what *active* multiprocessors share.

        They have *each* programs in the mean, and the busiest one has *most*.
        """
        demand, programs = self.demand, self.demand.programs
        share = self.size / active
        bandwidth = self.bandwidth / self.mhz
        through, memory = demand.l2_bytes / programs, demand.moved / programs
        return {
            "l2": max(through * most / PORT_BYTES, self.l2_cycles() * each / share),
            "stores": self.stored_cycles() * each / share,
            "bandwidth": memory * max(most / MEMORY_PORT_BYTES, each * active / bandwidth),
            "atomics": demand.atomics / programs * each * active,
            "dispatch": each * DISPATCH_US * active * self.mhz,
        }

    def l2_cycles(self) -> float:
        """Return for how many cycles a program needs a multiprocessor's part of the L2 cache.

        Slices serve requests side by side.
        """
        return max(self._l2_limits()) / self.slices

    def _l2_limits(self) -> tuple[float, float]:
        """Return the cycles for its requests, and for its bytes, with a part as an H100's."""
        demand, program = self.demand, self.demand.program
        seen = 1.0 / (1.0 + MERGED / self.at_once) if self.tensor and demand.is_followed else 1.0
        lines = seen * program.loaded_lines / LOADED_LINES + program.stored_lines / STORED_LINES
        return lines, seen * demand.l2_bytes / demand.programs / L2_BYTES

    def stored_cycles(self) -> float:
        """Return for how many of these cycles it takes what the program stores."""
        demand = self.demand
        return demand.stored_bytes / demand.programs / STORED_BYTES / self.slices

    def of_all(self, cycles: float) -> float:
        """Return how long all programs take for what takes each so many, us."""
        return cycles * self.demand.programs / self.size / self.mhz

    def spilled(self, missing: float, active: int) -> float:
        """Return the cycles in which a program's local memory comes from and goes to the L2 cache.

        So large a share of its loads is *missing* in the L1 cache of each of *active*
        multiprocessors; what is stored goes to the L2 cache in any case.
        """
        rate = min(LOCAL_PORT_BYTES, LOCAL_BYTES * self.size / active)
        program = self.demand.program
        return (program.local_stored + missing * program.local_loaded) / rate

    def round_us(self, at_once: int, active: int, each: float) -> float:
        """Return how long the programs of *active* multiprocessors take.

        The busiest one has *at_once* of them. What all share does the work of *each*, their mean:
        device memory does not wait for multiprocessors that have a program less. Programs that
        began together are in step: each waits until the bytes of all are there, the less the more
        share a multiprocessor, as some compute meanwhile. However long they take, they do not begin
        before they are started.
        """
        missing = self.demand.missing(self.gpu, at_once)
        spilled = self.spilled(missing, active)
        own = [at_once * one for one in (*self.own.values(), spilled)]
        outside = self.outside(active, each, at_once)
        started, stored = outside.pop("dispatch"), outside.pop("stores")
        moving = outside["bandwidth"]
        together = max(each, 1.0)  # without those that have nothing to do
        loading = moving * self.demand.waiting / together**2 if self.in_step else 0.0
        moving = outside["bandwidth"] = max(moving, stored)  # both take what is written in turn
        met, turn = 0.0, self.turn if at_once > 1 else 0.0
        if not self.tensor or self.turn:
            met = (IN_STEP if self.in_step else OUT_OF_STEP) * (together - 1.0) * self.issued**2
        inside = max(self.own.values(), default=0.0) ** OVERLAP  # is in its time alone
        most = sum(one**OVERLAP for one in (*own, *outside.values())) - inside
        less = most - moving**OVERLAP + (moving - loading) ** OVERLAP
        cycles = math.inf
        for _ in range(PASSES):
            busy = min(max(outside["l2"], moving) / cycles, 1.0)
            alone = max(self.demand.alone(busy, missing, self.awaited), *self.own.values(), 0.0)
            free = 1.0 - self.tensor / max(alone, 1.0)
            local = spilled + moving * self.demand.local_share
            alone += LOCAL_WAITED * self.demand.local_left * local + turn
            alone += free * met / max(min(cycles, 1e9), together * self.issued, 1.0)
            cycles = max(_norm(alone, most), _norm(alone + loading, less))
        return max(cycles, started) / self.mhz

    def us(self) -> float:
        """Return how long the launch takes.

        Its last program begins when all others have, and then takes as long as one alone: without
        that, short loops of thousands of programs were up to 15% too short.
        """
        demand, rounds = self.demand, self.rounds_us
        busy = max(demand.read_bytes / self.bandwidth, self.of_all(self.l2_cycles())) / rounds
        last = demand.programs * DISPATCH_US + self.alone / self.mhz
        found = max(rounds + RAMP_US * min(busy, 1.0), last)
        return self.launch_us + self.code_us() + found

    def code_us(self) -> float:
        """Return the time in which programs wait for their code, and for their first loads.

        Right after the same launch the L2 cache has it: that takes as much less as a load does.
        """
        program, again = self.demand.program, self.demand.again
        cycles = self.first + program.code_cycles
        if again:
            return cycles * L2_CYCLES / MEMORY_CYCLES / self.mhz
        return (cycles + program.memory_code_cycles) / self.mhz

    @functools.cached_property
    def missing(self) -> float:
        """The share of its local memory that the L1 cache lacks where most programs share it."""
        return self.demand.missing(self.gpu, self.at_once)

    @functools.cached_property
    def alone(self) -> float:
        """The cycles that a program takes by itself, with nothing that is shared busy."""
        return self.demand.alone(0.0, self.missing, self.awaited)

    @functools.cached_property
    def rounds_us(self) -> float:
        """How long its rounds take."""
        demand = self.demand
        rounds = demand.program.rounds
        if rounds is not None:
            active = min(demand.programs, self.size)
            return rounds * self.round_us(self.at_once, active, demand.programs / active / rounds)
        full, left = divmod(demand.programs, demand.fit * self.size)
        found = full * self.round_us(demand.fit, self.size, demand.fit) if full else 0.0
        if left:
            active = min(left, self.size)
            found += self.round_us(math.ceil(left / self.size), active, left / active)
        return found

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """The time of each part as if there were nothing else."""
        demand = self.demand
        active = min(demand.programs, self.size)
        each = demand.programs / active
        own = {**self.own, "local": self.spilled(self.missing, active)}
        even = each / self.at_once
        busiest, refetched = max(self.own.values(), default=0.0), demand.program.refetch_cycles
        turns = max(even, 1.0)
        outside = self.outside(active, each, each)
        outside["l2"] = max(outside["l2"], outside.pop("stores"))
        found = {
            "launch": self.launch_us,
            "code": self.code_us() + turns * refetched / self.mhz,
            "latency": turns * (self.alone - busiest - refetched) / self.mhz,
            **{name: each * cycles / self.mhz for name, cycles in own.items()},
            **{name: one / self.mhz for name, one in outside.items()},
            "tail": self.rounds_us - even * self.round_us(self.at_once, active, self.at_once),
        }
        programs = {**dict.fromkeys(own, each), "latency": turns}
        return tuple(
            Part(name, found[name], self._quotient(name, found[name], programs.get(name)))
            for name in PARTS
            if found.get(name, 0.0) > 0
        )

    def _quotient(self, name: str, us: float, programs: float | None) -> Quotient | None:
        """Return the arithmetic behind the time of a part, *us*; None of the tail, a difference.

        So many *programs* of a multiprocessor take it one after the other; None where it is not
        that of single programs.
        """
        amounts = {
            "launch": (1.0, "launch"),
            "dispatch": (float(self.demand.programs), "program"),
            "l2": self._l2_limit[1:],
            "bandwidth": (self.demand.moved, "B"),
        }
        if name == "tail":
            return None
        amount, unit = amounts.get(name, (us * self.mhz, "cycles"))
        return Quotient(
            amount, unit, amount / us, self._source(name), programs and amount / programs
        )

    def _source(self, name: str) -> str:
        """Return what the rate of a part is from."""
        units = measured_units(self.gpu)
        if name == "launch" and "launch_us" in units:
            return CALIBRATE
        if name in {"launch", "dispatch", "local", "atomics"}:
            return LAUNCHES
        if name == "bandwidth":
            return self._bandwidth_source()
        if name == "l2":
            return f"{self._l2_limit[0]}: {CALIBRATE if 'l2_loads' in units else LAUNCHES}"
        return "latencies of an H100" if name in {"latency", "code"} else "the architecture's rates"

    def _bandwidth_source(self) -> str:
        active, peak = min(self.demand.programs, self.size), self.gpu.bandwidth_gbs or 1.0
        if self.bandwidth / self.mhz > active * MEMORY_PORT_BYTES:
            return f"{MEMORY_PORT_BYTES:g} B a cycle of {active} multiprocessors: {LAUNCHES}"
        whose = CALIBRATE if "read_gbs" in measured_units(self.gpu) else "the data sheet"
        return f"{self.bandwidth / 1e3 / peak:.3g} of {peak:.4g} GB/s: {whose}"

    @functools.cached_property
    def _l2_limit(self) -> tuple[str, float, str]:
        """What limits the rate of the L2 cache, how much there is of that, and its unit.

        It is what the launch asks for, less what the L1 cache has and what is asked for together.
        """
        demand, program = self.demand, self.demand.program
        programs, active = demand.programs, min(demand.programs, self.size)
        port = demand.l2_bytes / programs / PORT_BYTES * self.size / active
        lines, moved = self._l2_limits()
        requests = (program.loaded_lines + program.stored_lines) * programs
        each = "a cycle and multiprocessor"
        limits = (
            (port, f"{PORT_BYTES:g} B a cycle of {active} multiprocessors", demand.l2_bytes, "B"),
            (lines / self.slices, f"{LOADED_LINES:g} requests {each}", requests, "request"),
            (moved / self.slices, f"{L2_BYTES:g} B {each}", moved * L2_BYTES * programs, "B"),
            (
                self.stored_cycles(),
                f"{STORED_BYTES:g} B {each} of stores",
                demand.stored_bytes,
                "B",
            ),
        )
        _, words, amount, unit = max(limits, key=lambda one: one[0])
        return words, amount, unit

    def busiest(self) -> Part | None:
        """Return the unit that works for longest, with its time at its peak rate.

        It is the mean of all multiprocessors, those without a program among them. Local memory
        keeps the L2 cache busy.
        """
        demand = self.demand
        share = min(demand.programs, self.size) / self.size
        units = {one.name: one.us * share for one in self.parts if one.name not in BESIDE_UNITS}
        spilled = units.pop("local", 0.0)
        peaks = {
            "bandwidth": (demand.read_bytes + demand.written_bytes)
            / (self.gpu.bandwidth_gbs or 1)
            / 1e3,
            "l2": self.of_all(max(self.l2_cycles(), self.stored_cycles())) + spilled,
            "atomics": demand.atomics / self.mhz,
        }
        units |= {name: us for name, us in peaks.items() if name in units}
        name = max(units, key=units.__getitem__, default=None)
        return None if name is None else Part(name, units[name])


def launch_us(gpu: Gpu) -> float:
    """Return how long a launch takes that does nothing, as the lab's timer sees it."""
    fitted = FITTED_UNITS["launch_us"]
    return LAUNCH_US + measured_units(gpu).get("launch_us", fitted) - fitted


def _bandwidth(gpu: Gpu, read_gbs: float | None) -> float:
    """Return the bandwidth of device memory on the data sheet, GB/s.

    Where reading was measured it is what the data sheet of an H100 makes of that.
    """
    model = devices()[FITTED_TO]
    if read_gbs is None or model.bandwidth_gbs is None:
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
    model = devices()[FITTED_TO]
    if model.target != gpu.target:
        return 1.0
    own, fitted = ((one.l2_bytes or 0) / (one.multiprocessors or 1) for one in (gpu, model))
    return own / fitted if own and fitted else 1.0


def _norm(alone: float, others: float) -> float:
    """Return the cycles of what takes so many *alone*; of *others* it is the sum of powers."""
    return float((alone**OVERLAP + max(others, 0.0)) ** (1 / OVERLAP))
