"""The measured columns of a sweep's table: every row that is ok is launched and timed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from occupancy_lab.measuring.journal import measure_launches
from occupancy_lab.measuring.process import DEFAULT_RUNS, TimedLaunch
from occupancy_lab.record import matrix_of
from occupancy_lab.table.columns import MEASURED_COLUMNS, pandas_types
from occupancy_lab.workers.signals import UnfinishedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from occupancy_lab.asked import Asked
    from occupancy_lab.gpus import Gpu
    from occupancy_lab.measuring.journal import Journal
    from occupancy_lab.values import Measurement


def measure_table(  # noqa: PLR0913 - what is measured, and how
    table: pd.DataFrame,
    tasks: Sequence[Asked],
    *,
    gpu: Gpu | None = None,
    runs: int = DEFAULT_RUNS,
    devices: Sequence[str | None] = (None,),
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    journal: Journal | None = None,
) -> pd.DataFrame:
    """Return *table*, which has a row per task, with the columns of MEASURED_COLUMNS added.

    Rows that are not ok are not launched and have none of them; nor are rows for other GPUs than
    *gpu*, the one that is here, where it is given.

    Raises UnfinishedError, with the table of what is finished, on Ctrl-C.
    """
    known = table["status"].eq("ok") & table["num_programs"].notna()
    fine = [
        place
        for place, (task, can) in enumerate(zip(tasks, known, strict=True))
        if can and (gpu is None or task.gpu.key == gpu.key)
    ]
    counts = [int(table["num_programs"].iloc[place]) for place in fine]
    launches = [
        (matrix_of(task).problem, TimedLaunch(str(task.name), matrix_of(task).config, count))
        for task, count in zip([tasks[place] for place in fine], counts, strict=True)
    ]

    def columns(measured: Mapping[int, Measurement]) -> pd.DataFrame:
        found = {fine[place]: (counts[place], one) for place, one in measured.items()}
        return add_columns(table, found)

    try:
        measured = measure_launches(
            launches, runs=runs, devices=devices, progress=progress, journal=journal
        )
    except UnfinishedError as interrupt:
        raise UnfinishedError(columns(interrupt.finished)) from interrupt
    return columns(dict(enumerate(measured)))


def add_columns(table: pd.DataFrame, found: Mapping[int, tuple[int, Measurement]]) -> pd.DataFrame:
    """Return *table* with the measured columns of the rows in *found*, by their place."""
    import pandas as pd

    rows = [measured_row(*found[place]) if place in found else {} for place in range(len(table))]
    columns = pd.DataFrame(rows, columns=list(MEASURED_COLUMNS), index=table.index)
    table = pd.concat([table, columns.astype(pandas_types(MEASURED_COLUMNS))], axis=1)
    above = (table["us"] - table["speed_of_light_us"]).clip(lower=0.0)
    return table.assign(
        lost_us=above.fillna(table["lost_us"]),
        lost_of=table["lost_of"].mask(above.notna(), "measured"),
    )


def measured_row(launched: int, measurement: Measurement) -> dict[str, Any]:
    """Return the measured columns of one row."""
    found = dataclasses.asdict(measurement)
    status, conditions = found.pop("status"), found.pop("conditions") or {}
    named = {"launched": launched, "measured": status, "why_not": found.pop("reason")}
    return {**named, **found, **conditions}
