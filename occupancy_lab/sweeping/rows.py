"""The table of a sweep: its rows, of tasks and what they compiled to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from occupancy_lab.compiling import triton_version
from occupancy_lab.errors import DoesNotFitError
from occupancy_lab.occupancy.planning import plan_launch
from occupancy_lab.occupancy.points import OPTIONAL, REQUIRED, evaluate_points
from occupancy_lab.record import name_columns, record_of
from occupancy_lab.table.columns import RESOURCES, SWEEP_COLUMNS, pandas_types
from occupancy_lab.throughput.predict import add_predictions
from occupancy_lab.values import Failure, Resources, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from occupancy_lab.sweeping.grid import Task

_AMOUNTS = {field.name for field in dataclasses.fields(Resources)}


def make_table(
    outcomes: Sequence[tuple[Task, Resources | Failure]], triton: str | None = None
) -> pd.DataFrame:
    """Return the table of a sweep, a row per task, in their order.

    *triton* is the version that compiled them; None is the one here.
    """
    import pandas as pd

    version = triton or triton_version()
    rows = [_compiled(task, outcome, version) for task, outcome in outcomes]
    _add_occupancies(rows, outcomes)
    table = pd.DataFrame(rows, columns=list(SWEEP_COLUMNS))
    table = table.astype(dict.fromkeys(("bound", "basis"), object))
    kernels = {task.kernel.name: task.kernel for task, _ in outcomes}
    add_predictions(table, kernels, {task.gpu.key: task.gpu for task, _ in outcomes})
    following = SWEEP_COLUMNS[SWEEP_COLUMNS.index("reason") + 1 :]
    return table.astype(pandas_types(following))


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
