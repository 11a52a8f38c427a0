"""A whole run of `occupancy-lab sweep`: sweep with progress, choose, export, plot, and a text."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError
from occupancy_lab.files import plain_rows
from occupancy_lab.inputs import TUTORIAL_KERNEL, chosen_gpus, chosen_kernel, traffic_unknown
from occupancy_lab.occupancy.calculator import calculate
from occupancy_lab.sweeping import views
from occupancy_lab.sweeping.grid import sweep
from occupancy_lab.table.columns import COLUMNS, MEASURED_COLUMNS, SWEEP_COLUMNS
from occupancy_lab.table.view import FORMS
from occupancy_lab.text.printing import show_status
from occupancy_lab.throughput.predict import row_resources
from occupancy_lab.workers.signals import UnfinishedError, exit_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.occupancy.calculator import Calculation
    from occupancy_lab.table.view import Exports, View
    from occupancy_lab.text.document import Shown


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


def run(
    view: View,
    exports: Exports,
    *,
    launches: Callable[..., pd.DataFrame] | None = None,
    form: str | None,
    plot: str | None = None,
    **grid: Any,
) -> Swept:
    """Sweep the *grid*, write what is asked for, and give the text to print and the exit status.

    The grid is of a matrix, or of what *launches* takes, which gives the table of them. Where a
    signal ended it, what was finished before is printed and written. Where one of the files cannot
    be written, the others are.

    Raises InputError, before any work, for what cannot be asked, chosen or written.
    """
    if launches is None:
        columns = [*SWEEP_COLUMNS, *(MEASURED_COLUMNS if grid.get("measure") else ())]
        view.check({name: COLUMNS[name].kind for name in columns}, views.UNMEASURED)
    exports.check(inputs={"--kernel": grid.get("kernel")}, pictures={"--plot": plot})
    gpus = {gpu.key: gpu for gpu, _ in chosen_gpus(grid.get("gpu"))}
    table, signalled = _swept(**grid) if launches is None else (_of(launches, **grid), 0)
    chosen = views.choose(table, view)
    rows = plain_rows(chosen)
    complaints = [*exports.write([*chosen], rows)]
    if plot is not None:
        try:
            _plot(chosen, Path(plot), gpus)
        except InputError as error:
            complaints.append(str(error))
    shown: Shown = FORMS[form]([*chosen], rows) if form else views.to_screen(chosen, gpus)
    if launches is None and form is None:
        kernel = chosen_kernel(grid.get("kernel") or TUTORIAL_KERNEL).kernel
        if kernel.memory_steps is None:
            shown = (*shown, traffic_unknown(kernel))
    if signalled:
        return Swept(shown, signalled, (*complaints, "interrupted; what was finished is above"))
    if complaints:
        return Swept(shown, NOT_WRITTEN, tuple(complaints))
    return Swept(shown, 0 if (table["status"] == "ok").any() else 1)


def _of(
    launches: Callable[..., pd.DataFrame], *, quiet: bool = False, **asked: Any
) -> pd.DataFrame:
    """Return the table of *launches* as *asked*, and say meanwhile what takes long."""
    if not quiet:
        asked["progress"] = show_status
    return launches(**asked)


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

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for gpu, rows in table.groupby("gpu", sort=False):
            figures = {f"heatmap-{gpu}": draw_heatmap(rows)}
            fine = rows[rows["status"] == "ok"]
            if len(fine):
                figures[f"curves-{gpu}"] = draw_curves(calculate_row(fine.iloc[0], gpus[str(gpu)]))
            for name, figure in figures.items():
                for suffix in ("svg", "png"):
                    save(figure, directory / f"{name}.{suffix}")
    except OSError as error:
        msg = f"{directory} cannot be written: {error.strerror}"
        raise InputError(msg) from error


def calculate_row(row: pd.Series[Any], gpu: Gpu) -> Calculation:
    """Return the calculation of a row's resources on *gpu*."""
    return calculate(row_resources(row.to_dict()), gpu)
