"""How long a GPU takes for a launch: rounds of resident programs, one after the other.

A round of resident programs takes as long as one of them alone, or as long as the busiest unit
needs for all of them, whichever is longer. Where both are similar it takes more than either: a norm
of all times, with a fitted exponent. The last round has the remaining programs. Where there is only
one round, its programs begin together and stay in step: they load, compute and store at the same
time, and therefore wait for each other more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

from occupancy_lab.gpus import Gpu, devices
from occupancy_lab.prediction import BESIDE_UNITS, PARTS, Part, Quotient
from occupancy_lab.throughput.calibrations import (
    FITTED_TO,
    FITTED_UNITS,
    l2_share,
    measured_units,
)
from occupancy_lab.throughput.demand import L2_CYCLES, LOCAL_WAITED, MEMORY_CYCLES, Demand
from occupancy_lab.work.pipes import ALU, FMA, FP64, ISSUE, LSU, TENSOR, UNIFORM, XU

CALIBRATE, LAUNCHES = "calibrate here", "launches on an H100"
"""The sources of rates that are not on data sheets."""
LAUNCH_US = 3.0
"""The time of an empty launch, as the lab's timer measures it."""
RAMP_US = 1.9
"""The time until device memory or the L2 cache reaches its full rate, in launches that read all the
time; in others it is proportional."""
DISPATCH_US = 0.0006
"""The time between the starts of two programs, for the whole GPU."""
BANDWIDTH_SHARE, STRIDING_SHARE = 0.923, 0.887
"""Shares of the data sheet's bandwidth that reads reach: where programs begin one after the other,
and where all programs of a launch go over their work at once, each at its own pace, which is 3 to
4% less, as `calibrate` also measures."""
IN_STEP, OUT_OF_STEP = 0.9, 0.3
"""The share of conflicts with other programs, over issue slots and the lsu pipe, that delay a
program: where programs began together, and in later rounds. The conflicts are the share of time in
which the others use these units, as in mean value analysis (Reiser and Lavenberg 1980). With a
constant share of the others' time instead, loops with 16 to 32 programs per multiprocessor were
predicted up to 28% too long, and loops with two 15% too short. Asynchronous products do not wait in
this way: if they did, the first choices of 90 tunings on an H100 would lose half as much time
again."""
L2_BYTES, PORT_BYTES, MEMORY_PORT_BYTES = 43.0, 72.0, 60.0
"""Bytes per cycle and multiprocessor: from the L2 cache where all multiprocessors load (the 80
slices of an H100 deliver two sectors each per cycle of their own clock, which would be 38); the
most that one multiprocessor gets (one alone gets 107 on an H100, and 64 on a Volta: Jia et al.
2018); and the most that it gets from device memory."""
LOADED_LINES, STORED_LINES = 0.53, 0.249
"""Requests per cycle and multiprocessor that the L2 cache serves, for loads and for stores, each
for a cache line or a part of one, as `calibrate` measures them. Without these limits, kernels that
read or write a column took up to seven times their predicted time."""
STORED_BYTES = 15.5
"""Bytes per cycle and multiprocessor that the L2 cache takes from stores: launches that store 8 to
24 MiB, right after themselves, write 3.9 TB/s on an H100, whereas device memory takes 3.3 TB/s."""
MERGED = 0.8
"""Requests that the L2 cache does not see per request that it sees, for programs with tensor cores,
whose neighbours request the same data at the same time. It decreases with the programs per
multiprocessor, which are not in step. For products on an H100 with one program per multiprocessor,
1.6 to 1.7 times as many sectors are requested as the L2 cache delivers, and with three 1.2 to 1.3
times (Nsight Compute). This halves the time that the first choices of 60 tunings with 16-bit types
lose."""
LOCAL_BYTES, LOCAL_PORT_BYTES = 33.5, 47.0
"""Bytes of local memory per cycle and multiprocessor, to the L2 cache and back: where all
multiprocessors move some (stores reach the L2 cache at once, according to Nsight Compute for 60
launches on an H200), and the most of one multiprocessor."""
FIRST_CYCLES = 700.0
"""The additional time of a launch's first loads between two events, after its caches were filled
with other data; fitted to all recorded launches on an H100. It does not apply to launches that read
nothing, nor right after the same launch, nor to times of Nsight Compute."""
TENSOR_CLOCK = 0.886
"""The share of its clock that the GPU keeps where tensor cores are used, however little: 1755 of
1980 MHz. From the cycles and times that Nsight Compute recorded on an H100 and an H200, the clock
is below 1.78 GHz in 79 of 80 long launches that multiply matrices, and above it in 61 of 63 others.
The clock of device memory does not change."""
STEPS, STORING, LATER = 3, 0.7, 0.5
"""The rounds of a launch, or passes of a program, in which programs with a barrier between their
loads and stores are in step; the share of the time for the stores of all that they wait for in
these; and the share of the time for the loads of all that they wait for in later rounds. Chosen for
the softmaxes with one or two programs per multiprocessor of both GPUs: those of two to four rounds
were predicted 11% too short without them (median of 58 on an H200; 9% on an H100), and are 3% off
with them. 60 launches of other kernels that were drawn afterwards are within 4% in the median."""
LONG_TOGETHER = 3
"""The programs of a multiprocessor that are assumed to be as long as the longest one. If all were,
causal attention with five programs per multiprocessor would be predicted 12 to 16% too long. Nine
in ten of 206 launches whose programs differ, on both GPUs, are within 13.8%, instead of 15.0%. Of
72 softmaxes whose predicted times it reduces by more than a tenth, half are within 5%, instead of
11%."""
OVERLAP, SCHEDULED_OVERLAP = 3.5, 5.0
"""The exponents of the norm of all times, and of that of the schedulers and of the pipes behind
them, which disturb each other less. With one exponent for all, launches that issuing and several
pipes keep busy alike were predicted 2 to 3% too long in the median (80 launches on both GPUs)."""
SCHEDULED = frozenset({ISSUE, ALU, FMA, XU, FP64, UNIFORM})
APART = 0.6
"""The share of the time in which programs are at different places of large code, so that they fetch
it one after the other. With 1, two public kernels that select and sort were predicted 57 and 53%
too long, instead of 4 and 11%, but a filter 6% too short, instead of 31%."""
PASSES = 4
"""Iterations for finding the time, on which the latency of memory and the waits for other programs
depend."""


