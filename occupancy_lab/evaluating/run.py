"""A whole run of `occupancy-lab evaluate`: read, choose, evaluate, and what limits are broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.compiling import store_directory
from occupancy_lab.compiling.process import check_files
from occupancy_lab.errors import InputError
from occupancy_lab.evaluating.evaluation import evaluate
from occupancy_lab.evaluating.metrics import broken_limits
from occupancy_lab.gpus import find_gpus
from occupancy_lab.kernel import load_kernel
from occupancy_lab.sweeping.recorded import CHECK, read_table, recorded_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from occupancy_lab.evaluating.evaluation import Evaluation

USES = ("tuning", "held out", CHECK)
"""What the recorded grids are for; the rest is the tutorial's benchmark."""


def run(  # noqa: PLR0913 - one argument an option of the command line
    *,
    file: str | None = None,
    gpus: Sequence[str] = (),
    uses: Sequence[str] = (),
    kernels: Sequence[str] = (),
    top: int = 10,
    max_median: float | None = None,
    max_p90: float | None = None,
    max_mean_loss: float | None = None,
    max_worst_loss: float | None = None,
    min_rank: float | None = None,
) -> tuple[Evaluation, tuple[str, ...]]:
    """Return the evaluation of what was recorded, or of *file*, and a sentence a broken limit.

    *gpus* and *uses* choose rows; none takes all GPUs, and what is tuning or held out where the
    table says so, or check. *kernels* are the files of kernels that are not the lab's own.

    Raises InputError for what cannot be read, chosen or predicted.
    """
    limits = {
        "median": max_median,
        "p90": max_p90,
        "mean_loss": max_mean_loss,
        "worst_loss": max_worst_loss,
        "rank": min_rank,
    }
    check_files(kernels, store_directory())
    own = {kernel.name: kernel for kernel in map(load_kernel, kernels)}
    table = recorded_table() if file is None else read_table(file, kernels=own)
    evaluation = evaluate(choose(table, gpus, uses), kernels=own, top=top)
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return evaluation, tuple(broken_limits(evaluation, given))


def choose(table: pd.DataFrame, gpus: Sequence[str], uses: Sequence[str]) -> pd.DataFrame:
    """Return the rows of *table* on *gpus* and for *uses*; `run` says what none is.

    Raises InputError where there are none.
    """
    keys = [gpu.key for gpu in find_gpus(",".join(gpus))] if gpus else table["gpu"].unique()
    chosen = table[table["gpu"].isin(keys)]
    if "use" in table:
        chosen = chosen[chosen["use"].isin(uses or USES)]
    elif uses:
        msg = f"the table has no column use, which could be {' or '.join(uses)}"
        raise InputError(msg)
    if chosen.empty:
        there = table[[name for name in ("gpu", "use") if name in table]].drop_duplicates()
        rows = "; ".join(", ".join(map(str, row)) for row in there.itertuples(index=False))
        msg = f"no launch was measured on these GPUs for this use; there are: {rows or 'none'}"
        raise InputError(msg)
    return chosen
