"""The table of a sweep: a row for what became of each launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from occupancy_lab.table.columns import SWEEP_COLUMNS, pandas_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from occupancy_lab.record import Failed, Record


def make_table(runs: Sequence[Record | Failed]) -> pd.DataFrame:
    """Return the table of a sweep, a row for each of *runs*, in their order.

    Compiler options that were asked for have columns of their own.
    """
    import pandas as pd

    rows = [run.row() for run in runs]
    asked = dict.fromkeys(name for run in runs if run.matrix for name in run.matrix.options)
    place = SWEEP_COLUMNS.index("status")
    columns = [*SWEEP_COLUMNS[:place], *asked, *SWEEP_COLUMNS[place:]]
    table = pd.DataFrame(rows, columns=list(dict.fromkeys(columns)))
    texts = ("bound", "basis")
    following = SWEEP_COLUMNS[SWEEP_COLUMNS.index("reason") + 1 :]
    return table.astype(dict.fromkeys(texts, object)).astype(pandas_types(following))
