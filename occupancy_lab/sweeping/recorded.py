"""Tables of measured launches: those that come with the lab, and those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy_lab.errors import InputError
from occupancy_lab.measuring.recorded import recorded_files

if TYPE_CHECKING:
    import pandas as pd

NEEDED = (
    *("gpu", "kernel", "rows", "cols", "dtype", "BLOCK_SIZE", "num_warps", "num_stages"),
    *("n_spills", "programs_per_multiprocessor", "occupancy", "num_programs"),
    *("launched", "measured", "us"),
)
"""The columns that say of a launch what it was and how long it took."""
CHECK = "check"
"""The `use` of launches that a prediction is only held against: of a GPU whose tutorial benchmark
was not measured."""


def recorded_table() -> pd.DataFrame:
    """Return every launch that comes with the lab, with the columns of a measured sweep and `use`.

    Raises InputError where none was recorded.
    """
    import pandas as pd

    tables = [_read(entry, entry.name) for entry in recorded_files()]
    if not tables:
        msg = "no measured launches come with this installation; give a file of your own"
        raise InputError(msg)
    return pd.concat(tables, ignore_index=True)


def read_table(path: str | Path) -> pd.DataFrame:
    """Return the launches of a CSV file that `sweep --measure --export-csv` wrote.

    Raises InputError where it cannot be read or lacks a column.
    """
    return _read(Path(path), str(path))


def _read(file: Any, name: str) -> pd.DataFrame:
    import pandas as pd

    try:
        with file.open(encoding="utf-8") as lines:
            table = pd.read_csv(lines)
    except (OSError, ValueError) as error:
        msg = f"{name} cannot be read as a table: {error}"
        raise InputError(msg) from error
    missing = [column for column in NEEDED if column not in table]
    if missing:
        msg = (
            f"{name} has no column {', '.join(missing)}; "
            "occupancy-lab sweep --measure --export-csv writes what is needed"
        )
        raise InputError(msg)
    return table
