"""The benchmark's configurations compiled afresh, for a GPU whose target nobody has recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.explaining.case import ROW_KERNELS
from occupancy_lab.inputs import TUTORIAL_KERNEL
from occupancy_lab.kernel import load_kernel
from occupancy_lab.sweeping.grid import NUM_STAGES, NUM_WARPS, run_tasks
from occupancy_lab.sweeping.measured import MEASURED_COLUMNS
from occupancy_lab.sweeping.task import Task, expand
from occupancy_lab.values import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pandas as pd

    from occupancy_lab.gpus import Gpu

USE, EXAMPLE = "benchmark", "example"
"""The uses of rows of the tutorial's benchmark, and of PROBLEM alone."""
PROBLEM = Problem(4096, 781)
"""The tutorial's own problem."""
WIDTHS = tuple(Problem(4096, cols) for cols in range(256, 12673, 128))
"""The benchmark of Triton's fused softmax tutorial."""
ROW_KERNEL = ROW_KERNELS[TUTORIAL_KERNEL]
"""The same with one program a row."""
KERNELS = {TUTORIAL_KERNEL: NUM_STAGES, ROW_KERNEL: (1,)}
"""What is compiled, and its num_stages."""
COMPILE_TIMEOUT = 25.0
"""Seconds; what takes longer spills so much that it is never the fastest."""


def fresh_table(
    gpu: Gpu,
    *,
    problems: tuple[Problem, ...] = (PROBLEM, *WIDTHS),
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> pd.DataFrame:
    """Return every configuration of both softmaxes on *problems* as *gpu* would launch them.

    It has the columns of a measured table, of which nothing was measured. *progress* is called
    with the compiles that are done and those to do.
    """
    import pandas as pd

    tasks = tasks_of(problems, gpu)
    table = run_tasks(tasks, compile_timeout=COMPILE_TIMEOUT, progress=progress)
    table[list(MEASURED_COLUMNS)] = pd.NA
    uses = [EXAMPLE if task.problem == PROBLEM else USE for task in tasks]
    return table.assign(launched=table["num_programs"], use=uses)


def tasks_of(problems: Iterable[Problem], gpu: Gpu) -> list[Task]:
    """Return every configuration of both softmaxes on *problems*."""
    return [
        task
        for problem in problems
        for name, num_stages in KERNELS.items()
        for task in expand(
            name,
            load_kernel(name),
            problems=[problem],
            gpus=[gpu],
            block_sizes=(),
            num_warps=NUM_WARPS,
            num_stages=num_stages,
        )
    ]
