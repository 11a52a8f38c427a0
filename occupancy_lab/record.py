"""The record of one configuration on one GPU, from the problem to the prediction."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import Store, compile_resources, kernel_launch, triton_version
from occupancy_lab.compiling.compile import failure_of
from occupancy_lab.compiling.compiler import Compilation
from occupancy_lab.compiling.offline import default_options
from occupancy_lab.inputs import check_launch, check_problem
from occupancy_lab.launch import BoundLaunch, Dtype
from occupancy_lab.occupancy.calculator import Calculation, calculate, check_fits, check_together
from occupancy_lab.occupancy.planning import kernel_traffic, plan_grid, plan_launch
from occupancy_lab.throughput.predict import predict, predict_launch
from occupancy_lab.values import Status, Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from occupancy_lab.compiling.compiler import Compiler
    from occupancy_lab.errors import OccupancyLabError
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import NamedKernel
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.launch import Launch
    from occupancy_lab.values import (
        Config,
        LaunchPlan,
        Measurement,
        Occupancy,
        Prediction,
        Problem,
        Resources,
        Target,
        TutorialOccupancy,
    )


def name_columns(gpu: Gpu, kernel: Kernel, problem: Problem, config: Config) -> dict[str, Any]:
    """Return the columns that name a row: what was launched, how and on what."""
    return {
        "gpu": gpu.key,
        "target": gpu.target.name,
        "kernel": kernel.name,
        "rows": problem.rows,
        "cols": problem.cols,
        "dtype": problem.dtype,
        "BLOCK_SIZE": config.block_size,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that is known of one configuration on one GPU, before it is launched and after."""

    kernel: Kernel
    problem: Problem
    config: Config
    calculation: Calculation
    plan: LaunchPlan
    tutorial_plan: LaunchPlan
    """The launch as the tutorial's formula would have it."""
    traffic: Traffic | None
    """Bytes that the launch has to move; None where the kernel does not say."""
    triton_version: str
    prediction: Prediction | None
    """How long a launch should take; None where kernel, GPU or binary leaves it open."""
    measurement: Measurement | None = None
    """How long it took on the GPU at hand; None where it was not launched."""

    @property
    def gpu(self) -> Gpu:
        """The GPU that the kernel was compiled for."""
        return self.calculation.gpu

    @property
    def resources(self) -> Resources:
        """What one program takes."""
        return self.calculation.resources

    @property
    def occupancy(self) -> Occupancy:
        """The programs that fit a multiprocessor at once, and why no more do."""
        return self.calculation.occupancy

    @property
    def tutorial(self) -> TutorialOccupancy:
        """The programs that fit by the tutorial's formula."""
        return self.calculation.tutorial

    @property
    def miscount(self) -> int | None:
        """The tutorial's num_programs where its formula is wrong, and another number is launched.

        None where it is right, gives no number, or the GPU's size is not known.
        """
        tutorial = self.tutorial_plan.num_programs
        return None if tutorial == self.plan.num_programs else tutorial

    @property
    def tutorial_prediction(self) -> Prediction | None:
        """How long a launch with the tutorial's num_programs should take, where that is another.

        None where it is not, where that launch is refused, and where the GPU or the binary leaves
        it open.
        """
        if self.miscount is None or not self.runs(self.miscount):
            return None
        return self.prediction_of(self.tutorial_plan)

    def runs(self, num_programs: int) -> bool:
        """Tell whether *num_programs* can be launched: where programs wait for each other, not any.

        They have to be all that share a row, and no more than the GPU holds at once.
        """
        together, resident = self.kernel.together, self.plan.resident_programs
        if together is None or resident is None:
            return True
        return together(self.problem, self.config) <= num_programs <= resident

    def prediction_of(self, plan: LaunchPlan) -> Prediction | None:
        """Return how long a launch by *plan* should take; None where the GPU leaves it open."""
        return predict(
            self.kernel,
            self.problem,
            self.config,
            self.resources,
            self.occupancy,
            plan,
            self.gpu,
        )

    def with_measurement(self, measurement: Measurement) -> Record:
        """Return a copy that holds *measurement*."""
        return dataclasses.replace(self, measurement=measurement)

    def row(self) -> dict[str, Any]:
        """Return the record as one flat row of plain values; None is not known.

        `us`, `us_low` and `us_high` are there where it was measured.
        """
        resources, occupancy = self.resources, self.occupancy
        prediction, measurement = self.prediction, self.measurement
        return {
            **name_columns(self.gpu, self.kernel, self.problem, self.config),
            "n_regs": resources.n_regs,
            "n_spills": resources.n_spills,
            "shared": resources.shared,
            "programs_per_multiprocessor": occupancy.programs_per_multiprocessor,
            "limiter": "+".join(occupancy.limiters),
            "occupancy": occupancy.occupancy,
            "num_programs": self.plan.num_programs,
            "waves": self.plan.waves,
            "tutorial_programs": self.tutorial.programs_per_multiprocessor,
            "tutorial_num_programs": self.tutorial_plan.num_programs,
            "predicted_us": None if prediction is None else prediction.us,
            "predicted_gbs": None if prediction is None else prediction.gbs,
            "bound": None if prediction is None else prediction.bound,
            "basis": None if prediction is None else prediction.basis,
            "triton_version": self.triton_version,
            **({} if measurement is None else _times(measurement)),
        }

    def _moved(self) -> dict[str, float | None]:
        moved = self.traffic
        return {
            "read_bytes": None if moved is None else moved.read_bytes,
            "written_bytes": None if moved is None else moved.written_bytes,
            "floor_us": None if moved is None else moved.floor_us(self.gpu.bandwidth_gbs),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything of the record as nested plain values, for JSON."""
        return {
            **self.row(),
            **self.calculation.to_dict(),
            "bandwidth_gbs": self.gpu.bandwidth_gbs,
            "rounds": self.plan.rounds,
            "last_round": self.plan.last_round,
            **self._moved(),
            "prediction": _predicted(self.prediction),
            "tutorial_prediction": _predicted(self.tutorial_prediction),
            "measurement": None if self.measurement is None else self.measurement.to_dict(),
        }


def _times(measurement: Measurement) -> dict[str, float | None]:
    return {name: getattr(measurement, name) for name in ("us", "us_low", "us_high")}


def _predicted(prediction: Prediction | None) -> dict[str, Any] | None:
    if prediction is None:
        return None
    return {
        "us": prediction.us,
        "gbs": prediction.gbs,
        "share_of_copy": prediction.share_of_copy,
        "bound": prediction.bound,
        "parts": {part.name: part.us for part in prediction.parts},
        "basis": prediction.basis,
        "calibrated": prediction.calibrated,
        "error": prediction.error,
    }


def make_record(  # noqa: PLR0913 - the values that a record starts from
    kernel: Kernel,
    problem: Problem,
    config: Config,
    gpu: Gpu,
    store: Store,
    *,
    present: bool = False,
) -> Record:
    """Compile *kernel* for *gpu* in this process and work out how it will sit there.

    With *present* the GPU is here and Triton's own driver is used.

    Raises InputError for what cannot be asked, CompileError where Triton cannot compile it, and
    DoesNotFitError where the GPU holds not one program of it.
    """
    check_problem(problem)
    check_launch(kernel, problem, config, gpu)
    resources = compile_resources(kernel, problem, config, gpu.target, store, present=present)
    return record_of(kernel, problem, config, gpu, resources, triton=triton_version())


def compilation(
    named: NamedKernel, problem: Problem, config: Config, target: Target
) -> Compilation:
    """Return what a kernel is compiled as for *problem*, as *config* sets it."""
    name, kernel = named
    launch = kernel_launch(kernel, problem, config, target)
    return Compilation(kernel.function, launch, target, name, kernel.name)


def compile_record(
    named: NamedKernel, problem: Problem, config: Config, gpu: Gpu, compiler: Compiler
) -> Record:
    """Return the record of a kernel as *compiler* compiles it.

    Raises as `make_record` does.
    """
    check_launch(named.kernel, problem, config, gpu)
    resources = compiler.resources(compilation(named, problem, config, gpu.target))
    triton = compiler.environment.triton
    return record_of(named.kernel, problem, config, gpu, resources, triton=triton)


def record_of(  # noqa: PLR0913 - the values that a record is made of
    kernel: Kernel,
    problem: Problem,
    config: Config,
    gpu: Gpu,
    resources: Resources,
    *,
    triton: str,
) -> Record:
    """Return the record of *kernel* as the Triton of version *triton* compiled it to *resources*.

    Raises DoesNotFitError where the GPU holds not one program of it, or fewer than wait for each
    other.
    """
    calculation = calculate(resources, gpu)
    check_fits(calculation, config.num_stages)

    def plan(programs: int | None) -> LaunchPlan:
        return plan_launch(kernel, problem, config, programs, gpu.multiprocessors)

    fits = calculation.occupancy
    launch = plan(fits.programs_per_multiprocessor)
    check_together(kernel, problem, config, gpu, launch.resident_programs)
    return Record(
        kernel=kernel,
        problem=problem,
        config=config,
        calculation=calculation,
        plan=launch,
        tutorial_plan=plan(calculation.tutorial.programs_per_multiprocessor),
        traffic=kernel_traffic(kernel, problem),
        triton_version=triton,
        prediction=predict(kernel, problem, config, resources, fits, launch, gpu),
    )


def _launch_columns(bound: BoundLaunch, gpu: Gpu) -> dict[str, Any]:
    """Return the columns that name a launch of any kernel: on what it runs, and its settings."""
    constexprs = {name: bound.arguments[name] for name in bound.constexprs}
    named = {"gpu": gpu.key, "target": gpu.target.name, "kernel": bound.kernel}
    return {**named, **constexprs, **bound.options}


@dataclass(frozen=True, slots=True)
class LaunchRecord(BoundLaunch):
    """Everything that is known of one launch of any kernel on one GPU before it is launched."""

    usual_options: Mapping[str, Any]
    """Every compiler option for this GPU with the value that it has unasked."""
    calculation: Calculation
    triton_version: str
    prediction: Prediction | None = None
    """How long the launch should take; None where its bytes, or what it does, leave it open."""
    least_us: float | None = None
    """The bytes that are known over the data sheet's bandwidth, us; None where one is not known."""

    @property
    def gpu(self) -> Gpu:
        """The GPU that the kernel was compiled for."""
        return self.calculation.gpu

    @property
    def title(self) -> str:
        """What the GPU is called."""
        return self.gpu.title

    @property
    def plan(self) -> LaunchPlan | None:
        """How the grid is spread over the GPU; None where the grid is not known."""
        if self.launch.grid is None:
            return None
        return plan_grid(self.launch.grid, self.calculation.resident_programs)

    @property
    def traffic(self) -> Traffic | None:
        """Bytes that the launch has to move; None where nobody said how many each way."""
        read, written = self.launch.read_bytes, self.launch.written_bytes
        return None if read is None or written is None else Traffic(read, written)

    @property
    def known_bytes(self) -> int | None:
        """Bytes that the launch moves at the least; None where nobody said any."""
        known = [self.launch.read_bytes, self.launch.written_bytes]
        given = [number for number in known if number is not None]
        return sum(given) if given else None

    def row(self) -> dict[str, Any]:
        """Return the record as one flat row of plain values; None is not known."""
        resources, occupancy = self.calculation.resources, self.calculation.occupancy
        plan = self.plan
        return {
            **_launch_columns(self, self.gpu),
            "n_regs": resources.n_regs,
            "n_spills": resources.n_spills,
            "local_bytes": resources.local_bytes,
            "shared": resources.shared,
            "static_shared": resources.static_shared,
            "status": Status.OK.value,
            "launched_warps": resources.num_warps,
            "programs_per_multiprocessor": occupancy.programs_per_multiprocessor,
            "limiter": "+".join(occupancy.limiters),
            "occupancy": occupancy.occupancy,
            "num_programs": self.launch.num_programs,
            "waves": None if plan is None else plan.waves,
            "predicted_us": None if self.prediction is None else self.prediction.us,
            "least_us": self.least_us,
            "triton_version": self.triton_version,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything of the record as nested plain values, for JSON."""
        grid = self.launch.grid
        return {
            **{name: _json_value(value) for name, value in self.row().items()},
            "arguments": {
                name: self.launch.typical.get(name, _json_value(value))
                for name, value in self.arguments.items()
            },
            "grid": None if grid is None else list(grid),
            **self.calculation.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Untried(BoundLaunch):
    """A launch on a GPU that has no record, and why."""

    gpu: Gpu
    status: Status
    reason: str

    def row(self) -> dict[str, Any]:
        """Return the columns that name the launch, and why there are no others."""
        named = _launch_columns(self, self.gpu)
        return {**named, "status": self.status.value, "reason": self.reason}

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return {name: _json_value(value) for name, value in self.row().items()}


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, Dtype):
        return dataclasses.asdict(value)  # type: ignore[arg-type] # it is an instance
    return str(value)


def untried(function: Any, launch: Launch, gpu: Gpu, error: OccupancyLabError) -> Untried:
    """Return *launch* of *function* as one that has no record on *gpu* because of *error*."""
    failure = failure_of(error)
    return Untried.of(function, launch, gpu=gpu, status=failure.status, reason=failure.reason)


def launch_record(
    function: Any, launch: Launch, gpu: Gpu, resources: Resources, *, triton: str
) -> LaunchRecord:
    """Return the record of *launch* as the Triton of version *triton* compiled it to *resources*.

    Raises DoesNotFitError where the GPU holds not one program of it.
    """
    calculation = calculate(resources, gpu)
    check_fits(calculation)
    record = LaunchRecord.of(
        function,
        launch,
        usual_options=default_options(gpu.target),
        calculation=calculation,
        triton_version=triton,
    )
    if not record.known_bytes:
        return record
    prediction = None
    if record.traffic is not None and record.plan is not None:
        fits = calculation.occupancy
        prediction = predict_launch(resources, record.traffic, fits, record.plan, gpu)
    least = Traffic(record.known_bytes, 0).floor_us(gpu.bandwidth_gbs)
    return dataclasses.replace(record, prediction=prediction, least_us=least)
