"""The possible gain of a kernel in a cache: how many times faster it could be, and why.

If the launch of an entry is known, the gain is by its predicted time: with one more program,
without its spills, or with the settings of another entry of the same function. For other entries,
whose sizes and data a cache does not have, the same model is applied to a full GPU whose programs
make one pass over their code, with each instruction counted once. That ignores how other warps or a
cap on registers change the code, so a launch may gain more.

A program waits for one memory latency and then for its instructions at the average stall of
compiled code; with asynchronous copies, for both at once. If that is longer than any unit is busy,
or if one more program would help by a tenth, the kernel is short of programs. Otherwise more
occupancy gains nothing, and the gain is 1. The gain from removing spills is that of a pass without
their bytes and instructions. For a kernel that spills, the gain of an occupancy step is not known,
because the step may add spills.

Matrix multiplications on tensor cores take longer than their issue, which these numbers lack. More
occupancy therefore only helps a kernel with tensor cores if its programs cannot have enough bytes
in flight to keep the memory busy (Little's law: latency times bandwidth), so that the tensor cores
wait for memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from occupancy_lab.options import CAPS, NAMES
from occupancy_lab.prediction import BESIDE_UNITS, PARTS, RATIO_ERROR
from occupancy_lab.scanning.page import LEAST
from occupancy_lab.text.words import listed, microseconds
from occupancy_lab.throughput.counted_program import STALL_CYCLES, STALL_SHARE
from occupancy_lab.throughput.demand import MEMORY_CYCLES, Demand
from occupancy_lab.throughput.rounds import Rounds
from occupancy_lab.work.counts import LATENCIES, Program
from occupancy_lab.work.pipes import ISSUE, TENSOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.scanning.cache import Mix
    from occupancy_lab.scanning.page import ScannedKernel
    from occupancy_lab.values import Resources

LOCAL, LATENCY = "local", "latency"
"""Names of parts of a predicted time."""
ALIKE = 1 + RATIO_ERROR
"""The ratio up to which predicted times of a kernel's launches are not noticeably different."""


@dataclass(frozen=True, slots=True)
class Gain:
    """The estimated speedup of a kernel, and why."""

    factor: float | None
    """How many times faster; None if not known."""
    by: str
    bound: str = ""
    """The part that takes longest now, by its name in `prediction.PARTS`."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the code by programs that fill a GPU and begin together."""

    mix: Mix
    resources: Resources
    gpu: Gpu

    @property
    def moved(self) -> int:
        """Bytes of global memory that a program moves; copies move the shared memory they fill."""
        return self.mix.global_bytes * self._threads + bool(self.mix.copies) * self.resources.shared

    @property
    def _threads(self) -> int:
        return self.resources.num_warps * self.gpu.architecture.warp_size

    def with_programs(self, programs: int) -> Rounds:
        """Return the rounds of this pass with *programs* on each multiprocessor."""
        mix, size = self.mix, self.gpu.multiprocessors or 1
        own = mix.instructions * STALL_SHARE * STALL_CYCLES
        loads = [float(latency) if self.moved else 0.0 for latency in LATENCIES]
        issued = self.resources.num_warps * mix.instructions
        program = Program(
            pipes={ISSUE: issued / self.gpu.architecture.issue_rate},
            alone=tuple(max(load, own) if mix.copies else load + own for load in loads),
            rounds=None,
            code_cycles=0.0,
            local_stored=mix.local_bytes * self._threads,
            transferred=(0.0, 0.0) if mix.copies else (1.0, 1.0),
        )
        launched = programs * size
        demand = Demand(
            programs=launched,
            fit=programs,
            program=program,
            resources=self.resources,
            read_bytes=launched * self.moved,
            written_bytes=0.0,
            l2_bytes=launched * self.moved,
            missed=1.0,
            first=1.0,
            again=False,
        )
        return Rounds(demand, self.gpu)

    def us(self, programs: int) -> float:
        """Return the time per program of a multiprocessor that runs *programs* at once."""
        size = self.gpu.multiprocessors or 1
        return self.with_programs(programs).round_us(programs, size, programs) / programs


