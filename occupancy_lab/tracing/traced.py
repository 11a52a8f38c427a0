"""The kernels that a program launched: over which grids, how often, and in what time."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from occupancy_lab.explaining.advice import Action
from occupancy_lab.explaining.kernel_time import KernelTime
from occupancy_lab.explaining.script_lines import MOST_COUNTED, ScriptLine
from occupancy_lab.occupancy.calculator import Calculation, plan_launch
from occupancy_lab.options import OPTIONS
from occupancy_lab.prediction import Prediction, time_columns
from occupancy_lab.record import Record
from occupancy_lab.values import LaunchPlan, Target, Work
from occupancy_lab.work.speed_of_light import work_columns

WORTH_TRYING = 0.01
"""The share of all kernels' time that a kernel must lose for nearby launches to be compiled."""


@dataclass(frozen=True, slots=True)
class GridLaunches:
    """The launches of a kernel over one grid."""

    grid: tuple[int, ...] | None
    """Programs in each dimension; None for all grids after the first 256."""
    launches: int
    """The program's own launches; one in a CUDA graph counts once, when it is captured."""
    tuning: int = 0
    """Further launches, by an autotuner."""
    captured: int = 0
    """How many of `launches` were captured in a CUDA graph."""
    samples: int = 0
    """Launches that were timed."""
    us: float | None = None
    """The mean time of `launches` outside CUDA graphs; None if none was timed."""
    record: Record | None = None
    """The first of the launches, with its counts; None if they are not known."""
    sizes: tuple[str, ...] = ()
    """The integers that the launches pass, by which a dry run distinguishes launches over the same
    grid: "n 4096", "seed 2"."""
    dtypes: tuple[str, ...] = ()
    """In a dry run, the dtype of each tensor that the launches pass: "x float16"."""
    places: tuple[str, ...] = ()
    """In a dry run, the file and line of each launch line that makes them."""

    @property
    def key(self) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
        """The grid, and what is passed, which distinguish launches of a kernel."""
        return self.grid, (*self.sizes, *self.dtypes)

    @property
    def total_us(self) -> float | None:
        """The time of all launches outside CUDA graphs; None if none was timed."""
        return None if self.us is None else self.us * (self.launches - self.captured)

    @property
    def measured(self) -> KernelTime | None:
        """The measured time with the speed of light of these launches."""
        if self.us is None:
            return None
        times = (self.us, self.us, self.us)
        return KernelTime.of(times, self.record, self.launches - self.captured, measured=True)

    @property
    def predicted(self) -> KernelTime | None:
        """The predicted time of all launches, each in a CUDA graph once; None if not predicted."""
        return KernelTime.predicted(self.record, self.launches)


@dataclass(frozen=True, slots=True)
class Part:
    """One process's launches of a kernel on one device."""

    pid: int
    device: int | None
    grids: tuple[GridLaunches, ...]


