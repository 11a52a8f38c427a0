"""Records the times of atomic additions of whole rows to one or several rows.

`python reports/record_rows.py --output data/rows-h200.csv` launches ADDITIONS on the NVIDIA GPU at
hand, with an empty L2 cache before each launch, and writes a row for each. `--predict h200`
predicts the launches in that GPU's file again, without a GPU, and renews its predicted times.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl
from record_atomics import (
    PREDICTED,
    SEMS,
    measure_or_predict,
    predicted_times,
    read_recorded,
    records_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from occupancy_lab.record import Failed, Record

KIND = "rows"
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


def measure(row: Mapping[str, Any]) -> float:
    """Return the time of a launch on the GPU at hand in us."""
    import torch

    kind = getattr(torch, row["dtype"])
    x, out = (torch.ones(ROOM, device="cuda", dtype=kind) for _ in range(2))

    def launch() -> None:
        add_rows[row["programs"],](x, out, row["width"], row["rows"], row["sem"])

    found: float = triton.testing.do_bench(launch, warmup=2, rep=8, quantiles=(0.5,))
    return 1e3 * found


def predict(rows: Sequence[Mapping[str, Any]], key: str) -> list[Record | Failed]:
    """Return the records of the launches of *rows* on a GPU, without launching them."""
    from occupancy_lab.arguments import Pointer
    from occupancy_lab.launch import Launch

    made = []
    for row in rows:
        tensor = Pointer(row["dtype"], 4 * ROOM)
        keywords = {name.upper(): int(row[name]) for name in ("width", "rows")}
        keywords["SEM"] = row["sem"]
        launch = Launch((tensor, tensor), keywords, (int(row["programs"]),))
        made.append((f"{__file__}:add_rows", launch))
    return records_of(made, key)


read = partial(read_recorded, KIND)


def main() -> None:
    """Measure or predict."""
    measure_or_predict(
        __doc__,
        KIND,
        COLUMNS,
        lambda: [row | {"us": measure(row)} for row in launches()],
        predict,
        predicted_times,
    )


if __name__ == "__main__":
    main()
