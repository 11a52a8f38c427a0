"""The table of a sweep: its rows, of tasks and what they compiled to, and what columns may hold."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import triton_version
from occupancy_lab.errors import DoesNotFitError
from occupancy_lab.expressions import Kind
from occupancy_lab.files import read_cell
from occupancy_lab.occupancy.planning import plan_launch
from occupancy_lab.occupancy.points import OPTIONAL, REQUIRED, evaluate_points
from occupancy_lab.record import name_columns, record_of
from occupancy_lab.sweeping.measured import (
    MEASURED_COLUMNS,
    MEASURED_FLAGS,
    MEASURED_FLOATS,
    MEASURED_INTEGERS,
)
from occupancy_lab.throughput.predict import add_predictions
from occupancy_lab.values import COUNTERS, ITEM_BYTES, Failure, Resources, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from occupancy_lab.sweeping.grid import Task

COLUMNS: Mapping[str, str] = {
    "gpu": "the GPU, by the name to ask for it",
    "target": "what the kernel was compiled for",
    "kernel": "the kernel's name",
    "rows": "rows of the matrix",
    "cols": "columns of the matrix",
    "dtype": "the matrix's dtype",
    "BLOCK_SIZE": "elements that a program holds at once",
    "num_warps": "warps (waves) per program",
    "num_stages": "stages of the loop",
    "status": "ok, does not fit, compile failed, timed out, skipped, interrupted",
    "reason": "why the status is not ok",
    "n_regs": "registers per thread (VGPRs per lane)",
    "n_spills": "4-byte words of local memory per thread, spilled or not",
    "shared": "dynamic shared memory (LDS) per program, bytes",
    "pipeline_shared": "the part of it that holds rows in flight, bytes",
    "static_shared": "shared memory in the binary, bytes",
    "barriers": "named barriers per program (NVIDIA)",
    "tensor_memory": "columns of tensor memory per program (NVIDIA)",
    "num_ctas": "CTAs per program; several are a cluster (NVIDIA)",
    "sgprs": "scalar registers per wave (AMD)",
    "allocated_vgprs": "VGPRs that the kernel descriptor asks for (AMD)",
    "load_bytes": "the widest global load of a thread, bytes",
    "store_bytes": "the widest global store of a thread, bytes",
    "local_bytes": "local memory (scratch) per thread, bytes",
    **COUNTERS,
    "programs_per_multiprocessor": "programs that one SM, CU or WGP holds at once",
    "limiter": "the resources that allow no more, joined by +",
    "occupancy": "resident warps over the most there can be, 0 to 1",
    "num_programs": "programs launched",
    "waves": "programs launched over programs that the GPU holds at once",
    "tutorial_programs": "programs_per_multiprocessor by the tutorial's formula",
    "tutorial_num_programs": "num_programs by the tutorial's formula",
    "predicted_us": "predicted time of a launch, us",
    "predicted_gbs": "bandwidth that the traffic comes to in that time, GB/s",
    "bound": "what would take longest alone: launch, latency, issue, bandwidth, tail",
    "basis": "where the prediction's constants are from",
    "triton_version": "the Triton that compiled it",
}
"""The columns of a sweep, and what each holds; what is not known is missing, never 0."""

_AMOUNTS = {field.name for field in dataclasses.fields(Resources)} | {"n_spills"}
RESOURCES = tuple(name for name in COLUMNS if name in _AMOUNTS - {"num_warps"})
"""The columns that are what a program takes: fields of Resources, or worked out from one."""
INTEGERS = (
    *RESOURCES,
    "programs_per_multiprocessor",
    "num_programs",
    "tutorial_programs",
    "tutorial_num_programs",
)
FLOATS = ("occupancy", "waves", "predicted_us", "predicted_gbs")


def make_table(
    outcomes: Sequence[tuple[Task, Resources | Failure]], triton: str | None = None
) -> pd.DataFrame:
    """Return the table of a sweep, a row per task, in their order, with the columns of COLUMNS.

    *triton* is the version that compiled them; None is the one here.
    """
    import pandas as pd

    version = triton or triton_version()
    rows = [_compiled(task, outcome, version) for task, outcome in outcomes]
    _add_occupancies(rows, outcomes)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table = table.astype(dict.fromkeys(("bound", "basis"), object))
    kernels = {task.kernel.name: task.kernel for task, _ in outcomes}
    add_predictions(table, kernels, {task.gpu.key: task.gpu for task, _ in outcomes})
    types = dict.fromkeys(INTEGERS, "Int64") | dict.fromkeys(FLOATS, "Float64")
    return table.astype(types)


def _compiled(task: Task, outcome: Resources | Failure, triton: str) -> dict[str, Any]:
    row = name_columns(task.gpu, task.kernel, task.problem, task.config)
    row["triton_version"] = triton
    if isinstance(outcome, Failure):
        return row | {"status": outcome.status.value, "reason": outcome.reason}
    return row | {"status": Status.OK.value} | {name: getattr(outcome, name) for name in RESOURCES}


def _add_occupancies(
    rows: list[dict[str, Any]], outcomes: Sequence[tuple[Task, Resources | Failure]]
) -> None:
    """Add to the rows that compiled what the formulas say of them."""
    import pandas as pd

    compiled = [
        (row, task, outcome)
        for row, (task, outcome) in zip(rows, outcomes, strict=True)
        if isinstance(outcome, Resources)
    ]
    points = pd.DataFrame(
        [_point(task, resources) for _, task, resources in compiled],
        columns=["target", *_POINT_FIELDS],
    )
    architectures = {task.gpu.key: task.gpu.architecture for _, task, _ in compiled}
    evaluated = evaluate_points(points, architectures).to_dict("records")
    for (row, task, resources), point in zip(compiled, evaluated, strict=True):
        if point["programs_per_multiprocessor"] == 0:
            row.update(status=Status.DOES_NOT_FIT.value, reason=_why_not(task, resources))
            continue
        plans = _plans(task, point)
        if plans["num_programs"] == 0:
            row.update(status=Status.DOES_NOT_FIT.value, reason=_why_not(task, resources))
            continue
        names = ("programs_per_multiprocessor", "limiter", "occupancy", "tutorial_programs")
        row.update({name: point[name] for name in names}, **plans)


_POINT_FIELDS = tuple(name for name in (*REQUIRED, *OPTIONAL) if name in _AMOUNTS - {"num_ctas"})


def _point(task: Task, resources: Resources) -> tuple[str | int, ...]:
    amounts = (getattr(resources, name) for name in _POINT_FIELDS)
    return (task.gpu.key, *(0 if amount is None else amount for amount in amounts))


def _plans(task: Task, point: Mapping[Any, Any]) -> dict[str, Any]:
    import pandas as pd

    def plan(programs: Any) -> Any:
        known = None if pd.isna(programs) else int(programs)
        return plan_launch(task.kernel, task.problem, task.config, known, task.gpu.multiprocessors)

    exact = plan(point["programs_per_multiprocessor"])
    return {
        "num_programs": exact.num_programs,
        "waves": exact.waves,
        "tutorial_num_programs": plan(point["tutorial_programs"]).num_programs,
    }


def _why_not(task: Task, resources: Resources) -> str:
    try:
        record_of(task.kernel, task.problem, task.config, task.gpu, resources, triton="")
    except DoesNotFitError as error:
        return str(error)
    msg = "the table and the scalar formula disagree"
    raise AssertionError(msg)


MOST = 2.0**53
"""The greatest number of a file: every whole number up to it is a float too."""
_FLAGS = {"True": True, "False": False}


@dataclass(frozen=True, slots=True)
class Column:
    """What the cells of a column hold, text where nothing else is given."""

    kind: Kind = Kind.TEXT
    words: str = "text"
    """What a cell is, in words."""
    least: float = 0.0
    most: float = MOST
    whole: bool = False
    texts: tuple[str, ...] = ()
    """The only texts; none for any."""

    def read(self, cell: str) -> float | str | None:
        """Return the value of a *cell* of a file, None for an empty cell.

        Raises ValueError where the column cannot hold it.
        """
        if not cell:
            return None
        if self.kind is Kind.NUMBER:
            number = float(cell)
            if self.least <= number <= self.most and not (self.whole and number % 1):
                return int(number) if self.whole else number
        elif self.kind is Kind.CONDITION:
            if cell in _FLAGS:
                return _FLAGS[cell]
        elif cell in self.texts or not self.texts:
            return str(read_cell(cell))
        raise ValueError(cell)


_TEXT = Column()
_FLAG = Column(Kind.CONDITION, "True or False")
_COUNT = Column(Kind.NUMBER, "a whole number, 0 or more", whole=True)
_AT_LEAST_ONE = Column(Kind.NUMBER, "a whole number, 1 or more", least=1.0, whole=True)
_AMOUNT = Column(Kind.NUMBER, "a number, 0 or more")
_ERROR = Column(Kind.NUMBER, "a number, 0 or more", most=math.inf)
_TIME = Column(Kind.NUMBER, "a number above 0", least=math.ulp(0.0))
_SHARE = Column(Kind.NUMBER, "a number from 0 to 1", most=1.0)
_DTYPE = Column(words=f"one of {', '.join(ITEM_BYTES)}", texts=tuple(ITEM_BYTES))

SCHEMA: Mapping[str, Column] = {
    **dict.fromkeys((*COLUMNS, *MEASURED_COLUMNS, "use"), _TEXT),
    **dict.fromkeys((*INTEGERS, *MEASURED_INTEGERS), _COUNT),
    **dict.fromkeys((*FLOATS, *MEASURED_FLOATS), _AMOUNT),
    **dict.fromkeys(MEASURED_FLAGS, _FLAG),
    **dict.fromkeys(("rows", "cols", "BLOCK_SIZE", "num_warps", "num_stages"), _AT_LEAST_ONE),
    **dict.fromkeys(("launched", "runs"), _AT_LEAST_ONE),
    **dict.fromkeys(("us", "us_low", "us_high", "predicted_us"), _TIME),
    "relative_error": _ERROR,
    "occupancy": _SHARE,
    "dtype": _DTYPE,
}
"""Every column of a sweep, of its measurements and of what was recorded."""