@dataclass(frozen=True, slots=True)
class Ahead:
    """The next occupancy step of a kernel, and the advice against its spills."""

    after: int | None
    """Programs resident per multiprocessor after the step; None if no step gives more."""
    step: str
    """The step in words."""
    condition: str
    """The condition of the step that only a compile can check, "it does not spill"; "" if another
    entry shows that it holds."""
    spill_advice: str
    """What to do against spills; "" if nothing is known to help."""


def find_gain(mix: Mix | None, resources: Resources, gpu: Gpu, programs: int, ahead: Ahead) -> Gain:
    """Return what the kernel would gain by its next step, or without its spills.

    *programs* are resident per multiprocessor now.
    """
    if mix is None:
        return Gain(None, "not known: its instructions could not be counted")
    if not gpu.has_rates:
        return Gain(None, f"not known: the size or speed of {gpu.title} is not known")
    work = Pass(mix, resources, gpu)
    more = (_of_tensor_kernel if mix.tensor_instructions else _of_programs)(work, programs, ahead)
    if mix.local_accesses:
        spilled = _without_spills(work, programs, ahead.spill_advice)
        if ahead.spill_advice and (spilled.factor or 0) > LEAST:
            return spilled
    if mix.local_accesses and (more.factor or 0) > 1:
        return Gain(None, more.by, more.bound)
    if (more.factor or 0) <= LEAST or not ahead.condition:
        return more
    return Gain(None, f"{more.by}, {_only_if(ahead)}", more.bound)


def _only_if(ahead: Ahead) -> str:
    return f"if {ahead.condition}, which only a compile tells"


def predicted_gain(record: Record, mix: Mix | None, ahead: Ahead) -> Gain | None:
    """Return what the launch of *record* would gain, as `find_gain`, by its predicted time.

    None if it has no predicted time.
    """
    now = record.prediction
    if now is None:
        return None
    programs = record.occupancy.programs_per_multiprocessor
    spills = 0 if mix is None else mix.local_accesses
    if spills:
        free = record.time_with(programs, spills=False)
        factor = 1.0 if free is None else now.us / free.us
        if ahead.spill_advice and factor > ALIKE:
            why = f"{ahead.spill_advice}: {spills} loads and stores of local memory"
            return Gain(factor, why, now.bound)
        if ahead.after is not None:
            return Gain(None, ahead.step, now.bound)
    then = None if ahead.after is None else record.time_with(ahead.after)
    factor = 1.0 if then is None else now.us / then.us
    if then is None or factor <= ALIKE:
        return Gain(1.0, f"{PARTS[now.bound]} takes longest", now.bound)
    words = f"{ahead.step}: {microseconds(then.us)} instead of {microseconds(now.us)}"
    if ahead.condition:
        return Gain(None, f"{words}, {_only_if(ahead)}", now.bound)
    return Gain(factor, words, now.bound)


def beside_others(kernels: Sequence[ScannedKernel]) -> Iterator[ScannedKernel]:
    """Return *kernels*, with the gain from the settings of the fastest entry of the same function.

    The settings are blocks, warps, stages and caps on registers.
    """
    fastest: dict[tuple[str, ...], ScannedKernel] = {}
    for one in sorted(kernels, key=_us):
        fastest.setdefault(function_of(one), one)
    for one in kernels:
        best = fastest[function_of(one)]
        factor = _us(one) / _us(best) if one.predicted_us else 1.0
        own, other = _settings(one), _settings(best)
        changes = [f"{name} {other[name]}" for name in other if other[name] != own.get(name)]
        if factor <= ALIKE or factor <= (one.gain or 1.0) or not changes:
            yield one
            continue
        times = f"{microseconds(_us(best))} instead of {microseconds(_us(one))}"
        yield replace(one, gain=factor, gain_by=f"{listed(changes)}, as another entry: {times}")


FEWER_WARPS, MORE_WARPS = "fewer num_warps", "more num_warps"
FEWER_STAGES, SMALLER_BLOCK = "fewer num_stages", "a smaller block"
"""The proposals for a kernel besides caps on registers."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel with its times on a GPU, as far as they are known."""

    row: ScannedKernel
    us: float | None
    """The time of its launch."""
    pass_us: float | None
    """The time of a `Pass`, for comparing entries that differ only in their warps."""


