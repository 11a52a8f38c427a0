"""Records how long launches of one program per wide row take.

`python reports/record_wide_rows.py --output data/wide-rows-h200.csv` draws 60 launches of kernels
that load a row, reduce it and store it, some without the reduction, with one or two programs per
multiprocessor. It measures each on the NVIDIA GPU at hand with an empty L2 cache. `--predict h200`
predicts the launches in that GPU's file again, without a GPU, and renews the columns that begin
with predicted; that needs the Triton that launched them, 3.6.
"""

from __future__ import annotations

import random
import statistics
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl
from record_atomics import PREDICTED, Recorder

from occupancy_lab.arguments import Pointer
from occupancy_lab.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Row = Mapping[str, Any]

COLUMNS = ("kernel", "dtype", "rows", "cols", "num_warps", *PREDICTED, "us")
SIZES = {"float16": 2, "float32": 4}
RUNS = 20


@triton.jit
def double(x, y, cols, BLOCK: tl.constexpr):
    """Double a row, without a barrier."""
    at = tl.arange(0, BLOCK)
    first = tl.program_id(0).to(tl.int64) * cols
    values = tl.load(x + first + at, mask=at < cols)
    tl.store(y + first + at, values * 2, mask=at < cols)


@triton.jit
def center(x, y, cols, BLOCK: tl.constexpr):
    """Subtract its mean from a row."""
    at = tl.arange(0, BLOCK)
    first = tl.program_id(0).to(tl.int64) * cols
    values = tl.load(x + first + at, mask=at < cols, other=0).to(tl.float32)
    values -= tl.sum(values) / cols
    tl.store(y + first + at, values.to(y.dtype.element_ty), mask=at < cols)


@triton.jit
def normalize(x, y, cols, BLOCK: tl.constexpr):
    """Divide a row by the root of its mean square."""
    at = tl.arange(0, BLOCK)
    first = tl.program_id(0).to(tl.int64) * cols
    values = tl.load(x + first + at, mask=at < cols, other=0).to(tl.float32)
    values *= tl.rsqrt(tl.sum(values * values) / cols + 1e-6)
    tl.store(y + first + at, values.to(y.dtype.element_ty), mask=at < cols)


@triton.jit
def log_softmax(x, y, cols, BLOCK: tl.constexpr):
    """Store the logarithm of a row's softmax."""
    at = tl.arange(0, BLOCK)
    first = tl.program_id(0).to(tl.int64) * cols
    values = tl.load(x + first + at, mask=at < cols, other=float("-inf")).to(tl.float32)
    values -= tl.max(values)
    values -= tl.log(tl.sum(tl.exp(values)))
    tl.store(y + first + at, values.to(y.dtype.element_ty), mask=at < cols)


MAPS = {one.__name__: one for one in (double, center, normalize, log_softmax)}


def launches() -> Iterator[dict[str, Any]]:
    """Yield the launches as rows without times; the same ones each time."""
    draw = random.Random(31)  # noqa: S311
    for _ in range(15):
        for kernel in MAPS:
            dtype = draw.choice(tuple(SIZES))
            cols = draw.randrange(10_000, 32_768) // 16 * 16
            rows = draw.choice((132, 264, 396, draw.randrange(140, 500), draw.randrange(500, 3000)))
            warps = draw.choice((8, 16, 32))
            yield {
                "kernel": kernel,
                "dtype": dtype,
                "rows": rows,
                "cols": cols,
                "num_warps": warps,
            }


def block(row: Row) -> dict[str, int]:
    """Return the constexpr and the option of a launch."""
    return {
        "BLOCK": triton.next_power_of_2(int(row["cols"])),
        "num_warps": int(row["num_warps"]),
    }


def measure(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return *rows* with the times on the GPU at hand."""
    import torch

    from occupancy_lab.measuring.measure import Timer

    timer, found = Timer(), []
    for row in rows:
        shape = int(row["rows"]), int(row["cols"])
        x = torch.randn(shape, device="cuda").to(getattr(torch, row["dtype"]))
        y, kernel, how = torch.empty_like(x), MAPS[row["kernel"]], block(row)
        (times,) = timer.time([lambda: kernel[shape[:1]](x, y, shape[1], **how)], runs=RUNS)  # noqa: B023 - called at once
        found.append({**row, "us": round(statistics.median(times), 3)})
    return found


def launch_of(row: Row) -> tuple[str, Launch]:
    """Return the kernel and the launch of *row*."""
    count, cols = int(row["rows"]), int(row["cols"])
    matrix = Pointer(row["dtype"], SIZES[row["dtype"]] * count * cols)
    return row["kernel"], Launch((matrix, matrix, cols), block(row), (count,))


WIDE_ROWS = Recorder(__file__, "wide-rows", COLUMNS, launches, launch_of, measure)

if __name__ == "__main__":
    WIDE_ROWS.main(__doc__)
