"""What was compiled for a target, planned for another GPU of that target.

A compiled kernel is the same for every GPU of its target; how many programs are launched is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.kernel import load_kernel
from occupancy_lab.reporting.excess import NAME
from occupancy_lab.sweeping.grid import Task
from occupancy_lab.sweeping.measured import MEASURED_COLUMNS
from occupancy_lab.sweeping.rows import make_table
from occupancy_lab.throughput.predict import row_config, row_problem, row_resources
from occupancy_lab.values import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import pandas as pd

    from occupancy_lab.gpus import Gpu
    from occupancy_lab.values import Resources

    Row = Mapping[Any, Any]

FROM_ROW = ("triton_version", "use")
"""The columns that say of a compiled kernel what no GPU changes."""


def replanned(table: pd.DataFrame, gpu: Gpu) -> pd.DataFrame:
    """Return the configurations of *table*, each once for each use, as *gpu* would launch them.

    *table* is a measured one, of any GPU of the same target; nothing of what is given is measured.
    """
    import pandas as pd

    compiled = table.drop_duplicates(NAME).reset_index(drop=True)
    rows = compiled.to_dict("records")
    found = make_table([(_task(row, gpu), _outcome(row)) for row in rows])
    found = found.assign(**{name: compiled[name] for name in FROM_ROW})
    found[list(MEASURED_COLUMNS)] = pd.NA
    return found.assign(launched=found["num_programs"])


def _task(row: Row, gpu: Gpu) -> Task:
    name = str(row["kernel"])
    return Task(name, load_kernel(name), row_problem(row), row_config(row), gpu)


def _outcome(row: Row) -> Resources | Failure:
    """Return what was compiled, even where it fits no GPU of the target, or why nothing was."""
    import pandas as pd

    if pd.isna(row["n_regs"]):
        return Failure(str(row["status"]), str(row["reason"]))
    return row_resources(row)
