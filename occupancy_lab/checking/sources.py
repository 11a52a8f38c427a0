"""Where rows come from: files, caches of Triton, functions that are compiled now, tables."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.checking.rows import Row, make_rows, read_rows

if TYPE_CHECKING:
    from occupancy_lab.inputs import AskedGpus


def load(source: Any, *, gpu: AskedGpus | None = None, **launch: Any) -> tuple[list[Row], Any]:
    """Return the rows of a source that `check` takes, and the Explanation of a function."""
    if isinstance(source, str | os.PathLike):
        name = os.fspath(source)
        if ".py:" in name or name.endswith(".py"):
            from occupancy_lab.explaining.dry_run import explain_launch

            source = explain_launch(name, gpu=gpu, **launch)
            return _of_runs(source), source
        if Path(name).is_dir():
            return scanned(name, gpu=gpu), None
        return read_rows(name), None
    if hasattr(source, "runs"):
        return _of_runs(source), source
    if hasattr(source, "columns"):
        from occupancy_lab.files import plain_rows

        return make_rows(plain_rows(source), "the table"), None
    found = source if isinstance(source, list | tuple) else source.rows()
    rows = [one for one in found if isinstance(one, Row)]
    return rows or make_rows(found, "the rows"), None


def scanned(*folders: str, gpu: AskedGpus | None = None) -> list[Row]:
    """Return the kernels of Triton caches, by default those of Triton and torch.compile."""
    from occupancy_lab.scanning.scan import scan

    return make_rows(scan(*folders, gpu=gpu).rows(), ", ".join(folders) or "the caches")


def _of_runs(found: Any) -> list[Row]:
    source = _source(found.asked[0].function) if found.asked else None
    rows = make_rows([{"source": source, **run.to_dict()} for run in found.runs], "the launch")
    return [
        dataclasses.replace(row, record=run if hasattr(run, "calculation") else None)
        for row, run in zip(rows, found.runs, strict=True)
    ]


def _source(function: Any) -> str | None:
    """Return the file and the line of a kernel's def; None where Python does not know them."""
    import inspect

    try:
        lines, first = inspect.getsourcelines(function.fn)
        above = next(place for place, line in enumerate(lines) if line.lstrip().startswith("def "))
        return f"{inspect.getsourcefile(function.fn)}:{first + above}"
    except (OSError, TypeError, AttributeError, StopIteration):
        return None
