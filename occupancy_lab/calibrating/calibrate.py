"""A calibration of the GPU at hand: compile, time, and fit the constants of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.calibrating import kernels
from occupancy_lab.calibrating.fit import fit_constants
from occupancy_lab.calibrating.grid import launches
from occupancy_lab.errors import DriverError
from occupancy_lab.evaluating.score import errors
from occupancy_lab.kernel import load_kernel
from occupancy_lab.sweeping.grid import run_tasks
from occupancy_lab.sweeping.measured import measure_table
from occupancy_lab.sweeping.task import Task
from occupancy_lab.throughput.constants import Calibration
from occupancy_lab.throughput.features import stack
from occupancy_lab.throughput.model import times
from occupancy_lab.throughput.table import row_features

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from occupancy_lab.evaluating.score import Errors
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.throughput.constants import Constants
    from occupancy_lab.throughput.features import Features

RUNS = 18


def tasks_of(gpu: Gpu) -> list[Task]:
    """Return what is launched to calibrate *gpu*."""
    found = []
    for name, problem, config in launches():
        kernel_name = _kernel_name(name)
        found.append(Task(kernel_name, load_kernel(kernel_name), problem, config, gpu))
    return found


def _kernel_name(name: str) -> str:
    """Return what `load_kernel` finds the kernel called *name* by."""
    return f"{kernels.__file__}:{name}" if name in kernels.KERNELS else name


def time_calibration(
    gpu: Gpu,
    *,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    journal: Journal | None = None,
) -> pd.DataFrame:
    """Launch every micro-benchmark on *gpu*, which is here, and give a table with a row each.

    Raises UnfinishedError, with the table of what is finished, on Ctrl-C.
    """
    tasks = tasks_of(gpu)
    table = run_tasks(tasks, jobs=jobs, progress=progress)
    return measure_table(table, tasks, runs=RUNS, progress=progress, journal=journal)


def calibration_of(table: pd.DataFrame, gpu: Gpu) -> Calibration:
    """Return the constants that the rows of `time_calibration` show for *gpu*.

    Raises DriverError where no row was measured.
    """
    found = _timed(table, gpu)
    empty = table.loc[table["kernel"] == kernels.EMPTY.name, "us"]
    if not found or empty.empty or gpu.bandwidth_gbs is None:
        msg = f"{gpu.title} cannot be calibrated: none of its launches gave a time"
        raise DriverError(msg)
    constants = fit_constants(
        stack([launch for launch, _ in found]),
        [us for _, us in found],
        launch_us=float(empty.iloc[0]),
        peak_gbs=gpu.bandwidth_gbs,
    )
    first = table[table["measured"] == "measured"].iloc[0]
    return Calibration(
        constants=constants,
        gpu=gpu.key,
        device=str(first["device"]),
        date=str(first["date"]),
        torch=str(first["torch"]),
        triton=str(first["triton"]),
    )


def fit_errors(table: pd.DataFrame, gpu: Gpu, constants: Constants) -> Errors:
    """Return how far the model with *constants* is off the rows that they were fitted to."""
    import pandas as pd

    found = _timed(table, gpu)
    fitted = times(stack([launch for launch, _ in found]), constants).total
    return errors(pd.Series(fitted), pd.Series([us for _, us in found]))


def _timed(table: pd.DataFrame, gpu: Gpu) -> list[tuple[Features, float]]:
    """Return the features and the measured us of every row but the empty kernel's."""
    timed = table[(table["measured"] == "measured") & (table["kernel"] != kernels.EMPTY.name)]
    found = []
    for row in timed.to_dict("records"):
        launch = row_features(row, load_kernel(_kernel_name(str(row["kernel"]))), gpu)
        if launch is not None:
            found.append((launch, float(row["us"])))
    return found
