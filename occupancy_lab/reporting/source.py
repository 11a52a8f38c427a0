"""The rows of a report: the launches of one GPU, recorded, read from a file, or predicted now."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from occupancy_lab.asked import Asked, ask
from occupancy_lab.compiled_records import compile_runs, record_of, with_counts
from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.errors import refuse
from occupancy_lab.evaluating.evaluation import counted_rows, with_predictions
from occupancy_lab.files import plain_rows
from occupancy_lab.gpus import Gpu, find_gpu
from occupancy_lab.inputs import TUTORIAL_KERNEL, NamedKernel
from occupancy_lab.kernel import Grid, load_kernel
from occupancy_lab.measuring.verify import NUM_STAGES
from occupancy_lab.occupancy.calculator import Calculation, calculate
from occupancy_lab.record import Failed, Record, matrix_of
from occupancy_lab.sweeping.grid import NUM_WARPS, expand, make_table
from occupancy_lab.sweeping.recorded import (
    latest_launches,
    read_rows,
    read_table,
    recorded_table,
    row_config,
    row_problem,
    row_resources,
)
from occupancy_lab.table.columns import MEASURED_COLUMNS
from occupancy_lab.text.words import count
from occupancy_lab.values import Config, Problem

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[Any, Any]
Name = tuple[str, Config]
"""A kernel and its configuration."""


@dataclass(frozen=True, slots=True)
class TimeWords:
    """The words for measured or for predicted times."""

    word: str
    """measured or predicted."""
    take: str
    """The verb before a time."""
    alike: float
    """The relative difference below which two times do not tell which launch is faster."""


MEASURED = TimeWords("measured", "take", alike=0.0)
PREDICTED = TimeWords("predicted", "are predicted to take", alike=0.05)
USE, EXAMPLE = "benchmark", "example"
"""The `use` of rows of the tutorial's benchmark, and of PROBLEM."""
COPY, NAIVE = "copy", "naive"
"""Two of the other implementations that are timed beside the kernels."""
PROBLEM = Problem(4096, 781)
"""The tutorial's own problem."""
WIDTHS = tuple(Problem(4096, cols) for cols in range(256, 12673, 512))
"""Every fourth matrix of the benchmark of Triton's fused softmax tutorial."""
ROW_KERNEL = "softmax_row"
"""The softmax with one program per row."""
KERNELS = {TUTORIAL_KERNEL: NUM_STAGES, ROW_KERNEL: (1,)}
"""The kernels that are compiled, with their num_stages."""
COMPILE_TIMEOUT = 25.0
"""Seconds; kernels that take longer to compile spill so much that they are never the fastest."""


