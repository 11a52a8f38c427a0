"""The grid of a sweep: its configurations on several GPUs, and the table of their results."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from occupancy_lab.asked import Asked, ask
from occupancy_lab.compiled_records import compile_runs, with_counts
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.gpus import Gpu
from occupancy_lab.inputs import NamedKernel, chosen_config, next_power_of_two
from occupancy_lab.kernel import Grid, Kernel
from occupancy_lab.measuring.journal import measure_launches
from occupancy_lab.measuring.process import TimedLaunch
from occupancy_lab.measuring.verify import NUM_STAGES, grid_of_configs
from occupancy_lab.record import Failed, Record, matrix_of
from occupancy_lab.table.columns import MEASURED_COLUMNS, SWEEP_COLUMNS, pandas_types
from occupancy_lab.values import Config, Measurement, Problem
from occupancy_lab.workers.signals import UnfinishedError

if TYPE_CHECKING:
    import pandas as pd


def expand(  # noqa: PLR0913 - one argument a dimension of the grid
    named: NamedKernel,
    *,
    problems: Sequence[Problem],
    gpus: Sequence[Gpu],
    block_sizes: Sequence[int],
    num_warps: Sequence[int],
    num_stages: Sequence[int],
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Asked]:
    """Return every launch: GPUs outermost, then problems, BLOCK_SIZE, num_warps and num_stages.

    Without *block_sizes*, a kernel that holds a whole row takes the smallest size that fits it, and
    other kernels take their default. Without any knob, a kernel with `configs` takes these, as in
    `tune`. *options* are further compiler options of each launch.
    """
    kernel = named.kernel
    for gpu, problem in itertools.product(gpus, problems):
        if kernel.configs is not None and not (block_sizes or num_warps or num_stages):
            yield from grid_tasks([named], problem, gpu, options=options)
            continue
        sizes = block_sizes or (_own_block_size(kernel, problem, gpu),)
        for knobs in itertools.product(sizes, num_warps or NUM_WARPS, num_stages or NUM_STAGES):
            yield ask(named, problem, Config(*knobs), gpu, options)


def _own_block_size(kernel: Kernel, problem: Problem, gpu: Gpu) -> int:
    in_blocks = kernel.grid is Grid.BLOCKS or kernel.passes is not None
    if in_blocks or kernel.configs is not None:
        return kernel.default_config(problem, gpu.architecture.max_shared).block_size
    return next_power_of_two(problem.cols)


def grid_tasks(  # noqa: PLR0913 - one argument a dimension of the grid
    kernels: Sequence[NamedKernel],
    problem: Problem,
    gpu: Gpu,
    num_warps: Sequence[int] = (),
    num_stages: Sequence[int] = (),
    *,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Asked]:
    """Return every configuration of every kernel, including each kernel's default.

    Among several kernels, one whose `configs` are empty for the problem is left out. *options* are
    further compiler options of each launch.
    """
    for named in kernels:
        kernel = named.kernel
        if kernel.configs is not None and len(kernels) > 1 and not kernel.configs(problem):
            continue
        loops = kernel.grid is Grid.PERSISTENT or kernel.configs is not None
        stages = num_stages if loops else (1,)
        configs = grid_of_configs(kernel, problem, gpu, num_warps, stages)
        for config in dict.fromkeys((*configs, chosen_config(kernel, problem, gpu, {}))):
            yield ask(named, problem, config, gpu, options)


NUM_WARPS = (1, 2, 4, 8, 16, 32)
"""All values that an NVIDIA GPU can launch."""


def run_tasks(tasks: Sequence[Asked], compiler: Compiler) -> pd.DataFrame:
    """Compile *tasks* and return the table of a sweep, with a row for each.

    Raises UnfinishedError, with the finished part of the table, on Ctrl-C.
    """
    try:
        runs = compile_runs(tasks, compiler)
    except UnfinishedError as interrupt:
        raise UnfinishedError(make_table(interrupt.finished)) from interrupt
    return make_table(with_counts(runs, tasks, compiler))


def make_table(runs: Sequence[Record | Failed]) -> pd.DataFrame:
    """Return the table of a sweep with a row for each of *runs*.

    Further compiler options have columns of their own.
    """
    import pandas as pd

    rows = [run.row() for run in runs]
    asked = dict.fromkeys(name for run in runs if run.matrix for name in run.matrix.options)
    place = SWEEP_COLUMNS.index("status")
    columns = [*SWEEP_COLUMNS[:place], *asked, *SWEEP_COLUMNS[place:]]
    table = pd.DataFrame(rows, columns=list(dict.fromkeys(columns)))
    texts = ("bound", "basis")
    following = SWEEP_COLUMNS[SWEEP_COLUMNS.index("reason") + 1 :]
    return table.astype(dict.fromkeys(texts, object)).astype(pandas_types(following))


def measure_table(
    table: pd.DataFrame, tasks: Sequence[Asked], *, gpu: Gpu | None = None, **how: Any
) -> pd.DataFrame:
    """Return *table*, which has a row per task, with MEASURED_COLUMNS added.

    Only rows that are ok, and if given for *gpu*, the GPU at hand, are launched, with *how* as
    `measure_launches` takes it; the others have empty cells.

    Raises UnfinishedError, with the finished part of the table, on Ctrl-C.
    """
    known = table["status"].eq("ok") & table["num_programs"].notna()
    fine = [
        place
        for place, (task, can) in enumerate(zip(tasks, known, strict=True))
        if can and (gpu is None or task.gpu.key == gpu.key)
    ]
    counts = [int(table["num_programs"].iloc[place]) for place in fine]
    launches = [
        (matrix_of(task).problem, TimedLaunch(str(task.name), matrix_of(task).config, count))
        for task, count in zip([tasks[place] for place in fine], counts, strict=True)
    ]

    def columns(measured: Mapping[int, Measurement]) -> pd.DataFrame:
        found = {fine[place]: (counts[place], one) for place, one in measured.items()}
        return add_columns(table, found)

    try:
        measured = measure_launches(launches, **how)
    except UnfinishedError as interrupt:
        raise UnfinishedError(columns(interrupt.finished)) from interrupt
    return columns(dict(enumerate(measured)))


def add_columns(table: pd.DataFrame, found: Mapping[int, tuple[int, Measurement]]) -> pd.DataFrame:
    """Return *table* with the measured columns of the rows in *found*, by row index."""
    import pandas as pd

    rows = [measured_row(*found[place]) if place in found else {} for place in range(len(table))]
    columns = pd.DataFrame(rows, columns=list(MEASURED_COLUMNS), index=table.index)
    table = pd.concat([table, columns.astype(pandas_types(MEASURED_COLUMNS))], axis=1)
    above = (table["us"] - table["speed_of_light_us"]).clip(lower=0.0)
    return table.assign(
        lost_us=above.fillna(table["lost_us"]),
        lost_of=table["lost_of"].mask(above.notna(), "measured"),
    )


def measured_row(launched: int, measurement: Measurement) -> dict[str, Any]:
    """Return the measured columns of one row."""
    found = dataclasses.asdict(measurement)
    status, conditions = found.pop("status"), found.pop("conditions") or {}
    named = {"launched": launched, "measured": status, "why_not": found.pop("reason")}
    return {**named, **found, **conditions}
