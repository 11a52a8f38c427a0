"""A whole run of `occupancy-lab calibrate`: time, fit, keep, and put into words."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import itertools
import textwrap
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occupancy_lab.calibrating.calibrate import calibration_of, fit_errors, time_calibration
from occupancy_lab.errors import InputError
from occupancy_lab.measuring.devices import chosen_devices
from occupancy_lab.text.document import Document, Section, Table, literal
from occupancy_lab.text.words import percent
from occupancy_lab.throughput.calibrations import calibration_path, keep_calibration
from occupancy_lab.throughput.constants import Calibration, Constants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pandas as pd

    from occupancy_lab.evaluating.score import Errors
    from occupancy_lab.measuring.journal import Journal

UNITS = {"us": "us", "gbs": "GB/s", "cycles": "cycles"}
"""The unit of a constant, by the last word of its name; a number without one has no unit."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A calibration that was made and kept."""

    calibration: Calibration
    path: Path
    seconds: float
    errors: Errors
    """How far the model is off the launches that it was fitted to."""
    table: pd.DataFrame = field(compare=False, repr=False)
    """Those launches, a row each."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the launches as plain values, for JSON."""
        return {
            **dataclasses.asdict(self.calibration),
            "path": str(self.path),
            "seconds": self.seconds,
            "errors": dataclasses.asdict(self.errors),
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
    with _written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    table = time_calibration(gpu, progress=progress, journal=journal)
    calibration = calibration_of(table, gpu)
    with _written(path):
        keep_calibration(calibration)
    errors = fit_errors(table, gpu, calibration.constants)
    return Calibrated(calibration, path, time.monotonic() - start, errors, table)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    """Raise InputError where the block cannot write to *path*."""
    try:
        yield
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}"
        raise InputError(msg) from error


def calibration_document(made: Calibrated) -> Document:
    """Return the constants with their units and meanings, and how well they fit."""
    calibration, errors = made.calibration, made.errors
    meanings = _meanings()
    rows = tuple(
        (name, f"{value:.4g}", UNITS.get(name.rsplit("_", 1)[-1], ""), meanings[name])
        for name, value in dataclasses.asdict(calibration.constants).items()
    )
    kept = (
        f"It took {made.seconds:.0f} s and is kept in {literal(str(made.path))}; predictions for"
        f" {calibration.gpu} use it from now on."
    )
    fits = (
        f"Half of the {errors.launches} launches that it was fitted to are predicted within"
        f" {percent(errors.median)} of their measured times, nine in ten within"
        f" {percent(errors.p90)}."
    )
    return Document(
        f"Calibration of {calibration.device}, {calibration.date}",
        (kept, fits),
        (Section("Constants", (Table(("", "value", "unit", ""), rows, prose=True),)),),
    )


def _meanings() -> Mapping[str, str]:
    """Return the sentence below each field of Constants, which no running program keeps."""
    (holder,) = ast.parse(textwrap.dedent(inspect.getsource(Constants))).body
    body = getattr(holder, "body", [])
    return {
        ast.unparse(one.target): " ".join(str(ast.literal_eval(below.value)).split())
        for one, below in itertools.pairwise(body)
        if isinstance(one, ast.AnnAssign) and isinstance(below, ast.Expr)
    }
