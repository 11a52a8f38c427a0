"""A calibration of the GPU at hand: time launches, fit the constants of the model, keep them.

What each unit does is measured too, and shown beside them.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.asked import ask
from occupancy_lab.calibrating import kernels
from occupancy_lab.calibrating.units import measure_units
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import DriverError
from occupancy_lab.evaluating.score import time_errors
from occupancy_lab.files import refused
from occupancy_lab.inputs import NamedKernel, next_power_of_two
from occupancy_lab.kernel import load_kernel, own_kernel
from occupancy_lab.measuring.process import chosen_devices
from occupancy_lab.sweeping.grid import NUM_WARPS, run_tasks
from occupancy_lab.sweeping.measured import measure_table
from occupancy_lab.text.document import Answer, Document, Section, Table, literal
from occupancy_lab.text.words import percent
from occupancy_lab.throughput.calibrations import (
    Calibration,
    Constants,
    calibration_path,
    keep_calibration,
)
from occupancy_lab.throughput.features import stack
from occupancy_lab.throughput.model import launch_times
from occupancy_lab.throughput.predict import row_launch
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from occupancy_lab.asked import AskedMatrix
    from occupancy_lab.calibrating.units import Units
    from occupancy_lab.evaluating.score import TimeErrors
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.kernel import Kernel
    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.throughput.features import Features

COLS = (128, 200, 500, 1024, 1440, 2045, 4096, 5000, 8192, 16384, 20160, 32768)
"""Powers of two up to what no registers hold, and widths with a mask, a narrow or a wide one, whose
rows are aligned or not."""
MATRIX_BYTES = (2**14, 2**18, 3 * 2**20, 9 * 2**20, 20 * 2**20, 50 * 2**20, 160 * 2**20)
"""From one program's rows, where the launch is most of the time, over the sizes of L2 caches (4 to
50 MiB and more), to where device memory is all of it."""
KERNEL_STAGES = {
    "rows-0-0": (1,),
    "rows-1-0": (1,),
    "loop-0-0": (1, 4),
    "softmax_row": (1,),
    "softmax": (1, 2, 3, 4),
}
"""The kernels and their num_stages: the lab's own, and those that copy rows with reductions and
elementwise steps on the way, as many as the name says."""
OWN_BLOCKS = ("softmax_pieces", "softmax_tile", "softmax_cooperative")
"""The kernels that have configurations of their own, all of which are launched."""
LONG_COLS = (65536, 131072)
"""Rows that only several programs together hold without spilling."""
ELEMENTS_PER_THREAD = range(1, 129)
"""Up to half of a thread's 255 registers; SPILLING has what takes more."""
SPILLING = {
    ("softmax_row", 1): (
        *((8192, 1), (16384, 1), (16384, 2), (32768, 2), (32768, 4)),
        *((65536, 4), (65536, 16), (65536, 32)),
    ),
    ("softmax", 1): (
        *((8192, 1), (16384, 1), (16384, 2), (32768, 2), (32768, 4)),
        *((65536, 8), (65536, 16), (65536, 32)),
    ),
    ("softmax", 2): ((8192, 1), (16384, 1), (16384, 2), (32768, 1), (32768, 2), (32768, 4)),
    ("softmax", 3): ((8192, 1), (16384, 1), (16384, 2), (32768, 4)),
}
"""Blocks that no registers hold, which show what local memory costs; they compile slowly."""


def launches() -> Iterator[tuple[str, Problem, Config]]:
    """Return the kernel's name, the problem and the configuration of each launch."""
    yield "empty", Problem(16, 16), Config(16, 1, 1)
    for (kernel, stages), cols, num_warps in itertools.product(
        KERNEL_STAGES.items(), COLS, NUM_WARPS
    ):
        block_size = next_power_of_two(cols)
        # Without a barrier the parts of a 32-byte sector are written at different times, which
        # costs an unaligned copy up to 15 % of the bandwidth and no kernel with a reduction.
        apart = kernel.endswith("-0-0") and cols != block_size
        if block_size // (32 * num_warps) in ELEMENTS_PER_THREAD and not apart:
            for num_stages in stages:
                for problem in _problems(cols, num_warps):
                    yield kernel, problem, Config(block_size, num_warps, num_stages)
    for (kernel, num_stages), blocks in SPILLING.items():
        for block_size, num_warps in blocks:
            for problem in _problems(block_size, num_warps):
                yield kernel, problem, Config(block_size, num_warps, num_stages)
    for name in OWN_BLOCKS:
        yield from _own_launches(own_kernel(name))


def _own_launches(kernel: Kernel) -> Iterator[tuple[str, Problem, Config]]:
    for place, cols in enumerate((*COLS, *LONG_COLS)):
        for problem in _problems(cols, NUM_WARPS[place % len(NUM_WARPS)]):
            for config in kernel.configs(problem) if kernel.configs else ():
                yield kernel.name, problem, config


