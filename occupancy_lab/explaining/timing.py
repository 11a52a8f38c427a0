"""A predicted time, and what it would be with one thing changed: what each choice is worth."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from occupancy_lab.kernel import Grid
from occupancy_lab.occupancy import occupancy
from occupancy_lab.occupancy.planning import plan_launch
from occupancy_lab.throughput.predict import predict

if TYPE_CHECKING:
    from occupancy_lab.explaining.case import Case
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.values import Config, Occupancy, Prediction, Resources


@dataclass(frozen=True, slots=True)
class Timing:
    """A case with its prediction, and the predictions of launches that differ in one thing."""

    case: Case
    prediction: Prediction
    more: int
    """Programs a multiprocessor at the next step of what limits them; one more where none is."""
    more_programs: Prediction | None
    """It held so many; None where there is no work for them."""
    one_fewer: Prediction | None
    """It held a program fewer; None where it holds one only."""
    single_stage: Prediction | None
    """num_stages 1; None where that is what it has, or there is no loop."""
    row_programs: Prediction | None
    """One program a row, the loop opened; None where there is no loop."""
    tutorial: Prediction | None
    """The tutorial's num_programs; None where that is what is launched, or its formula fails."""

    @property
    def title(self) -> str:
        """What the GPU is called."""
        return self.case.title

    def change(self, other: Prediction) -> float:
        """Return how much longer than predicted *other* takes, as a share: -0.1 is 10% less."""
        return other.us / self.prediction.us - 1


def timing(case: Case) -> Timing | None:
    """Return the timing of *case*; None where there is no prediction."""
    prediction = case.record.prediction
    if prediction is None:
        return None
    held = case.record.occupancy.programs_per_multiprocessor
    more = case.calculation.next_programs or held + 1
    return Timing(
        case,
        prediction,
        more,
        more_programs=None if all_at_once(case) else _with_programs(case, more),
        one_fewer=_with_programs(case, held - 1) if held > 1 else None,
        single_stage=_with_single_stage(case),
        row_programs=_with_row_programs(case),
        tutorial=case.record.tutorial_prediction,
    )


def all_at_once(case: Case) -> bool:
    """Tell whether every row (or block) has a program from the start."""
    plan = case.record.plan
    return plan.resident_programs is not None and plan.resident_programs >= plan.work


def _with_programs(case: Case, programs: int) -> Prediction | None:
    record = case.record
    held = dataclasses.replace(record.occupancy, programs_per_multiprocessor=programs)
    return _predicted(case, record.kernel, record.config, record.resources, held)


def _with_single_stage(case: Case) -> Prediction | None:
    kernel, config = case.record.kernel, case.record.config
    if kernel.grid is not Grid.PERSISTENT or config.num_stages == 1:
        return None
    single = dataclasses.replace(config, num_stages=1)
    return _predicted(case, kernel, single, case.single_stage)


def _with_row_programs(case: Case) -> Prediction | None:
    kernel, without_loop = case.record.kernel, opened(case.single_stage)
    if kernel.grid is not Grid.PERSISTENT or without_loop is None:
        return None
    single = dataclasses.replace(case.record.config, num_stages=1)
    return _predicted(case, dataclasses.replace(kernel, grid=Grid.ROWS), single, without_loop)


def opened(resources: Resources) -> Resources | None:
    """Return what a kernel takes without its loop: one pass, and half of what is around the loop.

    The other half sets the loop up. None where the instructions are not known or there is no loop.
    """
    around, in_loop = resources.instructions, resources.loop_instructions
    if around is None or in_loop is None:
        return None
    return resources.replace(instructions=in_loop + around // 2, loop_instructions=None)


def _predicted(
    case: Case,
    kernel: Kernel,
    config: Config,
    resources: Resources,
    held: Occupancy | None = None,
) -> Prediction | None:
    """Predict a launch on the problem and the GPU of *case*, as many programs as fit or *held*."""
    problem, gpu = case.record.problem, case.record.gpu
    held = held or occupancy(resources, gpu.architecture)
    programs = held.programs_per_multiprocessor
    if programs == 0:
        return None
    plan = plan_launch(kernel, problem, config, programs, gpu.multiprocessors)
    return predict(kernel, problem, config, resources, held, plan, gpu)
