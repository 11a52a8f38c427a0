"""`sweep`, and a whole run of it: sweep with progress, choose, export, plot, and a text."""

from __future__ import annotations

import contextlib
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.compiler import Compiler
from occupancy_lab.compiling.process import COMPILE_TIMEOUT
from occupancy_lab.errors import InputError, refuse
from occupancy_lab.files import plain_rows, refused
from occupancy_lab.inputs import (
    DEFAULT_ROWS,
    check_elsewhere,
    chosen_gpus,
    chosen_kernel,
    chosen_problems,
    whole_number,
    whole_numbers,
)
from occupancy_lab.measuring.process import DEFAULT_RUNS, chosen_devices
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.signature import read_options
from occupancy_lab.sweeping import views
from occupancy_lab.sweeping.grid import add_columns, expand, measure_table, run_tasks
from occupancy_lab.sweeping.recorded import row_resources
from occupancy_lab.table.columns import COLUMNS, MEASURED_COLUMNS, SWEEP_COLUMNS
from occupancy_lab.table.rows import FORMS
from occupancy_lab.text.printing import show_status
from occupancy_lab.workers.signals import UnfinishedError, exit_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.inputs import AskedDtype, AskedGpus, AskedKernel, Integer, Integers
    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.signature import Words
    from occupancy_lab.table.rows import Exports, View
    from occupancy_lab.text.document import Shown

    Progress = Callable[[int, int], None]


def sweep(  # noqa: PLR0913 - one argument a dimension of the grid, and how to compile it
    cols: Integers,
    *,
    rows: Integers = DEFAULT_ROWS,
    dtype: AskedDtype | Iterable[AskedDtype] = "float32",
    kernel: AskedKernel = "softmax",
    gpu: AskedGpus | None = None,
    triton: str | None = None,
    block_size: Integers = (),
    num_warps: Integers = (),
    num_stages: Integers = (),
    options: Words = (),
    jobs: Integer | None = None,
    compile_timeout: float | None = COMPILE_TIMEOUT,
    scheduler: str | None = None,
    cache: bool = True,
    retry_failed: bool = False,
    measure: bool = False,
    runs: Integer = DEFAULT_RUNS,
    devices: str | Sequence[int] | None = None,
    journal: Journal | None = None,
    progress: Progress = lambda _done, _of: None,
    measuring_progress: Progress = lambda _done, _of: None,
) -> pd.DataFrame:
    """Compile every configuration and give a table with one row each, in the order of the grid.

    A configuration that cannot be had is a row too: `status` is "ok", "does not fit",
    "compile failed", "timed out", "skipped" or "interrupted", and `reason` says why.
    `occupancy_lab.table.COLUMNS` says what each column holds; a number that is not known is
    missing. With *measure* rows that are ok are launched where they are for the GPU of this
    machine, and the columns of a measurement are there too.

    Args:
        cols: Columns of the matrix, one number or several; as are all but *kernel* and *triton* up
            to *num_stages*.
        rows: Rows of the matrix.
        dtype: float32, float16 or bfloat16, or torch's dtypes.
        kernel: A kernel, as `explain` takes it.
        gpu: GPUs or targets, as `explain` takes them.
        triton: A Triton, as `explain` takes it.
        block_size: BLOCK_SIZE; none takes the smallest that holds a row. A kernel with `configs`
            takes these where neither this nor one of the next two is given, as `tune` does.
        num_warps: Warps per program; none takes 1 to 32.
        num_stages: Stages of the loop over rows; none takes 1 to 4.
        options: Further compiler options of every launch: "maxnreg=64".
        jobs: Compiling processes; None takes one per core.
        compile_timeout: Seconds a compile may take; None waits.
        scheduler: The address of a Dask scheduler whose workers compile instead.
        cache: Whether to use the store of compiled resources.
        retry_failed: Whether to compile again what the store says cannot be compiled.
        measure: Whether to time what is ok on the GPU of this machine.
        runs: Launches timed of each configuration, at the least.
        devices: The GPUs that share the launches: "all", or their numbers. None takes the first.
        journal: Where measurements are kept as they come; None keeps them nowhere.
        progress: Called with the compiles done and to do.
        measuring_progress: Called with the configurations measured and to measure.

    Raises:
        InputError: what is asked for makes no sense as a whole, or there is no GPU to measure on.
        UnfinishedError: Ctrl-C; it has the table, with the status "interrupted" in the rows that
            were not compiled, and without the times that were not measured.
    """
    problems = chosen_problems(rows, cols, dtype)
    made = Compiler(
        store_directory() if cache else None,
        triton=triton,
        jobs=None if jobs is None else whole_number("jobs", jobs),
        scheduler=scheduler,
        timeout=compile_timeout,
        retry_failed=retry_failed,
        counted=progress,
    )
    with closing(made) as compiler:
        found = chosen_kernel(kernel, compiler.check_file)
        gpus = [one for one, _ in chosen_gpus(gpu)]
        here, names = (
            chosen_devices("a measured sweep", devices, among=gpus) if measure else (None, ())
        )
        other_triton = not compiler.environment.is_running
        check_elsewhere(found, other_triton=other_triton, measure=measure)
        if scheduler is not None:
            found.check_name("a Dask cluster")
        given = read_options(options)
        if measure and given:
            refuse("--measure launches a kernel as it is, without further compiler options")
        tasks = [
            *expand(
                found,
                problems=problems,
                gpus=gpus,
                block_sizes=whole_numbers("block_size", block_size),
                num_warps=whole_numbers("num_warps", num_warps),
                num_stages=whole_numbers("num_stages", num_stages),
                options=given,
            )
        ]
        try:
            table = run_tasks(tasks, compiler)
        except UnfinishedError as interrupt:
            finished = add_columns(interrupt.finished, {}) if measure else interrupt.finished
            raise UnfinishedError(finished) from interrupt
    if here is None:
        return table
    return measure_table(
        table,
        tasks,
        gpu=here,
        runs=whole_number("runs", runs),
        devices=names,
        progress=measuring_progress,
        journal=journal,
    )


