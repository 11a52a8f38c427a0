"""What there is to win for a kernel in a cache: one number, how many times faster, and why.

Where the launch of an entry is known it is by its predicted time: with a further program, without
its spills, or as another entry of the same function has it. Of others a cache has neither the size
nor the data. Their gain is by the same model, of a full GPU whose programs make one pass over their
code, in which every instruction counts once. What other warps or a cap on registers make of the
code is not in it, so that a launch may gain more.

A program waits one latency of the memory, then for its instructions as the compiler schedules them
in the mean, or for both at once where copies run ahead. Where that is longer than any unit is busy,
or one more program would help by a tenth, the kernel is short of programs. Elsewhere more occupancy
brings nothing, and the gain is 1. Spills are worth what a pass is shorter without their bytes and
instructions. To a kernel that spills a step is worth nothing that is known: it may add to them.

Matrix multiplications on tensor cores take longer than their issue, which is not in these numbers.
More occupancy is therefore worth something to a kernel with them only where the bytes that its
programs can have in flight are too few to keep the memory busy (Little's law: latency times
bandwidth), and its tensor cores have that to wait for.
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
"""Parts of a predicted time."""
ALIKE = 1 + RATIO_ERROR
"""Times of launches of a kernel that are no further apart are predicted to be alike."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times faster a kernel gets by this estimate, and why."""

    factor: float | None
    """None where it is not known."""
    by: str
    bound: str = ""
    """What takes longest now, by the names of `prediction.PARTS`."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over their code of the programs that fill a GPU, which begin together."""

    mix: Mix
    resources: Resources
    gpu: Gpu

    @property
    def moved(self) -> int:
        """Bytes of global memory that a program moves.

        Copies ahead move no more than the shared memory that they fill.
        """
        return self.mix.global_bytes * self._threads + bool(self.mix.copies) * self.resources.shared

    @property
    def _threads(self) -> int:
        return self.resources.num_warps * self.gpu.architecture.warp_size

    def with_programs(self, programs: int) -> Rounds:
        """Return its rounds with so many *programs* on each multiprocessor."""
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
        """Return how long a multiprocessor takes for a program with so many *programs* on it."""
        size = self.gpu.multiprocessors or 1
        return self.with_programs(programs).round_us(programs, size, programs) / programs


@dataclass(frozen=True, slots=True)
class Ahead:
    """What can be done for a kernel."""

    after: int | None
    """Programs resident per multiprocessor with the next step; None where nothing brings more."""
    step: str
    """That step in words."""
    condition: str
    """What only a compile tells, and has to hold for it, "it does not spill"; "" where one shows
    that it costs nothing."""
    spill_advice: str
    """What to do against spills; "" where nothing is known to."""


def find_gain(mix: Mix | None, resources: Resources, gpu: Gpu, programs: int, ahead: Ahead) -> Gain:
    """Return what the kernel would gain by its next step, or without its spills.

    *programs* are resident per multiprocessor.
    """
    if mix is None:
        return Gain(None, "not known: its instructions are not")
    if not gpu.has_rates:
        return Gain(None, f"not known: the size or speed of {gpu.title} is not")
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
    """Return what the launch of *record* would gain as `find_gain` does, by its predicted time.

    None where there is none.
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
    """Return *kernels*, each with what it gains by being launched as a faster entry is.

    That is of the same function with other blocks, warps, stages or caps.
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
"""What is proposed for a kernel, beside caps on registers."""


@dataclass(frozen=True, slots=True)
class Timed:
    """How long a kernel takes on a GPU, as far as it is known."""

    row: ScannedKernel
    us: float | None
    """Of its launch."""
    pass_us: float | None
    """Of a `Pass`, by which entries compare that differ in their warps alone."""


def shown_slower(one: Timed, others: Iterable[Timed]) -> frozenset[str]:
    """Return the proposals that *others* show not to make *one* faster: "fewer num_warps".

    Those are entries of the same function, of which some differ only in what is proposed.
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
    """Return what alone leads from *own* settings to *other* ones; "" where no proposal does."""
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
    """Return what entries of one function on one target have in common."""
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
        return Gain(1.0, "tensor cores do its work, which seldom gains by more warps", TENSOR)
    flight = f"{_kib(held)} of the {_kib(wanted)} KiB in flight"
    factor = min(ahead.after / programs, wanted / held)
    return Gain(factor, f"{ahead.step}: {flight}, where its tensor cores wait for memory", LATENCY)


def _in_flight(rounds: Rounds) -> float:
    """Return the bytes in flight on a multiprocessor that keep memory busy (Little's law)."""
    return MEMORY_CYCLES * rounds.bandwidth / rounds.mhz / rounds.size


def _kib(number: float) -> str:
    return f"{number / 1024:.3g}"
