"""The commands that a page names: each shows what it advises."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING

from occupancy_lab.inputs import DEFAULT_ROWS
from occupancy_lab.kernel import load_kernel

if TYPE_CHECKING:
    from occupancy_lab.explaining.case import Case


def _command(command: str, case: Case, **options: object) -> str:
    problem = case.problem
    options = {
        "cols": options.pop("cols", problem.cols),
        "rows": None if problem.rows == DEFAULT_ROWS else problem.rows,
        "dtype": None if problem.dtype == "float32" else problem.dtype,
        "gpu": case.record.gpu.key,
        "triton": case.triton,
        **options,
    }
    if case.kernel_name is None:
        given = (f"{name}={value!r}" for name, value in options.items() if value is not None)
        return f"`occupancy_lab.{command}(kernel=KERNEL, {', '.join(given)})`"
    words = " ".join(
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, value in options.items()
        if value is not None
    )
    return f"`occupancy-lab {command} {words}`"


def explain_command(case: Case, *, kernel: str | None = None, **changes: int) -> str:
    """Return the explain command of *case* with another *kernel*, cols or knobs of the launch."""
    name = kernel or case.kernel_name
    found = case.kernel if name == case.kernel_name else load_kernel(str(name))
    problem = dataclasses.replace(case.problem, cols=changes.pop("cols", case.problem.cols))
    usual = dataclasses.asdict(found.default_config(problem, case.architecture.max_shared))
    knobs = dataclasses.asdict(dataclasses.replace(case.config, **changes))
    return _command(
        "explain",
        case,
        cols=problem.cols,
        kernel=None if name in {"softmax", None} else name,
        **{knob: value for knob, value in knobs.items() if value != usual[knob]},
    )


def tune_command(case: Case) -> str:
    """Return the command that ranks every configuration for the problem and the GPU of *case*."""
    return _command("tune", case, kernel=None if case.alike else case.kernel_name)