@contextlib.contextmanager
def shown_progress(*stages: str, quiet: bool = False) -> Iterator[list[Callable[[int, int], None]]]:
    """Return for each of *stages* a function to call with what is done and to do.

    It draws the stage's rate and time left. Nothing is drawn where standard error is no terminal,
    or with *quiet*.
    """
    if quiet or not sys.stderr.isatty():
        yield [lambda _done, _of: None for _ in stages]
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.1f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:

        def shown(task: TaskID) -> Callable[[int, int], None]:
            return lambda done, of: bar.update(task, completed=done, total=of, visible=True)

        yield [shown(bar.add_task(stage, total=None, visible=False)) for stage in stages]


NOT_WRITTEN = 2
"""The exit status where a file could not be written."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep prints, and how it ends."""

    shown: Shown
    status: int
    """0; 1 where no configuration is ok, NOT_WRITTEN, or that of the signal that ended it."""
    complaints: tuple[str, ...] = ()
    """A sentence for each thing that went wrong after the rows were there."""


class Launched(Protocol):
    """An explanation of launches, of which a sweep is the table."""

    @property
    def less_work(self) -> Sequence[str]:
        """A sentence on the launches that leave undone what others of them do; empty for none."""

    def table(self) -> pd.DataFrame:
        """Return a row for each launch on each GPU."""


def run(
    view: View,
    exports: Exports,
    *,
    launches: Callable[..., Launched] | None = None,
    form: str | None,
    plot: str | None = None,
    **grid: Any,
) -> Swept:
    """Sweep the *grid*, write what is asked for, and give the text to print and the exit status.

    The grid is of a matrix, or of what *launches* takes, which explains them. Where a signal ended
    it, what was finished before is printed and written. Where one of the files cannot be written,
    the others are.

    Raises InputError, before any work, for what cannot be asked, chosen or written.
    """
    if launches is None:
        columns = [*SWEEP_COLUMNS, *(MEASURED_COLUMNS if grid.get("measure") else ())]
        view.check({name: COLUMNS[name].kind for name in columns}, views.UNMEASURED)
    exports.check(inputs={"--kernel": grid.get("kernel")}, pictures={"--plot": plot})
    gpus = {gpu.key: gpu for gpu, _ in chosen_gpus(grid.get("gpu"))}
    said: Sequence[str] = ()
    signalled = 0
    if launches is None:
        table, signalled = _swept(**grid)
    else:
        if not grid.pop("quiet", False):
            grid["progress"] = show_status
        launched = launches(**grid)
        table, said = launched.table(), launched.less_work
    chosen = views.choose(table, view)
    rows = plain_rows(chosen)
    complaints = [*exports.write([*chosen], rows)]
    if plot is not None:
        try:
            _plot(chosen, Path(plot), gpus)
        except InputError as error:
            complaints.append(str(error))
    shown: Shown
    if form:
        shown = FORMS[form]([*chosen], rows)
    elif view.where is not None and len(table) and not len(chosen):
        shown = (*views.none_meets(table, view.where), *said)
    else:
        shown = (*views.to_screen(chosen, gpus, len(table)), *said)
    if signalled:
        return Swept(shown, signalled, (*complaints, "interrupted; what was finished is above"))
    if complaints:
        return Swept(shown, NOT_WRITTEN, tuple(complaints))
    return Swept(shown, 0 if (table["status"] == "ok").any() else 1)


def _swept(*, quiet: bool = False, **grid: Any) -> tuple[pd.DataFrame, int]:
    """Return the table, and the exit status of the signal that ended the work, or else 0."""
    with shown_progress("compiling", "measuring", quiet=quiet) as (compiling, measuring):
        try:
            return sweep(progress=compiling, measuring_progress=measuring, **grid), 0
        except UnfinishedError as interrupt:
            return interrupt.finished, exit_status(interrupt)


def _plot(table: pd.DataFrame, directory: Path, gpus: Mapping[str, Gpu]) -> None:
    """Draw a heat map of each GPU's rows, and the curves of its first configuration that is ok.

    Raises InputError where the pictures cannot be written.
    """
    from occupancy_lab.plotting import draw_curves, draw_heatmap, save

    with refused(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for gpu, rows in table.groupby("gpu", sort=False):
            figures = {f"heatmap-{gpu}": draw_heatmap(rows)}
            fine = rows[rows["status"] == "ok"]
            if len(fine):
                figures[f"curves-{gpu}"] = draw_curves(calculate_row(fine.iloc[0], gpus[str(gpu)]))
            for name, figure in figures.items():
                for suffix in ("svg", "png"):
                    save(figure, directory / f"{name}.{suffix}")


def calculate_row(row: pd.Series[Any], gpu: Gpu) -> Calculation:
    """Return the calculation of a row's resources on *gpu*."""
    return calculate(row_resources(row.to_dict()), gpu)
