"""A whole run of `occupancy-lab sweep`: sweep with progress, choose, export, plot, and a text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.calculator import calculate
from occupancy_lab.errors import InputError
from occupancy_lab.gpus import find_gpu
from occupancy_lab.sweeping import views
from occupancy_lab.sweeping.grid import sweep
from occupancy_lab.sweeping.progress import shown_progress
from occupancy_lab.values import Resources

if TYPE_CHECKING:
    import pandas as pd

    from occupancy_lab.calculator import Calculation


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
) -> tuple[str, bool]:
    """Sweep the *grid* and give the text to print, and whether any configuration is ok.

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
    with shown_progress(quiet=quiet) as progress:
        table = sweep(dtype=dtype.split(","), progress=progress, **grid)
    chosen = views.choose(table, where=where, sort=sort, top=top)
    for path, form_of in exports:
        views.export(path, form_of(chosen))
    if plot is not None:
        _plot(chosen, Path(plot))
    text = forms[form](chosen) if form else views.to_screen(chosen)
    return text, bool((table["status"] == "ok").any())


def _plot(table: pd.DataFrame, directory: Path) -> None:
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
                figures[f"curves-{gpu}"] = draw_curves(calculate_row(fine.iloc[0]))
            for name, figure in figures.items():
                for suffix in ("svg", "png"):
                    save(figure, directory / f"{name}.{suffix}")
    except OSError as error:
        msg = f"{directory} cannot be written: {error.strerror}"
        raise InputError(msg) from error


def calculate_row(row: pd.Series[Any]) -> Calculation:
    """Give the calculation of a row's resources on its GPU."""
    fields = [field.name for field in dataclasses.fields(Resources) if field.name in row]
    known = {name: int(row[name]) for name in row[fields].dropna().index}
    return calculate(Resources(**known), find_gpu(str(row["gpu"])))
