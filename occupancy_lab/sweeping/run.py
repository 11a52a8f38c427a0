"""A whole run of `occupancy-lab sweep`: sweep with progress, choose, export, plot, and a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.calculator import calculate
from occupancy_lab.choosing import chosen_gpus
from occupancy_lab.errors import InputError
from occupancy_lab.measuring.process import InterruptedMeasuringError
from occupancy_lab.sweeping import views
from occupancy_lab.sweeping.grid import sweep
from occupancy_lab.sweeping.progress import shown_progress
from occupancy_lab.throughput.table import row_resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from occupancy_lab.calculator import Calculation
    from occupancy_lab.gpus import Gpu

INTERRUPTED = 130
"""The exit status of a program that Ctrl-C ended: 128 and the number of SIGINT."""


def run(  # noqa: PLR0913 - one argument an option of the command line
    *,
    dtype: str,
    where: str | None,
    sort: str | None,
    top: int | None,
    form: str | None,
    export_csv: str | None,
    export_json: str | None,
    export_markdown: str | None,
    plot: str | None,
    quiet: bool,
    **grid: Any,
) -> tuple[str, int]:
    """Sweep the *grid* and give the text to print and the exit status.

    The status is 0, 1 where no configuration is ok, or 130 where Ctrl-C ended the measuring: then
    what was measured before is printed and exported.

    Raises InputError for what cannot be asked, chosen or written.
    """
    forms = {"csv": views.to_csv, "json": views.to_json}
    exports = [
        (Path(path), form_of)
        for path, form_of in (
            (export_csv, views.to_csv),
            (export_json, views.to_json),
            (export_markdown, views.to_markdown),
        )
        if path is not None
    ]
    for path, _ in exports:
        views.check_export(path)
    gpus = {gpu.key: gpu for gpu, _ in chosen_gpus(grid.get("gpu"))}
    table, interrupted = _swept(quiet=quiet, dtype=dtype.split(","), **grid)
    chosen = views.choose(table, where=where, sort=sort, top=top)
    for path, form_of in exports:
        views.export(path, form_of(chosen))
    if plot is not None:
        _plot(chosen, Path(plot), gpus)
    text = forms[form](chosen) if form else views.to_screen(chosen, gpus)
    if interrupted:
        return text, INTERRUPTED
    return text, 0 if (table["status"] == "ok").any() else 1


def _swept(*, quiet: bool, **grid: Any) -> tuple[pd.DataFrame, bool]:
    """Return the table, and whether Ctrl-C ended its measuring."""
    with shown_progress("compiling", "measuring", quiet=quiet) as (compiling, measuring):
        try:
            return sweep(progress=compiling, measuring_progress=measuring, **grid), False
        except InterruptedMeasuringError as interrupt:
            return interrupt.finished, True


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
