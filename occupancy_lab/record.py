"""The record of a launch on a GPU: the request, its compiled resources, and what follows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from occupancy_lab.arguments import Dtype
from occupancy_lab.assumed import Assumption
from occupancy_lab.compiling.texts import Texts
from occupancy_lab.gpus import Gpu
from occupancy_lab.launch import BoundLaunch
from occupancy_lab.occupancy.calculator import Calculation, plan_launch
from occupancy_lab.options import KNOBS
from occupancy_lab.prediction import Prediction, lost_columns, time_columns
from occupancy_lab.table.columns import RESOURCES
from occupancy_lab.throughput.demand import Doing, l1_hits
from occupancy_lab.throughput.l1_cache import l1_share
from occupancy_lab.throughput.launch_time import beside_copy, predict_launch
from occupancy_lab.values import (
    Config,
    Failure,
    LaunchPlan,
    Measurement,
    Occupancy,
    Problem,
    Resources,
    Status,
    Traffic,
    TutorialOccupancy,
    Work,
)
from occupancy_lab.work.counting import Counted, Counting, Doubt, doubts
from occupancy_lab.work.counts import Counts
from occupancy_lab.work.execution import Executed
from occupancy_lab.work.memory import Memory, local_memory, moved, repeated
from occupancy_lab.work.speed_of_light import (
    MEMORY,
    SpeedOfLight,
    intensity,
    speed_of_light,
    work_columns,
)

if TYPE_CHECKING:
    from occupancy_lab.asked import Asked, Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named(BoundLaunch):
    """A launch on a GPU, with the columns that identify it in a table."""

    gpu: Gpu
    matrix: Matrix | None = None
    """The matrix from which the launch was made; None for other launches."""

    def __repr__(self) -> str:
        """Return the kernel and the GPU in one line: the fields would take pages."""
        return f"<{type(self).__name__}: {self.kernel} on {self.title}>"

    @property
    def title(self) -> str:
        """The GPU's name."""
        return self.gpu.title

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the launch by name: a matrix's knobs, or constexprs and options."""
        if self.matrix is not None:
            return self.matrix.settings
        return {**{name: self.arguments[name] for name in self.constexprs}, **self.options}

    def named(self) -> dict[str, Any]:
        """Return the columns that identify the launch: its GPU, its kernel and its settings."""
        where = {"gpu": self.gpu.key, "target": self.gpu.target.name}
        if self.matrix is not None:
            return {**where, **self.matrix.named()}
        return {**where, "kernel": self.kernel, **self.settings}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Failed(_Named):
    """A launch that has no record on a GPU, and why."""

    prediction: ClassVar[None] = None
    """A failed launch takes no time."""
    failure: Failure
    triton_version: str
    resources: Resources | None = None
    """The resources of one program; None if it was not compiled."""

    def row(self) -> dict[str, Any]:
        """Return the columns that identify the launch, the failure, and its resources."""
        return {
            **self.named(),
            "status": self.failure.status.value,
            "reason": self.failure.reason,
            **({} if self.resources is None else _taken(self.resources)),
            "triton_version": self.triton_version,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the failure as plain values, for JSON."""
        return {name: _json_value(value) for name, value in self.row().items()}


@dataclass(frozen=True, kw_only=True, repr=False)
class Record(_Named):
    """Everything that is known of a launch on a GPU, before and after launching it."""

    usual_options: Mapping[str, Any]
    """Every compiler option for this GPU with its default value."""
    calculation: Calculation
    plan: LaunchPlan | None
    """How the launch is spread over the GPU; None if the grid is not known."""
    triton_version: str
    prediction: Prediction | None = None
    """The predicted time; None if there is none, as for a launch that is not counted."""
    with_others: Mapping[int, Prediction] = field(default_factory=dict)
    """The predicted times for other numbers of programs, those of `other_launches`."""
    counts: Counts | None = None
    """The counted work; None if it was not or cannot be counted."""
    why_not_counted: str | None = None
    """Why there are no counts, if they were asked for."""
    executed: Executed | None = None
    """The counts of what the machine code executes; None if they are not known."""
    why_not_executed: str | None = None
    """Why these are not known for a launch with counted work."""
    at_limits: tuple[Record, ...] = ()
    """The launch with the fewest and with the most trips of its loops, as `Counted` has them."""
    measurement: Measurement | None = None
    """The measured time on this machine's GPU; None if it was not launched."""

    @property
    def problem(self) -> Problem:
        """The matrix from which a kernel made it."""
        return matrix_of(self).problem

    @property
    def config(self) -> Config:
        """The configuration of a matrix's kernel."""
        return matrix_of(self).config

    @property
    def resources(self) -> Resources:
        """The resources of one program."""
        return self.calculation.resources

    @property
    def occupancy(self) -> Occupancy:
        """The programs that fit a multiprocessor at once, and the limits."""
        return self.calculation.occupancy

    @property
    def tutorial(self) -> TutorialOccupancy:
        """The programs that fit by the tutorial's formula."""
        return self.calculation.tutorial

    @property
    def num_programs(self) -> int | None:
        """Programs launched; None if that is not known."""
        return None if self.plan is None else self.plan.num_programs

    @property
    def num_stages(self) -> int:
        """Stages of the loop, as asked for or Triton's default."""
        return int(self.options.get("num_stages", self.usual_options.get("num_stages", 1)))

    @property
    def num_warps(self) -> int:
        """Warps per program, as asked for or Triton's default."""
        return int(self.options.get("num_warps", self.usual_options.get("num_warps", 4)))

    @property
    def traffic(self) -> Traffic | None:
        """Bytes that the launch must move; None unless both directions were given."""
        return self.launch.work.traffic

    @functools.cached_property
    def memory(self) -> Memory | None:
        """The bytes that the launch moves, given or counted, less a warm cache's hits; or None."""
        return self._memory_of(self.resources)

    def _memory_of(self, resources: Resources) -> Memory | None:
        work = self.launch.work
        if self.matrix is not None and self.counts is not None:
            work = Work()  # the kernel's bytes are the whole matrix's, whatever a cache serves
        resident = None if self.plan is None else self.plan.resident_programs
        local, hits = None, 0.0
        if self.counts is not None:
            given = (self.executed, resources)
            lanes = self.gpu.architecture.warp_size
            local = local_memory(*given, self.counts.programs, resident, lanes=lanes)
            fit = self.occupancy.programs_per_multiprocessor
            hits = l1_hits(self.counts, *given, fit, self.gpu)
        found = moved(self.counts, work, self.gpu, local, hits)
        if found is None or not self.launch.warm:
            return found
        return repeated(found, self.counts, self.gpu)

    @functools.cached_property
    def speed_of_light(self) -> SpeedOfLight | None:
        """The least time that the bytes and FLOPs allow; None if neither is known."""
        memory = self.memory
        return None if memory is None else speed_of_light(self.counts, memory, self.gpu)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """The counted numbers in which the first text and the machine code differ."""
        return doubts(self.counts, self.executed)

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte of device memory; None if either is not known."""
        memory = self.memory
        return None if self.counts is None or memory is None else intensity(self.counts, memory)

    @property
    def least_us(self) -> float | None:
        """The known bytes over the data sheet's bandwidth, us; None if not known exactly."""
        light = self.speed_of_light
        return None if light is None or MEMORY in light.open else light.part_us(MEMORY)

    def plan_with(self, programs_per_multiprocessor: int | None) -> LaunchPlan | None:
        """Return the plan with another number of programs resident on a multiprocessor."""
        resident = None
        if programs_per_multiprocessor is not None:
            resident = self.calculation.resident_with(programs_per_multiprocessor)
        return plan_launch(self.launch.grid, self.launch.work, resident)

    @property
    def tutorial_plan(self) -> LaunchPlan | None:
        """The plan by the tutorial's formula; None if the grid is not known."""
        return self.plan_with(self.tutorial.programs_per_multiprocessor)

    @property
    def miscount(self) -> int | None:
        """The tutorial's num_programs if it is wrong; None if it is right or not known."""
        tutorial, plan = self.tutorial_plan, self.plan
        if tutorial is None or plan is None or tutorial.num_programs == plan.num_programs:
            return None
        return tutorial.num_programs

    @property
    def tutorial_prediction(self) -> Prediction | None:
        """The time of a launch of `miscount` programs; None if refused or not known."""
        return None if self.miscount is None else self.with_others.get(self.miscount)

    @property
    def as_tutorial(self) -> Prediction | None:
        """The time of a launch of the tutorial's num_programs, right or wrong; else None."""
        plan = self.tutorial_plan
        if plan is None or plan.num_programs is None:
            return None
        return self.prediction if self.miscount is None else self.tutorial_prediction

    @property
    def with_more(self) -> Prediction | None:
        """The predicted time if the next number of programs fit; None if there is none."""
        more = self.calculation.next_programs
        if more is None:
            return None
        if self.plan is None or not self.plan.is_persistent:
            return self.time_with(more)
        programs = self._programs_with(more)
        return None if programs is None else self.with_others.get(programs)

    def other_launches(self) -> dict[int, int]:
        """Return the numbers of programs to compare, with how many then fit a multiprocessor.

        They apply to persistent launches: the tutorial's number, and the one after the next step.
        """
        found: dict[int, int] = {}
        if self.plan is None or not self.plan.is_persistent:
            return found
        more, miscount = self.calculation.next_programs, self.miscount
        if more is not None and (programs := self._programs_with(more)) is not None:
            found[programs] = more
        if miscount is not None and self.runs(miscount):
            found[miscount] = self.occupancy.programs_per_multiprocessor
        return found

    def _programs_with(self, fit: int) -> int | None:
        plan = self.plan_with(fit)
        return None if plan is None else plan.num_programs

    def runs(self, num_programs: int) -> bool:
        """Return whether *num_programs* can be launched: waiting for each other limits it.

        They must include all programs that share a row, and be no more than the GPU holds at once.
        """
        together = self.launch.work.together
        resident = None if self.plan is None else self.plan.resident_programs
        if together is None or resident is None:
            return True
        return together <= num_programs <= resident

    def counting(
        self,
        texts: Texts | None,
        assume: Mapping[str, Assumption] = MappingProxyType({}),
        num_programs: int | None = None,
    ) -> Counting:
        """Return the input for counting the launch, with its kernel's *texts*.

        With *num_programs* it is a launch of so many programs, as in `other_launches` or as they
        fit.
        """
        grid, resident, fit = self.launch.grid, None, None
        if self.plan is not None:
            resident = self.plan.resident_programs
            if grid is None and self.plan.num_programs is not None:
                grid = (self.plan.num_programs,)
        if num_programs is not None:
            grid = (num_programs,)
            fit = self.occupancy.programs_per_multiprocessor
            fit = self.other_launches().get(num_programs, fit)
            resident = self.calculation.resident_with(fit)
        room = l1_share(self.calculation, grid, fit)
        return Counting(texts, self, grid, assume, resident, room)

    def with_counts(
        self, found: Counted, others: Mapping[int, Counted] = MappingProxyType({})
    ) -> Record:
        """Return a copy with the counts and the time, also those of `other_launches`."""
        fits = self.other_launches() if others else {}
        times = {
            number: self._counted(one).time_with(fits[number]) for number, one in others.items()
        }
        with_others = {number: time for number, time in times.items() if time is not None}
        return dataclasses.replace(self._counted(found), with_others=with_others).with_time()

    def _counted(self, found: Counted) -> Record:
        return dataclasses.replace(
            self,
            counts=found.counts,
            why_not_counted=found.why_not,
            executed=found.executed,
            why_not_executed=found.why_not_executed,
            at_limits=tuple(map(self._counted, found.at_limits)),
        )

    def with_time(self) -> Record:
        """Return a copy with the time that follows from the counts."""
        timed = self.time_with(self.occupancy.programs_per_multiprocessor)
        traffic = None if self.matrix is None else self.traffic
        if timed is not None and traffic is not None:
            timed = beside_copy(timed, traffic.total_bytes, self.gpu)
        return dataclasses.replace(self, prediction=timed)

    def time_with(self, programs: int, *, spills: bool = True) -> Prediction | None:
        """Return the predicted time if *programs* fit a multiprocessor.

        Without *spills* it is the time without local memory, for kernels that need it only for
        unusual numbers. If trips of loops depend on data, it is the time of the most that the
        source allows, and its range begins with that of the fewest; likewise if addresses of stores
        are not known, with that of stores in order. Return None if the launch is not counted, or if
        its counts leave the time open.
        """
        if self.counts is None:
            return None
        if self.at_limits:
            least, most = (one.time_with(programs, spills=spills) for one in self.at_limits)
            if least is None or most is None:
                return None
            return most.down_to(least, "with the most trips of its loops")
        resources, memory = self.resources, self.memory
        program = None if self.executed is None else self.executed.program
        has_local = spills and (program is None or program.has_local)
        if resources.local_bytes and not has_local:
            resources = resources.replace(local_bytes=0)
            memory = self._memory_of(resources)
        doing = Doing(
            *(self.counts, self.executed, memory, resources, programs, self.gpu),
            num_stages=self.num_stages,
            together=self.launch.work.together,
            in_program=self.launch.in_program,
        )
        found, in_order = predict_launch(doing), self.counts.in_order
        if found is None or in_order is None:
            return found
        least = dataclasses.replace(self, counts=in_order).time_with(programs, spills=spills)
        assert least is not None  # noqa: S101 - what the other lacks, it lacks too
        return found.down_to(least, "with scattered stores where addresses are not known")

    @property
    def as_chosen(self) -> Record:
        """The record with the range of the fastest of several launches."""
        found = self.prediction
        return self if found is None else dataclasses.replace(self, prediction=found.as_chosen)

    def again(self) -> Record:
        """Return the record of the same launch repeated, which finds in the cache what fits."""
        launch = dataclasses.replace(self.launch, warm=True)
        limits = tuple(dataclasses.replace(one, launch=launch) for one in self.at_limits)
        return dataclasses.replace(self, launch=launch, at_limits=limits).with_time()

    def row(self) -> dict[str, Any]:
        """Return the record as one flat row of plain values; None means not known.

        `us`, `us_low` and `us_high` are there if it was measured, `warm` if it is warm, and the
        tutorial's columns for a matrix's kernel.
        """
        resources, occupancy, plan = self.resources, self.occupancy, self.plan
        prediction, measurement = self.prediction, self.measurement
        light = self.speed_of_light
        us = None if measurement is None else measurement.us
        predicted_us = None if prediction is None else prediction.us
        tutorial: dict[str, Any] = {}
        if self.matrix is not None:
            launched = self.tutorial_plan
            tutorial = {
                "tutorial_programs": self.tutorial.programs_per_multiprocessor,
                "tutorial_num_programs": None if launched is None else launched.num_programs,
            }
        times = ("us", "us_low", "us_high")
        return {
            **self.named(),
            "status": Status.OK.value,
            "reason": None,
            **_taken(resources),
            "launched_warps": resources.num_warps,
            "programs_per_multiprocessor": occupancy.programs_per_multiprocessor,
            "limiter": "+".join(occupancy.limiters),
            "occupancy": occupancy.occupancy,
            "num_programs": self.num_programs,
            "waves": None if plan is None else plan.waves,
            **tutorial,
            **time_columns(prediction),
            "predicted_gbs": None if prediction is None else prediction.gbs,
            "basis": None if prediction is None else prediction.basis,
            "least_us": self.least_us,
            **work_columns(self.counts, self.memory, self.gpu, self.executed),
            **lost_columns(us, predicted_us, None if light is None else light.most_us),
            "triton_version": self.triton_version,
            **({"warm": True} if self.launch.warm else {}),
            **({name: getattr(measurement, name) for name in times} if measurement else {}),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything of the record as nested plain values, for JSON."""
        grid, plan, work = self.launch.grid, self.plan, self.launch.work
        measurement, tutorial = self.measurement, self.tutorial_prediction
        light = self.speed_of_light
        return {
            **{name: _json_value(value) for name, value in self.row().items()},
            **{knob: getattr(self, knob) for knob in KNOBS},
            "arguments": {
                name: self.launch.typical.get(name, _json_value(value))
                for name, value in self.arguments.items()
            },
            "grid": None if grid is None else list(grid),
            **self.calculation.to_dict(),
            "bandwidth_gbs": self.gpu.bandwidth_gbs,
            "rounds": None if plan is None else plan.rounds,
            "last_round": None if plan is None else plan.last_round,
            "read_bytes": work.read_bytes,
            "written_bytes": work.written_bytes,
            "speed_of_light": None if light is None else light.to_dict(),
            "counts": None if self.counts is None else self.counts.to_dict(),
            "why_not_counted": self.why_not_counted,
            "executed": None if self.executed is None else self.executed.to_dict(),
            "why_not_executed": self.why_not_executed,
            "doubts": [dataclasses.asdict(one) for one in self.doubts],
            "prediction": None if self.prediction is None else self.prediction.to_dict(),
            "tutorial_prediction": None if tutorial is None else tutorial.to_dict(),
            "measurement": None if measurement is None else measurement.to_dict(),
        }


def matrix_of(launch: Asked | Record) -> Matrix:
    """Return the matrix from which *launch* was made; the caller knows that there is one."""
    assert launch.matrix is not None  # noqa: S101 - said above
    return launch.matrix


class OnGpu(Protocol):
    """A launch on a GPU, or a result of one."""

    @property
    def gpu(self) -> Gpu:
        """The launch's GPU."""


Run = TypeVar("Run", bound=OnGpu)


def by_gpu(runs: Iterable[Run]) -> list[list[Run]]:
    """Return the launches grouped by GPU, in order."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.gpu.key, []).append(run)
    return [*found.values()]


def _taken(resources: Resources) -> dict[str, Any]:
    return {name: getattr(resources, name) for name in RESOURCES}


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, Dtype):
        return dataclasses.asdict(value)  # type: ignore[arg-type] # it is an instance
    return str(value)