class Rounds:
    """The programs of a launch on a GPU."""

    def __init__(self, demand: Demand, gpu: Gpu, events_us: float = 0.0) -> None:
        self.demand, self.gpu = demand, gpu
        self.own = demand.program.pipes
        issue, special, self.tensor = (self.own.get(pipe, 0.0) for pipe in (ISSUE, XU, TENSOR))
        self.issued = issue + self.own.get(LSU, 0.0)
        scheduled = [cycles for pipe, cycles in self.own.items() if pipe in SCHEDULED]
        others = [cycles for pipe, cycles in self.own.items() if pipe not in SCHEDULED]
        self.fetching = APART * demand.program.port_cycles
        self.units = (_norm(scheduled, SCHEDULED_OVERLAP), *others, self.fetching)
        """The cycles of the schedulers with their pipes, and those of each other unit."""
        self.turn = min(max(special, issue), self.tensor) if demand.takes_turns else 0.0
        """Cycles that programs lose where their tensor cores and special functions take turns,
        because the programs do the same at the same time. This reduces the median error of
        attentions on an H200 from 12.3% to 6.9%."""
        self.size = gpu.multiprocessors or 1
        self.phases = 0.0 if self.tensor else demand.program.phases
        self.at_once = min(demand.fit, math.ceil(demand.programs / self.size))
        """Programs on the multiprocessor that has most of them."""
        self.awaited = demand.awaited(self.size)
        units = measured_units(gpu)
        self.slices = l2_share(gpu)
        self.mhz = (gpu.boost_mhz or 1) * (TENSOR_CLOCK if self.tensor else 1.0)
        is_cold = not demand.again and not events_us
        self.first = FIRST_CYCLES if is_cold and demand.read_bytes else 0.0
        self.launch_us = launch_us(gpu) - events_us
        self.in_step = demand.programs <= demand.fit * self.size
        few = demand.programs < 2 * demand.fit * self.size  # no full second round
        share = STRIDING_SHARE if few and demand.strides else BANDWIDTH_SHARE
        self.bandwidth = _bandwidth(gpu, units.get("read_gbs")) * share * 1e3
        """The bandwidth of device memory in bytes per us."""

    def outside(self, active: int, each: float, most: float) -> dict[str, float]:
        """Return the cycles of the units that *active* multiprocessors share.

        A multiprocessor has *each* programs in the mean, and the busiest one has *most*.
        """
        demand, programs = self.demand, self.demand.programs
        share = self.size / active
        bandwidth = self.bandwidth / self.mhz
        through, memory = demand.l2_bytes / programs, demand.moved / programs
        passed, early = demand.passed / programs, demand.memory.early / programs
        stored = self.stored_cycles()
        return {
            "l2": max(through * most / PORT_BYTES, self.l2_cycles() * each / share),
            "stores": stored * each / share,
            "bandwidth": max(
                passed * most / MEMORY_PORT_BYTES,
                memory * each * active / bandwidth,
                early * each * active / bandwidth + stored * demand.memory.returned * each / share,
            ),
            "atomics": demand.atomics / programs * each * active,
            "dispatch": each * DISPATCH_US * active * self.mhz,
        }

    def l2_cycles(self) -> float:
        """Return the cycles for which a program needs a multiprocessor's share of the L2 cache.

        The slices of the cache serve requests in parallel.
        """
        return max(self._l2_limits()) / self.slices

    def _l2_limits(self) -> tuple[float, float]:
        """Return the cycles for its requests and for its bytes, with the share of an H100."""
        demand, program = self.demand, self.demand.program
        seen = 1.0 / (1.0 + MERGED / self.at_once) if self.tensor and demand.is_followed else 1.0
        lines = seen * program.loaded_lines / LOADED_LINES + program.stored_lines / STORED_LINES
        return lines, seen * demand.l2_bytes / demand.programs / L2_BYTES

    def stored_cycles(self) -> float:
        """Return the part of these cycles that the program's stores take."""
        demand = self.demand
        return demand.stored_bytes / demand.programs / STORED_BYTES / self.slices

    def of_all(self, cycles: float) -> float:
        """Return the time in us for work that takes each program *cycles* of its multiprocessor."""
        return cycles * self.demand.programs / self.size / self.mhz

    def spilled(self, missing: float, active: int) -> float:
        """Return the cycles for moving a program's local memory to and from the L2 cache.

        *missing* is the L1 miss rate of its loads on each of *active* multiprocessors; all stores
        go to the L2 cache.
        """
        rate = min(LOCAL_PORT_BYTES, LOCAL_BYTES * self.size / active)
        program = self.demand.program
        return (program.local_stored + missing * program.local_loaded) / rate

    def round_us(self, at_once: int, active: int, each: float, number: int = 0) -> float:
        """Return how long the programs of *active* multiprocessors take in round *number*, from 0.

        The busiest multiprocessor has *at_once* programs. Shared units do the work of *each*
        programs, the mean: device memory does not wait for multiprocessors with one program less.
        Programs do not begin before they are dispatched.
        """
        missing = self.demand.missing(self.gpu, at_once)
        spilled = self.spilled(missing, active)
        most_work = at_once if self.demand.program.rounds is None else _most_work(at_once, each)
        own = [most_work * one for one in (*self.units, spilled)]
        outside = self.outside(active, each, at_once)
        started, stored = outside.pop("dispatch"), outside.pop("stores")
        moving = outside["bandwidth"]
        if self.demand.is_hot:
            moving += outside.pop("atomics")
        together = max(each, 1.0)  # without idle multiprocessors
        waited = self._waited(moving, stored, number) / together**2
        moving = outside["bandwidth"] = max(moving, stored)  # writes pass through both in turn
        met, turn = 0.0, self.turn if at_once > 1 else 0.0
        if not self.tensor or self.turn:
            met = (IN_STEP if self.in_step else OUT_OF_STEP) * (together - 1.0) * self.issued**2
        inside = max(self.own.values(), default=0.0) ** OVERLAP  # part of the time alone
        most = sum(one**OVERLAP for one in (*own, *outside.values())) - inside
        less = most - moving**OVERLAP + max(moving - waited, 0.0) ** OVERLAP
        cycles = math.inf
        for _ in range(PASSES):
            busy = min(max(outside["l2"], moving) / cycles, 1.0)
            alone = max(self.demand.alone(busy, missing, self.awaited), *self.own.values(), 0.0)
            free = 1.0 - self.tensor / max(alone, 1.0)
            local = spilled + moving * self.demand.local_share
            alone += LOCAL_WAITED * self.demand.local_left * local + turn
            alone += free * met / max(min(cycles, 1e9), together * self.issued, 1.0)
            cycles = max(_root(alone, most), _root(alone + waited, less))
        return max(cycles, started) / self.mhz

    def _waited(self, moving: float, stored: float, number: int) -> float:
        """Return the cycles for which a program that is alone only waits for the bytes of others.

        Device memory moves for *moving* cycles, and the L2 cache takes stores for *stored* cycles.
        Programs of a single round begin together and load at the same time, so that each waits for
        the loads of all. Those with a barrier between loads and stores stay in step in several
        rounds, or passes of a program: in the first STEPS they wait for the stores of all too, and
        in later rounds for a part of the loads. Programs wait less the more share a multiprocessor,
        since some of these compute in the meantime.
        """
        demand = self.demand
        loads, stores = 1.0, min(STEPS / self.phases, 1.0) if self.phases > 1.0 else 0.0
        if not self.in_step:
            is_first = number < STEPS and self.phases
            loads, stores = (1.0, 1.0) if is_first else (LATER if self.phases else 0.0, 0.0)
        storing = max(moving * (1.0 - demand.reading), stored)
        return demand.exposed * (loads * moving * demand.reading + STORING * stores * storing)

    def us(self) -> float:
        """Return how long the launch takes.

        The last program begins after all others and then takes at least its time alone. Without
        this, short loops of thousands of programs were predicted up to 15% too short.
        """
        demand, rounds = self.demand, self.rounds_us
        busy = max(demand.read_bytes / self.bandwidth, self.of_all(self.l2_cycles())) / rounds
        last = demand.programs * DISPATCH_US + self.alone / self.mhz
        found = max(rounds + RAMP_US * min(busy, 1.0), last)
        return self.launch_us + self.code_us() + found

    def code_us(self) -> float:
        """Return the time in which programs wait for their code and for their first loads.

        Right after the same launch both hit in the L2 cache, which reduces the time as it does for
        loads.
        """
        program, again = self.demand.program, self.demand.again
        cycles = self.first + program.code_cycles
        if again:
            return cycles * L2_CYCLES / MEMORY_CYCLES / self.mhz
        return (cycles + program.memory_code_cycles) / self.mhz

    @functools.cached_property
    def missing(self) -> float:
        """The L1 miss rate of local memory where most programs share the cache."""
        return self.demand.missing(self.gpu, self.at_once)

    @functools.cached_property
    def alone(self) -> float:
        """The cycles that a program takes alone, with no shared unit busy."""
        return self.demand.alone(0.0, self.missing, self.awaited)

    @functools.cached_property
    def rounds_us(self) -> float:
        """The time of all rounds."""
        demand = self.demand
        rounds = demand.program.rounds
        if rounds is not None:
            active = min(demand.programs, self.size)
            return self._rounds(rounds, self.at_once, active, demand.programs / active / rounds)
        full, left = divmod(demand.programs, demand.fit * self.size)
        found = self._rounds(full, demand.fit, self.size, demand.fit)
        if left:
            active = min(left, self.size)
            found += self.round_us(math.ceil(left / self.size), active, left / active, full)
        return found

    def _rounds(self, number: float, at_once: int, active: int, each: float) -> float:
        """Return the time of so many rounds, each as in `round_us`."""
        first = min(number, STEPS)
        found = first * self.round_us(at_once, active, each)
        if number > first:
            found += (number - first) * self.round_us(at_once, active, each, STEPS)
        return found

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """The time that each part would take alone."""
        demand = self.demand
        active = min(demand.programs, self.size)
        each = demand.programs / active
        own = {**self.own, "local": self.spilled(self.missing, active)}
        even = each / self.at_once
        busiest = max(self.own.values(), default=0.0)
        refetched, fetching = demand.program.refetch_cycles, self.fetching
        turns = max(even, 1.0)
        outside = self.outside(active, each, each)
        outside["l2"] = max(outside["l2"], outside.pop("stores"))
        found = {
            "launch": self.launch_us,
            "code": self.code_us() + max(turns * refetched, each * fetching) / self.mhz,
            "latency": turns * (self.alone - busiest - refetched) / self.mhz,
            **{name: each * cycles / self.mhz for name, cycles in own.items()},
            **{name: one / self.mhz for name, one in outside.items()},
            "tail": self.rounds_us - self._rounds(even, self.at_once, active, self.at_once),
        }
        programs = {**dict.fromkeys(own, each), "latency": turns}
        return tuple(
            Part(name, found[name], self._quotient(name, found[name], programs.get(name)))
            for name in PARTS
            if found.get(name, 0.0) > 0
        )

    def _quotient(self, name: str, us: float, programs: float | None) -> Quotient | None:
        """Return the amount and the rate behind the time of a part, *us*; None for the tail.

        *programs* is how many programs of a multiprocessor take this time one after the other; None
        where the part does not consist of single programs. The tail is a difference and has no
        rate.
        """
        measured = measured_units(self.gpu)
        amount, unit, source = us * self.mhz, "cycles", "the architecture's rates"
        match name:
            case "tail":
                return None
            case "launch":
                amount, unit = 1.0, "launch"
                source = CALIBRATE if "launch_us" in measured else LAUNCHES
            case "dispatch":
                amount, unit, source = float(self.demand.programs), "program", LAUNCHES
            case "l2":
                limit, amount, unit = self._l2_limit()
                source = f"{limit}: {CALIBRATE if 'l2_loads' in measured else LAUNCHES}"
            case "bandwidth":
                amount, unit, source = self.demand.moved, "B", self._bandwidth_source()
            case "local" | "atomics":
                source = LAUNCHES
            case "latency" | "code":
                source = "latencies of an H100"
        return Quotient(amount, unit, amount / us, source, programs and amount / programs)

    def _bandwidth_source(self) -> str:
        active, peak = min(self.demand.programs, self.size), self.gpu.bandwidth_gbs or 1.0
        if self.bandwidth / self.mhz > active * MEMORY_PORT_BYTES:
            return f"{MEMORY_PORT_BYTES:g} B a cycle of {active} multiprocessors: {LAUNCHES}"
        whose = CALIBRATE if "read_gbs" in measured_units(self.gpu) else "the data sheet"
        return f"{self.bandwidth / 1e3 / peak:.3g} of {peak:.4g} GB/s: {whose}"

    def _l2_limit(self) -> tuple[str, float, str]:
        """Return the limiting rate of the L2 cache, the amount of work at this rate, and its unit.

        The amount is what the launch requests, without L1 hits and merged requests.
        """
        demand, program = self.demand, self.demand.program
        programs, active = demand.programs, min(demand.programs, self.size)
        port = demand.l2_bytes / programs / PORT_BYTES * self.size / active
        lines, moved = self._l2_limits()
        requests = (program.loaded_lines + program.stored_lines) * programs
        each, stored = "a cycle and multiprocessor", demand.stored_bytes
        limits = (
            (port, f"{PORT_BYTES:g} B a cycle of {active} multiprocessors", demand.l2_bytes, "B"),
            (lines / self.slices, f"{LOADED_LINES:g} requests {each}", requests, "request"),
            (moved / self.slices, f"{L2_BYTES:g} B {each}", moved * L2_BYTES * programs, "B"),
            (self.stored_cycles(), f"{STORED_BYTES:g} B {each} of stores", stored, "B"),
        )
        return max(limits, key=lambda one: one[0])[1:]

    def busiest(self) -> Part | None:
        """Return the unit that is busy for longest, with its time at its peak rate.

        The time is the mean over all multiprocessors, including idle ones. Local memory counts for
        the L2 cache.
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


def _most_work(at_once: int, each: float) -> float:
    """Return how many mean programs the busiest multiprocessor works on, where programs differ.

    While the longest program runs, a multiprocessor works on *each* mean programs in the mean. Of
    its *at_once* programs, up to LONG_TOGETHER are assumed to be as long as that one.
    """
    return each + (at_once - each) * min(1.0, LONG_TOGETHER / at_once)


def launch_us(gpu: Gpu) -> float:
    """Return the time of an empty launch, as the lab's timer measures it."""
    fitted = FITTED_UNITS["launch_us"]
    return LAUNCH_US + measured_units(gpu).get("launch_us", fitted) - fitted


def _bandwidth(gpu: Gpu, read_gbs: float | None) -> float:
    """Return the data sheet's bandwidth of device memory in GB/s.

    Where reading was measured, it is scaled from the H100's data sheet by the measurement.
    """
    model = devices()[FITTED_TO]
    if read_gbs is None or model.bandwidth_gbs is None:
        return gpu.bandwidth_gbs or 1.0
    return model.bandwidth_gbs * read_gbs / FITTED_UNITS["read_gbs"]


def _norm(cycles: Iterable[float], exponent: float) -> float:
    return float(sum(one**exponent for one in cycles) ** (1 / exponent))


def _root(alone: float, others: float) -> float:
    """Return the norm of *alone* and of *others*, which is a sum of powers already."""
    return float((alone**OVERLAP + max(others, 0.0)) ** (1 / OVERLAP))