def _problems(cols: int, num_warps: int) -> Iterator[Problem]:
    """Return the matrices of MATRIX_BYTES.

    Both sizes of elements meet every width and every number of warps.
    """
    wide = (cols.bit_length() + NUM_WARPS.index(num_warps)) % 2 == 0
    for matrix_bytes in MATRIX_BYTES:
        # Triton compiles a loop over a number of rows that 16 divides in a way of its own.
        rows = matrix_bytes // (cols * (4 if wide else 2)) // 16 * 16
        if rows:
            yield Problem(rows, cols, "float32" if wide else "float16")


RUNS = 18
"""Launches that are timed: three bursts. Half of these times spread by 5.4 % from us_low to us_high
or less, so that a median of 18 is known to 0.6 %, a fifth of the fit's median error."""


def tasks_of(gpu: Gpu) -> list[AskedMatrix]:
    """Return what is launched to calibrate *gpu*."""
    named = ((_kernel_name(kernel), problem, config) for kernel, problem, config in launches())
    return [
        ask(NamedKernel(name, load_kernel(name)), problem, config, gpu)
        for name, problem, config in named
    ]


def _kernel_name(name: str) -> str:
    """Return what `load_kernel` finds the kernel called *name* by."""
    return f"{kernels.__file__}:{name}" if name in kernels.KERNELS else name


def time_calibration(
    gpu: Gpu,
    *,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    journal: Journal | None = None,
) -> pd.DataFrame:
    """Launch every micro-benchmark on *gpu*, which is here, and return them as rows of a table.

    Raises UnfinishedError, with the table of what is finished, on Ctrl-C.
    """
    tasks = tasks_of(gpu)
    with closing(Compiler(store_directory(), counted=progress)) as compiler:
        table = run_tasks(tasks, compiler)
    return measure_table(table, tasks, runs=RUNS, progress=progress, journal=journal)


def calibration_of(table: pd.DataFrame, gpu: Gpu) -> Calibration:
    """Return the constants that the rows of `time_calibration` show for *gpu*.

    Raises DriverError where no row was measured.
    """
    features, measured_us = _timed(table, gpu)
    empty = table.loc[table["kernel"] == kernels.EMPTY.name, "us"]
    if not measured_us or empty.empty or gpu.bandwidth_gbs is None:
        msg = f"{gpu.title} cannot be calibrated: none of its launches gave a time"
        raise DriverError(msg)
    constants = fit_constants(
        features, measured_us, launch_us=float(empty.iloc[0]), peak_gbs=gpu.bandwidth_gbs
    )
    first = table[table["measured"] == "measured"].iloc[0]
    device, date, torch, triton = (
        str(first[name]) for name in ("device", "date", "torch", "triton")
    )
    return Calibration(constants, gpu.key, device, date, torch, triton)


def fit_errors(table: pd.DataFrame, gpu: Gpu, constants: Constants) -> TimeErrors:
    """Return how far the model with *constants* is off the rows that they were fitted to."""
    import pandas as pd

    features, measured_us = _timed(table, gpu)
    return time_errors(pd.Series(launch_times(features, constants).total), pd.Series(measured_us))


def _timed(table: pd.DataFrame, gpu: Gpu) -> tuple[Features, list[float]]:
    """Return the features and the measured us of every row but the empty kernel's."""
    timed = table[(table["measured"] == "measured") & (table["kernel"] != kernels.EMPTY.name)]
    launches, measured_us = [], []
    for row in timed.to_dict("records"):
        planned = row_launch(row, load_kernel(_kernel_name(str(row["kernel"]))), gpu)
        launch = None if planned is None else planned.features(gpu)
        if launch is not None:
            launches.append(launch)
            measured_us.append(float(row["us"]))
    return stack(launches), measured_us


BOUNDS = {
    "program_us": (2e-4, 6e-4, 2e-3),
    "row_bandwidth_gbs": (0.5, 0.92, 1.05),
    "loop_bandwidth_gbs": (0.5, 0.88, 1.05),
    "copy_bandwidth_gbs": (0.5, 0.88, 1.05),
    "split_loss": (0.0, 0.02, 0.2),
    "latency_us": (0.05, 0.4, 2.0),
    "stall_factor": (0.5, 1.3, 4.0),
    "shuffle_cycles": (0.0, 40.0, 120.0),
    "local_cycles": (0.0, 20.0, 300.0),
    "fetch_cycles": (0.0, 5.0, 30.0),
    "first_fetch_cycles": (0.0, 5.0, 30.0),
    "shared_cycles": (0.5, 1.4, 4.0),
    "l2_gbs": (5.0, 40.0, 200.0),
    "at_once_share": (0.0, 0.3, 1.0),
    "pass_us": (0.0, 0.2, 1.0),
    "drain_us": (0.0, 0.5, 5.0),
    "ramp_us": (0.0, 0.5, 5.0),
    "last_share": (0.0, 0.5, 2.0),
    "fill_share": (0.0, 1.0, 4.0),
    "start_share": (0.0, 0.2, 1.5),
    "pass_share": (0.0, 0.5, 2.0),
    "tail_share": (0.0, 0.5, 1.5),
    "exchange_us": (0.0, 0.3, 2.0),
}
"""The least, the first guess and the most of each constant; the bandwidths' are shares of the
peak. What is not here, the launch of an empty program, is measured by itself.

The bounds keep the fit from negative times and from trading one constant for another where the
launches of a GPU do not tell them apart. They are wide: with the launches that were recorded on an
H200 no constant ends at one, and bounds twice as wide change 99 of 100 times by less
than 2.5 %."""
ROUGH = 0.05
"""Relative error above which a launch pulls less on the fit, as one that the model cannot tell. On
the tuning shapes (H200), first choices lose as much within 0.1 % from 0.01 to 0.1, and median
errors are within 0.3 %; without it (1.0) these grow by up to 0.2 %."""