@dataclass(frozen=True, slots=True)
class TracedKernel:
    """A compiled kernel that was launched, with all its launches."""

    kernel: str
    hash: str
    """Triton's hash of its source, its target and its options."""
    launched_by: str
    """"triton", or "inductor" if torch.compile's own launcher is used."""
    options: Mapping[str, Any]
    """num_warps, num_stages, and other options with unusual values."""
    constexprs: Mapping[str, str]
    target: Target | None
    calculation: Calculation | None
    """How the kernel fills its GPU; None if that is not known, as `reason` explains."""
    reason: str | None
    gpu_source: str
    """How the GPU is known."""
    grids: tuple[GridLaunches, ...]
    """The launches of all processes, the most frequent grid first."""
    parts: tuple[Part, ...]
    """The launches of each process and device."""
    choices: int = 1
    """In a dry run, how many configurations the autotuner chooses from."""
    expected: bool = True
    """Whether it is launched, or predicted to be; false for slower configurations."""
    elsewhere: bool = False
    """Whether it was launched on another GPU than that of `calculation`."""
    action: Action | None = None
    """The best change for launches over its `main_grid`; None if nothing was tried."""
    lines: tuple[ScriptLine, ...] = field(default=(), repr=False, compare=False)
    """In a dry run, the launch lines that are expected to launch it."""

    @property
    def launches(self) -> int:
        """The program's own launches."""
        return sum(one.launches for one in self.grids)

    @property
    def tuning(self) -> int:
        """Further launches, by an autotuner."""
        return sum(one.tuning for one in self.grids)

    @property
    def captured(self) -> int:
        """Launches that were captured in a CUDA graph."""
        return sum(one.captured for one in self.grids)

    @property
    def samples(self) -> int:
        """Launches that were timed."""
        return sum(one.samples for one in self.grids)

    @property
    def total_us(self) -> float | None:
        """The time of all launches whose grid was timed; None if none was."""
        known = [one.total_us for one in self.grids if one.total_us is not None]
        return sum(known) if known else None

    @property
    def us(self) -> float | None:
        """The mean time of a launch."""
        timed = sum(one.launches - one.captured for one in self.grids if one.us is not None)
        return None if self.total_us is None or not timed else self.total_us / timed

    @property
    def predicted_total_us(self) -> float | None:
        """The time of all launches with a prediction; None if none has one."""
        found = KernelTime.total(one.predicted for one in self.grids)
        return None if found is None else found.us

    @property
    def longest(self) -> GridLaunches | None:
        """The launches over the grid that takes most time, or without times has most launches."""
        measured = any(one.us is not None for one in self.grids)

        def us(one: GridLaunches) -> float:
            time = one.measured if measured else one.predicted
            return 0.0 if time is None else time.us

        known = [one for one in self.grids if one.grid is not None]
        return max(known or self.grids, key=us, default=None)

    @property
    def main_grid(self) -> tuple[int, ...] | None:
        """The grid of these launches; None if it is not known."""
        return None if self.longest is None else self.longest.grid

    def plan(self, grid: tuple[int, ...] | None) -> LaunchPlan | None:
        """Return how the programs of *grid* fill the GPU, or None if that is not known."""
        if grid is None or self.calculation is None:
            return None
        return plan_launch(grid, Work(), self.calculation.resident_programs)

    @property
    def record(self) -> Record | None:
        """The first launch over the main grid; None if its work is not known."""
        return None if self.longest is None else self.longest.record

    @property
    def prediction(self) -> Prediction | None:
        """The predicted time of that launch; None if there is none."""
        return None if self.record is None else self.record.prediction

    @property
    def time(self) -> KernelTime | None:
        """The time of all launches that have one: measured if any was, else predicted.

        A time that was measured on another GPU than that of `calculation` has no speed of light.
        """
        measured = KernelTime.total(one.measured for one in self.grids)
        if measured is None:
            return KernelTime.total(one.predicted for one in self.grids)
        if self.elsewhere:
            return dataclasses.replace(measured, known=0, light_us=None, lost_us=None)
        return measured

    @property
    def saved_us(self) -> float | None:
        """What the action saves of the time of `longest`; None if nothing was tried."""
        if self.action is None or self.longest is None:
            return None
        time = self.longest.measured or self.longest.predicted
        return None if time is None else self.action.share * time.us

    def row(self) -> dict[str, Any]:
        """Return the kernel as one flat row of plain values, with the plan of its main grid."""
        found, prediction, record, time = self.calculation, self.prediction, self.record, self.time
        main = self.main_grid
        plan = self.plan(main)
        resources = None if found is None else found.resources
        held = None if found is None else found.occupancy
        return {
            "kernel": self.kernel,
            **self.options,
            **self.constexprs,
            "launches": self.launches,
            "tuning_launches": self.tuning,
            "captured_launches": self.captured,
            "grids": len({one.grid for one in self.grids}),
            "grid": None if main is None else "x".join(map(str, main)),
            "num_programs": None if plan is None else plan.num_programs,
            "resident_programs": None if plan is None else plan.resident_programs,
            **_filling(plan),
            "gpu": None if found is None else found.gpu.key,
            "n_regs": None if resources is None else resources.n_regs,
            "local_bytes": None if resources is None else resources.local_bytes,
            "shared": None if resources is None else resources.shared + resources.static_shared,
            "programs_per_multiprocessor": (
                None if held is None else held.programs_per_multiprocessor
            ),
            "occupancy": None if held is None else held.occupancy,
            "limiter": None if held is None else "+".join(held.limiters),
            **(
                {}
                if found is None
                else work_columns(None, None, found.gpu, None)
                if record is None
                else work_columns(record.counts, record.memory, found.gpu, record.executed)
            ),
            **time_columns(prediction),
            "us": self.us or None,
            "total_us": self.total_us,
            "predicted_total_us": self.predicted_total_us,
            "lost_us": None if time is None else time.lost_us,
            "lost_of": None if time is None or time.lost_us is None else time.basis,
            "action": None if self.action is None else self.action.change or None,
            "saved_us": self.saved_us,
            "advice": None if self.action is None else self.action.plain,
            "timed_launches": self.samples,
            "processes": len({part.pid for part in self.parts}),
            "devices": len({(part.pid, part.device) for part in self.parts}),
            "reason": self.reason,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything as nested plain values, separately for each process and device."""
        found = self.calculation
        return {
            **self.row(),
            "hash": self.hash,
            "launched_by": self.launched_by,
            "options": dict(self.options),
            "constexprs": dict(self.constexprs),
            "target": None if self.target is None else str(self.target),
            "gpu_source": self.gpu_source,
            "tried": None if self.action is None else self.action.to_dict(),
            "grids": [self._grid(one) for one in self.grids],
            "parts": [
                {**dataclasses.asdict(part), "grids": [self._grid(one) for one in part.grids]}
                for part in self.parts
            ],
            "calculation": None if found is None else found.to_dict(),
        }

    def _grid(self, one: GridLaunches) -> dict[str, Any]:
        plain = dataclasses.asdict(dataclasses.replace(one, record=None))
        light = None if one.record is None else one.record.speed_of_light
        prediction = None if one.record is None else one.record.prediction
        return {
            **{name: value for name, value in plain.items() if name != "record"},
            "sizes": ", ".join(one.sizes),
            **_filling(self.plan(one.grid)),
            "speed_of_light_us": None if light is None else light.exact_us,
            "predicted_us": None if prediction is None else prediction.us,
        }


def _filling(plan: LaunchPlan | None) -> dict[str, float | None]:
    """Return the waves of programs, and the fraction of the last that is full; None if unknown."""
    waves = tail = None
    if plan is not None:
        waves = plan.waves
        if plan.last_round and plan.resident_programs:
            tail = plan.last_round / plan.resident_programs
    return {"waves": waves, "tail": tail}


@dataclass(frozen=True, slots=True)
class GpuTime:
    """The activities of GPUs in a time, by torch.profiler; concurrent ones count separately."""

    span_us: float
    """From the start of the first activity to the end of the last."""
    busy_us: float
    """The part of that time in which the GPUs did anything."""
    triton_us: float
    """The time of Triton's kernels."""
    copies_us: float
    """The time of copies, and of setting memory."""
    others: Mapping[str, float]
    """The time of each other kernel by name."""

    @classmethod
    def total(cls, times: Iterable[GpuTime | None]) -> GpuTime | None:
        """Return the sum of *times*; None if there are none."""
        known = [one for one in times if one is not None]
        if not known:
            return None
        others: dict[str, float] = defaultdict(float)
        for name, us in (pair for one in known for pair in one.others.items()):
            others[name] += us
        names = ("span_us", "busy_us", "triton_us", "copies_us")
        sums = {name: sum(getattr(one, name) for one in known) for name in names}
        return cls(**sums, others=dict(others))


@dataclass(frozen=True, slots=True)
class Process:
    """A process that launched kernels."""

    pid: int
    argv: tuple[str, ...]
    triton: str | None
    torch: str | None
    rank: str | None
    ended: bool
    """Whether its record is complete; that of a killed process is not."""
    seconds: float | None
    """From Triton's import to its end, or to its last note."""
    launching_seconds: float | None
    """From its first launch to the last one that was looked at: one in 20, if times are taken."""
    replays: int
    """CUDA graphs replayed."""
    launches: int
    """Launches that were noted, including those of autotuners."""
    overhead_ns: float
    """The time that noting them took."""
    hot_ns: float | None
    """The time for noting a launch that is not a grid's first and is not timed."""
    held: int
    """How often the GPU was kept busy for 50 us, so that a launch could be timed."""
    empty_us: float
    """The time of two events around a kernel, which is subtracted from each launch's time."""
    errors: tuple[str, ...]
    """The errors in noting."""
    gpu_time: GpuTime | None = None
    """The activities of its GPUs; None without a profiler."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch in its place in the order of launches."""

    kernel: TracedKernel
    grid: GridLaunches
    """All launches of the kernel over its grid."""
    pid: int
    """The process that made the launch; 0 in a dry run."""


@dataclass(frozen=True, slots=True)
class Handover:
    """Tensors that one kernel writes and the next one reads right afterwards."""

    writer: str
    reader: str
    tensors: tuple[tuple[str, str], ...]
    """The name of each tensor in the writer and in the reader."""
    launches: int
    """How often this happens at most."""
    moved_bytes: int
    """The bytes that one fused kernel would not move each time: reading, and writing if no other
    kernel reads the tensor."""
    us: float
    """The most that fusing saves each time: the time of the saved bytes at the data sheet's peak
    bandwidth, and no more than the shorter of the two launches takes."""
    bound: str = ""
    """The unit that bounds the reader, if it is not device memory: then reading costs no time, and
    only writing counts."""
    others: tuple[str, ...] = ()
    """The kernels that are known to read some of it later, so that it is still written."""

    @property
    def total_us(self) -> float:
        """The time that fusing saves over all launches."""
        return self.launches * self.us


@dataclass(frozen=True, slots=True)
class Traced:
    """All that was launched, beginning with what loses most."""

    kernels: tuple[TracedKernel, ...]
    processes: tuple[Process, ...]
    recent: tuple[Launched, ...] = ()
    """The last launches of each process in order; none of a killed process."""
    untried: tuple[str, ...] = ()
    """Kernels for which nothing was tried, because the time was over."""
    handovers: tuple[Handover, ...] = ()
    """Tensors that kernels write and the next launch reads."""
    failed: tuple[str, ...] = ()
    """Kernels for which nothing could be tried: their texts are gone, or do not compile here."""
    minor: tuple[str, ...] = ()
    """Kernels for which nothing was tried, because they lose no more than WORTH_TRYING."""
    lesser: tuple[str, ...] = ()
    """Kernels for which nothing was tried, because enough others lose more."""

    @property
    def shown(self) -> tuple[TracedKernel, ...]:
        """The kernels that are launched, or expected to be, in `order`."""
        return order(one for one in self.kernels if one.expected)


def order(kernels: Iterable[TracedKernel]) -> tuple[TracedKernel, ...]:
    """Return *kernels* with those that lose most time first.

    Timed kernels come before others, and kernels whose lost time is not known come last. The rest
    is ordered by time, and then by the number of launches.
    """

    def rank(one: TracedKernel) -> tuple[Any, ...]:
        time = one.time
        if time is None:
            return False, False, 0.0, 0.0, one.launches
        lost = time.lost_us
        return time.measured, lost is not None, lost or 0.0, time.us, one.launches

    return tuple(sorted(kernels, key=rank, reverse=True))


def shortened(grid: Sequence[int]) -> tuple[int, ...]:
    """Return a grid without trailing dimensions of 1."""
    sizes = tuple(grid)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes = sizes[:-1]
    return sizes


def merged(grids: Iterable[GridLaunches]) -> tuple[GridLaunches, ...]:
    """Return one GridLaunches for each grid and sizes of *grids*, the most frequent first."""
    groups = defaultdict(list)
    for one in grids:
        groups[one.key].append(one)
    summed = []
    for (grid, _), group in groups.items():
        samples = sum(one.samples for one in group)
        # A launch is counted after it is timed.
        weights = [max(one.launches - one.captured, one.samples) for one in group if one.samples]
        times = [one.us or 0.0 for one in group if one.samples]
        us = sum(map(operator.mul, weights, times))
        summed.append(
            GridLaunches(
                grid,
                sum(one.launches for one in group),
                sum(one.tuning for one in group),
                sum(one.captured for one in group),
                samples,
                us / sum(weights) if weights else None,
                next((one.record for one in group if one.record is not None), None),
                group[0].sizes,
                group[0].dtypes,
                tuple(dict.fromkeys(place for one in group for place in one.places)),
            )
        )
    return tuple(sorted(summed, key=lambda one: (one.launches, one.tuning), reverse=True))


def counted_grids(grids: Iterable[GridLaunches]) -> list[GridLaunches]:
    """Return the MOST_COUNTED of *grids* with most time, or without times with most programs."""

    def work(one: GridLaunches) -> tuple[float, int]:
        return one.total_us or 0.0, one.launches * math.prod(one.grid or (0,))

    return sorted(grids, key=work, reverse=True)[:MOST_COUNTED]


def unusual(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with unusual values, which are worth showing."""
    return {
        one.name: options[one.name]
        for one in OPTIONS
        if one.name in options and options[one.name] not in one.usual
    }