def shown_slower(one: Timed, others: Iterable[Timed]) -> frozenset[str]:
    """Return the proposals that *others* show not to be faster than *one*: "fewer num_warps".

    *others* are entries of the same function; some may differ only in what is proposed.
    """
    least: dict[str, float] = {}
    for other in others:
        proposal = _proposal(_settings(one.row), _settings(other.row))
        now, then = one.us, other.us
        if None in {now, then} and proposal in {FEWER_WARPS, MORE_WARPS}:
            now, then = one.pass_us, other.pass_us
        if proposal and now and then:
            least[proposal] = min(then / now, least.get(proposal, math.inf))
    return frozenset(proposal for proposal, ratio in least.items() if ratio >= 1)


def _proposal(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the proposal that changes *own* settings into *other* ones; "" if none does."""
    changed = {name: (own.get(name), one) for name, one in other.items() if one != own.get(name)}
    if len(changed) == 1:
        ((name, (now, then)),) = changed.items()
        if name in CAPS:
            return f"without {name}={now}" if then is None else f"{name}={then}"
        if name == "num_warps":
            return FEWER_WARPS if then < now else MORE_WARPS
        if name == "num_stages":
            return FEWER_STAGES if then < now else ""
    numbers = (type(now) is type(then) is int and then < now for now, then in changed.values())
    return SMALLER_BLOCK if changed and not changed.keys() & {*NAMES} and all(numbers) else ""


def function_of(one: ScannedKernel) -> tuple[str, ...]:
    """Return the key of entries of one function for one target."""
    return one.kernel, one.source, one.arguments, one.target


def _settings(one: ScannedKernel) -> dict[str, Any]:
    return {**one.constexprs, **{name: getattr(one, name) for name in NAMES}}


def _us(one: ScannedKernel) -> float:
    return one.predicted_us or math.inf


def _without_spills(work: Pass, programs: int, advice: str) -> Gain:
    mix = work.mix
    accesses = mix.local_accesses
    rest = replace(mix, instructions=max(mix.instructions - accesses, 1), local_bytes=0)
    factor = work.us(programs) / replace(work, mix=rest).us(programs)
    why = f"{accesses} loads and stores of local memory, {mix.global_accesses} of global"
    return Gain(factor, f"{advice}: {why}", LOCAL)


def _of_programs(work: Pass, programs: int, ahead: Ahead) -> Gain:
    after = ahead.after
    rounds = work.with_programs(programs)
    now = {part.name: part.us for part in rounds.parts if part.name not in BESIDE_UNITS}
    busiest, us = max(now, key=lambda part: now[part]), work.us(programs)
    alone = rounds.demand.alone(0.0, 0.0, rounds.awaited) / rounds.mhz
    if us <= ALIKE * work.us(programs + 1) and alone <= now[busiest]:
        return Gain(1.0, f"{PARTS[busiest]} takes longest", busiest)
    held, wanted = programs * work.moved, _in_flight(rounds)
    enough = max(math.ceil(programs * alone / now[busiest]), programs + 1)
    short = f"{programs} of the {enough} programs that hide waits"
    if work.moved and held < wanted:
        short = f"{_kib(held)} of the {_kib(wanted)} KiB in flight that keep memory busy"
    factor = 1.0 if after is None else us / work.us(after)
    most = 1.0 if after is None else after / programs
    return Gain(min(max(factor, 1.0), most), f"{ahead.step}: {short}", LATENCY)


def _of_tensor_kernel(work: Pass, programs: int, ahead: Ahead) -> Gain:
    held, wanted = programs * work.moved, _in_flight(work.with_programs(programs))
    if not held or held >= wanted or ahead.after is None:
        return Gain(1.0, "tensor cores do the work, which seldom gains from more warps", TENSOR)
    flight = f"{_kib(held)} of the {_kib(wanted)} KiB in flight"
    factor = min(ahead.after / programs, wanted / held)
    return Gain(factor, f"{ahead.step}: {flight}, where its tensor cores wait for memory", LATENCY)


def _in_flight(rounds: Rounds) -> float:
    """Return the bytes in flight per multiprocessor that keep memory busy (Little's law)."""
    return MEMORY_CYCLES * rounds.bandwidth / rounds.mhz / rounds.size


def _kib(number: float) -> str:
    return f"{number / 1024:.3g}"
