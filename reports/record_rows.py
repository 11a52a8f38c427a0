"""Records the times of atomic additions of whole rows to one or several rows.

`python reports/record_rows.py --output data/rows-h200.csv` launches the kernel on the NVIDIA GPU
at hand, with an empty L2 cache before each launch, and writes a row for each. `--predict h200`
predicts the launches in that GPU's file again, without a GPU, and renews its predicted times.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl
from record_atomics import PREDICTED, SEMS, Recorder

from occupancy_lab.arguments import Pointer
from occupancy_lab.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Row = Mapping[str, Any]

COLUMNS = ("programs", "width", "rows", "dtype", "sem", "us", *PREDICTED)
ROOM = 1 << 20
"""Elements of each tensor."""


@triton.jit
def add_rows(x, out, WIDTH: tl.constexpr, ROWS: tl.constexpr, SEM: tl.constexpr):
    """Add the first WIDTH elements of x to one of ROWS rows, in rotation."""
    at = tl.arange(0, WIDTH)
    row = tl.program_id(0) % ROWS
    tl.atomic_add(out + row * WIDTH + at, tl.load(x + at), sem=SEM)


def launches() -> Iterator[dict[str, Any]]:
    """Yield the launches as rows without times."""
    choices = (2048, 16384), (32, 128, 512, 2048), (1, 64), ("int32", "float32"), SEMS
    for programs, width, rows, dtype, sem in itertools.product(*choices):
        if programs > 2048 or width <= 128 or rows == 1:  # noqa: PLR2004 - the others are short
            found = {"programs": programs, "width": width, "rows": rows, "dtype": dtype}
            yield found | {"sem": sem}


def launch_of(row: Row) -> tuple[str, Launch]:
    """Return the kernel and the launch of *row*."""
    tensor = Pointer(row["dtype"], 4 * ROOM)
    keywords = {"WIDTH": int(row["width"]), "ROWS": int(row["rows"]), "SEM": row["sem"]}
    return add_rows.__name__, Launch((tensor, tensor), keywords, (int(row["programs"]),))


ROWS = Recorder(__file__, "rows", COLUMNS, launches, launch_of)

if __name__ == "__main__":
    ROWS.main(__doc__)
