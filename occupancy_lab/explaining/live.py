"""What only a launch can tell: measurements taken now, and those recorded before."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from occupancy_lab.errors import InputError
from occupancy_lab.explaining.case import Recorded
from occupancy_lab.kernel import Grid, kernel_names
from occupancy_lab.occupancy import occupancy
from occupancy_lab.occupancy.planning import plan_launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from occupancy_lab.explaining.case import Case
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.record import Record
    from occupancy_lab.values import Config, Measurement

ROW_KERNELS = {"softmax": "softmax_row"}
"""By a persistent kernel's name: the one that does the same with one program a row."""


def gpu_to_measure(gpus: Sequence[Gpu]) -> Gpu:
    """Return the one of *gpus* that is the first GPU of this machine.

    Raises InputError where none is, or torch cannot use it.
    """
    from occupancy_lab.measuring.process import chosen_devices

    here, _ = chosen_devices("--measure")
    for gpu in gpus:
        if (gpu.key, gpu.multiprocessors) == (here.key, here.multiprocessors):
            return gpu
    asked = " and ".join(gpu.title for gpu in gpus)
    msg = f"--measure needs the GPU here, which is {here.title}; asked for is {asked}"
    raise InputError(msg)


def with_times(case: Case, kernel: str, *, measure: bool) -> Case:
    """Return *case* with what was recorded of its launch, and with *measure* timed on the GPU here.

    *kernel* is what `load_kernel` finds its kernel by; only the lab's own were recorded, and one
    of a file may have the name of one of them.
    """
    if kernel in kernel_names():
        case = dataclasses.replace(case, recorded=_recorded(case))
    if not measure:
        return case
    return dataclasses.replace(case, record=_measured(case.record, kernel))


def _measured(record: Record, kernel: str) -> Record:
    from occupancy_lab.measuring.process import TimedLaunch, measure_launches

    launch = TimedLaunch(kernel, record.config, record.plan.num_programs or 1)
    (measurement,) = measure_launches([(record.problem, launch)])
    return record.with_measurement(measurement)


def _recorded(case: Case) -> Recorded:
    from occupancy_lab.measuring.recorded import recorded_as_compiled, recorded_measurement

    record = case.record
    name, config, plan = record.kernel.name, record.config, record.plan

    def find(kernel: str, config: Config, programs: int | None) -> Measurement | None:
        return recorded_measurement(record.gpu.key, kernel, record.problem, config, programs)

    if record.kernel.grid is not Grid.PERSISTENT:
        return Recorded(find(name, config, None))
    single = dataclasses.replace(config, num_stages=1)
    held = occupancy(case.single_stage, case.architecture).programs_per_multiprocessor
    single_plan = plan_launch(
        record.kernel, record.problem, single, held, record.gpu.multiprocessors
    )
    rows, tutorial = ROW_KERNELS.get(name), record.miscount
    launch = find(name, config, plan.num_programs)
    key = record.gpu.key
    return Recorded(
        launch=launch,
        single_stage=find(name, single, single_plan.num_programs),
        row_programs=None if rows is None else find(rows, single, None),
        tutorial=None if tutorial is None else find(name, config, tutorial),
        as_compiled=None if launch else recorded_as_compiled(key, name, record.problem, config),
    )
