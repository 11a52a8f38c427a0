"""A whole run of `occupancy-lab sweep`: sweep with progress, choose, export, plot, and a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.sweeping import views
from occupancy_lab.sweeping.progress import shown_progress
from occupancy_lab.sweeping.sweep import sweep

if TYPE_CHECKING:
    import pandas as pd


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
    with shown_progress(quiet=quiet) as progress:
        table = sweep(dtype=dtype.split(","), progress=progress, **grid)
    chosen = views.choose(table, where=where, sort=sort, top=top)
    forms = {"csv": views.to_csv, "json": views.to_json}
    exports = (
        (export_csv, views.to_csv),
        (export_json, views.to_json),
        (export_markdown, views.to_markdown),
    )
    for path, form_of in exports:
        if path is not None:
            views.export(Path(path), form_of(chosen))
    if plot is not None:
        _plot(chosen, Path(plot))
    text = forms[form](chosen) if form else views.to_screen(chosen)
    return text, bool((table["status"] == "ok").any())


def _plot(table: pd.DataFrame, directory: Path) -> None:
    """Draw the heat map of *table*, and the curves of the first configuration that is ok."""
    raise NotImplementedError