def fit_constants(
    features: Features, measured_us: Sequence[float], *, launch_us: float, peak_gbs: float
) -> Constants:
    """Return the constants that bring the model closest to *measured_us*, in relative error.

    *peak_gbs* is the device memory's bandwidth as the driver gives it, GB/s.
    """
    import numpy as np
    from scipy.optimize import least_squares

    names = list(BOUNDS)
    scale = np.array([peak_gbs if name.endswith("bandwidth_gbs") else 1.0 for name in names])
    low, guess, high = (scale * np.array(column) for column in zip(*BOUNDS.values(), strict=True))
    logs = np.log(np.array(measured_us))

    def constants(values: Sequence[float]) -> Constants:
        found = dict(zip(names, map(float, values), strict=True))
        return Constants(launch_us=launch_us, **found)

    # The launch is measured by itself, so that a time counts by how much of it is anything else.
    weights = np.maximum(1.0 - launch_us / np.array(measured_us), 0.0)
    solution = least_squares(
        lambda values: weights * (np.log(launch_times(features, constants(values)).total) - logs),
        guess,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=ROUGH,
        x_scale=guess,
    )
    return constants(solution.x)


UNITS = {"us": "us", "gbs": "GB/s", "cycles": "cycles"}
"""The unit of a constant, by the last word of its name; a number without one has no unit."""


@dataclass(frozen=True, slots=True, repr=False)
class Calibrated(Answer):
    """A calibration that was made and kept."""

    calibration: Calibration
    path: Path
    seconds: float
    errors: TimeErrors
    """How far the model is off the launches that it was fitted to."""
    table: pd.DataFrame = field(compare=False, repr=False)
    """Those launches, one per row."""
    units: Units
    """What each unit of the GPU does by itself."""

    def to_document(self) -> Document:
        """Return the constants with their units and meanings, and how well they fit."""
        calibration, errors = self.calibration, self.errors
        meanings = Constants.meanings()
        rows = tuple(
            (name, f"{value:.4g}", UNITS.get(name.rsplit("_", 1)[-1], ""), meanings[name])
            for name, value in dataclasses.asdict(calibration.constants).items()
        )
        kept = (
            f"It took {self.seconds:.0f} s and is kept in {literal(str(self.path))}; predictions"
            f" for {calibration.gpu} use it from now on."
        )
        fits = (
            f"Half of the {errors.launches} launches that it was fitted to are predicted within"
            f" {percent(errors.median)} of their measured times, nine in ten within"
            f" {percent(errors.p90)}."
        )
        return Document(
            f"Calibration of {calibration.device}, {calibration.date}",
            (kept, fits),
            (
                Section("Constants", (Table(("", "value", "unit", ""), rows, prose=True),)),
                self.units.to_section(),
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the launches as plain values, for JSON."""
        return {
            **dataclasses.asdict(self.calibration),
            "path": str(self.path),
            "seconds": self.seconds,
            "errors": dataclasses.asdict(self.errors),
            "units": dataclasses.asdict(self.units),
        }


def calibrate_here(
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    journal: Journal | None = None,
) -> Calibrated:
    """Find the constants of the first GPU of this machine, and keep them for predictions.

    *progress* is called with what is done and to do, first of the compiles, then of the launches;
    measurements are kept in *journal* as they come.

    Raises InputError where there is no GPU or the calibration cannot be kept, DriverError where no
    launch gave a time, and UnfinishedError, with the table of what is finished, on Ctrl-C.
    """
    start = time.monotonic()
    gpu, _ = chosen_devices("calibrate")
    path = calibration_path(gpu.key)
    with refused(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    table = time_calibration(gpu, progress=progress, journal=journal)
    units = measure_units()
    calibration = dataclasses.replace(calibration_of(table, gpu), units=units.numbers())
    with refused(path):
        keep_calibration(calibration)
    errors = fit_errors(table, gpu, calibration.constants)
    return Calibrated(calibration, path, time.monotonic() - start, errors, table, units)