def fresh_table(
    gpu: Gpu,
    *,
    problems: Sequence[Problem] = (PROBLEM, *WIDTHS),
    kernels: Mapping[str, Sequence[int]] = KERNELS,
    num_warps: Sequence[int] = NUM_WARPS,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> pd.DataFrame:
    """Return every configuration of *kernels* on *problems* as *gpu* would launch them.

    *kernels* has the num_stages of each. The table has the columns of a measured one, but they are
    empty. *progress* is called with the numbers of finished and of all compiles.
    """
    import pandas as pd

    tasks = tasks_of(problems, gpu, kernels, num_warps)
    compiler = Compiler(store_directory(), timeout=COMPILE_TIMEOUT, counted=progress)
    with closing(compiler):
        runs = with_counts(compile_runs(tasks, compiler), tasks, compiler, besides=True)
    table = make_table(runs)
    table[list(MEASURED_COLUMNS)] = pd.NA
    uses = [EXAMPLE if matrix_of(task).problem == PROBLEM else USE for task in tasks]
    found = (None if isinstance(run, Failed) else run.as_tutorial for run in runs)
    times = [None if one is None else one.us for one in found]
    tutorial = pd.Series(times, dtype=float)
    return table.assign(launched=table["num_programs"], use=uses, tutorial_us=tutorial)


def tasks_of(
    problems: Iterable[Problem],
    gpu: Gpu,
    kernels: Mapping[str, Sequence[int]] = KERNELS,
    num_warps: Sequence[int] = NUM_WARPS,
) -> list[Asked]:
    """Return every configuration of *kernels* on *problems*, as `fresh_table` takes them."""
    return [
        task
        for problem in problems
        for name, num_stages in kernels.items()
        for task in expand(
            NamedKernel(name, load_kernel(name)),
            problems=[problem],
            gpus=[gpu],
            block_sizes=(),
            num_warps=num_warps,
            num_stages=num_stages,
        )
    ]


DEFAULT_GPU = "h200"
ALL = "all"
"""The `use` of every row of a table without that column."""
STATUS = ("status", "triton_version")
NAME = ["kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages", "use"]
"""The columns that are equal for launches that differ only in num_programs."""


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of one GPU; if *is_predicted*, none was measured and all times are predictions."""

    gpu: Gpu
    file: str | None
    """The file of the rows; None for the recordings that come with the lab."""
    table: pd.DataFrame = field(compare=False, repr=False)
    """Every row, with the columns of a measured sweep and `use`."""
    planned: pd.DataFrame = field(compare=False, repr=False)
    """The rows measured with as many programs as fit, or else all that can be predicted."""
    predictions: pd.DataFrame = field(compare=False, repr=False)
    """The rows of `planned` that can be predicted, with their predictions."""
    providers: pd.DataFrame = field(compare=False, repr=False)
    """Other implementations on the same matrices: `provider`, and the columns of a measurement."""
    is_predicted: bool = False
    origin: Source | None = None
    """For predictions: the recordings on another GPU of the same target; None if there are none."""

    @property
    def times(self) -> TimeWords:
        """The words for the times of `planned`."""
        return PREDICTED if self.is_predicted else MEASURED

    @property
    def measured(self) -> pd.DataFrame:
        """Every row that has a time."""
        return _measured(self.table)

    def predictions_for(self, *uses: str) -> pd.DataFrame:
        """Return the rows of `predictions` for *uses*; all rows if the table has no uses."""
        return self.predictions[self.predictions["use"].isin({*uses, ALL})]


def recorded_source(
    name: str | None, progress: Callable[[int, int], None] = lambda _done, _of: None, **how: Any
) -> Source:
    """Return the recordings on the GPU called *name*; None takes an H200.

    For a GPU without recordings, the tutorial's benchmark is compiled here and predicted, with
    *progress* and *how* as `fresh_table` takes them.

    Raises InputError if there is no such GPU or nothing can be predicted.
    """
    gpu, table = find_gpu(name or DEFAULT_GPU), recorded_table()
    if (table["gpu"] == gpu.key).any():
        return _recorded(gpu, table)
    found = make_fresh(gpu, progress=progress, **how)
    of_target = table[table["target"] == gpu.target.name]
    if of_target.empty:
        return found
    origin = _recorded(find_gpu(str(of_target["gpu"].iloc[0])), table)
    return dataclasses.replace(found, origin=origin)


def _recorded(gpu: Gpu, table: pd.DataFrame) -> Source:
    entry = files("occupancy_lab.recorded").joinpath(f"providers-{gpu.key}.csv")
    return make_source(gpu, table, read_rows(entry) if entry.is_file() else None)


def make_fresh(gpu: Gpu, **how: Any) -> Source:
    """Return predictions for *gpu* of kernels compiled now, with *how* as `fresh_table` takes it.

    Raises InputError if nothing can be predicted.
    """
    import pandas as pd

    if not gpu.has_rates:
        refuse(
            f"no launches were recorded on {gpu.title}, and nothing can be predicted for it: name"
            " a GPU whose size, clock and bandwidth `occupancy-lab gpus` knows"
        )
    table = fresh_table(gpu, **how)
    fitting = table[table["num_programs"].notna()].reset_index(drop=True)
    predicted = with_predictions(fitting, {}, gpu)
    predicted = predicted.assign(us=predicted["predicted_us"])
    none = pd.DataFrame()
    return Source(gpu, None, table, predicted, predicted, none, is_predicted=True)


def file_source(path: str, name: str | None) -> Source:
    """Return the rows of the CSV file at *path* on the GPU called *name*; None takes the only one.

    Raises InputError if the file cannot be read, has no launch measured on that GPU, or has kernels
    that are not the lab's.
    """
    table = read_table(path)
    there = sorted(set(table.loc[table["measured"] == "measured", "gpu"]))
    key = find_gpu(name).key if name is not None else there[0] if len(there) == 1 else None
    if key not in there:
        found = f"launches were measured on: {', '.join(there)}" if there else "none was measured"
        refuse(f"name a GPU whose launches {path} holds; {found}")
    return make_source(find_gpu(str(key)), table, file=path)


def make_source(
    gpu: Gpu,
    table: pd.DataFrame,
    providers: pd.DataFrame | None = None,
    *,
    file: str | None = None,
) -> Source:
    """Return the rows of *gpu* in *table*, predicted; raise InputError for missing columns."""
    import pandas as pd

    missing = [name for name in (*STATUS, *MEASURED_COLUMNS) if name not in table]
    if missing:
        refuse(
            f"{file} lacks the columns {', '.join(missing)}, which say how launches were measured"
        )
    table = table[table["gpu"] == gpu.key].reset_index(drop=True)
    table = table if "use" in table else table.assign(use=ALL)
    planned = counted_rows(table)
    return Source(
        gpu=gpu,
        file=file,
        table=table,
        planned=planned,
        predictions=with_predictions(planned, {}, gpu),
        providers=pd.DataFrame() if providers is None else _measured(providers),
    )


def _measured(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["measured"] == "measured"]


def row_name(row: Row) -> Name:
    """Return the kernel and the configuration of a row."""
    return str(row["kernel"]), row_config(row)


def tutorial_name(problem: Problem, gpu: Gpu) -> Name:
    """Return the kernel and the configuration that the tutorial launches on *problem*."""
    config = load_kernel(TUTORIAL_KERNEL).default_config(problem, gpu.architecture.max_shared)
    return TUTORIAL_KERNEL, config


def row_record(row: Row, gpu: Gpu) -> Record:
    """Return the record of a row that compiled and fits *gpu*, without a time."""
    kernel, triton = str(row["kernel"]), str(row["triton_version"])
    named = NamedKernel(kernel, load_kernel(kernel))
    asked = ask(named, row_problem(row), row_config(row), gpu)
    return record_of(asked, row_resources(row), triton=triton)


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration, launched with as many programs as fit."""

    kernel: str
    config: Config
    calculation: Calculation
    us: float

    @property
    def occupancy(self) -> float:
        """The occupancy, from 0 to 1."""
        return self.calculation.occupancy.occupancy

    @property
    def instructions(self) -> int | None:
        """Instructions that a program's warps issue per row; None if not counted."""
        resources = self.calculation.resources
        found = resources.loop_instructions or resources.instructions
        return None if found is None else found * self.config.num_warps


def of_problem(table: pd.DataFrame, problem: Problem) -> pd.Series[bool]:
    """Return a mask of the rows of *table* for *problem*."""
    same = (table["rows"] == problem.rows) & (table["cols"] == problem.cols)
    return same & (table["dtype"] == problem.dtype)


def rows_of(table: pd.DataFrame, problem: Problem) -> pd.DataFrame:
    """Return the rows of *table* for *problem*; of repeated launches, only the latest."""
    return latest_launches(table[of_problem(table, problem)])


def launches_of(source: Source, problem: Problem) -> dict[Name, Row]:
    """Return the planned rows of *source* for *problem*, by kernel and configuration."""
    return {row_name(row): row for row in plain_rows(rows_of(source.planned, problem))}


def variants_of(source: Source, problem: Problem) -> dict[Name, Variant]:
    """Return the configurations of *problem* that have a time, in the order of the rows."""
    return {
        name: Variant(*name, calculate(row_resources(row), source.gpu), float(row["us"]))
        for name, row in launches_of(source, problem).items()
    }


@dataclass(frozen=True, slots=True)
class Summary:
    """The distribution of numbers such as relative times."""

    count: int
    least: float
    median: float
    mean: float
    p90: float
    most: float


def summary_of(numbers: Iterable[float]) -> Summary:
    """Return the summary of *numbers*; there must be at least one."""
    import numpy as np

    found = np.array(list(numbers), dtype=float)
    return Summary(
        count=len(found),
        least=float(found.min()),
        median=float(np.median(found)),
        mean=float(found.mean()),
        p90=float(np.quantile(found, 0.9)),
        most=float(found.max()),
    )


def known_summary(numbers: Iterable[float | None]) -> Summary | None:
    """Return the summary of the known *numbers*; None if none is known."""
    found = [number for number in numbers if number is not None]
    return summary_of(found) if found else None


def gbs_of(problem: Problem, us: float) -> float:
    """Return the bandwidth of one read and one write of the matrix in *us*, GB/s."""
    return 2 * problem.matrix_bytes / us / 1e3


def span_words(least: str, most: str) -> str:
    """Return "4.9% to 6.8%", or one of the two if they are equal."""
    return least if least == most else f"{least} to {most}"


def config_words(kernel: str, config: Config) -> str:
    """Return "softmax, 8 warps, 4 stages"; stages only for kernels that loop over rows."""
    words = [kernel, count(config.num_warps, "warp")]
    if load_kernel(kernel).grid is Grid.PERSISTENT:
        words.append(count(config.num_stages, "stage"))
    return ", ".join(words)
